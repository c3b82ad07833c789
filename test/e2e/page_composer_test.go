//go:build e2e && linux

package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"tapgw/internal/client"
	"tapgw/internal/scriptmodel"
)

// offered waits until the prompt box offers these, the chosen one in brackets.
func (v *view) offered(want ...string) {
	v.t.Helper()
	v.until(`JSON.stringify([...document.querySelectorAll("#offers > li")].filter((e) => e.checkVisibility()).map((e) => {
		const box = document.querySelector("#prompt"), text = e.firstChild.textContent.trim();
		return e.ariaSelected === "true" && box.getAttribute("aria-activedescendant") === e.id ? "[" + text + "]" : text;
	})) === JSON.stringify(%s)`, append([]string{}, want...))
}

// holds waits until the prompt box holds a text.
func (v *view) holds(text string) {
	v.t.Helper()
	v.until(`document.querySelector("#prompt").value === %s`, text)
}

// TestPageOffers names files and runs commands in the prompt box, by keys and with the mouse.
func TestPageOffers(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	if err := os.MkdirAll(h.path("work/docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"docs/read me.md", "docs/page.md", "reader.go"} {
		h.put("work/"+name, "x\n")
	}
	h.local("--label", "desk", "--cwd", h.path("work"))
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".connection", "Live")
	v.waitText(".session h2", "desk")

	v.fill("#prompt", "look at @rea")
	v.offered("[reader.go]", "docs/read me.md")
	v.press(kb.ArrowDown)
	v.offered("reader.go", "[docs/read me.md]")
	v.press(kb.ArrowDown)
	v.offered("[reader.go]", "docs/read me.md")
	v.press(kb.ArrowUp)
	v.enter()
	v.holds("look at @docs/read me.md ")
	v.offered()
	v.press("and @PAGE")
	v.offered("[docs/page.md]")
	v.press("\t")
	v.holds("look at @docs/read me.md and @docs/page.md ")
	v.press("@r")
	v.offered("[reader.go]", "docs/read me.md")
	v.press(kb.Escape)
	v.offered()
	v.press(kb.Backspace + "r")
	v.offered("[reader.go]", "docs/read me.md")
	v.press(kb.ArrowLeft) // away from what would be replaced
	v.offered()
	v.press(kb.ArrowRight + kb.Backspace + "nobody")
	v.press(kb.Backspace)
	v.offered()
	// Faster than the gateway answers.
	v.fill("#prompt", "@re")
	v.offered("[reader.go]", "docs/read me.md")
	v.press("ade\t")
	v.holds("@reader.go ")
	v.fill("#prompt", "mail me@re @re")
	v.offered("[reader.go]", "docs/read me.md")
	v.checkWidths("files")
	v.click("#offers > li:nth-child(2)")
	v.holds("mail me@re @docs/read me.md ")
	v.until(`document.activeElement.id === "prompt"`)

	commandsRun(v)
	v.fill("#prompt", "/")
	v.offered("[/tools]", "/call TOOL [ARGUMENTS]")
	v.checkWidths("commands")
	v.press(kb.Escape)

	// A session whose host runs elsewhere.
	s, err := client.Host(t.Context(), client.Options{URL: g.url, Token: h.read(".admin-token")},
		client.HostOptions{
			Name: "editor", Version: "1", ID: "far", Label: "far", CWD: "/home/of\u202egpj/machine",
			State: func(bool, error) {},
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background(), "told all") })
	v.visit(g.origin() + "/?far#/sessions/far")
	v.waitText(".session h2", "far")
	for _, at := range []string{".session .path", `a[href="#/sessions/far"] .path`} {
		v.waitText(at, `of\u202egpj`)
	}
	v.fill("#prompt", "@re")
	v.waitText(".offers .hint", "the session has no directory on this machine")
	v.offered()
	v.fill("#prompt", "/tools")
	v.until(`document.querySelector(".offers").hidden`)
	v.checkFaults(g.origin())
}

// commandsRun runs commands of a local session, and sends what is none.
func commandsRun(v *view) {
	v.t.Helper()
	v.fill("#prompt", "/to")
	v.offered("[/tools]")
	v.enter()
	v.holds("/tools ")
	v.button("Send")
	v.waitText(".entry.note", "/tools")
	v.waitText(".entry.note", "The session has no tools.")
	v.holds("")
	v.fill("#prompt", "/call nosuch")
	v.button("Send")
	v.waitText(".entry.prompt", "/call nosuch")
	v.waitText(".entry.message", "NOT_FOUND")
	v.fill("#prompt", "/call ")
	v.button("Send")
	v.waitText(".toast.error", "name a tool")
	v.holds("/call ")
	v.fill("#prompt", "/etc/hosts has what?")
	v.button("Send")
	v.waitText(".entry.prompt", "/etc/hosts has what?")
}

