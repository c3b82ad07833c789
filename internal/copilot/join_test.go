package copilot

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/jsonrpc"
	"tapgw/internal/protocol"
)

// fakeTerminal is the CLI's end of a pipe: it has one session, and refuses what the CLI refuses.
type fakeTerminal struct {
	t           *testing.T
	rpc         *jsonrpc.Conn
	isExtension bool
	isBusy      bool

	mu       sync.Mutex
	changed  chan struct{}
	requests []string // METHOD PARAMS
	tools    []string // names, "!" behind those that skip the permission
}

const (
	terminalSession = "11111111-2222-4333-8444-555555555555"
	otherSession    = "99999999-2222-4333-8444-555555555555"
)

func newFakeTerminal(t *testing.T, isExtension bool) *fakeTerminal {
	f := &fakeTerminal{t: t, isExtension: isExtension, changed: make(chan struct{})}
	return f
}

// open returns our end of a new pipe to the terminal.
func (f *fakeTerminal) open() io.ReadWriteCloser {
	ours, theirs := net.Pipe()
	f.serve(theirs)
	return ours
}

func (f *fakeTerminal) serve(pipe io.ReadWriteCloser) {
	f.rpc = jsonrpc.New(pipe, jsonrpc.Options{OnRequest: f.answer})
	f.t.Cleanup(f.rpc.Close)
}

func (f *fakeTerminal) answer(
	_ context.Context, method string, params json.RawMessage,
) (any, error) {
	var p struct {
		Token, SessionID string
		Hooks            bool
		Tools            []struct {
			Name           string
			SkipPermission bool
		}
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, method+" "+string(params))
	close(f.changed)
	f.changed = make(chan struct{})
	setTools := func() {
		f.tools = nil
		for _, t := range p.Tools {
			if t.SkipPermission {
				t.Name += "!"
			}
			f.tools = append(f.tools, t.Name)
		}
	}
	switch method {
	case "connect":
		if p.Token != "" {
			return nil, &jsonrpc.Error{Code: -32003, Message: "authentication is not configured"}
		}
		return map[string]any{"ok": true, "protocolVersion": 3, "version": "1.0.102"}, nil
	case "session.resume":
		if p.SessionID != terminalSession && p.SessionID != otherSession {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
				Message: "session not found"}
		}
		setTools()
		return map[string]any{"sessionId": p.SessionID}, nil
	case "session.tools.set":
		if f.isExtension {
			return nil, &jsonrpc.Error{
				Code:    jsonrpc.CodeInvalidParams,
				Message: "Extension connections cannot replace SDK external tools",
			}
		}
		setTools()
		return struct{}{}, nil
	case "session.tools.getCurrentMetadata":
		return map[string]any{"tools": []any{map[string]any{"name": "bash", "description": ""}}},
			nil
	case "session.metadata.activity":
		return map[string]any{"hasActiveWork": f.isBusy, "abortable": f.isBusy}, nil
	case "session.send":
		return map[string]any{"messageId": "m1"}, nil
	case "session.tools.handlePendingToolCall", "session.abort", "session.log", "session.detach":
		return map[string]any{"success": true, "eventId": "11111111-2222-4333-8444-666666666666"},
			nil
	case "session.getForeground":
		return map[string]any{"sessionId": terminalSession}, nil
	case "session.getMetadata":
		return map[string]any{}, nil
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no " + method}
}

// event sends an event of the session.
func (f *fakeTerminal) event(typ string, data map[string]any) {
	f.t.Helper()
	if err := f.rpc.Notify("session.event", map[string]any{"sessionId": terminalSession,
		"event": map[string]any{
			"id": "11111111-2222-4333-8444-777777777777", "timestamp": "2026-11-23T09:00:00Z",
			"type": typ, "data": data,
		}}); err != nil {
		f.t.Fatal(err)
	}
}

