//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"tapgw/internal/adminapi"
)

func init() { programs["pages"] = servePages }

// servePages is a program that serves a directory at an address of its own, and
// says where.
func servePages(args []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	files := http.FileServer(http.Dir(args[0]))
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		files.ServeHTTP(w, r)
	}))
}

// ourPages are the pages that the tests bring.
func ourPages() string { return filepath.Join(repo, "test", "e2e", "testdata", "pages") }

// pages serves a directory and returns its URL: another origin than the
// gateway's.
func (h *home) pages(dir string) string {
	h.t.Helper()
	return start(h.t, "pages "+filepath.Base(dir), h.program("pages", dir)).result()
}

// browser is a Chromium that shows nothing.
type browser struct{ ctx context.Context }

// browser starts a Chromium as this user, with more flags: names and values.
func (h *home) browser(flags ...string) *browser {
	h.t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		h.t.Fatal("no chromium on PATH: run ci/setup.sh")
	}
	o := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoInheritEnv,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("no-proxy-server", true),
		// In this home's environment and network; it is driven through pipes.
		chromedp.ModifyCmdFunc(func(cmd *exec.Cmd) {
			own := h.command(nil, chromium, cmd.Args[1:]...)
			cmd.Path, cmd.Args, cmd.Dir, cmd.Env, cmd.Err = own.Path, own.Args, own.Dir, own.Env,
				own.Err
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		}))
	for i := 0; i < len(flags); i += 2 {
		o = append(o, chromedp.Flag(flags[i], flags[i+1]))
	}
	alloc, release := chromedp.NewExecAllocator(context.Background(), o...)
	h.t.Cleanup(release)
	ctx, cancel := chromedp.NewContext(alloc, chromedp.WithErrorf(h.t.Logf))
	h.t.Cleanup(func() {
		closing, stop := context.WithTimeout(ctx, patience)
		defer stop()
		if err := chromedp.Cancel(closing); err != nil {
			h.t.Errorf("closing chromium: %v", err)
		}
		cancel()
	})
	if err := chromedp.Do(ctx); err != nil {
		h.t.Fatalf("starting chromium: %v", err)
	}
	return &browser{ctx}
}

// profile is a browser's user: tabs of one share what pages store.
type profile struct {
	t   testing.TB
	ctx context.Context
}

func (b *browser) profile(t testing.TB) *profile {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil { // its first tab, which stays empty
		t.Fatalf("making a profile: %v", err)
	}
	return &profile{t, ctx}
}

// tab is a page in a browser.
type tab struct {
	t       testing.TB
	ctx     context.Context
	shut    context.CancelFunc
	dialogs chan *page.EventJavascriptDialogOpening

	mu        sync.Mutex
	log       []string
	responses []*network.EventResponseReceivedExtraInfo
	got       map[string][]message // what the gateway sent to the page, by type
	seen      map[string]int       // how many of them next has returned
	more      chan struct{}        // closed and replaced when one comes
}

// open opens a page in a tab of its own.
func (p *profile) open(address string) *tab {
	p.t.Helper()
	b := &tab{t: p.t, dialogs: make(chan *page.EventJavascriptDialogOpening, 16),
		got: map[string][]message{}, seen: map[string]int{}, more: make(chan struct{})}
	b.ctx, b.shut = chromedp.NewContext(p.ctx, chromedp.WithListener(b.onEvent))
	if err := chromedp.Do(b.ctx); err != nil {
		p.t.Fatalf("opening a tab: %v", err)
	}
	p.t.Cleanup(func() {
		b.shut()
		if p.t.Failed() {
			b.mu.Lock()
			defer b.mu.Unlock()
			p.t.Logf("the page at %s said:\n  %s", address, strings.Join(b.log, "\n  "))
		}
	})
	b.visit(address)
	// The browser reports the answer to the page itself beside its loading, and on a
	// busy machine after it: a test that counts answers starts behind that one.
	eventually(p.t, patience, func() error {
		if len(b.answers()) == 0 {
			return errors.New("the browser has not reported the page's own answer")
		}
		return nil
	})
	return b
}

// onEvent takes the events of the tab. It must not wait.
func (b *tab) onEvent(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *page.EventJavascriptDialogOpening:
		select {
		case b.dialogs <- ev:
		default:
			b.log = append(b.log, "a dialog too many: "+ev.Message)
		}
	case *runtime.EventConsoleAPICalled:
		for _, a := range ev.Args {
			b.log = append(b.log, fmt.Sprintf("%s: %s%s", ev.Type, a.Value, a.Description))
		}
	case *runtime.EventExceptionThrown:
		b.log = append(b.log,
			(&chromedp.ExceptionError{ExceptionDetails: ev.ExceptionDetails}).Error())
	case *network.EventWebSocketFrameReceived:
		m := message{}
		if err := json.Unmarshal(ev.Response.PayloadData, &m); err != nil {
			b.log = append(b.log, fmt.Sprintf("a frame that is no message: %q",
				ev.Response.PayloadData))
		}
		kind, _ := m["type"].(string)
		b.got[kind] = append(b.got[kind], m)
		close(b.more)
		b.more = make(chan struct{})
	case *network.EventResponseReceivedExtraInfo:
		b.responses = append(b.responses, ev)
	}
}

