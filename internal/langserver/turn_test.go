//go:build runtime

package langserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"tapgw/internal/scriptmodel"
	"tapgw/internal/taptest/cloud"
)

func TestTurnWithText(t *testing.T) {
	r := shared(t)
	const said = "first\nsecond <line> & é\nthird"
	pause := make(chan struct{})
	r.cloud.SetReply(func(*scriptmodel.Request) scriptmodel.Reply {
		return scriptmodel.Reply{Text: said, Pause: pause}
	})
	var text strings.Builder
	v := r.NewConversation(ConversationOptions{})
	result, err := v.Turn(within(t), "hello", func(e Event) {
		d, ok := e.(Text)
		if !ok {
			return
		}
		// The model holds back the rest until the first line is here.
		if text.String() == "" {
			close(pause)
		}
		if text.WriteString(d.Delta); d.Round != 1 {
			t.Errorf("round %d, want 1", d.Round)
		}
	})
	if err != nil || result.Text != said || result.Model != "Test gpt-4.1" || result.ID == "" {
		t.Errorf("the result is %+v, %v, want %q of Test gpt-4.1 with an id", result, err, said)
	}
	if text.String() != said {
		t.Errorf("said %q, want %q", text.String(), said)
	}
	if result.Usage.Prompt == 0 || result.Usage.Completion == 0 {
		t.Errorf("usage %+v, want both above 0", result.Usage)
	}
}

func TestReasoning(t *testing.T) {
	r := shared(t)
	r.cloud.SetReply(func(*scriptmodel.Request) scriptmodel.Reply {
		return scriptmodel.Reply{Reasoning: "let me think", Text: "done"}
	})
	result, e := r.mustTurn(t, "hello")
	var thought strings.Builder
	for _, event := range e.list {
		if d, ok := event.(Reasoning); ok {
			thought.WriteString(d.Delta)
		}
	}
	if thought.String() != "let me think" || result.Text != "done" {
		t.Errorf("thought %q, said %q, want %q", thought.String(), result.Text, "done")
	}
}

func TestTurnWithTool(t *testing.T) {
	r := shared(t)
	var got Invocation
	r.offer(t, tool("echo_tool", func(_ context.Context, call Invocation) Outcome {
		got = call
		return Succeeded("one "+string(call.Input), "two")
	}))
	v := r.NewConversation(ConversationOptions{ID: "the-conversation"})
	defer func() { _ = v.Close(within(t)) }()
	e := &events{}
	result, err := v.Turn(within(t),
		`call:echo_tool {"text":"<hi> & é","n":12345678901234567890,"a":[1.50]}`, e.add)
	if err != nil {
		t.Fatal(err)
	}
	// through JavaScript's numbers
	const input = `{"text":"<hi> & é","n":12345678901234567000,"a":[1.5]}`
	if string(got.Input) != input || got.ConversationID != "the-conversation" ||
		got.Tool != "echo_tool" || got.CallID == "" || got.TurnID != result.ID || got.Round != 1 {
		t.Errorf("the call is %+v, want echo_tool with %s in round 1 of turn %s", got, input,
			result.ID)
	}
	if want := "one " + input + "\ntwo"; result.Text != want {
		t.Errorf("text %q, want %q", result.Text, want)
	}
	if want := []string{"echo_tool running", "echo_tool completed"}; !slices.Equal(e.calls(),
		want) {
		t.Errorf("states %q, want %q", e.calls(), want)
	}
	if call := e.call(t, "echo_tool"); call.ID != got.CallID || call.Type != "client" ||
		!strings.HasSuffix(call.Result, "two") {
		t.Errorf("the event is %+v, want call %s of the client with its result", call, got.CallID)
	}
	// The model remembers.
	n := r.requestCount()
	if result, err = v.Turn(within(t), "again", nil); err != nil ||
		result.Text != "You said: again" {
		t.Errorf("the second turn: %+v, %v, want You said: again", result, err)
	}
	if req := r.requestsAfter(n)[0]; req.LastResult() == "" {
		t.Error("the request of the second turn has no tool result, want that of the first turn")
	}
}

