//go:build runtime

package langserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/scriptmodel"
)

// Every result of a tool reaches the model as an honest result: no outcome has a shape that the
// server rejects. The rows are the shapes that break: a bare object, a bare list, a text for the
// content, a missing or unknown status, parts without a value, and a result that is no text at all.
func TestEveryOutcomeIsTaken(t *testing.T) {
	r := shared(t)
	const failed = "Tool call failed with error: "
	for name, tt := range map[string]struct {
		outcome Outcome
		state   State
		model   string // the text that the model sees
	}{
		"one part":         {Succeeded("a"), Completed, "a"},
		"several parts":    {Succeeded("a", "b", "c"), Completed, "a\nb\nc"},
		"no parts":         {Outcome{}, Completed, ""},
		"an empty part":    {Succeeded(""), Completed, ""},
		"empty among them": {Succeeded("a", "", "b"), Completed, "a\n\nb"},
		"no status":        {Outcome{Parts: []string{"a"}}, Completed, "a"},
		"unknown status":   {Outcome{Parts: []string{"a"}, Status: "done"}, Completed, "a"},
		"JSON": {Succeeded(`{"content":"text","status":"success"}`), Completed,
			`{"content":"text","status":"success"}`},
		"a JSON list": {Succeeded(`[{"type":"text","value":"x"}]`), Completed,
			`[{"type":"text","value":"x"}]`},
		"markup": {Succeeded("<b> & \u2028 é \x00 \x1b[31m"), Completed,
			"<b> & \u2028 é \x00 \x1b[31m"},
		"not UTF-8": {Succeeded("a\xff\xfeb"), Completed, "a\ufffd\ufffdb"},
		"an error": {FailedWith(errors.New("no such file")), Failed, failed +
			"no such file"},
		"error, two parts": {Outcome{[]string{"a", "b"}, StatusError}, Failed, failed + "a\nb"},
		"an empty error": {FailedWith(errors.New("")), Failed, failed +
			"the tool failed and did not say why"},
		"error, no parts": {Outcome{Status: StatusError}, Failed, failed +
			"the tool failed and did not say why"},
		"a timeout": {FailedWith(context.DeadlineExceeded), Failed, failed +
			"context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			r.offer(t, tool("answers", func(context.Context, Invocation) Outcome {
				return tt.outcome
			}))
			n := r.requestCount()
			_, e := r.mustTurn(t, "call:answers")
			if call := e.call(t, "answers"); call.State != tt.state {
				t.Errorf("ended as %s: %s, want %v", call.State, call.Error, tt.state)
			}
			requests := r.requestsAfter(n)
			got := strings.TrimSpace(requests[len(requests)-1].LastResult())
			if got != strings.TrimSpace(tt.model) && (tt.model != "" || got != "(empty)") {
				t.Errorf("the model saw %q, want %q", got, tt.model)
			}
		})
	}
}

// A tool's outcome "cancelled" does not change how the turn ends.
func TestCancelledOutcome(t *testing.T) {
	r := shared(t)
	r.offer(t, tool("answers", func(context.Context, Invocation) Outcome {
		return Outcome{[]string{"stopped by the user"}, StatusCancelled}
	}))
	_, e, err := r.turn(t, "call:answers")
	if call := e.call(t, "answers"); call.State != Cancelled {
		t.Errorf("ended as %s, turn with %v, want %v", call.State, err, Cancelled)
	}
}

