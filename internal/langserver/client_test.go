package langserver

import (
	"bufio"
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
	"tapgw/tools"
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
	"is old":    func() { greet("1.472.0") },
	"is older":  func() { greet("1.99.1-beta") },
	"is silent": func() { _, _ = io.Copy(io.Discard, os.Stdin) },
}

// greet answers the first request as a server of a version does.
func greet(version string) {
	in := bufio.NewReader(os.Stdin)
	for line := "-"; strings.TrimSpace(line) != ""; {
		line, _ = in.ReadString('\n')
	}
	answer := fmt.Sprintf(
		`{"jsonrpc":"2.0","id":1,"result":{"serverInfo":{"name":"x","version":%q}}}`, version)
	fmt.Printf("Content-Length: %d\r\n\r\n%s", len(answer), answer)
	_, _ = io.Copy(io.Discard, in)
}

const impostorVar = "LANGSERVER_TEST_IMPOSTOR"

func TestStartWithAnImpostor(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for how, want := range map[string]string{
		"prints": `"Hello! Use --help." is none: something else writes`,
		"ends":   "the language server ended (exit status 9: node: bad option: --stdio)",
		"is old": "it is version 1.472.0, and 1.520.0 is the oldest that works: update it, or name a newer one in " +
			EnvServer,
		"is older":  "it is version 1.99.1-beta, and 1.520.0 is",
		"is silent": "context deadline exceeded",
	} {
		t.Run(how, func(t *testing.T) {
			limit := 30 * time.Second
			if how == "is silent" {
				limit = 10 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := Start(ctx, Options{Command: self, Workspace: t.TempDir(),
				Env: map[string]string{impostorVar: how,
					"GORACE": "atexit_sleep_ms=0"}})
			if err == nil || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), self) || strings.Contains(err.Error(), "\n") {
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
		`"n" needs either`: {Workspace: dir,
			MCP: map[string]MCPServer{"n": {Command: []string{"x"}, URL: "https://x"}}},
	} {
		if err := o.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestSettings(t *testing.T) {
	o := Options{
		Enterprise: "https://ghe.example", MaxRounds: 7, Trusted: true, Instructions: "Rhyme.",
		Proxy: Proxy{URL: "http://proxy:8080", Auth: "user:pass"},
		MCP: map[string]MCPServer{
			"files":  {Command: []string{"npx", "files"}, Env: map[string]string{"ROOT": "."}},
			"remote": {URL: "https://tools.example/mcp"},
		},
	}
	want := object{
		"telemetry": object{"telemetryLevel": "off"},
		"http": object{"proxy": "http://proxy:8080", "proxyAuthorization": "user:pass",
			"proxyStrictSSL": true},
		"github-enterprise": object{"uri": "https://ghe.example"},
		"github": object{"copilot": object{
			"agent":                     object{"maxToolCallingLoop": 7},
			"globalCopilotInstructions": "Rhyme.",
			"instructionFileLocations":  object{"locations": []string{".github/instructions"}},
			"mcp":                       `{"files":{"args":["files"],"command":"npx","env":{"ROOT":"."}},"remote":{"url":"https://tools.example/mcp"}}`,
		}},
	}
	if diff := cmp.Diff(want, o.settings()); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	// Without trust, and with NoInstructionFiles, the server gets no place of instructions.
	want = object{"telemetry": object{"telemetryLevel": "off"}, "github": object{"copilot": object{
		"globalCopilotInstructions": "",
		"instructionFileLocations":  object{"locations": []string{}},
	}}}
	for _, o := range []Options{{}, {Trusted: true, NoInstructionFiles: true}} {
		if diff := cmp.Diff(want, o.settings()); diff != "" {
			t.Errorf("%+v: %s, want %q", o, diff, "")
		}
	}
}

func TestFileURI(t *testing.T) {
	for path, want := range map[string]string{
		"/a/b c/é%20#?": "file:///a/b%20c/%C3%A9%2520%23%3F",
	} {
		if got := fileURI(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// Each request of the server gets an answer, and no answer accepts anything.
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
			result, err := c.answerRequest(t.Context(), method, json.RawMessage(params))
			if want == "" {
				if e, ok := errors.AsType[*jsonrpc.Error](err); !ok ||
					e.Code != jsonrpc.CodeMethodNotFound {
					t.Errorf("%s %s: %v %v, want code %d", method, params, result, err,
						jsonrpc.CodeMethodNotFound)
				}
				continue
			}
			got, merr := json.Marshal(result)
			if err != nil || merr != nil {
				t.Errorf("%s %s: %v %v, want no error", method, params, err, merr)
			}
			if params == `{}` && string(got) != want {
				t.Errorf("%s: %s, want %s", method, got, want)
			}
		}
	}
	got, _ := c.answerRequest(t.Context(), "workspace/configuration",
		json.RawMessage(`{"items":[{"section":"a"},{"section":"b"}]}`))
	if data, _ := json.Marshal(got); string(data) != `[null,null]` {
		t.Errorf(`configuration: %s, want "[null,null]"`, data)
	}
	opened := ""
	c.options.Open = func(url string) { opened = url }
	got, _ = c.answerRequest(t.Context(), "window/showDocument",
		json.RawMessage(`{"uri":"https://x","external":true}`))
	if data, _ := json.Marshal(got); string(data) != `{"success":true}` || opened != "https://x" {
		t.Errorf("showDocument: %s %s, want %q", data, opened, "https://x")
	}
}

// newIdle is a client without a server.
func newIdle(o Options) *Client {
	c := &Client{options: o, log: discardLog, turns: map[string]*turn{}}
	c.docs.client, c.tools.client = c, c
	return c
}

// A workspace tool that panics, hangs or ends its goroutine still has one outcome,
// soon after its time is up.
func TestCallOfMisbehavingTool(t *testing.T) {
	// over: the test is
	type toolRun = func(ctx context.Context, over <-chan struct{}) (tools.Result, error)
	heeds := func(ctx context.Context, _ <-chan struct{}) (tools.Result, error) {
		<-ctx.Done()
		return tools.Result{}, ctx.Err()
	}
	hangs := func(_ context.Context, over <-chan struct{}) (tools.Result, error) {
		<-over
		return tools.Result{Parts: []string{"too late"}}, nil
	}
	const blame = ": this is a fault of the tool, not of its arguments"
	for name, tt := range map[string]struct {
		run    toolRun
		cancel bool // the turn is cancelled after a second; else the timeout comes after two
		want   Outcome
		within time.Duration
	}{
		"returns": {func(context.Context, <-chan struct{}) (tools.Result, error) {
			return tools.Result{Parts: []string{"x"}}, nil
		}, false, Succeeded("x"), 0},
		"panics": {func(context.Context, <-chan struct{}) (tools.Result, error) {
			panic("oops")
		}, false, Outcome{[]string{"t broke down (oops)" + blame}, StatusError}, 0},
		"ends its goroutine": {func(context.Context, <-chan struct{}) (tools.Result, error) {
			runtime.Goexit()
			return tools.Result{}, nil
		}, false, Outcome{[]string{"t broke down (its goroutine ended)" + blame}, StatusError}, 0},
		"heeds the timeout": {heeds, false, Outcome{[]string{"t did not finish within 2s"},
			StatusError},
			2 * time.Second},
		"ignores the timeout": {hangs, false, Outcome{[]string{"t did not finish within 2s"},
			StatusError},
			5 * time.Second},
		"heeds a cancellation": {heeds, true,
			Outcome{[]string{"t was cancelled"}, StatusCancelled}, time.Second},
		"ignores a cancellation": {hangs, true,
			Outcome{[]string{"t was cancelled"}, StatusCancelled}, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				over := make(chan struct{})
				defer close(over)
				c := newIdle(Options{})
				c.tools.set(c.WorkspaceTool(&tools.Tool{
					Name: "t", Parameters: noParameters, Timeout: 2 * time.Second,
					Run: func(ctx context.Context, _ *tools.Env, _ json.RawMessage) (tools.Result,
						error) {
						return tt.run(ctx, over)
					},
				}, tools.Env{}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel {
					time.AfterFunc(time.Second, cancel)
				}
				start := time.Now()
				got := c.run(ctx, Invocation{Tool: "t"})
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("the outcome differs (-want +got):\n%s", diff)
				}
				if took := time.Since(start); took > tt.within {
					t.Errorf("took %v, want %v at most", took, tt.within)
				}
			})
		})
	}
}

// Reports of any form are read without a panic, and one that can't be read is told.
func FuzzProgress(f *testing.F) {
	f.Add(
		[]byte(
			`{"kind":"report","editAgentRounds":[{"roundId":1,"reply":"x","toolCalls":[{"id":"c","name":"t","status":"completed","result":[{"type":"text","value":"r"}],"error":"e"}]}],"tokenUsage":{"promptTokens":1},"contextSize":{"totalUsedTokens":1}}`,
		),
	)
	f.Add(
		[]byte(
			`{"kind":"report","reply":"x","hideText":true,"thinking":{"text":["a","b"]},"notifications":[{"severity":"warning","message":"m"}]}`,
		),
	)
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
			t.Errorf("said %q, kept %q, want %q", text.String(), p.text.String(), p.text.String())
		}
		if err := p.outcome(t.Context()); err == nil && !p.ended {
			t.Error("a turn without an end succeeded, want an error")
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
		ToolCall{Round: 1, ID: "c", Name: "t", Type: "client", State: Running,
			Input:   json.RawMessage(`{"a":1}`),
			Message: "Running t"},
		ToolCall{Round: 1, ID: "c", Name: "t", Type: "client", State: Completed, Result: "x\n\ny"},
		Reasoning{2, "hm"}, Text{2, "two"}, Notice{"warning", "slow"}, Usage{3, 2, 1},
		Text{0, "three"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if err := p.outcome(t.Context()); err != nil || p.text.String() != "one twothree" {
		t.Errorf("got %q, %v, want one twothree and no error", p.text.String(), err)
	}
}