// do runs actions with the tests' patience.
func (b *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// visit goes to a page. It returns when the page runs, which may wait for an
// answer to a prompt already.
func (b *tab) visit(address string) {
	b.t.Helper()
	b.do("going to "+address, chromedp.Navigate(address))
}

func (b *tab) reload() {
	b.t.Helper()
	b.do("reloading the page", chromedp.Reload())
}

// eval returns what an expression in the page comes to, once it does when it is
// a promise.
func eval[T any](b *tab, format string, args ...any) T {
	b.t.Helper()
	for i, a := range args {
		text, err := json.Marshal(a)
		if err != nil {
			b.t.Fatal(err)
		}
		args[i] = string(text)
	}
	expression := fmt.Sprintf(format, args...)
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// next waits for the next message of a type that the gateway sends to the page.
func (b *tab) next(kind string) message {
	b.t.Helper()
	timeout := time.After(patience)
	for {
		b.mu.Lock()
		if n := b.seen[kind]; n < len(b.got[kind]) {
			m := b.got[kind][n]
			b.seen[kind]++
			b.mu.Unlock()
			return m
		}
		more := b.more
		b.mu.Unlock()
		select {
		case <-more:
		case <-timeout:
			b.t.Fatalf("the page got no %s within %v, want one", kind, patience)
		}
	}
}

// skip makes next return no message of a type that came already.
func (b *tab) skip(kind string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[kind] = len(b.got[kind])
}

// waitPrompt waits until the page asks its user for something.
func (b *tab) waitPrompt() {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	select {
	case d := <-b.dialogs:
		if d.Type != page.DialogTypePrompt {
			b.t.Fatalf("the page opened a %s: %s, want %s", d.Type, d.Message,
				page.DialogTypePrompt)
		}
	case <-ctx.Done():
		b.t.Fatalf("the page did not ask for anything within %v, want a question", patience)
	}
}

// answer types an answer to the prompt that is open.
func (b *tab) answer(text string) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if _, err := chromedp.Call(ctx, page.HandleJavaScriptDialog,
		page.HandleJavaScriptDialogParams{Accept: true,
			PromptText: text}); err != nil {
		b.t.Fatalf("answering the page: %v", err)
	}
}

// checkNoPrompt checks that the page has asked its user for nothing since.
func (b *tab) checkNoPrompt() {
	b.t.Helper()
	select {
	case d := <-b.dialogs:
		b.t.Errorf("the page opened a %s: %s, want none", d.Type, d.Message)
	default:
	}
}

// answers returns what the gateway has answered to the requests of the page.
func (b *tab) answers() []*network.EventResponseReceivedExtraInfo {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*network.EventResponseReceivedExtraInfo{}, b.responses...)
}

// pairing returns the one pairing that waits for its code.
func (h *home) pairing() adminapi.Pairing {
	h.t.Helper()
	list := decode[[]adminapi.Pairing](h.t, h.tapctl("pair", "--json"))
	if len(list) != 1 {
		h.t.Fatalf("%d pairings are pending: %+v, want 1", len(list), list)
	}
	return list[0]
}

// pair does what a user does when a page asks for the code, and waits until
// the gateway has taken it.
func (h *home) pair(b *tab) adminapi.Pairing {
	h.t.Helper()
	b.waitPrompt()
	p := h.pairing()
	b.skip("sessions")
	b.answer(p.Code)
	b.next("sessions")
	return p
}

// pairAndBind pairs a page and waits until it is bound.
func (h *home) pairAndBind(b *tab) adminapi.Pairing {
	h.t.Helper()
	p := h.pair(b)
	b.next("hello.ack")
	return p
}

// waitBound waits until exactly so many providers are connected and bound, and
// returns them.
func (h *home) waitBound(n int) []adminapi.Provider {
	h.t.Helper()
	var list []adminapi.Provider
	eventually(h.t, patience, func() error {
		list = h.providers()
		for _, p := range list {
			if p.State != "bound" {
				return fmt.Errorf("provider %+v is not bound", p)
			}
		}
		if len(list) != n {
			return fmt.Errorf("%d providers are connected, want %d: %+v", len(list), n, list)
		}
		return nil
	})
	return list
}

// query makes a page's URL with parameters: names and values.
func query(address string, params ...string) string {
	v := url.Values{}
	for i := 0; i < len(params); i += 2 {
		v.Set(params[i], params[i+1])
	}
	return address + "?" + v.Encode()
}
