//go:build e2e && linux

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	devlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// view is the page of a gateway in a tab, and what DevTools sees of it.
type view struct {
	*tab

	mu     sync.Mutex
	asked  []string // URLs that were requested
	bytes  float64  // of all answers that have come whole
	left   int      // streams that the page gave up
	faults []string // exceptions, console errors, violations of the policy
}

// openView opens an address of a gateway in a tab that is watched.
func (p *profile) openView(address string, before ...chromedp.Action[chromedp.Void]) *view {
	p.t.Helper()
	v := &view{tab: &tab{t: p.t, dialogs: make(chan *page.EventJavascriptDialogOpening, 16),
		got: map[string][]message{}, seen: map[string]int{}, more: make(chan struct{})}}
	v.ctx, v.shut = chromedp.NewContext(p.ctx, chromedp.WithListener(v.onEvent))
	if err := chromedp.Do(v.ctx); err != nil {
		p.t.Fatalf("opening a tab: %v", err)
	}
	p.t.Cleanup(func() {
		if p.t.Failed() {
			v.keepPicture("failed")
			p.t.Logf("the page at %s shows:\n%s\nand had these faults: %q", address, v.text("body"),
				v.faultsSoFar())
		}
		v.shut()
	})
	v.do("preparing the tab", append(before, chromedp.EmulateViewport(1280, 860))...)
	v.visit(address)
	return v
}

// onEvent takes the events of the tab. It must not wait.
func (v *view) onEvent(ev any) {
	v.tab.onEvent(ev)
	v.mu.Lock()
	defer v.mu.Unlock()
	switch ev := ev.(type) {
	case *network.EventRequestWillBeSent:
		v.asked = append(v.asked, ev.Request.URL)
	case *network.EventLoadingFinished:
		v.bytes += ev.EncodedDataLength
	case *network.EventWebSocketFrameSent:
		sent := ev.Response.PayloadData
		if bytes.Contains(sent, []byte(`"stream"`)) && !bytes.Contains(sent, []byte(`"path"`)) {
			v.left++
		}
	case *runtime.EventExceptionThrown:
		v.faults = append(v.faults,
			(&chromedp.ExceptionError{ExceptionDetails: ev.ExceptionDetails}).Error())
	case *runtime.EventConsoleAPICalled:
		if ev.Type == runtime.ConsoleAPICalledTypeError ||
			ev.Type == runtime.ConsoleAPICalledTypeWarning {
			v.faults = append(v.faults, fmt.Sprintf("%s: %v", ev.Type, ev.Args))
		}
	case *devlog.EventEntryAdded:
		// What the network says is in the requests; the rest is ours. That a sign-in cleared the
		// site is no fault.
		if ev.Entry.Source != devlog.EntrySourceNetwork && ev.Entry.Level != devlog.EntryLevelInfo {
			v.faults = append(v.faults, fmt.Sprintf("%s: %s", ev.Entry.Source, ev.Entry.Text))
		}
	}
}

// faultsSoFar returns the faults so far.
func (v *view) faultsSoFar() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string{}, v.faults...)
}

// loaded returns how many bytes have come so far.
func (v *view) loaded() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return int(v.bytes)
}

// waitGivenUp waits until the page has given up one more stream than before.
func (v *view) waitGivenUp(before int) {
	v.t.Helper()
	eventually(v.t, patience, func() error {
		if n := v.givenUp(); n <= before {
			return fmt.Errorf("the page has given up %d streams, want more than %d", n, before)
		}
		return nil
	})
}

// givenUp returns how many streams the page has given up.
func (v *view) givenUp() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.left
}

// until waits until an expression in the page is true. It may navigate meanwhile.
func (v *view) until(format string, args ...any) {
	v.t.Helper()
	for i, a := range args {
		text, err := json.Marshal(a)
		if err != nil {
			v.t.Fatal(err)
		}
		args[i] = string(text)
	}
	expression := fmt.Sprintf(format, args...)
	eventually(v.t, patience, func() error {
		ctx, stop := context.WithTimeout(v.ctx, patience)
		defer stop()
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+"\n)"))
		if err == nil && !ok {
			err = fmt.Errorf("it is not so in the page: %s", expression)
		}
		return err
	})
}

// waitText waits until what is at a selector holds a text.
func (v *view) waitText(selector, text string) {
	v.t.Helper()
	v.until(`[...document.querySelectorAll(%s)].some((e) => e.textContent.includes(%s))`, selector,
		text)
}