// Our check and the server's agree, so that the server never refuses a whole batch.
func TestCheckIsTheServers(t *testing.T) {
	r := shared(t)
	for schema, ok := range map[string]bool{
		``: true,
		`{"type":"object","properties":{},"required":[]}`:                                                        true,
		`{"type":"object","properties":{"a":{"type":"string","description":"d","enum":["x"]}},"required":["a"]}`: true,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"a":{"type":"array","description":"d","items":{"type":["string","null"]},"default":[]}},"required":[],"additionalProperties":false,"$defs":{}}`: true,
		`{"type":"object","properties":{"a":{"type":"object","description":"d","properties":{"b":{}}}},"required":[]}`:                                                                                                                           true,
		`{"type":"object","properties":{}}`:                 false,
		`{"type":"object","properties":{},"required":null}`: false,
		`{"type":"object","required":[]}`:                   false,
		`{}`:                                                false,
		`{"type":["object"],"properties":{},"required":[]}`: false,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":[]}`:                               false,
		`{"type":"object","properties":{"a":{"description":"d"}},"required":[]}`:                             false,
		`{"type":"object","properties":{"a":{"type":["string","null"],"description":"d"}},"required":[]}`:    false,
		`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"}],"description":"d"}},"required":[]}`: false,
		`{"type":"object","properties":{"a":true},"required":[]}`:                                            false,
	} {
		t1 := Tool{Name: "checked", Description: "d", Call: answeringTool("", "").Call}
		if schema != "" {
			t1.Parameters = []byte(schema)
		}
		r.tools.updating.Lock()
		if r.tools.registered == nil {
			r.tools.registered = map[string][]byte{}
		}
		err := r.tools.send(within(t), []Tool{t1})
		r.tools.updating.Unlock()
		if (err == nil) != ok || err != nil && !isRefused(err) {
			t.Errorf("the server on %s: %v, want taken: %v", schema, err, ok)
		}
		if reason := check(t1); (reason == "") != ok {
			t.Errorf("we on %s: %q, want taken: %v", schema, reason, ok)
		}
		// A strict schema stays as it is, and any other becomes strict.
		t1.Parameters = StrictSchema(t1.Parameters)
		if faults, err := r.SetTools(within(t), []Tool{t1}); err != nil || len(faults) > 0 {
			t.Errorf("made strict: %s: %v %v, want no error and none", t1.Parameters, faults, err)
		}
	}
}