// waitRequest waits for a request with all these texts.
func (f *fakeTerminal) waitRequest(texts ...string) string {
	f.t.Helper()
	late := time.After(10 * time.Second)
	for {
		f.mu.Lock()
		at := slices.IndexFunc(f.requests, func(r string) bool {
			return !slices.ContainsFunc(texts, func(text string) bool {
				return !strings.Contains(r, text)
			})
		})
		changed, all := f.changed, strings.Join(f.requests, "\n")
		f.mu.Unlock()
		if at >= 0 {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.requests[at]
		}
		select {
		case <-changed:
		case <-late:
			f.t.Fatalf("the terminal got no request with %q; it got:\n%s", texts, all)
		}
	}
}

func (f *fakeTerminal) has() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.tools, " ")
}

// joinedCalls is the gateway's side of a terminal's session.
type joinedCalls struct {
	gateway.HostCalls
	heard chan string // what the host says
	deny  string      // tool
}

func newJoinedCalls() *joinedCalls { return &joinedCalls{heard: make(chan string, 100)} }

func (c *joinedCalls) CallTool(_ context.Context, call gateway.Call) gateway.Outcome {
	return gateway.Outcome{Data: rawJSON(fmt.Sprintf("%s%s gates=%v", call.Name, call.Args,
		call.AskGates))}
}

func (c *joinedCalls) PreToolUse(_ context.Context, tool string, _ protocol.Raw) gateway.Decision {
	return gateway.Decision{Deny: tool == c.deny, Reason: "not here"}
}
func (c *joinedCalls) UserPrompt(context.Context, string, string) string { return "" }
func (c *joinedCalls) Hook(context.Context, gateway.HookEvent) gateway.HookAnswer {
	return gateway.HookAnswer{}
}
func (c *joinedCalls) PromptVaries() bool                 { return false }
func (c *joinedCalls) NeedsHooks() bool                   { return true }
func (c *joinedCalls) Busy()                              { c.heard <- "busy" }
func (c *joinedCalls) Idle()                              { c.heard <- "idle" }
func (c *joinedCalls) RuntimeEvent(adminapi.RuntimeEvent) {}
func (c *joinedCalls) TurnEnded(prompts []string, cut string) {
	c.heard <- fmt.Sprintf("ended %v %s", prompts, cut)
}
func (c *joinedCalls) Note(_ adminapi.LogLevel, message string) { c.heard <- "note " + message }
func (c *joinedCalls) Event(e gateway.Event) {
	switch {
	case e.UserMessage != "":
		c.heard <- "user " + e.UserMessage + " of " + e.Source
	case e.Callback == gateway.OnEndToolExecution && e.Error != nil:
		c.heard <- e.Callback + " " + e.Tool + ": " + e.Error.Message
	case e.Callback != "":
		c.heard <- e.Callback + " " + e.Tool
	}
}

// wait waits until the host has said this.
func (c *joinedCalls) wait(t *testing.T, want string) {
	t.Helper()
	var heard []string
	late := time.After(10 * time.Second)
	for {
		select {
		case got := <-c.heard:
			if heard = append(heard, got); got == want {
				return
			}
		case <-late:
			t.Fatalf("the gateway did not hear %q, but %q", want, heard)
		}
	}
}

func newJoinRuntime(t *testing.T) *Runtime {
	r := New(Options{Launcher: []string{"none"}})
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Errorf("closing the runtime: %v", err)
		}
	})
	return r
}

var twoTools = []gateway.Tool{
	{Name: "greet", Provider: "tests", Parameters: protocol.Raw(`{"type":"object"}`)},
	{Name: "bash", Provider: "tests", Parameters: protocol.Raw(`{"type":"object"}`)},
}

