//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// openRecording gives the page a file, as the file picker does or, with drop, as a person who drops
// it.
func (v *view) openRecording(text string, drop bool) {
	v.t.Helper()
	how := `input.files = given.files, input.dispatchEvent(new Event("change"))`
	if !drop {
		v.until(`document.querySelector("#recording-file")`) // the view's module is loaded late
	} else {
		how =
			`document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: given, bubbles: true, cancelable: true}))`
	}
	eval[any](v.tab, `(() => {
		const given = new DataTransfer(), input = document.querySelector("#recording-file");
		given.items.add(new File([%s], "bug.jsonl"));
		const scroller = document.querySelector(".recording .timeline");
		if (scroller) scroller.dataset.entries = "";
		`+how+`;
		return 0;
	})()`, text)
	v.waitRecording()
}

// waitRecording waits until the page shows the file: its lines come into the document a moment
// later.
func (v *view) waitRecording() {
	v.t.Helper()
	v.until(`((list, shown) => list?.dataset.entries && shown.length >= Math.min(Number(list.dataset.entries), 10))(
		document.querySelector(".recording .timeline"), document.querySelectorAll(".wire"))`)
}

// recordSession records a session in which a tool is called, and returns the recording.
func recordSession(h *home) string {
	session := h.local("--label", "recorded")
	record := h.start(tapctl, "record", "--session", session)
	record.expect("recording session " + session)
	h.bindProvider(session, "greeter", "greet")
	h.ask(session, `call:greet {"name":"<img src=x onerror=alert(1)>"}`)
	h.tapctl("sessions", "stop", session)
	record.wait(patience)
	return record.stdout()
}

const recordingStart = `{"recording":1,"gateway":"2.1.0","ts":"2026-01-02T15:04:05Z",` +
	`"session":{"id":"s1","label":"review"},"connections":[]}` + "\n"

// recordedLine is a line of a message from a provider.
func recordedLine(message string) string {
	return `{"ts":"2026-01-02T15:04:06.5Z","conn":1,"provider":"ci","from":"provider","to":"gateway","message":` +
		message + "}\n"
}

// TestPageRecording opens recordings: with the keyboard, with hostile files, on a telephone.
func TestPageRecording(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText("nav", "Recordings")
	v.show("Recordings")
	v.waitText(".recording", "Open a file")
	v.checkAccessibility("recordings-empty")

	v.openRecording(recordingStart+
		recordedLine(`{"type":"push","event":"<b>built</b>","level":"keep"}`)+
		`{"ts":`+"\n"+recordedLine(`{"type":"tool.result","id":"c1","data":{"a":1}}`)+
		`{"ts":"2026-01-02T15:04:07Z","gap":7}`+"\n"+`{"ts":"2026-01-02T15:04:08Z","end":"over"}`+
		"\n", false)
	v.waitText(".recording .meta", "bug.jsonl · session review · gateway 2.1.0")
	v.waitText(".recording .fault", "1 line can't be read")
	v.waitText(".wire", "Line 3 is broken:")
	v.waitText(".wire", "<b>built</b>")
	v.waitText(".wire", "too slow: 7 lines")
	v.waitText(".wire", "+1.500")
	v.checkAccessibility("recording")
	t.Run("Keys", func(*testing.T) { recordingByKeyboard(v) })
	t.Run("Hostile", func(t *testing.T) { hostileRecordings(t, v) })

	v.do("making it narrow", narrow())
	v.openRecording(recordingStart+recordedLine(`{"type":"push","event":"`+strings.Repeat("wide",
		400)+`"}`), true)
	v.waitText(".recording", "1 of 1 line")
	v.press(kb.Tab)
	eval[any](v.tab, `document.querySelector(".wire summary").click(), 0`)
	v.waitText(".wire pre", `"type": "push"`)
	v.checkAccessibility("recording-narrow")
	if wide := eval[int](v.tab, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
		t.Errorf("the narrow page is %d pixels too wide, want at most 0", wide)
	}
	v.checkFaults(g.origin())
}

