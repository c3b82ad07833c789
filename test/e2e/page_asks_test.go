//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestPageAsks answers what sessions ask: on a phone, in the session and from the drawer, with the
// mouse and with keys, and with a reason.
func TestPageAsks(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	desk, lab := h.local("--label", "desk"), h.local("--label", "lab")
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".connection", "Live")
	a := &asksPage{t: t, h: h, v: v, desk: desk, lab: lab}
	a.goTo(desk, "desk")
	a.onPhone()
	a.twice()
	a.scrolls()
	a.stays()
	a.byKeys()
	a.isOver()
	a.overAll()
	a.notifies()
	v.checkFaults(g.origin())
}

type asksPage struct {
	t         *testing.T
	h         *home
	v         *view
	desk, lab string
}

func (a *asksPage) goTo(session, label string) {
	a.t.Helper()
	eval[any](a.v.tab, `location.hash = %s, 0`, "#/sessions/"+session)
	a.v.waitText(".session h2", label)
}

// ask has a session ask for a permission, and waits until the page shows it in this session.
func (a *asksPage) ask(session, detail string) *process {
	a.t.Helper()
	turn := a.h.asking(session, fmt.Sprintf(`ask:permission {"message":"May I?","detail":%q}`,
		detail))
	a.v.waitText(".session .card pre", detail)
	return turn
}

// told checks what the session was told.
func (a *asksPage) told(turn *process, want string) {
	a.t.Helper()
	if code := turn.wait(patience); code != 0 || turn.find(want) == "" {
		a.t.Errorf("the session's turn: exit code %d, want %s in\n%s", code, want, turn.output())
	}
}

const (
	asksGone = `!document.querySelector(".card")`
	// inSight is whether all that matches a selector is on the screen, with nothing above it.
	inSight = `[...document.querySelectorAll(%s)].filter((e) => e.checkVisibility()).map((e) => [e,
		e.getBoundingClientRect()]).every(([e, r], i, all) => r.top >= 0 && r.bottom <= innerHeight &&
		r.right <= innerWidth && e.contains(document.elementFromPoint(r.left + 9, (r.top + r.bottom) / 2)))`
)

// A question and the composer are in sight on a phone, where nothing has to be scrolled, and so are
// the ways to the other views. The reason of a denial reaches the model.
func (a *asksPage) onPhone() {
	v := a.v
	v.do("making it a phone", chromedp.EmulateViewport(360, 740))
	turn := a.ask(a.desk, "rm -rf build/")
	v.until(inSight,
		".session .card button, .session .card pre, #prompt, .composer .primary, nav, .waits")
	v.until(`document.documentElement.scrollHeight <= innerHeight`)
	v.keepPicture("phone")
	small := eval[[]string](v.tab, `[...document.querySelectorAll("button, nav a, .card input, .back")]
		.filter((e) => e.checkVisibility()).map((e) => [e.textContent, e.getBoundingClientRect()])
		.filter(([, r]) => r.height < 44 || r.width < 24).map(([text, r]) => text + " " + r.width + "x" + r.height)`)
	if len(small) > 0 {
		a.t.Errorf("these are too small for a thumb: %q, want 24x44", small)
	}
	v.checkWidths("question") // at 1280 pixels then
	v.fill(".session .card input", "use make clean")
	v.press("\r")
	v.until(asksGone)
	a.told(turn, "use make clean")
	v.until(`document.activeElement.matches(".timeline")`)
}

// Who presses twice at one place answers once: the next question does not come under the pointer
// before it could be read, and takes no answer then either. Nor does a key that is held answer two.
func (a *asksPage) twice() {
	v := a.v
	v.press("w")
	v.waitText("dialog.drawer", "Nothing waits for you")
	for _, delay := range []int{100, 250, 400, 700, 1100} {
		first := a.h.asking(a.desk, `ask:permission {"message":"May I?","detail":"echo first"}`)
		v.waitText(".drawer .card pre", "echo first")
		second := a.h.asking(a.lab, `ask:permission {"message":"May I?","detail":"echo second"}`)
		v.waitText(".drawer .card pre", "echo second")
		v.settled()
		at := eval[struct{ X, Y float64 }](v.tab, `(() => {
			const { left, top, width, height } = document.querySelector(".drawer .card .primary").getBoundingClientRect();
			return { X: left + width / 2, Y: top + height / 2 };
		})()`)
		v.do("pressing once", chromedp.MouseClickXY(at.X, at.Y))
		eval[any](v.tab, `window.pressedAt = performance.now(), 0`)
		v.until(`performance.now() - window.pressedAt >= Number(%s)`, fmt.Sprint(delay))
		v.do("pressing again", chromedp.MouseClickXY(at.X, at.Y))
		a.told(first, "once")
		v.until(`document.querySelectorAll(".drawer .card").length <= 1`)
		if waiting := a.h.tapctl("sessions", "answer", "--json"); !strings.Contains(waiting,
			"echo second") {
			a.t.Errorf("pressing twice within %d ms answered the next question, too", delay)
			continue
		}
		v.click(".drawer .card .primary")
		v.until(asksGone)
		a.told(second, "once")
	}
	v.press("w")
	v.waitNoDialog()
}