func TestJoinExtension(t *testing.T) {
	f, calls := newFakeTerminal(t, true), newJoinedCalls()
	l, err := newJoinRuntime(t).Join(t.Context(), f.open(), terminalSession, "/w", nil, calls)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("asks for no consent", func(t *testing.T) {
		resume := f.waitRequest("session.resume")
		for _, asks := range []string{"hooks", "requestPermission", "requestUserInput",
			"systemMessage", "model"} {
			if strings.Contains(resume, `"`+asks+`"`) {
				t.Errorf("the resume has %s: %s", asks, resume)
			}
		}
		if !strings.Contains(resume, `"disableResume":true`) {
			t.Errorf("the resume shows itself: %s", resume)
		}
	})
	t.Run("gives the tools by resume, without those of the terminal", func(t *testing.T) {
		if err := l.SetTools(t.Context(), twoTools); err != nil {
			t.Fatal(err)
		}
		if f.has() != "greet" {
			t.Errorf("tools of the terminal: %q, want greet", f.has())
		}
		calls.wait(t,
			"note tool bash of provider tests is left out: the Copilot runtime has a tool of that name; rename it")
	})
	t.Run("answers calls of its tools alone, and asks the gates", func(t *testing.T) {
		f.event("external_tool.requested",
			map[string]any{"requestId": "r0", "sessionId": terminalSession,
				"toolCallId": "c0", "toolName": "of_another", "arguments": map[string]any{}})
		f.event("external_tool.requested",
			map[string]any{"requestId": "r1", "sessionId": terminalSession,
				"toolCallId": "c1", "toolName": "greet", "arguments": map[string]any{"x": 1}})
		f.waitRequest("handlePendingToolCall", `"r1"`, `greet{\"x\":1} gates=true`)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, r := range f.requests {
			if strings.Contains(r, `"r0"`) {
				t.Errorf("it answered the call of another client's tool: %s", r)
			}
		}
	})
	t.Run("shows where a prompt comes from", func(t *testing.T) {
		err := l.Send(t.Context(),
			gateway.Prompt{Text: "look", Source: gateway.SourceProvider + "ci", ID: "p1"})
		if err != nil {
			t.Fatal(err)
		}
		sent := f.waitRequest("session.send")
		if !strings.Contains(sent, `"prompt":"[from provider ci]\nlook"`) ||
			strings.Contains(sent, `"source"`) {
			t.Errorf("the prompt has no name of its provider, or one that hides it: %s", sent)
		}
		f.event("user.message", map[string]any{"content": "[from provider ci]\nlook",
			"messageId": "m1"})
		calls.wait(t, "user [from provider ci]\nlook of provider:ci")
	})
	t.Run("writes lines and interrupts", func(t *testing.T) {
		l.Log(adminapi.LogWarning, "careful")
		f.waitRequest("session.log", "careful", "warning")
		if _, err := l.Interrupt(t.Context(), "because"); err != nil {
			t.Fatal(err)
		}
		f.waitRequest("session.abort")
	})
	t.Run("ends with the pipe, and closes what is open", func(t *testing.T) {
		f.event("tool.execution_start", map[string]any{
			"toolCallId": "c9", "toolName": "bash", "arguments": map[string]any{},
		})
		calls.wait(t, "onStartToolExecution bash")
		f.rpc.Close()
		calls.wait(t, "onEndToolExecution bash: the connection to the terminal ended")
		calls.wait(t, "idle")
		select {
		case <-l.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the link did not end with its pipe")
		}
		if err := l.Send(t.Context(), gateway.Prompt{Text: "too late"}); err == nil {
			t.Error("Send after the end: no error, want one")
		}
	})
}

func TestJoinKnowsThatTheTerminalIsBusy(t *testing.T) {
	f, calls := newFakeTerminal(t, true), newJoinedCalls()
	f.isBusy = true
	l, err := newJoinRuntime(t).Join(t.Context(), f.open(), terminalSession, "/w", nil, calls)
	if err != nil {
		t.Fatal(err)
	}
	calls.wait(t, "busy")
	l.Close()
	if _, err := newJoinRuntime(t).Join(t.Context(), f.open(), "another", "/w", nil,
		calls); err == nil {
		t.Error("joining a session that the terminal does not have: no error, want one")
	}
}

