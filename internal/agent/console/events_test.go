package console

import (
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"tapgw/internal/agent"
	"tapgw/internal/cli"
	"tapgw/internal/diff"
	"tapgw/internal/langserver"
	"tapgw/internal/orchestrate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The model's text goes to stdout and all else to stderr; with --json there is a line on stdout for
// each event.
func TestShow(t *testing.T) {
	was, now := "a\n", "b\n"
	changed := []diff.Diff{diff.New("x", &was, &now)}
	text := langserver.Text{Round: 1, Delta: "One"}
	running := langserver.ToolCall{Round: 1, ID: "1", Name: "read_file", State: langserver.Running,
		Input: []byte(`{}`)}
	failed := langserver.ToolCall{Round: 1, ID: "1", Name: "read_file", State: langserver.Failed,
		Error: "no\x1b[2J file"}
	edited := langserver.ToolCall{ID: "2", Name: "edit", State: langserver.Completed,
		Result: "done"}
	tests := map[string]struct {
		events               []agent.Event
		stdout, stderr, json string
	}{
		"a text ends its line before a note": {
			[]agent.Event{agent.Progress{Event: text}, agent.Progress{Event: running}},
			"One\n", "• read_file {}\n",
			`{"type":"text","round":1,"delta":"One"}` + "\n" +
				`{"type":"tool","round":1,"id":"1","name":"read_file","state":"running","input":{}}` + "\n"},
		"a worker's text is not the answer": {
			[]agent.Event{agent.Progress{Worker: "w", Event: text},
				agent.Progress{Worker: "w", Event: failed}},
			"", "[w] ✗ read_file no file\n",
			`{"type":"text","worker":"w","round":1,"delta":"One"}` + "\n" +
				`{"type":"tool","worker":"w","round":1,"id":"1","name":"read_file","state":"error",` +
				`"error":"no\u001b[2J file"}` + "\n"},
		"an edit shows its diff": {
			[]agent.Event{agent.Progress{Event: edited, Diffs: changed}},
			"", "changed x +1 -1\n  @@ -1 +1 @@\n  -a\n  +b\n",
			`{"type":"tool","id":"2","name":"edit","state":"completed","result":"done",` +
				`"diff":"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"}` + "\n"},
		"a diff that was seen in a question does not come again": {
			[]agent.Event{agent.Progress{Event: edited, Diffs: changed, Seen: true}},
			"", "",
			`{"type":"tool","id":"2","name":"edit","state":"completed","result":"done",` +
				`"diff":"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"}` + "\n"},
		"an answer that must match a schema": {
			[]agent.Event{agent.Rejected{Fault: errors.New("is empty")},
				agent.TurnEnded{Conversation: "c", Turn: langserver.Turn{Text: "1"},
					Output: []byte("1")}},
			"1\n", "the model is asked again: is empty\n",
			`{"type":"retry","fault":"is empty"}` + "\n" +
				`{"type":"done","conversation":"c","text":"1","output":1,` +
				`"usage":{"promptTokens":0,"completionTokens":0,"cachedTokens":0}}` + "\n"},
		"a turn that fails": {
			[]agent.Event{agent.TurnEnded{Conversation: "c", Err: cli.NotFound("no model")}},
			"", "",
			`{"type":"done","conversation":"c","text":"","usage":{"promptTokens":0,"completionTokens":0,` +
				`"cachedTokens":0},"error":{"code":"NOT_FOUND","message":"no model"}}` + "\n"},
		"a plan and its workers": {
			[]agent.Event{agent.Planned{Tasks: []orchestrate.Task{{Name: "a", Role: "r",
				Text: "one"},
				{Name: "b", Role: "r", Text: "two", After: []int{0}}}},
				agent.WorkerBegan{Worker: "a", Task: "one"},
				agent.WorkerEnded{Worker: "a", Err: errors.New("no")}},
			"", "[plan] a: one\n[plan] b: two (after a)\n[a] begins: one\n[a] failed: no\n",
			`{"type":"plan","tasks":[{"worker":"a","role":"r","task":"one","dependsOn":[]},` +
				`{"worker":"b","role":"r","task":"two","dependsOn":["a"]}]}` + "\n" +
				`{"type":"worker","worker":"a","state":"running","task":"one"}` + "\n" +
				`{"type":"worker","worker":"a","state":"error","error":"no"}` + "\n"},
		"an edit that can't be undone": {
			[]agent.Event{agent.NotUndoable{Reason: "disk full"}},
			"", "lsclient: this edit can't be undone: disk full\n",
			`{"message":"this edit can't be undone: disk full","severity":"warning","type":"notice"}` + "\n"},
	}
	for name, tt := range tests {
		for _, json := range []bool{false, true} {
			var stdout, stderr strings.Builder
			c := New(Options{Out: &cli.Output{W: &stdout, Err: &stderr, JSON: json},
				Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard})
			c.OutputOnly = strings.Contains(name, "schema")
			for _, e := range tt.events {
				c.Show(e)
			}
			wantOut, wantErr := tt.stdout, tt.stderr
			if json {
				wantOut, wantErr = tt.json, ""
			}
			if stdout.String() != wantOut || stderr.String() != wantErr {
				t.Errorf("%s, --json %v: got stdout\n%s and stderr\n%s\nwant\n%s and\n%s", name,
					json, stdout.String(), stderr.String(), wantOut, wantErr)
			}
		}
	}
}