// A person who scrolls may press at once. What moves a card without the person takes its buttons'
// effect away for a moment, also where the end of the list goes and the browser scrolls for that.
func (a *asksPage) scrolls() {
	v := a.v
	v.press("w")
	ask := func(session string) (*process, string) {
		turn := a.h.asking(session, fmt.Sprintf(`ask:permission {"message":"May I?","detail":%q}`,
			strings.Repeat("echo\n", 60)))
		return turn, a.h.asked(session).ID
	}
	first, _ := ask(a.desk)
	second, id := ask(a.lab)
	v.until(`document.querySelectorAll(".drawer .card.ready").length === 2`)
	v.settled()
	eval[any](v.tab, `window.card = document.querySelector(".drawer .card"), window.lost = 0,
		new MutationObserver(() => window.lost += !card.matches(".ready")).observe(card, { attributeFilter: ["class"] }),
		window.cardTop = card.getBoundingClientRect().top, 0`)
	v.press(kb.End)
	v.until(`card.getBoundingClientRect().top < cardTop - 1000`)
	v.settled()
	if eval[int](v.tab, `window.lost`) > 0 {
		a.t.Error(
			"a card did nothing for the pointer after the person had scrolled, want it to answer")
	}
	a.h.tapctl("sessions", "answer", a.lab, "deny", "--question", id)
	a.told(second, "deny")
	v.until(`document.querySelectorAll(".drawer .card").length === 1`)
	v.until(`window.lost > 0`)
	v.click(".drawer .card .primary")
	v.until(asksGone)
	a.told(first, "once")
	v.press("w")
	v.waitNoDialog()
}

// The focus stays where the person writes when a question comes and goes.
func (a *asksPage) stays() {
	v := a.v
	v.fill("#prompt", "half a ")
	turn := a.ask(a.desk, "echo one")
	v.press("promp")
	a.answer(a.desk, "once")
	v.until(asksGone)
	v.press("t")
	v.until(
		`document.activeElement.id === "prompt" && document.activeElement.value === "half a prompt"`)
	a.told(turn, "once")
	v.press(kb.Escape)
}

// answer answers a session's question, as it waits now, elsewhere.
func (a *asksPage) answer(session, answer string) {
	a.t.Helper()
	a.h.tapctl("sessions", "answer", session, answer, "--question", a.h.asked(session).ID)
}

// Keys answer what has the focus, and only go to it before: nothing is allowed unseen.
func (a *asksPage) byKeys() {
	v := a.v
	turn := a.ask(a.desk, "echo two")
	v.press("a")
	v.until(`document.activeElement.matches(".session .card") && !document.activeElement.answered`)
	v.press("a")
	v.until(asksGone)
	a.told(turn, "once")

	// The end of a long command is out of sight: the first key goes there.
	turn = a.ask(a.desk, strings.Repeat("echo long; ", 400)+"rm END")
	v.press("qa")
	v.until(
		`document.activeElement.matches(".card .primary") && !document.activeElement.closest(".card").answered`)
	v.press("d")
	v.until(asksGone)
	a.told(turn, "deny")

	// An answer in words is not given by a key.
	turn = a.h.asking(a.desk, `ask:input {"message":"Which?","choices":["red","green"]}`)
	v.waitText(".session .card .text", "Which?")
	v.press("qa")
	v.until(
		`document.activeElement.textContent === "red" && !document.activeElement.closest(".card").answered`)
	v.press("d")
	v.until(asksGone)
	a.told(turn, "deny")
	v.press("?")
	for _, does := range []string{"all that waits", "next question", "allow what", "deny it"} {
		v.waitText("dialog .keys", does)
	}
	v.press(kb.Escape)
	v.waitNoDialog()
}