// What is at the other end of a pipe may be no terminal. It can't take the gateway's memory.
func TestJoinOfStrangers(t *testing.T) {
	for name, text := range map[string]string{
		"a length that nobody has": "Content-Length: 1000000000000000000\r\n\r\n",
		"a negative length":        "Content-Length: -1\r\n\r\n",
		"a line without end":       strings.Repeat("x", 1<<20),
		"no answer but null":       "Content-Length: 4\r\n\r\nnull",
		"an end":                   "",
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			go func() {
				defer func() { _ = theirs.Close() }()
				if _, err := jsonrpc.ReadFrame(bufio.NewReader(theirs), 1<<20); err == nil {
					_, _ = io.WriteString(theirs, text)
				}
			}()
			l, err := newJoinRuntime(t).Join(t.Context(), ours, terminalSession, "/w", nil,
				newJoinedCalls())
			if err == nil {
				l.Close()
				t.Error("joined, want an error")
			}
		})
	}
}

// Another program of the machine may find the address before the SDK does.
func TestPipeHasOneWayIn(t *testing.T) {
	ours, theirs := net.Pipe()
	f := newFakeTerminal(t, true)
	f.serve(theirs)
	ended := make(chan error, 1)
	d, err := openPipe(ours, func(why error) { ended <- why })
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", d.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	say := func(conn net.Conn, message string) (string, error) {
		if _, err := conn.Write(jsonrpc.AppendFrame(nil, []byte(message))); err != nil {
			return "", err
		}
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		answer, err := jsonrpc.ReadFrame(bufio.NewReader(conn), 1<<20)
		return string(answer), err
	}
	silent := dial() // it keeps nobody else out
	for _, wrong := range []string{
		`{"jsonrpc":"2.0","id":"1","method":"connect","params":{"token":"guess"}}`,
		`{"jsonrpc":"2.0","id":"1","method":"session.send","params":{}}`, `{}`, `[]`, `no JSON`,
	} {
		if answer, err := say(dial(), wrong); err == nil {
			t.Errorf("%s: answered %s, want the connection closed", wrong, answer)
		}
	}
	first := dial()
	answer, err := say(first, `{"jsonrpc":"2.0","id":"1","method":"connect","params":{"token":"`+
		d.token+`"}}`)
	if err != nil || !strings.Contains(answer, `"ok":true`) {
		t.Fatalf("the right token: %s, %v", answer, err)
	}
	if conn, err := net.Dial("tcp", d.listener.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("a second connection is accepted")
	}
	if _, err := say(silent, `{"jsonrpc":"2.0","id":"1","method":"connect","params":{"token":"`+
		d.token+`"}}`); err == nil {
		t.Error("a second connection with the token got the pipe too")
	}
	_ = first.Close()
	<-ended
}