// text is what a person reads at a selector.
func (v *view) text(selector string) string {
	v.t.Helper()
	return eval[string](v.tab,
		`[...document.querySelectorAll(%s)].map((e) => e.innerText).join("\n")`, selector)
}

// settled waits until what asks has been where it is for a moment: before, its buttons do nothing.
func (v *view) settled() {
	v.t.Helper()
	v.until(`[...document.querySelectorAll(".asking > *, .queue > *")].every((e) =>
		!e.checkVisibility() || e.matches(".ready") && e.place === JSON.stringify(e.getBoundingClientRect()))`)
}

// button waits for a button that can be pressed, and presses it with the mouse.
func (v *view) button(label string) {
	v.t.Helper()
	v.until(`window.pressed = [...(document.querySelector("dialog[open]") ?? document).querySelectorAll("button")]
		.find((b) => b.textContent === %s && b.checkVisibility() && !b.disabled)`, label)
	// or the press itself moves what asks
	eval[any](v.tab, `window.pressed.scrollIntoView({ block: "center" })`)
	v.settled()
	v.do("pressing "+label, chromedp.Click(chromedp.JSPath("window.pressed")))
}

// waitNoDialog waits until no dialog is open: one keeps the keys for itself.
func (v *view) waitNoDialog() {
	v.t.Helper()
	v.until(`!document.querySelector("dialog")`)
}

// click presses what is at a selector with the mouse.
func (v *view) click(selector string) {
	v.t.Helper()
	v.settled()
	v.do("clicking "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// fill writes into a field, in place of what is there, as a keyboard would.
func (v *view) fill(selector, text string) {
	v.t.Helper()
	v.until(`(() => {
		const field = document.querySelector(%s);
		field?.focus();
		field?.select();
		return field && document.activeElement === field;
	})()`, selector)
	v.press(text)
}

// press presses keys one after the other, where the focus is. A page that keeps a
// key for itself keeps its letter out of a field, as with a real keyboard.
func (v *view) press(keys string, o ...chromedp.KeyOption) {
	v.t.Helper()
	v.settled()
	for _, r := range keys {
		key := chromedp.KeyEvent(string(r), o...)
		if unicode.IsPrint(r) && !unicode.IsMark(r) {
			key = chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
				for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown,
					input.DispatchKeyEventTypeKeyUp} {
					p := input.DispatchKeyEventParams{Type: kind, Key: string(r)}
					if kind == input.DispatchKeyEventTypeKeyDown {
						p.Text = string(r)
					}
					if _, err := chromedp.Call(ctx, input.DispatchKeyEvent, p); err != nil {
						return err
					}
				}
				return nil
			})
		}
		v.do("pressing "+string(r), key)
	}
}

// enter presses Enter as a keyboard does: a page that keeps the key gets no character.
func (v *view) enter() {
	v.t.Helper()
	v.do("pressing Enter", command(input.DispatchKeyEvent, input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: "\r",
		WindowsVirtualKeyCode: 13,
	}))
}

// show goes to a view by its key.
func (v *view) show(title string) {
	v.t.Helper()
	v.press(
		eval[string](
			v.tab,
			`String([...document.querySelectorAll("nav a")].findIndex((a) => a.textContent === %s) + 1)`,
			title,
		),
	)
	v.until(`document.querySelector("nav [aria-current]")?.textContent === %s`, title)
}

// checkWidths checks at the widths of a telephone and of a desk that nobody has to scroll sideways,
// and that axe-core finds nothing.
func (v *view) checkWidths(name string) {
	v.t.Helper()
	for _, width := range []int{360, 1280} {
		v.do("changing the width", chromedp.EmulateViewport(int64(width), 860))
		v.until(`innerWidth === Number(%s)`, fmt.Sprint(width))
		v.checkSideways(fmt.Sprintf("%s at %d pixels", name, width))
		v.checkAccessibility(fmt.Sprintf("%s-%d", name, width))
	}
}

// checkSideways checks that nobody has to scroll sideways but in blocks of code.
func (v *view) checkSideways(name string) {
	v.t.Helper()
	wide := eval[[]string](v.tab, `[document.documentElement, ...document.querySelectorAll("main *")]
		.filter((e) => e.scrollWidth > e.clientWidth + 1 && e.checkVisibility() && !e.closest("pre, .hidden") &&
			(e === document.documentElement || ["auto", "scroll"].includes(getComputedStyle(e).overflowX)))
		.map((e) => e.tagName + "." + e.className + " " + e.scrollWidth + " in " + e.clientWidth)`)
	if len(wide) > 0 {
		v.t.Errorf("%s scrolls sideways in %q, want nowhere", name, wide)
	}
}