// A conversation that only asks has no tools.
func TestTurnThatAsks(t *testing.T) {
	r := shared(t)
	r.offer(
		t,
		answeringTool("echo_tool", "x"),
		answeringTool("create_file", "x"),
		answeringTool("insert_edit_into_file", "x"),
	)
	r.cloud.SetReply(func(req *scriptmodel.Request) scriptmodel.Reply {
		if names := req.ToolNames(); len(names) > 0 {
			t.Errorf("it has the tools %q, want none", names)
		}
		return scriptmodel.Reply{Text: "I ask\nand more"}
	})
	v := r.NewConversation(ConversationOptions{Mode: Ask, Model: "scripted"})
	defer func() { _ = v.Close(within(t)) }()
	result, err := v.Turn(within(t), "hello", nil)
	if err != nil || result.Text != "I ask\nand more" || result.Model != "Test scripted" {
		t.Errorf("the result is %+v, %v, want %q of Test scripted", result, err, "I ask\nand more")
	}
}

func TestModels(t *testing.T) {
	r := shared(t)
	models, err := r.Models(within(t))
	if err != nil || len(models) < 2 || models[0].ID != "scripted" ||
		models[0].Limits.Context != 128000 || models[0].Name != "Test scripted" {
		t.Fatalf("the models are %+v, %v, want two or more with scripted, of 128000 tokens, first",
			models, err)
	}
	if id, ok := DefaultModel(models); !ok || id != "gpt-4.1" {
		t.Errorf("default %s, want %q", id, "gpt-4.1")
	}
	// No model given: the default.
	n := r.requestCount()
	r.mustTurn(t, "hello")
	if req := r.requestsAfter(n)[0]; req.Model != "gpt-4.1" {
		t.Errorf("model %s, want %q", req.Model, "gpt-4.1")
	}
	// An unknown one is an error that names the others, and starts no turn.
	v := r.NewConversation(ConversationOptions{Model: "gpt-99"})
	_, err = v.Turn(within(t), "hello", nil)
	unknown, ok := errors.AsType[*UnknownModelError](err)
	if !ok || unknown.ID != "gpt-99" || !slices.Contains(unknown.Known, "scripted") ||
		!strings.Contains(err.Error(), `no model "gpt-99": there are scripted, gpt-4.1`) {
		t.Errorf("%v, want an error that names gpt-99 and the known models", err)
	}
	// The conversation goes on with another.
	if err := v.SetModel(within(t), "scripted"); err != nil {
		t.Fatal(err)
	}
	if _, unknown := errors.AsType[*UnknownModelError](v.SetModel(within(t), "gpt-99")); !unknown {
		t.Error("an unknown model was taken, want an UnknownModelError")
	}
	if result, err := v.Turn(within(t), "hello", nil); err != nil ||
		result.Model != "Test scripted" {
		t.Errorf("after an unknown model was refused: %+v %v, want Test scripted", result, err)
	}
}

// Two conversations run at once, each with its own calls and events.
func TestTwoConversations(t *testing.T) {
	r := shared(t)
	both := make(chan struct{}, 2)
	meet := make(chan struct{})
	r.offer(t, tool("meet", func(_ context.Context, call Invocation) Outcome {
		both <- struct{}{}
		<-meet
		return Succeeded("met in " + call.ConversationID)
	}))
	var all sync.WaitGroup
	for _, id := range []string{"left", "right"} {
		all.Go(func() {
			v := r.NewConversation(ConversationOptions{ID: id})
			e := &events{}
			result, err := v.Turn(within(t), "call:meet", e.add)
			if err != nil || result.Text != "met in "+id {
				t.Errorf("%s: %+v %v, want no error and Text %v", id, result, err, "met in "+id)
			}
			if len(e.calls()) != 2 {
				t.Errorf("%s: %v, want two", id, e)
			}
		})
	}
	<-both
	<-both
	close(meet)
	all.Wait()
}