// A bad tool is named, and the others are registered.
func TestBadToolsAreNamed(t *testing.T) {
	r := shared(t)
	bad := answeringTool("bad", "x")
	bad.Parameters = []byte(`{"type":"object","properties":{"a":{"type":"string"}},"required":[]}`)
	mute := answeringTool("mute", "x")
	mute.Description = ""
	faults, err := r.SetTools(within(t), []Tool{answeringTool("good", "1"), bad, mute,
		answeringTool("bad name!", "x"),
		answeringTool("also_good", "2"), answeringTool("good", "3"),
		{Name: "empty", Description: "d"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`tool "bad": property "a" needs a "description"`,
		`tool "mute": the description is missing`,
		`tool "bad name!": a name is 1 to 64`,
		`tool "good": a second tool has this name`,
		`tool "empty": it has no Call`,
	}
	for i, f := range faults {
		if i >= len(want) || !strings.HasPrefix(f.Error(), want[i]) {
			t.Errorf("fault %q, want those of %q", f.Error(), want)
		}
	}
	if len(faults) != len(want) {
		t.Errorf("%d faults, want %d", len(faults), len(want))
	}
	if result, _ := r.mustTurn(t, "call:good\ncall:also_good"); result.Text != "1\n2" {
		t.Errorf("the good ones said %q, want %q", result.Text, "1\n2")
	}
}

// A tool that only the server refuses is named, and only that one is left out.
func TestServersOwnRefusal(t *testing.T) {
	r := shared(t)
	r.offer(t, answeringTool("first", "old"))
	list := []Tool{answeringTool("first", "new"), answeringTool("second", "2")}
	// check has not seen this schema
	list[0].Parameters = []byte(`{"type":"object","properties":{},"required":[1]}`)
	r.tools.updating.Lock()
	faults, err := r.tools.register(within(t), list)
	r.tools.updating.Unlock()
	if err != nil || len(faults) != 1 || faults[0].Tool != "first" ||
		!strings.Contains(faults[0].Reason, "refuses it") {
		t.Errorf(`%v %v, want one of "first" that the server refuses it`, faults, err)
	}
	n := r.requestCount()
	r.mustTurn(t, "call:second")
	if names := r.requestsAfter(n)[0].ToolNames(); slices.Contains(names, "first") ||
		!slices.Contains(names, "second") {
		t.Errorf("the model has %q, want second without first", names)
	}
}

// Tools come, change and go while a turn runs: the model's next request shows it,
// and a fault among them leaves the rest.
func TestToolsChangeInMidTurn(t *testing.T) {
	r := shared(t)
	described := func(name, text string) Tool {
		t := answeringTool(name, text)
		t.Description = text
		return t
	}
	broken := answeringTool("third", "x")
	broken.Parameters = []byte(`{}`)
	var steps []func(stay Tool)
	var stay Tool
	step := 0
	stay = tool("next", func(context.Context, Invocation) Outcome {
		steps[step](stay)
		step++
		return Succeeded(fmt.Sprint(step))
	})
	set := func(wantFaults int, list ...Tool) {
		if faults, err := r.SetTools(context.Background(), list); err != nil ||
			len(faults) != wantFaults {
			t.Errorf("step %d: %v %v, want no error and %v of them", step, faults, err, wantFaults)
		}
	}
	steps = []func(Tool){
		// added
		func(stay Tool) { set(0, stay, described("first", "one")) },
		// another definition
		func(stay Tool) { set(0, stay, described("first", "two")) },
		// one more
		func(stay Tool) { set(0, stay, described("first", "two"), described("second", "one")) },
		// one gone, one broken
		func(stay Tool) { set(1, stay, described("second", "one"), broken) },
		func(stay Tool) { set(0, stay) }, // all gone
	}
	r.offer(t, stay)
	r.cloud.SetReply(func(req *scriptmodel.Request) scriptmodel.Reply {
		if step < len(steps) {
			return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: "next"}}}
		}
		return scriptmodel.Reply{Text: "done"}
	})
	n := r.requestCount()
	r.mustTurn(t, "go")
	var seen []string
	for _, req := range r.requestsAfter(n) {
		var have []string
		for _, tool := range req.Tools {
			if tool.Name == "first" || tool.Name == "second" || tool.Name == "third" {
				have = append(have, tool.Name+" "+tool.Description)
			}
		}
		slices.Sort(have)
		seen = append(seen, strings.Join(have, ", "))
	}
	want := []string{"", "first one", "first two", "first two, second one", "second one", ""}
	if !slices.Equal(seen, want) {
		t.Errorf("the model's requests showed %q, want %q", seen, want)
	}
}

// A tool that is replaced under the same definition is called anew from then on.
func TestToolIsReplaced(t *testing.T) {
	r := shared(t)
	r.offer(t, answeringTool("changes", "before"))
	r.offer(t, answeringTool("changes", "after"))
	if result, _ := r.mustTurn(t, "call:changes"); result.Text != "after" {
		t.Errorf("said %q, want %q", result.Text, "after")
	}
}

// The server has no tool of its own that works with files: a model has at most ours, in each mode.
func TestServersOwnToolsAreGone(t *testing.T) {
	r := shared(t)
	offered := func(mode Mode) []string {
		n := r.requestCount()
		v := r.NewConversation(ConversationOptions{Mode: mode})
		if _, err := v.Turn(within(t), "hello", nil); err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(
			r.requestsAfter(n)[0].ToolNames(),
			func(name string) bool { return name == "validate_cves" },
		)
	}
	for _, mode := range []Mode{Agent, Ask} {
		if got := offered(mode); len(got) > 0 {
			t.Errorf("without ours, mode %s has %q, want none", mode, got)
		}
	}
	var list []Tool
	for _, name := range []string{"read_file", "list_dir", "file_search", "grep_search",
		"create_file",
		"insert_edit_into_file", "apply_patch"} {
		list = append(list, answeringTool(name, "ours "+name))
	}
	r.offer(t, list...)
	if got := offered(Agent); len(got) != len(list) {
		t.Errorf("with %d of ours, the model has %q, want %v of them", len(list), got, len(list))
	}
	for _, tool := range list {
		result, e := r.mustTurn(t, "call:"+tool.Name)
		if call := e.call(t, tool.Name); result.Text != "ours "+tool.Name || call.Type != "client" {
			t.Errorf("%s said %q (%+v), want ours to run", tool.Name, result.Text, call)
		}
	}
}

