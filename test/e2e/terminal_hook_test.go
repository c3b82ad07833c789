//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapgw/internal/proc"
	"tapgw/internal/proof"
	"tapgw/internal/statedir"
)

// hookInput is what the CLI writes for a hook about a call of its shell.
const hookInput = `{"sessionId":"11111111-2222-3333-4444-555555555555","timestamp":1795310199401,` +
	`"cwd":%q,"toolName":"bash","toolArgs":{"command":"rm -r /","description":"Cleans up"}}`

// hook is what `tapgw hook preToolUse` said.
type hookAnswer struct {
	Decision string `json:"permissionDecision"`
	Reason   string `json:"permissionDecisionReason"`
	code     int
	out      string
}

// lets reports whether the CLI would run the tool after this answer (terminals.md: it runs the tool
// after whatever it does not understand).
func (a hookAnswer) lets() bool { return a.code == 0 && a.Decision != "deny" }

// hook runs `tapgw hook preToolUse` as the CLI does.
func (h *home) hook(input string) hookAnswer {
	h.t.Helper()
	return h.startHook(input)()
}

// startHook is hook that waits for the answer later.
func (h *home) startHook(input string) (answer func() hookAnswer) {
	h.t.Helper()
	p := start(h.t, "tapgw hook", h.command(nil, tapgw, "hook", "preToolUse"))
	go func() { // it need not read it all
		_, _ = p.in.Write([]byte(input))
		_ = p.in.Close()
	}()
	began := time.Now()
	return func() hookAnswer {
		h.t.Helper()
		return h.hookAnswer(p, began)
	}
}

func (h *home) hookAnswer(p *process, began time.Time) hookAnswer {
	h.t.Helper()
	a := hookAnswer{code: p.wait(patience)}
	if took := time.Since(began); took > hookTimeout*slowdown {
		h.t.Errorf("tapgw hook took %v: the CLI has let the call through after %v", took,
			hookTimeout)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if l.from == "stdout" {
			a.out += l.text
		}
	}
	if err := json.Unmarshal([]byte(a.out), &a); err != nil && a.code == 0 {
		h.t.Errorf("tapgw hook prints %q (%v): the CLI lets the call through", a.out, err)
	}
	return a
}

// hookTimeout is how long the CLI waits for what tapgw install copilot installs.
const hookTimeout = 30 * time.Second