// setTheme makes the page light or dark.
func (v *view) setTheme(name string) {
	v.t.Helper()
	v.do("making it "+name, command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	}))
}

// keepPicture keeps a picture of the page where TAPGW_ARTIFACTS says, else with what
// else the test leaves.
func (v *view) keepPicture(name string) {
	v.t.Helper()
	dir := os.Getenv("TAPGW_ARTIFACTS")
	if dir == "" {
		dir = v.t.ArtifactDir()
	}
	ctx, stop := context.WithTimeout(v.ctx, patience)
	defer stop()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		v.t.Errorf("taking a picture: %v", err)
		return
	}
	name = strings.ReplaceAll(v.t.Name(), "/", "-") + "-" + name + ".png"
	if err := os.WriteFile(filepath.Join(dir, name), picture, 0o600); err != nil {
		v.t.Error(err)
	}
}

// checkFaults checks that nothing went wrong in the page, and that it asked no one but
// its gateway for anything.
func (v *view) checkFaults(origin string) {
	v.t.Helper()
	for _, fault := range v.faultsSoFar() {
		v.t.Errorf("the page had a fault: %s, want none", fault)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, asked := range v.asked {
		// The icons of the browser's own fields are in its addresses.
		if !strings.HasPrefix(asked, origin+"/") && !strings.HasPrefix(asked, "data:") {
			v.t.Errorf("the page asked for %s, want only what is of %s", asked, origin)
		}
	}
	if len(v.asked) < 3 {
		v.t.Errorf("DevTools saw the requests %q only, want the page, its script and its style",
			v.asked)
	}
}

// command makes an action of a DevTools command.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Call(ctx, c, params)
		return err
	})
}

// narrow makes the page as wide as a telephone is.
func narrow() chromedp.Action[chromedp.Void] { return chromedp.EmulateViewport(390, 800) }

// bypassPolicy lets scripts of the tests into the page, which its policy keeps out.
func bypassPolicy() chromedp.Action[chromedp.Void] {
	return command(page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true})
}

// checkAccessibility checks with axe-core that what is shown keeps nobody out, light and
// dark, and keeps a picture of each.
func (v *view) checkAccessibility(name string) {
	v.t.Helper()
	v.loadAxe()
	// Colours are all that differs in the dark.
	for theme, rules := range map[string][]string{"light": nil, "dark": {"color-contrast"}} {
		v.setTheme(theme)
		v.runAxe(name+" in "+theme, rules)
		v.keepPicture(name + "-" + theme)
	}
	v.setTheme("light")
}

// loadAxe loads axe-core into the page, once.
func (v *view) loadAxe() {
	v.t.Helper()
	if !eval[bool](v.tab, `"axe" in window`) {
		source, err := os.ReadFile(filepath.Join(repo, ".runtime", "node_modules", "axe-core",
			"axe.min.js"))
		if err != nil {
			v.t.Fatalf("%v: run make runtime", err)
		}
		v.do("loading axe-core", chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
			_, err := chromedp.Run(ctx, chromedp.Evaluate[any](string(source)+";0"))
			return err
		}))
	}
}

// runAxe checks what is shown by rules of axe-core, or by all.
func (v *view) runAxe(name string, rules []string) {
	v.t.Helper()
	found := eval[[]string](
		v.tab,
		`axe.run(document, {runOnly: %s ?? undefined, resultTypes: ["violations"]}).then((r) => r.violations
			.flatMap((v) => v.nodes.map((n) => [v.id, n.target, n.failureSummary].join(" "))))`,
		rules,
	)
	for _, violation := range found {
		v.t.Errorf("%s: %s, want no violation", name, violation)
	}
}

// origin is where a gateway serves its page. It is random, and a link leads there.
func (g *gateway) origin() string {
	g.t.Helper()
	if g.page == "" {
		g.page, _, _ = strings.Cut(g.home.link(), "/signin?")
	}
	return g.page
}

// link is a link that signs in once.
func (h *home) link() string {
	h.t.Helper()
	return strings.TrimSpace(h.tapctl("open", "--print"))
}

// throughPort is an address of the page through a tunnel: at the port of another address.
func throughPort(t testing.TB, address, tunnel string) string {
	t.Helper()
	u, err := url.Parse(address)
	end, otherErr := url.Parse(tunnel)
	if err := errors.Join(err, otherErr); err != nil {
		t.Fatal(err)
	}
	u.Host = net.JoinHostPort(u.Hostname(), end.Port())
	return u.String()
}
