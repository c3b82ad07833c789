package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// observed registers a session of a host that reports the events of its runtime.
func (f *apiFixture) observed() *gateway.Session {
	f.t.Helper()
	s, err := f.gateway.Register(gateway.SessionSpec{CWD: f.dir},
		gateway.HostInfo{Kind: "test", RuntimeEvents: true}, scripted{})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func TestAPIRuntimeEvents(t *testing.T) {
	f := newAPIFixture(t)
	s := f.observed()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s.RuntimeEvent(adminapi.RuntimeEvent{
		TS: at, Type: "session.idle", ID: "e1", Ephemeral: true,
		Data: json.RawMessage(`{"a":"<&>"}`),
	})
	s.RuntimeEvent(adminapi.RuntimeEvent{
		TS: at, Type: "new.kind", AgentID: "a1",
		Data: json.RawMessage(`"` + strings.Repeat("x", 70_000) + `"`),
	})
	_, body := f.ask("GET", "/sessions/"+s.ID()+"/log?events=1", "")
	want := `{"seq":1,"ts":"2026-01-02T03:04:05Z","type":"session.idle","id":"e1","ephemeral":true,"data":{"a":"<&>"}}
{"seq":2,"ts":"2026-01-02T03:04:05Z","type":"new.kind","agentId":"a1","data":{"omitted":"70002 bytes"}}`
	if body != want {
		t.Errorf("got\n%s\nwant\n%s", body, want)
	}
	log := f.follow("/sessions/" + s.ID() + "/log?events=1&follow=1")
	defer func() { _ = log.body.Close() }()
	log.next()
	log.next()
	s.RuntimeEvent(adminapi.RuntimeEvent{TS: at, Type: "later", Data: json.RawMessage(`{}`)})
	if got := log.next(); !strings.Contains(got, `"type":"later"`) {
		t.Errorf("followed: got %s, want an event of type later", got)
	}
	if err := s.Stop(context.Background(), "done"); err != nil {
		t.Fatal(err)
	}
	if got := log.next(); got != "end" {
		t.Errorf("after the session's end: got %s, want end", got)
	}
}

// TestAPIRuntimeEventsAreBounded shows that the newest events are kept, up to a number and a size.
func TestAPIRuntimeEventsAreBounded(t *testing.T) {
	f := newAPIFixture(t)
	s := f.observed()
	for i := range 2100 {
		s.RuntimeEvent(adminapi.RuntimeEvent{Type: fmt.Sprint(i), Data: json.RawMessage(`{}`)})
	}
	events, _ := s.RuntimeEvents(0)
	if len(events) != 2000 || events[0].Type != "100" || events[1999].Seq != 2100 {
		t.Errorf("got %d events from %s, want 2000 from 100", len(events), events[0].Type)
	}
	for range 100 {
		big := json.RawMessage(`"` + strings.Repeat("x", 60_000) + `"`)
		s.RuntimeEvent(adminapi.RuntimeEvent{Type: "big", Data: big})
	}
	if events, _ = s.RuntimeEvents(0); len(events) > 10 {
		t.Errorf("got %d events of 60 kB, want at most 10", len(events))
	}
}

func TestAPIUsage(t *testing.T) {
	f := newAPIFixture(t)
	s := f.observed()
	// The context is told before the first call of a prompt, and after it.
	s.SetContextWindow("m1", adminapi.Context{Tokens: 4, Limit: 100, System: 4})
	call := gateway.ModelCall{
		Model:    "a",
		Prompt:   "m1",
		Tokens:   adminapi.Tokens{Input: 10, Output: 2, CacheRead: 3, CacheWrite: 4, Reasoning: 1},
		Cost:     0.5,
		Credits:  0.25,
		Duration: 100 * time.Millisecond,
	}
	s.CountModelCall(call)
	call.Model, call.Failed = "b", true
	s.CountModelCall(call)
	s.CountModelCall(gateway.ModelCall{Model: "a", Prompt: "m2", Tokens: adminapi.Tokens{Input: 5}})
	s.SetContextWindow("m2", adminapi.Context{Tokens: 8, Limit: 100, System: 5, Tools: 2,
		Messages: 1})
	_, body := f.ask("GET", "/sessions/"+s.ID()+"/usage", "")
	var u adminapi.Usage
	if err := json.Unmarshal([]byte(body), &u); err != nil {
		t.Fatal(err)
	}
	if u.Session != s.ID() || u.ContextTokens != 8 || u.ContextLimit != 100 || len(u.Models) != 2 ||
		len(u.Turns) != 2 {
		t.Fatalf("got %s, want two models, two turns and 8 of 100 tokens of context", body)
	}
	want := adminapi.Sums{
		Calls:    3,
		Failures: 1,
		Tokens: adminapi.Tokens{Input: 25, Output: 4, CacheRead: 6, CacheWrite: 8,
			Reasoning: 2},
		Cost:       1,
		AICredits:  0.5,
		DurationMs: 200,
	}
	if u.Total != want {
		t.Errorf("total: got %+v, want %+v", u.Total, want)
	}
	if a := u.Models[0]; a.Model != "a" || a.Calls != 2 || a.Failures != 0 || a.Input != 15 {
		t.Errorf("first model: got %+v, want a, 2 calls, none failed, 15 tokens of input", a)
	}
	if first, second := u.Turns[0], u.Turns[1]; first.Turn != 1 || first.MessageID != "m1" ||
		first.Calls != 2 || first.Failures != 1 ||
		second.Turn != 2 ||
		second.Input != 5 ||
		second.StartedAt.IsZero() {
		t.Errorf("turns: got %+v, want 2 calls with one failure for m1, and 5 tokens for m2",
			u.Turns)
	}
	// of a turn without a call as yet
	s.SetContextWindow("m3", adminapi.Context{Tokens: 9, Limit: 100})
	s.CountModelCall(gateway.ModelCall{Model: "a", Prompt: "m3"})
	var contexts []int64
	for _, turn := range s.Usage().Turns {
		contexts = append(contexts, turn.Context.Tokens)
	}
	if want := []int64{4, 8, 9}; !slices.Equal(contexts, want) || u.Context.Tools != 2 {
		t.Errorf("the context by turn: got %v and now %+v, want %v and 2 of tools", contexts,
			u.Context, want)
	}
	if u.ModelCalls != nil {
		t.Errorf("got %d calls of models that nobody asked for, want none", len(u.ModelCalls))
	}
	// Totals go on when turns and calls fall out.
	for i := range 600 {
		s.CountModelCall(gateway.ModelCall{Model: "a", Prompt: fmt.Sprint("n", i),
			Tokens: adminapi.Tokens{Input: 1}})
	}
	_, body = f.ask("GET", "/sessions/"+s.ID()+"/usage?calls=1", "")
	var all adminapi.Usage
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		t.Fatal(err)
	}
	calls := all.ModelCalls
	if n := len(calls); n != 500 || calls[n-1].MessageID != "n599" || calls[n-1].Input != 1 ||
		calls[n-1].EndedAt.IsZero() {
		t.Errorf("got %d calls of models, want 500 up to that for n599", n)
	}
	if u := s.Usage(); len(u.Turns) != 500 || u.Turns[499].Turn != 603 || u.Total.Input != 625 {
		t.Errorf("got %d turns up to %d and %d tokens, want 500 up to 603 and 625",
			len(u.Turns), u.Turns[len(u.Turns)-1].Turn, u.Total.Input)
	}
	f.expect("GET", "/sessions/"+s.ID()+"/usage?last=1", "", 400, "last…")
	// Sessions without a runtime have usage, but no events.
	f.expect("GET", "/sessions/"+f.session()+"/log?events=1", "", 409, "have no runtime…")
}