// fakeGateway is a program that stands where a gateway of this home was, knows its token, and
// answers as it likes.
func (h *home) fakeGateway(answer http.HandlerFunc) {
	h.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	const token = "adm-0123456789abcdef0123456789abcdef"
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, nonce, err := proof.ParseQuestion(r.Header.Get(proof.AskHeader)); err == nil {
			at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
			w.Header().Set(proof.AnswerHeader,
				proof.Answer(proof.KeyOf(token), nonce, proof.Address(at)))
		}
		if r.Method != http.MethodPost {
			return // it asks who we are
		}
		_, _ = io.Copy(io.Discard, r.Body) // else nobody notices that the client has gone
		answer(w, r)
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	h.t.Cleanup(func() { _ = srv.Close(); <-served })
	info, err := json.Marshal(statedir.Info{URL: "ws://" + l.Addr().String(), PID: os.Getpid(),
		Version: "1", StartedAt: time.Now()})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.MkdirAll(h.state(""), 0o700); err != nil {
		h.t.Fatal(err)
	}
	// Whoever holds the lock is the gateway.
	lock, err := proc.TryLock(h.state(statedir.LockFile))
	if err != nil || lock == nil {
		h.t.Fatalf("taking the gateway's lock: %v", err)
	}
	h.t.Cleanup(lock.Unlock)
	for file, text := range map[string]string{"gateway.json": string(info), ".admin-token": token} {
		if err := os.WriteFile(h.state(file), []byte(text), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
}

// TestHookUnderFire has gateways that fail in all ways. The CLI runs a tool when its hook is late,
// or says what the CLI does not understand; so whatever the gateway does, `tapgw hook` says deny in
// time.
func TestHookUnderFire(t *testing.T) {
	t.Parallel()
	says := func(status int, body string) func(h *home) {
		return func(h *home) {
			h.fakeGateway(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = w.Write([]byte(body))
			})
		}
	}
	passes := says(200, `{"output":{}}`)
	until := func(do func(w http.ResponseWriter, done <-chan struct{})) func(h *home) {
		return func(h *home) {
			h.fakeGateway(func(w http.ResponseWriter, r *http.Request) {
				do(w, r.Context().Done())
			})
		}
	}
	closed := "[terminals]\nwithout_gateway = \"deny\"\n"
	for name, c := range map[string]struct {
		config string
		state  func(h *home) // nil: no gateway has ever run
		input  string        // "": that of a call
		lets   bool
	}{
		"no gateway, open":   {lets: true},
		"no gateway, closed": {config: closed},
		"killed, open":       {state: (*home).deadGateway, lets: true},
		"killed, closed":     {config: closed, state: (*home).deadGateway},
		"frozen":             {state: func(h *home) { h.serve().frozen() }},
		"frozen, closed":     {config: closed, state: func(h *home) { h.serve().frozen() }},
		"says nothing": {state: until(func(_ http.ResponseWriter, done <-chan struct{}) {
			<-done
		})},
		"empty": {state: says(200, "")},
		// An allow would keep the CLI from asking whoever sits there.
		"allows":               {state: says(200, `{"output":{"permissionDecision":"allow"}}`)},
		"has nothing to say":   {state: passes, lets: true},
		"denies":               {state: says(200, `{"output":{"permissionDecision":"deny"}}`)},
		"no output":            {state: says(200, `{}`)},
		"null":                 {state: says(200, `null`)},
		"output null":          {state: says(200, `{"output":null}`)},
		"output is text":       {state: says(200, `{"output":"allow"}`)},
		"output is a list":     {state: says(200, `{"output":[]}`)},
		"unknown decision":     {state: says(200, `{"output":{"permissionDecision":"maybe"}}`)},
		"decision is a number": {state: says(200, `{"output":{"permissionDecision":1}}`)},
		"Claude's answer": {state: says(200,
			`{"output":{"hookSpecificOutput":{"permissionDecision":"deny"}}}`)},
		"two answers": {state: says(200, `{"output":{}}{"output":{}}`)},
		"two decisions": {state: says(200,
			`{"output":{"permissionDecision":"deny","permissionDecision":"allow"}}`)},
		"HTML":    {state: says(200, `<html>{"output":{}}</html>`)},
		"cut off": {state: says(200, `{"output":{"permissionDecision":"al`)},
		"error 500": {state: says(500,
			`{"error":{"code":"INTERNAL","message":"no"}}`)},
		"error 500 that allows": {state: says(500,
			`{"output":{"permissionDecision":"allow"}}`)},
		"error 401": {state: says(401,
			`{"error":{"code":"UNAUTHORIZED","message":"no"}}`)},
		"error 404, an older tapgw": {state: says(404, `404 page not found`)},
		"error 503":                 {state: says(503, ``)},
		"redirect":                  {state: says(302, ``)},
		"no content":                {state: says(204, ``)},
		"endless":                   {state: until(endless)},
		"drop by drop":              {state: until(drops)},
		"breaks off": {
			state: until(func(http.ResponseWriter, <-chan struct{}) {
				panic(http.ErrAbortHandler)
			}),
		},
		"another program":          {config: closed, state: (*home).otherProgram},
		"config broken":            {config: "[terminals\n", state: nil},
		"config with a wrong word": {config: "[terminals]\nwithout_gateway = \"perhaps\"\n"},
		"no home at all, closed": {config: closed,
			state: func(h *home) { h.env = append(h.env, "HOME=", "COPILOT_HOME=") }},
		"token is gone": {state: func(h *home) {
			passes(h)
			_ = os.Remove(h.state(".admin-token"))
		}},
		"gateway.json is broken": {state: func(h *home) {
			passes(h)
			_ = os.WriteFile(h.state("gateway.json"), []byte(`{"url"`), 0o600)
		}},
		"input is empty":   {state: passes, input: " "},
		"input is no JSON": {state: passes, input: "hello"},
		"input is cut off": {state: passes, input: hookInput[:90]},
		"input is far too long": {state: passes, input: `{"toolArgs":"` +
			strings.Repeat("x", 64<<20) + `"}`},
		"input is of no session": {state: (*home).liveGateway,
			input: `{"toolName":"bash","toolArgs":{}}`},
		"input has odd directories": {state: (*home).liveGateway,
			input: strings.ReplaceAll(hookInput, "%q", `"../x"`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			if c.config != "" {
				if err := os.MkdirAll(h.path(".config", "tapgw"), 0o700); err != nil {
					t.Fatal(err)
				}
				h.put(".config/tapgw/tapgw.toml", c.config)
			}
			if c.state != nil {
				c.state(h)
			}
			input := c.input
			if input == "" {
				input = fmt.Sprintf(hookInput, h.path("work"))
			}
			a := h.hook(input)
			if a.lets() != c.lets {
				t.Errorf("the CLI gets code %d and %q, which lets the call through: %v, want %v",
					a.code, a.out, a.lets(), c.lets)
			}
			if a.code == 0 && a.Decision == "deny" && a.Reason == "" && name != "denies" {
				t.Errorf("the answer %q has no reason, want one for whoever sits there", a.out)
			}
		})
	}
}

// endless writes an answer without end.
func endless(w http.ResponseWriter, done <-chan struct{}) {
	_, _ = w.Write([]byte(`{"output":{"additionalContext":"`))
	for {
		select {
		case <-done:
			return
		default:
			if _, err := w.Write([]byte(strings.Repeat("x", 1<<16))); err != nil {
				return
			}
		}
	}
}

// drops writes a little from time to time.
func drops(w http.ResponseWriter, done <-chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			_, _ = w.Write([]byte(" "))
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// deadGateway leaves what a gateway leaves that was killed.
func (h *home) deadGateway() {
	h.t.Helper()
	h.serve().kill()
}

func (h *home) liveGateway() {
	h.t.Helper()
	h.serve()
}

// frozen stops the gateway for the rest of the test.
func (g *gateway) frozen() {
	g.t.Helper()
	g.freeze()
	g.t.Cleanup(g.process.end)
}

// otherProgram lets another program take the port of a gateway that was killed. It would allow
// everything.
func (h *home) otherProgram() {
	h.t.Helper()
	g := h.serve()
	g.kill()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp",
		strings.TrimPrefix(g.url, "ws://"))
	if err != nil {
		h.t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"output":{"permissionDecision":"allow"}}`))
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	h.t.Cleanup(func() { _ = srv.Close(); <-served })
}

// TestHookCannotPrint has a hook whose answer gets nowhere: the CLI must see that it has failed.
func TestHookCannotPrint(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	cmd := h.command(nil, tapgw, "hook", "preToolUse")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(hookInput, filepath.Join(h.dir, "work")))
	cmd.Stdout = full
	if err := cmd.Run(); err == nil {
		t.Error(
			"tapgw hook that can't print its answer ends with code 0, want another: the CLI lets the call through")
	}
}

// TestHookOnFullDisk has a gateway that can write nothing, and a hook that can't either. Gates hold
// all the same.
func TestHookOnFullDisk(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	input := fmt.Sprintf(hookInput, h.path("work"))
	if a := h.hook(input); !a.lets() {
		t.Fatalf("without a gate the CLI gets code %d and %q, which denies", a.code, a.out)
	}
	p := g.guard("11111111-2222-3333-4444-555555555555", forbids)
	limitFiles(t, g.pid(), 1)
	defer limitFiles(t, g.pid(), ^uint64(0))
	h.in = []string{"sh", "-c", `ulimit -f 0; exec "$@"`, "sh"}
	answer := h.startHook(strings.Replace(input, "rm -r /", "touch forbidden", 1))
	p.deny("Not on a full disk.")
	if a := answer(); a.lets() || !strings.Contains(a.Reason, "Not on a full disk.") {
		t.Errorf("the CLI gets code %d and %q, want the gate's denial", a.code, a.out)
	}
}
