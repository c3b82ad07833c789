package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// observed registers a session of a host that tells its runtime's events.
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
	s.RuntimeEvent(
		adminapi.RuntimeEvent{
			TS: at, Type: "session.idle", ID: "e1", Ephemeral: true, Data: json.RawMessage(`{"a":"<&>"}`),
		},
	)
	s.RuntimeEvent(
		adminapi.RuntimeEvent{
			TS: at, Type: "new.kind", AgentID: "a1", Data: json.RawMessage(`"` + strings.Repeat("x", 70_000) + `"`),
		},
	)
	_, body := f.ask("GET", "/sessions/"+s.ID()+"/log?events=1", "")
	want := `{"seq":1,"ts":"2026-01-02T03:04:05Z","type":"session.idle","id":"e1","ephemeral":true,"data":{"a":"<&>"}}
{"seq":2,"ts":"2026-01-02T03:04:05Z","type":"new.kind","agentId":"a1","data":{"omitted":"70002 bytes"}}`
	if body != want {
		t.Errorf("got\n%s", body)
	}
	log := f.follow("/sessions/" + s.ID() + "/log?events=1&follow=1")
	defer func() { _ = log.body.Close() }()
	log.next()
	log.next()
	s.RuntimeEvent(adminapi.RuntimeEvent{TS: at, Type: "later", Data: json.RawMessage(`{}`)})
	if got := log.next(); !strings.Contains(got, `"type":"later"`) {
		t.Errorf("followed %s", got)
	}
	if err := s.Stop(context.Background(), "done"); err != nil {
		t.Fatal(err)
	}
	if got := log.next(); got != "end" {
		t.Errorf("after the session's end %s", got)
	}
}

// The newest are kept, by number and by size.
func TestAPIRuntimeEventsAreBounded(t *testing.T) {
	f := newAPIFixture(t)
	s := f.observed()
	for i := range 2100 {
		s.RuntimeEvent(adminapi.RuntimeEvent{Type: fmt.Sprint(i), Data: json.RawMessage(`{}`)})
	}
	events, _ := s.RuntimeEvents(0)
	if len(events) != 2000 || events[0].Type != "100" || events[1999].Seq != 2100 {
		t.Errorf("%d are kept, from %s", len(events), events[0].Type)
	}
	for range 100 {
		s.RuntimeEvent(
			adminapi.RuntimeEvent{Type: "big", Data: json.RawMessage(`"` + strings.Repeat("x", 60_000) + `"`)},
		)
	}
	if events, _ = s.RuntimeEvents(0); len(events) > 10 {
		t.Errorf("%d of 60 kB each are kept", len(events))
	}
}

func TestAPIUsage(t *testing.T) {
	f := newAPIFixture(t)
	s := f.observed()
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
	s.SetContextWindow(8, 100)
	_, body := f.ask("GET", "/sessions/"+s.ID()+"/usage", "")
	var u adminapi.Usage
	if err := json.Unmarshal([]byte(body), &u); err != nil {
		t.Fatal(err)
	}
	if u.Session != s.ID() || u.ContextTokens != 8 || u.ContextLimit != 100 || len(u.Models) != 2 || len(u.Turns) != 2 {
		t.Fatalf("got %s", body)
	}
	want := adminapi.Sums{
		Calls:      3,
		Failures:   1,
		Tokens:     adminapi.Tokens{Input: 25, Output: 4, CacheRead: 6, CacheWrite: 8, Reasoning: 2},
		Cost:       1,
		AICredits:  0.5,
		DurationMs: 200,
	}
	if u.Total != want {
		t.Errorf("in all %+v", u.Total)
	}
	if a := u.Models[0]; a.Model != "a" || a.Calls != 2 || a.Failures != 0 || a.Input != 15 {
		t.Errorf("of a model %+v", a)
	}
	if first, second := u.Turns[0], u.Turns[1]; first.Turn != 1 || first.MessageID != "m1" || first.Calls != 2 ||
		first.Failures != 1 ||
		second.Turn != 2 ||
		second.Input != 5 ||
		second.StartedAt.IsZero() {
		t.Errorf("by turn %+v", u.Turns)
	}
	// Totals go on when turns fall out.
	for i := range 600 {
		s.CountModelCall(gateway.ModelCall{Model: "a", Prompt: fmt.Sprint("n", i), Tokens: adminapi.Tokens{Input: 1}})
	}
	if u := s.Usage(); len(u.Turns) != 500 || u.Turns[499].Turn != 602 || u.Total.Input != 625 {
		t.Errorf("%d turns to %d, %d tokens", len(u.Turns), u.Turns[len(u.Turns)-1].Turn, u.Total.Input)
	}
	if status, body := f.ask("GET", "/sessions/"+s.ID()+"/usage?last=1", ""); status != 400 ||
		!strings.Contains(body, "last") {
		t.Errorf("a parameter that there is not: %d %s", status, body)
	}
	// Sessions without a runtime have usage, but no events.
	if status, body := f.ask("GET", "/sessions/"+f.session()+"/log?events=1", ""); status != 409 ||
		!strings.Contains(body, "have no runtime") {
		t.Errorf("events of a local session: %d %s", status, body)
	}
}
