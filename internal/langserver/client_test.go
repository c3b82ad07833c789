package langserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapgw/internal/jsonrpc"
)

// impostors are programs that are no language server: the test program is one
// where its environment says so.
var impostors = map[string]func(){
	"prints": func() {
		fmt.Fprintln(os.Stdout, "Hello! Use --help.")
		_, _ = io.Copy(io.Discard, os.Stdin)
	},
	"ends": func() {
		fmt.Fprintln(os.Stderr, "node: bad option: --stdio")
		os.Exit(9)
	},
	"is silent": func() { _, _ = io.Copy(io.Discard, os.Stdin) },
}

const impostorVar = "LANGSERVER_TEST_IMPOSTOR"

func TestStartWithAnImpostor(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for how, want := range map[string]string{
		"prints":    `"Hello! Use --help." is none: something else writes`,
		"ends":      "the language server ended (exit status 9: node: bad option: --stdio)",
		"is silent": "context deadline exceeded",
	} {
		t.Run(how, func(t *testing.T) {
			limit := 30 * time.Second
			if how == "is silent" {
				limit = 10 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := Start(ctx, Options{Command: self, Workspace: t.TempDir(), Env: map[string]string{impostorVar: how, "GORACE": "atexit_sleep_ms=0"}})
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), self) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for want, o := range map[string]Options{
		"not an absolute path": {Workspace: "."},
		"no such file":         {Workspace: filepath.Join(dir, "none")},
		"is not a directory":   {Workspace: file},
		"1 to 500":             {Workspace: dir, MaxRounds: 501},
		"user:password":        {Workspace: dir, Proxy: Proxy{Auth: "Basic"}},
		"https URL":            {Workspace: dir, Enterprise: "http://ghe.example"},
		`"m" needs either`:     {Workspace: dir, MCP: map[string]MCPServer{"m": {}}},
		`"n" needs either`:     {Workspace: dir, MCP: map[string]MCPServer{"n": {Command: []string{"x"}, URL: "https://x"}}},
	} {
		if err := o.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestSettings(t *testing.T) {
	o := Options{
		Enterprise: "https://ghe.example", MaxRounds: 7,
		Proxy: Proxy{URL: "http://proxy:8080", Auth: "user:pass"},
		MCP: map[string]MCPServer{
			"files":  {Command: []string{"npx", "files"}, Env: map[string]string{"ROOT": "."}},
			"remote": {URL: "https://tools.example/mcp"},
		},
	}
	want := object{
		"telemetry":         object{"telemetryLevel": "off"},
		"http":              object{"proxy": "http://proxy:8080", "proxyAuthorization": "user:pass", "proxyStrictSSL": true},
		"github-enterprise": object{"uri": "https://ghe.example"},
		"github": object{"copilot": object{
			"agent": object{"maxToolCallingLoop": 7},
			"mcp":   `{"files":{"args":["files"],"command":"npx","env":{"ROOT":"."}},"remote":{"url":"https://tools.example/mcp"}}`,
		}},
	}
	if diff := cmp.Diff(want, o.settings()); diff != "" {
		t.Error(diff)
	}
	want = object{"telemetry": object{"telemetryLevel": "off"}, "github": object{"copilot": object{}}}
	if diff := cmp.Diff(want, (&Options{}).settings()); diff != "" {
		t.Errorf("without options: %s", diff)
	}
}

func TestFileURI(t *testing.T) {
	for path, want := range map[string]string{
		"/a/b c/é%20#?": "file:///a/b%20c/%C3%A9%2520%23%3F",
		"C:/a":          "file:///C:/a",
	} {
		if got := fileURI(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// Every request of the server that there is has an answer, none an acceptance.
func TestEveryRequestIsAnswered(t *testing.T) {
	c := newIdle(Options{Workspace: "/w"})
	for method, want := range map[string]string{
		"conversation/invokeClientTool":             `[{"content":[{"value":"there is no tool  any more"}],"status":"error"},null]`,
		"conversation/invokeClientToolConfirmation": `[{"result":"dismiss"},null]`,
		"conversation/context":                      `[null,null]`,
		"copilot/watchedFiles":                      `{"files":[]}`,
		"copilot/mcpElicitation":                    `{"action":"decline"}`,
		"copilot/readMcpSamplingConfig":             `[null,null]`,
		"copilot/showPanelMessageRequest":           `[null,null]`,
		"copilot/codingAgentMessage":                `{"success":true}`,
		"copilot/dynamicOAuth":                      `null`,
		"worktree/requestUserDecision":              `{"cancelled":true}`,
		"workspace/configuration":                   `[]`,
		"workspace/workspaceFolders":                `[{"name":"w","uri":"file:///w"}]`,
		"workspace/applyEdit":                       `{"applied":false,"failureReason":"this client has no editor"}`,
		"window/showMessageRequest":                 `null`,
		"window/showDocument":                       `{"success":false}`,
		"window/workDoneProgress/create":            `null`,
		"client/registerCapability":                 `null`,
		"client/unregisterCapability":               `null`,
		"copilot/token":                             "",
		"copilot/fetch":                             "",
		"copilot/fetchCancel":                       "",
		"copilot/fetchDisconnectAll":                "",
		"copilot/ide/getSelection":                  "",
		"workspace/readFile":                        "",
		"workspace/readDirectory":                   "",
		"workspace/findFiles":                       "",
		"workspace/findTextInFiles":                 "",
		"something/new":                             "",
	} {
		for _, params := range []string{`{}`, `null`, `[]`, `"x"`, `{"name":5,"items":5}`} {
			result, err := c.answer(t.Context(), method, json.RawMessage(params))
			if want == "" {
				if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != jsonrpc.CodeMethodNotFound {
					t.Errorf("%s %s: %v %v", method, params, result, err)
				}
				continue
			}
			got, merr := json.Marshal(result)
			if err != nil || merr != nil {
				t.Errorf("%s %s: %v %v", method, params, err, merr)
			}
			if params == `{}` && string(got) != want {
				t.Errorf("%s: %s, want %s", method, got, want)
			}
		}
	}
	got, _ := c.answer(t.Context(), "workspace/configuration", json.RawMessage(`{"items":[{"section":"a"},{"section":"b"}]}`))
	if data, _ := json.Marshal(got); string(data) != `[null,null]` {
		t.Errorf("configuration: %s", data)
	}
	opened := ""
	c.o.Open = func(url string) { opened = url }
	got, _ = c.answer(t.Context(), "window/showDocument", json.RawMessage(`{"uri":"https://x","external":true}`))
	if data, _ := json.Marshal(got); string(data) != `{"success":true}` || opened != "https://x" {
		t.Errorf("showDocument: %s %s", data, opened)
	}
}

// newIdle is a client without a server.
func newIdle(o Options) *Client {
	c := &Client{o: o, log: discardLog, turns: map[string]*turn{}}
	c.docs.client, c.tools.client = c, c
	return c
}

// A call has exactly one outcome, whatever the tool does, and soon after its time
// is up.
func TestGuard(t *testing.T) {
	type ending <-chan struct{} // closed when the test is over
	heeds := func(ctx context.Context, _ ending) Outcome {
		<-ctx.Done()
		return FailedWith(context.Cause(ctx))
	}
	hangs := func(_ context.Context, over ending) Outcome {
		<-over
		return Succeeded("too late")
	}
	for name, tt := range map[string]struct {
		call   func(context.Context, ending) Outcome
		cancel bool // the turn is cancelled after a second; else the timeout comes after two
		want   Outcome
		after  time.Duration
	}{
		"returns":              {func(context.Context, ending) Outcome { return Succeeded("x") }, false, Succeeded("x"), 0},
		"heeds the timeout":    {heeds, false, Outcome{[]string{"t did not finish within 2s"}, StatusError}, 2 * time.Second},
		"hangs":                {hangs, false, Outcome{[]string{"t did not finish within 2s"}, StatusError}, 2*time.Second + callGrace},
		"heeds a cancellation": {heeds, true, Outcome{[]string{"context canceled"}, StatusCancelled}, time.Second},
		"hangs when cancelled": {hangs, true, Outcome{[]string{"t was cancelled"}, StatusCancelled}, time.Second + callGrace},
		"is done by then": {func(ctx context.Context, _ ending) Outcome {
			<-ctx.Done()
			return Succeeded("x")
		}, true, Succeeded("x"), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				over := make(chan struct{})
				c := newIdle(Options{})
				c.tools.set(Tool{Name: "t", Timeout: 2 * time.Second, Call: func(ctx context.Context, _ Invocation) Outcome {
					return tt.call(ctx, over)
				}})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel {
					time.AfterFunc(time.Second, cancel)
				}
				start := time.Now()
				got := c.run(ctx, Invocation{Tool: "t"})
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
				if took := time.Since(start); took != tt.after {
					t.Errorf("took %v, want %v", took, tt.after)
				}
				close(over)
			})
		})
	}
}

// A tool that ends its goroutine has an outcome all the same.
func TestGoexit(t *testing.T) {
	c := newIdle(Options{})
	c.tools.set(Tool{Name: "t", Call: func(context.Context, Invocation) Outcome {
		runtime.Goexit()
		return Succeeded()
	}})
	if got := c.run(t.Context(), Invocation{Tool: "t"}); got.Status != StatusError || !strings.Contains(got.Parts[0], "goroutine ended") {
		t.Errorf("%+v", got)
	}
}

// Reports of any form are read without a panic, and one that can't be read is told.
func FuzzProgress(f *testing.F) {
	f.Add([]byte(`{"kind":"report","editAgentRounds":[{"roundId":1,"reply":"x","toolCalls":[{"id":"c","name":"t","status":"completed","result":[{"type":"text","value":"r"}],"error":"e"}]}],"tokenUsage":{"promptTokens":1},"contextSize":{"totalUsedTokens":1}}`))
	f.Add([]byte(`{"kind":"report","reply":"x","hideText":true,"thinking":{"text":["a","b"]},"notifications":[{"severity":"warning","message":"m"}]}`))
	f.Add([]byte(`{"kind":"end","error":{"message":"m","code":500}}`))
	f.Add([]byte(`{"kind":"end","cancellationReason":"CancelledByUser"}`))
	f.Add([]byte(`{"kind":5}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var text strings.Builder
		p := progress{on: func(e Event) {
			if d, ok := e.(Text); ok {
				text.WriteString(d.Delta)
			}
		}}
		p.report(in)
		p.report(in)
		if text.String() != p.text.String() {
			t.Errorf("said %q, kept %q", text.String(), p.text.String())
		}
		if err := p.outcome(t.Context()); err == nil && !p.ended {
			t.Error("a turn without an end succeeded")
		}
	})
}

func TestEvents(t *testing.T) {
	var got []Event
	p := progress{on: func(e Event) { got = append(got, e) }}
	for _, r := range []string{
		`{"kind":"begin","title":"x"}`,
		`{"kind":"report","editAgentRounds":[{"roundId":1,"reply":"one "}],"contextSize":{"totalUsedTokens":5,"totalTokenLimit":9}}`,
		`{"kind":"report","editAgentRounds":[{"roundId":1,"reply":"","toolCalls":[{"id":"c","name":"t","toolType":"client","status":"running","input":{"a":1},"progressMessage":"Running t"}]}],"contextSize":{"totalUsedTokens":5,"totalTokenLimit":9}}`,
		`{"kind":"report","editAgentRounds":[{"roundId":1,"reply":"","toolCalls":[{"id":"c","name":"t","toolType":"client","status":"running"}]}]}`,
		`{"kind":"report","editAgentRounds":[{"roundId":1,"reply":"","toolCalls":[{"id":"c","name":"t","toolType":"client","status":"completed","result":[{"type":"text","value":"x"},{"type":"image","value":{"a":1}},{"value":"y"}]}]}]}`,
		`{"kind":"report","hideText":true,"editAgentRounds":[{"roundId":2,"reply":"hidden"}],"thinking":{"id":"1","text":"hm"}}`,
		`{"kind":"report","editAgentRounds":[{"roundId":2,"reply":"two"}],"notifications":[{"severity":"warning","message":"slow"}]}`,
		`{"kind":"report","tokenUsage":{"promptTokens":3,"completionTokens":2,"cachedTokens":1}}`,
		`{"kind":"report","reply":"three"}`,
		`{"kind":"end"}`,
	} {
		p.report(json.RawMessage(r))
	}
	want := []Event{
		Text{1, "one "}, Window{5, 9},
		ToolCall{Round: 1, ID: "c", Name: "t", Type: "client", State: Running, Input: json.RawMessage(`{"a":1}`), Message: "Running t"},
		ToolCall{Round: 1, ID: "c", Name: "t", Type: "client", State: Completed, Result: "x\n\ny"},
		Reasoning{2, "hm"}, Text{2, "two"}, Notice{"warning", "slow"}, Usage{3, 2, 1}, Text{0, "three"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := p.outcome(t.Context()); err != nil || p.text.String() != "one twothree" {
		t.Errorf("%q %v", p.text.String(), err)
	}
}