func TestAttachPort(t *testing.T) {
	f, calls := newFakeTerminal(t, false), newJoinedCalls()
	calls.deny = "bash"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if conn, err := listener.Accept(); err == nil {
			f.mu.Lock()
			f.serve(conn)
			f.mu.Unlock()
		}
		_ = listener.Close()
	}()
	var link *Link
	left := make(chan string, 10)
	join := func(ctx context.Context, id, _ string, open OpenFunc) (func(), error) {
		l, err := open(ctx, calls)
		link = l
		return func() { left <- id }, err
	}
	r := newJoinRuntime(t)
	ended := make(chan struct{})
	a := Attachment{Port: listener.Addr().(*net.TCPAddr).Port, Join: join, Ended: func() {
		close(ended)
	}}
	id, err := r.Attach(t.Context(), a)
	if err != nil || id != terminalSession {
		t.Fatalf("Attach: %q, %v", id, err)
	}
	if err := link.SetTools(t.Context(), twoTools); err != nil {
		t.Fatal(err)
	}
	f.waitRequest("session.tools.set", "greet")
	if resume := f.waitRequest("session.resume"); !strings.Contains(resume, `"hooks":true`) {
		t.Errorf("a port's hooks are off: %s", resume)
	}
	var answer struct {
		Output struct{ PermissionDecision, PermissionDecisionReason string }
	}
	if err := f.rpc.Call(t.Context(), "hooks.invoke", map[string]any{"sessionId": terminalSession,
		"hookType": "preToolUse", "input": map[string]any{"sessionId": terminalSession,
			"toolName": "bash", "toolArgs": map[string]any{}, "timestamp": 1, "cwd": "/w"}},
		&answer); err != nil ||
		answer.Output.PermissionDecision != "deny" ||
		answer.Output.PermissionDecisionReason != "not here" {
		t.Errorf("the hook's answer: %+v, %v", answer, err)
	}
	waitLeft := func(want string) {
		t.Helper()
		select {
		case got := <-left:
			if got != want {
				t.Errorf("left %s, want %s", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("the session %s was not left", want)
		}
	}
	// A turn may go on in a session that the terminal does not show any more, until the terminal
	// ends it.
	if err := f.rpc.Notify("session.lifecycle",
		map[string]any{"type": "session.foreground", "sessionId": otherSession}); err != nil {
		t.Fatal(err)
	}
	f.waitRequest("session.resume", otherSession)
	answer.Output.PermissionDecision = ""
	if err := f.rpc.Call(t.Context(), "hooks.invoke", map[string]any{"sessionId": terminalSession,
		"hookType": "preToolUse", "input": map[string]any{"sessionId": terminalSession,
			"toolName": "bash", "toolArgs": map[string]any{}, "timestamp": 1, "cwd": "/w"}},
		&answer); err != nil ||
		answer.Output.PermissionDecision != "deny" {
		t.Errorf("the hook's answer in the session of before: %+v, %v", answer, err)
	}
	f.event("session.shutdown", map[string]any{"shutdownType": "routine"})
	waitLeft(terminalSession)
	f.rpc.Close()
	waitLeft(otherSession)
	<-ended
	if _, err := r.Attach(t.Context(), a); err == nil {
		t.Error("attaching to a port where nobody listens: no error, want one")
	}
}

// TestAttachToAnotherProgram attaches ports at which something else listens. The error is one line
// that says what to do.
func TestAttachToAnotherProgram(t *testing.T) {
	frame := func(message string) string {
		return string(jsonrpc.AppendFrame(nil, []byte(message)))
	}
	long := strings.Repeat(`\u001b[31mno\n`, 8<<10)
	for name, answer := range map[string]string{
		"HTTP": "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\n400 Bad Request",
		"large error": frame(`{"jsonrpc":"2.0","id":"ID","error":{"code":-32601,"message":"` +
			long + `"}}`),
		"no end":       "Content-Length: 1099511627776\r\n\r\n{",
		"says nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer func() { _ = conn.Close() }()
				in := bufio.NewReader(conn)
				for {
					data, err := jsonrpc.ReadFrame(in, 1<<20)
					if err != nil || answer == "" {
						return
					}
					var m struct{ ID string }
					_ = json.Unmarshal(data, &m)
					head, body, _ := strings.Cut(strings.Replace(answer, `"ID"`, `"`+m.ID+`"`, 1),
						"\r\n\r\n")
					if strings.Contains(answer, `"ID"`) {
						head = fmt.Sprint("Content-Length: ", len(body))
					}
					_, _ = conn.Write([]byte(head + "\r\n\r\n" + body))
				}
			}()
			_, err = newJoinRuntime(t).Attach(t.Context(),
				Attachment{Port: listener.Addr().(*net.TCPAddr).Port})
			if err == nil {
				t.Fatal("no error, want one")
			}
			text := err.Error()
			if len(text) > 600 || strings.ContainsAny(text, "\n\x1b") ||
				!strings.Contains(text, "copilot --ui-server") {
				t.Errorf("the error has %d bytes: %q, want one short line that says what to do",
					len(text), text)
			}
			t.Log(text)
		})
	}
}