// Turns of one conversation run one after the other, because the server would lose the end of the
// earlier one.
func TestTurnsOfOneConversationWait(t *testing.T) {
	r := shared(t)
	gate := make(chan struct{})
	r.cloud.SetReply(func(req *scriptmodel.Request) scriptmodel.Reply {
		if cloud.Prompt(req) == "first" {
			return scriptmodel.Reply{Text: "one", Gate: gate}
		}
		return scriptmodel.Reply{Text: "two"}
	})
	v := r.NewConversation(ConversationOptions{})
	n := r.requestCount()
	first := make(chan error, 1)
	go func() {
		result, err := v.Turn(within(t), "first", nil)
		if err == nil && result.Text != "one" {
			err = fmt.Errorf("said %q", result.Text)
		}
		first <- err
	}()
	if _, err := r.cloud.WaitRequest(within(t), n+1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if _, err := v.Turn(ctx, "second", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a turn while another runs: %v, want %v", err, context.Canceled)
	}
	second := make(chan error, 1)
	go func() {
		_, err := v.Turn(within(t), "second", nil)
		second <- err
	}()
	close(gate)
	if err := errors.Join(<-first, <-second); err != nil {
		t.Error(err)
	}
}

// The model sees the turns of an earlier server; of too many, the newest with their answers.
func TestEarlierTurns(t *testing.T) {
	r := shared(t)
	long := strings.Repeat("word ", 2000)
	tests := map[string]struct {
		earlier   []EarlierTurn
		sees, not []string
		notice    string
	}{
		"few": {[]EarlierTurn{{"first prompt", "first answer"}, {"second prompt", "second answer"}},
			[]string{"user: first prompt", "assistant: first answer", "assistant: second answer"},
			[]string{"left out"}, ""},
		"many": {slices.Concat([]EarlierTurn{{"oldest", "eldest"}},
			slices.Repeat([]EarlierTurn{{long, long}}, 20), []EarlierTurn{{"newest", "newer"}}),
			[]string{
				"user: newest",
				"assistant: newer",
				"assistant: word",
				"are left out",
			}, []string{"oldest", "eldest"},
			"of 22 earlier turns"},
	}
	for name, tt := range tests {
		before := r.requestCount()
		v := r.NewConversation(ConversationOptions{Earlier: tt.earlier})
		e := &events{}
		if _, err := v.Turn(within(t), "what now?", e.add); err != nil {
			t.Fatalf("%s: got %v, want no error", name, err)
		}
		var seen strings.Builder
		for _, m := range r.requestsAfter(before)[0].Messages {
			seen.WriteString(m.Role + ": " + m.Text + "\n")
		}
		for _, want := range append(tt.sees, "what now?") {
			if !strings.Contains(seen.String(), want) {
				t.Errorf("%s: the model sees %.2000s, want %q in it", name, seen.String(), want)
			}
		}
		for _, not := range tt.not {
			if strings.Contains(seen.String(), not) {
				t.Errorf("%s: the model sees %q, want it left out", name, not)
			}
		}
		if got := e.String(); tt.notice != "" && !strings.Contains(got, tt.notice) ||
			tt.notice == "" && strings.Contains(got, "Notice") {
			t.Errorf("%s: got the events %s, want a notice %q", name, got, tt.notice)
		}
		before = r.requestCount()
		if _, err := v.Turn(within(t), "and then?", nil); err != nil {
			t.Fatalf("%s: the next turn: got %v, want no error", name, err)
		}
		if got := r.requestsAfter(before)[0].Messages; !strings.Contains(fmt.Sprint(got),
			"what now?") {
			t.Errorf("%s: the next turn's request has %v, want the prompt of the turn before in it",
				name, got)
		}
	}
}