// A question that is answered elsewhere stays while the person writes into it: what is written is
// not lost, and its letters are no keys.
func (a *asksPage) isOver() {
	v := a.v
	turn := a.ask(a.desk, "echo three")
	v.fill(".session .card input", "never ")
	a.answer(a.desk, "deny")
	v.waitText(".card .over", "This is over.")
	v.press("mind")
	v.until(
		`document.activeElement.matches(".card input") && document.activeElement.value === "never mind"`)
	a.told(turn, "deny")
	v.press(kb.Escape)
	v.until(`document.activeElement.matches(".card")`)
	eval[any](v.tab, `document.activeElement.blur(), 0`)
	v.until(asksGone)
}

// The drawer has what all sessions ask, and pairing codes. The button, the tab's title and its icon
// say how many.
func (a *asksPage) overAll() {
	v := a.v
	v.waitText(".waits", "0 waiting")
	v.press("w")
	v.waitText("dialog.drawer", "Nothing waits for you")
	v.press("w")
	v.waitNoDialog()
	first := a.ask(a.desk, "echo desk")
	second := a.h.asking(a.lab, `ask:permission {"message":"May I?","detail":"echo lab"}`)
	v.waitText(".waits", "2 waiting")
	v.until(`document.title === "(2) tapgw" &&
		document.querySelector("link[rel=icon]").href.endsWith("/page/icon-waiting.svg")`)
	if n := eval[int](v.tab, `document.querySelectorAll(".card").length`); n != 1 {
		a.t.Errorf("the view of one session has %d questions, want its own 1", n)
	}
	v.press("2")
	v.until(
		`location.hash === "#/providers" && !document.querySelector(".session").checkVisibility()`)
	v.press("q")
	v.until(`document.activeElement.matches(".drawer .card:first-child")`)
	v.checkWidths("drawer")
	v.press("q")
	v.until(`document.activeElement.matches(".drawer .card:last-child")`)
	v.fill(".drawer .card:last-child input", "not ")
	a.answer(a.desk, "once")
	v.until(`document.querySelectorAll(".drawer .card").length === 1`)
	v.press("now")
	v.until(
		`document.activeElement.matches(".drawer .card input") && document.activeElement.value === "not now"`)
	v.press("\r")
	v.until(asksGone + ` && document.activeElement.id === "drawer-title" && document.title === "tapgw" &&
		document.querySelector("link[rel=icon]").href.endsWith("/page/icon.svg")`)
	a.told(first, "once")
	a.told(second, "not now")

	// A link in it leads to the session.
	second = a.h.asking(a.lab, `ask:permission {"message":"May I?","detail":"echo lab"}`)
	v.waitText(".drawer .card .of", "lab")
	v.click(".drawer .card .of")
	v.waitNoDialog()
	v.waitText(".session h2", "lab")
	v.press("ad")
	v.until(asksGone)
	a.told(second, "deny")
}

// The system's notification says what a session asks, once the person allowed that and while nobody
// sees the tab. Pressing it leads to the question. A browser without a screen shows none, so this
// looks at what it is given.
func (a *asksPage) notifies() {
	v := a.v
	eval[any](v.tab, `window.notes = [], window.Notification = class {
		static permission = "default";
		static async requestPermission() { Notification.permission = "granted"; }
		constructor(title, { body }) { this.body = body; notes.push(this); }
		close() {}
	}, 0`)
	turn := a.h.asking(a.desk, `ask:permission {"message":"May I \u202e?","detail":"echo desk"}`)
	v.waitText(".waits", "1 waiting")
	v.click(".waits")
	v.button("Notify me of questions")
	v.waitText(".drawer .hint", "Notifications are on")
	a.answer(a.desk, "deny")
	v.until(asksGone + ` && !notes.length`) // it was asked before, and in sight
	a.told(turn, "deny")
	v.button("Close")
	v.waitNoDialog()
	v.until(`document.activeElement.matches(".waits")`)
	eval[any](v.tab,
		`Object.defineProperty(document, "hidden", { value: true, configurable: true }), 0`)
	turn = a.h.asking(a.desk, `ask:permission {"message":"May I \u202e?","detail":"echo secret"}`)
	v.until(`notes.length === 1`)
	if got, want := eval[string](v.tab, `notes[0].body`), `desk asks: May I \u202e?`; got != want {
		a.t.Errorf("the notification says %q, want %q", got, want)
	}
	eval[any](v.tab, `delete document.hidden, notes[0].onclick(), 0`)
	v.waitText(".session h2", "desk")
	v.until(`document.activeElement.matches(".session .card")`)
	v.press("a")
	v.until(asksGone)
	a.told(turn, "once")
}