// give makes the page get a file as if it were dropped on an element or pasted into it.
func (v *view) give(event, selector, name, kind, content string) {
	v.t.Helper()
	eval[bool](v.tab, `((event, selector, name, type, content) => {
		const data = new DataTransfer();
		data.items.add(new File([content], name, { type }));
		const init = { bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data };
		const Kind = event === "paste" ? ClipboardEvent : DragEvent;
		return document.querySelector(selector).dispatchEvent(new Kind(event, init));
	})(%s, %s, %s, %s, %s)`, event, selector, name, kind, content)
}

// attached waits until these files go with the next prompt.
func (v *view) attached(names ...string) {
	v.t.Helper()
	v.until(`JSON.stringify([...document.querySelectorAll(".attached li > span:first-child")].map((e) => e.textContent)) ===
		JSON.stringify(%s)`, append([]string{}, names...))
}

// TestPageAttach gives a Copilot session files that are chosen, dropped and pasted, and one of its
// directory.
func TestPageAttach(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("work/list.txt", "milk\n")
	h.put("shot.gif", "GIF89a\x01\x00\x01\x00\x00\x00\x00;")
	h.put("large.bin", strings.Repeat("x", 5<<20+1))
	m := model(t, scriptmodel.Calls)
	g := h.serve()
	session := h.copilot(m, "--label", "pictures", "--cwd", h.path("work"))
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".session h2", "pictures")
	v.until(`[...document.querySelectorAll(".composer button")].some((b) =>
		b.textContent === "Attach…" && b.checkVisibility())`)

	choose := func(names ...string) {
		t.Helper()
		paths := make([]string, len(names))
		for i, name := range names {
			paths[i] = h.path(name)
		}
		v.do("choosing files", chromedp.SetUploadFiles(chromedp.CSS(".composer input[type=file]"),
			paths))
	}
	choose("shot.gif")
	v.attached("shot.gif")
	choose("large.bin")
	v.waitText(".toast.error", "large.bin is not attached: more than 5.0 MiB.")
	v.give("dragover", "#prompt", "notes.txt", "text/plain", "buy tea")
	v.until(`document.querySelector(".composer.dropping")`)
	v.give("drop", "#prompt", "notes.txt", "text/plain", "buy tea")
	v.until(`!document.querySelector(".composer.dropping")`)
	v.attached("shot.gif", "notes.txt")
	v.give("paste", "#prompt", "paper.pdf", "application/pdf", "%PDF-1.4\x00")
	v.give("paste", "#prompt", "gone.txt", "text/plain", "do not send")
	v.give("paste", "#prompt", "empty.txt", "text/plain", "")
	v.waitText(".toast.error", "empty.txt is not attached: empty.")
	v.attached("shot.gif", "notes.txt", "paper.pdf", "gone.txt")
	if hash := eval[string](v.tab, `location.hash`); !strings.HasPrefix(hash, "#/sessions/") {
		t.Errorf("a dropped file leads to %s, want the session", hash)
	}
	v.checkWidths("attached")

	// By keys: the last one goes, and the focus stays near.
	eval[any](v.tab, `document.querySelector(".attached li:last-child button").focus()`)
	v.enter()
	v.attached("shot.gif", "notes.txt", "paper.pdf")
	v.until(`document.activeElement.getAttribute("aria-label") === "Remove paper.pdf"`)

	v.fill("#prompt", "look @li")
	v.offered("[list.txt]")
	v.press("\t")
	v.button("Send")
	v.waitText(".entry.prompt", "look @list.txt")
	body := string(request(t, m, 1).Body)
	for _, want := range []string{
		"R0lGODlhAQABAAAAADs", "buy tea", "notes.txt", "-paper.pdf", h.path("work/list.txt"),
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the model did not get %q", want)
		}
	}
	if strings.Contains(body, "do not send") {
		t.Error("the model got the file that was removed")
	}
	v.attached()
	v.holds("")

	// Another prompt brings nothing, and a command takes no files.
	v.fill("#prompt", "/usage")
	v.offered("[/usage]")
	v.press(kb.Escape)
	v.give("paste", "#prompt", "more.txt", "text/plain", "more")
	v.attached("more.txt")
	v.button("Send")
	v.waitText(".toast.error", "A command takes no files")
	v.button("×")
	v.attached()
	v.button("Send")
	v.waitText(".entry.note", "Session Usage")

	kept, err := filepath.Glob(h.state("uploads/*/*"))
	if err != nil || len(kept) != 3 {
		t.Errorf("kept are %q, %v; want the three files of the prompt", kept, err)
	}
	h.tapctl("sessions", "stop", session)
	for _, path := range kept {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left, want it gone with its session", path)
		}
	}
	v.checkFaults(g.origin())
}