// recordingByKeyboard finds a message, opens it, and reads its JSON.
func recordingByKeyboard(v *view) {
	v.press("f")
	v.until(`document.activeElement.id === "recording-find"`)
	v.press(`"A":1`) // the case does not matter
	v.waitText(".recording", "1 of 5 lines")
	v.until(`document.querySelectorAll(".wire").length === 1`)
	v.press(kb.Tab)
	v.until(`document.activeElement.classList.contains("timeline")`)
	v.press(kb.Tab)
	v.until(`document.activeElement.matches(".wire summary")`)
	v.press(kb.Enter)
	v.waitText(".wire pre", `"a": 1`)
	v.fill("#recording-find", " ")
	v.press(kb.Backspace)
	v.waitText(".recording", "5 of 5 lines")
	v.until(`document.querySelectorAll(".wire").length === 5`)
	eval[any](v.tab, `document.querySelector(".wire summary").focus(), 0`)
	v.press(kb.ArrowDown)
	v.until(`document.activeElement === document.querySelectorAll(".wire summary")[1]`)
	v.press(kb.Escape)
	eval[any](v.tab, `(() => {
		const type = document.querySelector("#recording-type");
		type.value = "push";
		type.dispatchEvent(new Event("change"));
		return 0;
	})()`)
	v.waitText(".recording", "1 of 5 lines")
}

// hostileRecordings opens files that somebody made to break the page.
func hostileRecordings(t *testing.T, v *view) {
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "This is no recording"},
		{"another file", "<html><script>alert(1)</script>", "This is no recording"},
		{"a list", "[]", "This is no recording"},
		{"another format", strings.Replace(recordingStart, `:1,`, `:2,`, 1),
			"has format 2, and this page shows format 1"},
		{"members that are objects", strings.Replace(recordingStart, `"2.1.0"`,
			`{"toString":1,"valueOf":1}`, 1) +
			`{"ts":{"valueOf":1},"gap":{"valueOf":1}}` + "\n" +
			recordedLine(`{"type":{"toString":1},"error":{"toString":1}}`),
			"2 of 2 lines"},
		{"a name of the prototype",
			recordingStart + recordedLine(`{"__proto__":{"type":"x"},"constructor":1}`),
			"1 of 1 line"},
		{"nested deep", recordingStart + recordedLine(`{"type":"push","data":`+deep+`}`),
			"1 of 1 line"},
		{"a wrong time", recordingStart + `{"ts":"yesterday","end":"x"}`, "1 of 1 line"},
		{"text that turns around",
			recordingStart + recordedLine(`{"type":"push","event":"\u202egpj.exe"}`),
			`\u202egpj.exe`},
		{"bytes that are not UTF-8", recordingStart + "\xff\xfe\n", "Line 2 is broken"},
		{"a line without an end", strings.TrimSpace(recordingStart), "0 of 0 lines"},
	} {
		t.Run(test.name, func(*testing.T) {
			v.openRecording(test.text, true)
			v.waitText(".recording", test.want)
			v.until(`Number(document.querySelector(".recording .timeline").dataset.entries) ===
				document.querySelectorAll(".wire").length`)
			// Everything can be opened.
			eval[any](v.tab,
				`document.querySelectorAll(".wire summary").forEach((s) => s.click()), 0`)
			v.until(
				`[...document.querySelectorAll(".wire details")].every((d) => d.open && d.querySelector("pre"))`)
		})
	}
	t.Run("too large", func(*testing.T) {
		eval[any](v.tab, `(() => {
			const given = new DataTransfer();
			given.items.add(new File([new ArrayBuffer(70 << 20)], "large"));
			document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: given, bubbles: true, cancelable: true}));
			return 0;
		})()`)
		v.waitText(".recording .fault", "The file has 70 MiB, and the page shows at most 64 MiB")
	})
	t.Run("many lines", func(t *testing.T) {
		v.openRecording(recordingStart+strings.Repeat(recordedLine(`{"type":"x"}`), 3000), true)
		v.waitText(".recording", "3000 of 3000 lines")
		v.until(`document.querySelectorAll(".wire").length > 10`)
		if n := eval[int](v.tab, `document.querySelectorAll("*").length`); n > 3000 {
			t.Errorf("with 3000 lines the document has %d elements, want at most 3000", n)
		}
	})
	if n := eval[int](v.tab,
		`document.querySelectorAll("script:not([src]), .recording img, .recording b").length`); n > 0 {
		t.Errorf("the page has %d elements of a file's markup, want none", n)
	}
}

// TestPageRecorded shows what tapctl record wrote.
func TestPageRecorded(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	text := recordSession(h)
	v := h.browser().profile(t).openView(h.link())
	v.waitText("nav", "Recordings")
	v.openRecording(text, true)
	v.until(`location.hash === "#/recordings"`)
	lines := strings.Count(text, "\n") - 1
	v.waitText(".recording", fmt.Sprintf("%d of %d lines", lines, lines))
	v.waitText(".wire", "tool.call")
	v.waitText(".wire", "The end: the session has ended")
	v.checkFaults(g.origin())
}
