//go:build e2e && linux

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"tapgw/internal/client"
)

// TestPageBarriers checks each view with what keeps nobody out: axe-core finds
// nothing, light and dark, wide and narrow.
func TestPageBarriers(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	// What the page warns of: an open contract, a fault in a file.
	if err := os.MkdirAll(h.path("providers"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"tapgw.toml": "[api]\nauth = \"none\"\n",
		"providers/ci.toml": "kind = \"command\"\ncomand = [\"ci\"]\n"} {
		if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := h.serve("--config", h.path("tapgw.toml"))
	p := h.browser().profile(t)
	v := p.openView(g.origin()+"/", bypassPolicy())
	v.waitText("main", "tapctl open")
	v.checkAccessibility("signin")

	v.visit(h.link())
	v.waitText(".side", "No session runs")
	v.waitText(".banner.warning", "without a token")
	v.waitText(".banner.error", "1 provider with a fault: ci")
	session := h.local("--label", "review")
	h.bindProvider(session, "greeter", "greet")
	v.waitText(".session h2", "review")
	h.ask(session, `call:greet {"name":"Ada"}`)
	h.run(tapctl, "tools", "call", "--session", session, "greet", "--args", `{"name":7}`)
	for _, level := range []string{"keep", "surface", "inject"} {
		h.tapctl("push", "--session", session, "--stream", "builds", "--level", level, "--provider",
			"ci", "the build is "+level)
	}
	c := g.connect()
	c.send(message{"type": "auth", "mode": "pair", "name": "browser", "session": session})
	c.next("auth.pairing")
	v.waitText(".card.pairing", "browser wants into review")
	v.waitText(".entry.push", "the build is inject")
	v.checkAccessibility("session")

	v.press("?")
	v.waitText("dialog", "send the prompt")
	v.checkAccessibility("keys")
	v.press(kb.Escape)
	v.waitNoDialog()
	v.press("n")
	v.waitText("dialog h2", "New session")
	v.click("dialog summary")
	v.checkAccessibility("start")
	v.press(kb.Escape)
	v.waitNoDialog()

	v.press("2")
	v.waitText("tbody th", "greeter")
	v.checkAccessibility("providers")
	v.press("3")
	v.fill(".rules input", "keep|inject")
	v.waitText(".tester", "2 of 3 events match")
	v.checkAccessibility("streams")
	v.press(kb.Escape)
	v.press("4")
	v.waitText(".waterfall", "greet")
	v.checkAccessibility("activity")

	v.press("1")
	v.do("making it narrow", narrow())
	v.waitText(".session h2", "review")
	v.checkAccessibility("narrow")
	if wide := eval[int](v.tab, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
		t.Errorf("the narrow page is %d pixels too wide, want at most 0", wide)
	}
}

// firstLoad is how many bytes the page may take until it shows something.
const firstLoad = 150_000

// TestPageKeys goes through the page with the keyboard alone.
func TestPageKeys(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	if err := os.MkdirAll(h.path("tea", ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.put("tea/.git/HEAD", "ref: refs/heads/main\n")
	h.put("tea/.git/config", "[remote \"origin\"]\n\turl = https://github.com/kitchen/tea.git\n")
	first, second := h.local("--label", "first"),
		h.local("--label", "second", "--cwd", h.path("tea"))
	v := h.browser().profile(t).openView(h.link())
	v.waitText(".items", "second")
	if n := v.loaded(); n > firstLoad {
		t.Errorf("the first load took %d bytes, want at most %d", n, firstLoad)
	} else {
		t.Logf(
			"the first load took %d bytes and, until there was something to read, at most %.0f ms",
			n,
			// a paint is told late
			eval[float64](v.tab,
				`performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? performance.now()`))
	}
	// The version of a build from a clone is long. It leaves the views their room.
	v.waitText(".version", "devel")
	if !eval[bool](v.tab, `(document.querySelector(".version").textContent = "v0.0.0-20261127010605-3def320093d0",
		document.querySelector("nav").scrollWidth <= document.querySelector("nav").clientWidth)`) {
		t.Error("a long version hides views, want all of them shown")
	}
	v.press("j")
	v.waitText(".session h2", "first")
	v.press("j")
	v.waitText(".session h2", "second")
	v.press("k")
	v.waitText(".session h2", "first")
	v.until(`location.hash.endsWith(%s)`, first)

	// The list, by arrows.
	eval[any](v.tab, `document.querySelector(".items a").focus()`)
	v.press(kb.ArrowDown)
	v.until(`document.activeElement.textContent.includes("second")`)
	v.press(kb.Enter)
	v.until(`location.hash.endsWith(%s)`, second)
	v.waitText(".session h2", "second") // a moment later than the address

	// Groups, which are folded by their headings, stay for the next time; a search looks into
	// folded ones, too.
	eval[any](v.tab, `document.querySelector(".filter select").focus()`)
	v.press(kb.ArrowDown)
	v.waitText(".items h3", "kitchen/tea1")
	v.until(`localStorage.getItem("tapgw.groups") === "repository"`)
	eval[any](v.tab, `window.isOld = true, location.reload(), 0`)
	v.until(`!window.isOld`)
	v.waitText(".items h3", "kitchen/tea1")
	eval[any](v.tab,
		`[...document.querySelectorAll(".fold")].find((b) => b.textContent.includes("kitchen")).focus()`)
	v.press(kb.Enter)
	v.until(`document.activeElement.ariaExpanded === "false"`)
	v.until(`document.querySelectorAll(".items a:not([hidden] *)").length === 1`)
	v.press("s")
	v.until(`document.activeElement.type === "search"`)
	v.press("kitchen sec")
	v.until(`document.querySelectorAll(".items a").length === 1`)
	v.waitText(".items a:not([hidden] *)", "second")
	v.press("x")
	v.waitText(".side .empty", "No session matches")
	v.fill("[type=search]", "\b")
	v.press(kb.Escape)
	v.until(`document.querySelectorAll(".items li").length === 2`)
	// by state and by host, with how many there are
	for _, group := range []string{"idle2", "local2"} {
		eval[any](v.tab, `document.querySelector(".filter select").focus()`)
		v.press(kb.ArrowDown)
		v.waitText(".items h3", group)
	}

	// The foreground session is the one that a person says.
	h.tapctl("sessions", "foreground", first)
	v.until(`!document.querySelector(".session .tag")`)
	eval[any](v.tab,
		`[...document.querySelectorAll("button")].find((b) => b.textContent === "Make foreground").focus()`)
	v.press(kb.Enter)
	v.waitText(".session .tag", "foreground")
	if shown := h.tapctl("sessions", "show", second, "--json"); !strings.Contains(shown,
		`"foreground":true`) {
		t.Errorf("tapctl shows %s, want the session in the foreground", shown)
	}
	v.press(kb.Escape)

	// While something is typed, keys are letters; Escape leaves the field.
	v.press("/")
	v.until(`document.activeElement.id === "prompt"`)
	v.press("1234?n")
	v.until(`document.activeElement.value === "1234?n" && !document.querySelector("dialog")`)
	v.press(kb.Escape)
	v.press("2")
	v.until(
		`location.hash === "#/providers" && document.querySelector("nav [aria-current]").textContent === "Providers"`,
	)
	v.press("1")
	v.until(`document.querySelector("#prompt").value === "1234?n"`) // a draft is kept

	// Keys can be turned off, for who speaks to the machine.
	v.press("?")
	v.click("dialog input[type=checkbox]")
	v.press(kb.Escape)
	v.waitNoDialog()
	v.press("2")
	v.press("?")
	v.waitText("dialog h2", "Keys")
	if at := eval[string](v.tab, `location.hash`); !strings.Contains(at, second) {
		t.Errorf("with the keys off, 2 led to %s, want %q in it", at, second)
	}
	v.checkFaults(g.origin())
}

// wire stands between a browser and a gateway, and can be cut.
type wire struct {
	l  net.Listener
	to string

	mu    sync.Mutex
	cut   bool
	ends  map[net.Conn]bool
	works sync.WaitGroup
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{l: l, to: to, ends: map[net.Conn]bool{}}
	w.works.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.works.Go(func() { w.carry(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		w.set(true)
		w.works.Wait()
	})
	return w
}

func (w *wire) carry(c net.Conn) {
	defer func() { _ = c.Close() }()
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	w.mu.Lock()
	if w.cut {
		w.mu.Unlock()
		return
	}
	w.ends[c], w.ends[far] = true, true
	w.mu.Unlock()
	var other sync.WaitGroup
	other.Go(func() {
		_, _ = io.Copy(far, c)
		_ = far.Close()
	})
	_, _ = io.Copy(c, far)
	_ = c.Close()
	other.Wait()
	w.mu.Lock()
	delete(w.ends, c)
	delete(w.ends, far)
	w.mu.Unlock()
}

// set cuts the wire, with all that goes over it, or mends it.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for c := range w.ends {
			_ = c.Close()
		}
	}
}

// TestPageLong shows ten thousand things that happened in a session: few
// of them are in the document at once, the end is followed until the person looks
// elsewhere, and a connection that was lost misses and doubles nothing.
func TestPageLong(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	w := newWire(t, strings.TrimPrefix(g.url, "ws://"))
	origin := "http://" + w.l.Addr().String()
	s, err := client.Host(t.Context(), client.Options{URL: g.url, Token: h.read(".admin-token")},
		client.HostOptions{
			Name: "teller", Version: "1", ID: "long", Label: "long", CWD: h.path("work"),
			State: func(bool, error) {},
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background(), "told all") })
	v := h.browser().profile(t).openView(throughPort(t, h.link(), origin))
	v.waitText(".connection", "Live")
	v.until(`document.querySelector(".timeline")?.dataset.entries > 0`) // the only session is shown
	p := &longPage{t: t, s: s, v: v, w: w}
	p.before = eval[int](v.tab, `Number(document.querySelector(".timeline").dataset.entries)`)
	eval[any](
		v.tab,
		`window.long = [], new PerformanceObserver((l) => { for (const e of l.getEntries()) long.push(e.duration); }).observe({ type: "longtask" }), 0`,
	)

	p.followsTheEnd()
	p.staysWhereThePersonReads()
	p.survivesALostConnection()
	p.goesOnAfterItWasHidden()
	p.keepsItsPlaceInAnotherView()
	p.findsText()
	tasks := eval[[]float64](v.tab, `long`)
	longest := 0.0
	for _, ms := range tasks {
		longest = max(longest, ms)
	}
	t.Logf("%d tasks took longer than 50 ms, the longest %.0f ms", len(tasks), longest)
}

const (
	pageEntries = 10_000 // the gateway keeps a thousand lines of a timeline
	pageBurst   = 800
	pageNodes   = `document.querySelectorAll("*").length`
	pageBehind  = `((t) => t.scrollHeight - t.clientHeight - t.scrollTop)(document.querySelector(".timeline"))`
)

// longPage is a page at a session with a long timeline.
type longPage struct {
	t             *testing.T
	s             *client.HostSession
	v             *view
	w             *wire
	before, added int // entries
}

// addEntries makes n entries and waits until the page has them.
func (p *longPage) addEntries(n int) {
	for range n {
		switch p.added++; p.added % 4 {
		case 0:
			p.s.Event("assistant.message", message{"content": fmt.Sprintf(
				"Answer %d:\n\n- with `code`\n- and **more**", p.added)})
		case 1:
			p.s.Event("tool.execution_complete",
				message{"tool": "read", "args": message{"path": "a.go"},
					"result": message{"type": "success", "output": fmt.Sprint("line ", p.added)}})
		default:
			p.s.Event("user.message", message{"content": fmt.Sprintf("question %d %s", p.added,
				strings.Repeat("and so on ", p.added%40))})
		}
	}
	p.v.until(`document.querySelector(".timeline").dataset.entries === %s`,
		fmt.Sprint(p.before+p.added))
}

func (p *longPage) followsTheEnd() {
	for p.added < pageEntries {
		p.addEntries(pageBurst)
	}
	p.v.until(pageBehind + ` < 2`)
	p.v.waitText(".entry", fmt.Sprintf("Answer %d:", p.added))
	if n := eval[int](p.v.tab, pageNodes); n > 3000 {
		p.t.Errorf("with %d entries the document has %d elements, want at most 3000", p.added, n)
	} else {
		p.t.Logf("with %d entries the document has %d elements", p.added, n)
	}
}

// The person scrolls up: nothing moves, and the page counts the new entries.
func (p *longPage) staysWhereThePersonReads() {
	eval[any](
		p.v.tab,
		`document.querySelector(".timeline").scrollTop = document.querySelector(".timeline").scrollHeight / 2, 0`,
	)
	p.v.until(
		`!document.querySelector(".latest").hidden && document.querySelectorAll(".entry").length > 10`)
	place := eval[string](
		p.v.tab,
		`new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r))).then(() => {
		window.there = [...document.querySelectorAll(".entry")].find((e) => e.getBoundingClientRect().top > 300);
		there.was = there.getBoundingClientRect().top;
		return there.textContent;
	})`,
	)
	p.addEntries(pageBurst)
	p.v.waitText(".latest", fmt.Sprintf("%d new", pageBurst))
	if !eval[bool](p.v.tab,
		`there.isConnected && Math.abs(there.getBoundingClientRect().top - there.was) < 40`) {
		p.t.Errorf("what the person read has moved away: %s, want it where it was", place)
	}
	if n := eval[int](p.v.tab, pageNodes); n > 3000 {
		p.t.Errorf("in the middle of the timeline the document has %d elements, want at most 3000",
			n)
	}
	p.v.click(".latest")
	p.v.until(pageBehind + ` < 2 && document.querySelector(".latest").hidden`)
	p.v.waitText(".entry", fmt.Sprintf("Answer %d:", p.added))
	p.addEntries(pageBurst)
	p.v.until(pageBehind + ` < 2`)
}

// The connection is lost, and the entries of that time come afterwards.
func (p *longPage) survivesALostConnection() {
	p.w.set(true)
	p.v.waitText(".connection", "Connection lost")
	p.v.waitText(".banner", "tapctl open")
	p.before, p.added = p.before+p.added, 0
	for range 300 {
		p.s.Event("user.message", message{"content": "unseen"})
	}
	p.w.set(false)
	// It may be back by itself before the button is pressed.
	p.v.until(
		`(document.querySelector(".banner button").click(), document.querySelector(".banner").hidden)`)
	p.v.waitText(".connection", "Live")
	p.added = 300
	p.addEntries(4)
	if n := eval[int](p.v.tab, `document.querySelectorAll(".entry.mark").length`); n != 0 {
		p.t.Errorf("%d gaps are shown: %s, want 0", n, p.v.text(".entry.mark"))
	}
}

// A hidden page leaves the session, and goes on at the same entry when it is shown.
func (p *longPage) goesOnAfterItWasHidden() {
	given := p.v.givenUp()
	eval[any](
		p.v.tab,
		`Object.defineProperty(document, "hidden", { value: true, configurable: true }), document.dispatchEvent(new Event("visibilitychange")), 0`,
	)
	p.v.waitGivenUp(given)
	for range 100 {
		p.s.Event("user.message", message{"content": "nobody looked"})
	}
	p.added += 100
	eval[any](p.v.tab,
		`delete document.hidden, document.dispatchEvent(new Event("visibilitychange")), 0`)
	p.addEntries(4)
}

// Another view and back: the place is the same.
func (p *longPage) keepsItsPlaceInAnotherView() {
	eval[any](p.v.tab, `document.querySelector(".timeline").scrollTop = 5000, 0`)
	const seen = `document.elementFromPoint(700, 400)?.closest(".block")`
	p.v.until(`!document.querySelector(".latest").hidden && ` + seen + `?.firstChild`)
	eval[any](p.v.tab, `window.there = `+seen+`, 0`)
	p.v.press("2")
	p.v.until(`!document.querySelector(".session").checkVisibility()`)
	p.v.press("1")
	p.v.until(
		`there.isConnected && there.firstChild && Math.abs(there.getBoundingClientRect().top) < 2000`)
}

// The search finds an entry wherever it is.
func (p *longPage) findsText() {
	p.v.fill(".find input", "Answer 2000:")
	p.v.waitText(".find .count", "1 of 1")
	p.v.until(`(() => {
		const [range] = CSS.highlights.get("found-here") ?? [], box = range?.getBoundingClientRect();
		return box?.height > 0 && box.top > 100 && box.bottom < innerHeight && range.toString() === "Answer 2000:";
	})()`)
}

// TestPageQuestions answers what a session asks with the fields that the page
// makes of it: texts, choices, and a form with a property of each kind.
func TestPageQuestions(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	session := h.local("--label", "review")
	v := h.browser().profile(t).openView(h.link())
	v.waitText(".connection", "Live")
	answered := func(question, want string, answer func()) {
		t.Helper()
		turn := h.asking(session, "ask:"+question)
		v.until(`document.querySelectorAll(".card.question").length === 1`)
		answer()
		v.until(`!document.querySelector(".card.question")`)
		if code := turn.wait(patience); code != 0 || turn.find(want) == "" {
			t.Errorf("%s: exit code %d, want %s in\n%s", question, code, want, turn.output())
		}
	}
	answered(`input {"message":"Which?"}`, "both of them", func() {
		v.fill(".card input", "both of them")
		v.press("\r")
	})
	answered(`input {"message":"Which?","choices":["red","green"]}`, "green", func() {
		v.until(`!document.querySelector(".card input")`)
		v.button("green")
	})
	answered(`input {"message":"Which?","choices":["red","green"],"freeform":true}`, "blue",
		func() {
			v.fill(".card input", "blue")
			v.button("Answer")
		})
	answered(`input {"message":"Which?"}`, "deny", func() { v.button("Decline") })
	// What is allowed reads as it is: nothing turns it around.
	answered(`permission {"message":"May I?","detail":"rm \u202etxt.a\u202c"}`, "session", func() {
		v.waitText(".card pre", `rm \u202etxt.a\u202c`)
		v.button("Allow for this session")
	})
	// A long command is there to its end, above the buttons.
	answered(`permission {"message":"May I?","detail":"git log `+strings.Repeat("x ",
		2000)+`; rm END"}`, "once",
		func() {
			v.waitText(".card pre", "; rm END")
			v.waitText(".card", "4,016 characters, to here")
			v.until(`(() => {
			const pre = document.querySelector(".card pre"), b = document.querySelector(".card button");
			return pre.scrollHeight <= pre.clientHeight && b.getBoundingClientRect().top >= pre.getBoundingClientRect().bottom;
		})()`)
			v.button("Allow once")
		})
	form := `form {"message":"Who?","schema":{"type":"object","required":["name","kind","level","langs"],"properties":{
		"name":{"type":"string","title":"Your name"},
		"mail":{"type":"string","format":"email","description":"\u202enot at all\u202c"},
		"age":{"type":"integer","minimum":0},
		"kind":{"type":"string","enum":["a","b"],"enumNames":["Aye","Bee"]},
		"level":{"type":"string","oneOf":[{"const":"lo","title":"Low"},{"const":"hi","title":"High"}]},
		"size":{"type":"string","enum":["s","m"],"default":"m"},
		"sure":{"type":"boolean"},
		"langs":{"type":"array","items":{"anyOf":[{"const":"go","title":"Go"},{"const":"js","title":"JavaScript"}]}},
		"tags":{"type":"array","items":{"type":"string","enum":["x","y","z"]},"default":["y"]}}}}`
	answered(
		form,
		`{"name":"Ada","age":36,"kind":"b","level":"hi","size":"m","sure":true,"langs":["js"],"tags":["x","y"]}`,
		func() {
			v.checkAccessibility("form")
			v.waitText(".card .hint", `\u202enot at all\u202c`)
			v.button("Answer") // the browser asks for what is missing
			v.until(`document.activeElement.labels[0].textContent === "Your name"`)
			v.fill(".card input", "Ada")
			v.fill(`.card input[type=number]`, "36")
			v.choose("kind", "Bee")
			v.choose("level", "High")
			for _, label := range []string{"sure", "JavaScript", "x"} {
				v.tick(label)
			}
			v.button("Answer")
		},
	)
	answered(form, "deny", func() { v.button("Decline") })
	v.checkFaults(g.origin())
}