// A call of a removed tool fails with a text for the model.
func TestToolThatIsGone(t *testing.T) {
	r := shared(t)
	r.cloud.SetReply(func(req *scriptmodel.Request) scriptmodel.Reply {
		if req.LastResult() != "" {
			return scriptmodel.Reply{Text: req.LastResult()}
		}
		return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: "gone"}}}
	})
	if result, _ := r.mustTurn(t, "hello"); !strings.Contains(result.Text, "gone") {
		t.Errorf(`the model saw %q, want "gone" in it`, result.Text)
	}
}

// More tools than the server takes would fail every turn: the last are left out.
func TestTooManyTools(t *testing.T) {
	r := shared(t)
	var list []Tool
	for i := range 130 {
		list = append(list, answeringTool(fmt.Sprintf("tool_%d", i), fmt.Sprint(i)))
	}
	faults, err := r.SetTools(within(t), list)
	if err != nil || len(faults) < 2 || faults[len(faults)-1].Tool != "tool_129" ||
		!strings.Contains(faults[0].Reason, "128 tools in all") {
		t.Fatalf("%v %v, want faults from tool_129 on, of 128 tools in all", faults, err)
	}
	if result, _ := r.mustTurn(t, "call:tool_0"); result.Text != "0" {
		t.Errorf("said %q, want %q", result.Text, "0")
	}
	// The same again changes nothing.
	again, err := r.SetTools(within(t), list)
	if err != nil || len(again) != len(faults) {
		t.Errorf("%d faults, then %d, %v, want the same faults twice", len(faults), len(again), err)
	}
}

// The gate sees each call before the tool does.
func TestGate(t *testing.T) {
	r := shared(t)
	ran := 0
	r.offer(t, tool("gated", func(context.Context, Invocation) Outcome {
		ran++
		return Succeeded("ran")
	}))
	verdict := func(deny, added string) {
		r.set(func() {
			r.gate = func(_ context.Context, call Invocation) (string, string) {
				if call.Tool != "gated" || string(call.Input) != `{"text":"x"}` ||
					call.ConversationID == "" {
					t.Errorf("asked about %+v, want the call of gated with its conversation", call)
				}
				if deny == "panic" {
					panic("the gate")
				}
				return deny, added
			}
		})
	}
	for _, tt := range []struct {
		deny, added string
		state       State
		model       string
		runs        int
	}{
		{"", "", Completed, "ran", 1},
		{"", "mind the step", Completed, "ran\nmind the step", 1},
		{"the build is red", "", Failed, "Tool call failed with error: the build is red", 0},
		{"panic", "", Failed,
			"Tool call failed with error: gated was not allowed: the gate broke down", 0},
	} {
		verdict(tt.deny, tt.added)
		ran = 0
		result, e := r.mustTurn(t, `call:gated {"text":"x"}`)
		if state := e.call(t, "gated").State; result.Text != tt.model || ran != tt.runs ||
			state != tt.state {
			t.Errorf(
				"deny %q, context %q: the model saw %q, %s, ran %d times, want %q, %s and %d runs",
				tt.deny, tt.added, result.Text, state, ran, tt.model, tt.state, tt.runs,
			)
		}
	}
}

// The tools that the server still has of its own can be hidden.
func TestHideOwnTools(t *testing.T) {
	r := newRig(t)
	r.offer(t, answeringTool("mine", "x"))
	if err := r.HideOwnTools(within(t)); err != nil {
		t.Fatal(err)
	}
	r.mustTurn(t, "hello")
	if got, want := r.requestsAfter(0)[0].ToolNames(), []string{"mine"}; !slices.Equal(got, want) {
		t.Errorf("the model has %q, want %q", got, want)
	}
}
