package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// gatekeeper is a provider in process whose gates are asked about every tool:
// "yes" allows, "no" denies, "hm" adds context, and "mute" says nothing.
type gatekeeper struct {
	name string
	conn *gateway.Conn
	in   chan protocol.Message
}

func (k *gatekeeper) Send(m protocol.Message)          { k.in <- m }
func (k *gatekeeper) Flush()                           {}
func (k *gatekeeper) Close(protocol.CloseCode, string) { close(k.in) }

func (f *apiFixture) gatekeep(session, name string, failOpen bool) {
	f.t.Helper()
	k := &gatekeeper{name: name, in: make(chan protocol.Message, 100)}
	k.conn = f.gateway.Connect(k, gateway.ConnOptions{})
	bound, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for m := range k.in {
			switch m := m.(type) {
			case *protocol.Sessions:
				k.conn.Receive(fmt.Appendf(nil, `{"type":"hello","protocolVersion":2,"name":%q,"session":%q,
					"hooks":{"onPreToolUse":[{"match":{"tool":"echo"},"action":"gate","gateId":"g","failOpen":%v}]}}`, name, session, failOpen))
			case *protocol.HelloAck:
				close(bound)
			case *protocol.GateCheck:
				if answer := map[string]string{"yes": `"allow"`, "no": `"deny","reason":"not now"`,
					"hm": `"context","reason":"be careful"`}[name]; answer != "" {
					k.conn.Receive(fmt.Appendf(nil,
						`{"type":"gate.result","gateId":"g","callId":%q,"decision":%s}`, m.CallID,
						answer))
				}
			case *protocol.SessionLifecycle:
				k.conn.Receive([]byte(`{"type":"shutdown.ready"}`))
			}
		}
		k.conn.Closed()
	}()
	f.t.Cleanup(func() { f.gateway.Drain(context.Background()); <-done })
	k.conn.Receive(fmt.Appendf(nil, `{"type":"auth","token":%q}`, f.gateway.InstanceToken()))
	<-bound
}

func (f *apiFixture) diagnostics() adminapi.Diagnostics {
	f.t.Helper()
	status, body := f.ask("GET", "/diagnostics", "")
	var d adminapi.Diagnostics
	if err := json.Unmarshal([]byte(body), &d); err != nil || status != 200 {
		f.t.Fatalf("%d %s: %v, want no error and 200", status, body, err)
	}
	return d
}

// Who looks for a fault finds the calls, errors and refused pushes.
func TestDiagnostics(t *testing.T) {
	f := newAPIFixture(t)
	if _, body := f.ask("GET", "/diagnostics",
		""); body != `{"calls":[],"errors":[],"gates":[],"providers":[],"pushes":[]}` {
		t.Errorf("an empty gateway: got %s, want empty lists", body)
	}
	id := f.session()
	f.provide(id)
	s, _ := f.gateway.Session(id)
	for _, call := range []string{`echo {"text":"x"}`, `echo {}`, `fail {}`, `risky {}`} {
		tool, args, _ := strings.Cut(call, " ")
		if status, body := f.ask("POST", "/sessions/"+id+"/tools/"+tool+"/call",
			`{"args":`+args+`}`); status != 200 {
			t.Fatalf("%s: %d %s, want 200", call, status, body)
		}
	}
	s.CallTool(t.Context(), gateway.Call{Name: "none"})
	s.Event(gateway.Event{SessionError: strings.Repeat("the model is gone ", 1000)})
	for range protocol.PushRate + 3 {
		_, _ = f.ask("POST", "/sessions/"+id+"/push", `{"event":"x","level":"keep"}`)
	}
	d := f.diagnostics()
	var calls []string
	for _, c := range d.Calls {
		if c.Session != id || c.StartedAt.IsZero() || c.DurationMs < 0 ||
			(c.ID != "") != (c.Outcome == "ok" || c.Tool == "fail") {
			t.Errorf("the call is %+v, want a time, session %v, and an id if it reached a provider",
				c, id)
		}
		calls = append(calls, fmt.Sprintf("%s %s %s %s", c.Provider, c.Tool, c.Outcome,
			c.ErrorCode))
	}
	if want := []string{" none failed NOT_FOUND", " risky failed DENIED",
		"sample fail failed NOT_FOUND", " echo failed INVALID_ARGUMENTS",
		"sample echo ok "}; !slices.Equal(
		calls,
		want,
	) {
		t.Errorf("the calls are %q, want %q", calls, want)
	}
	if len(d.Errors) != 1 || d.Errors[0].Session != id ||
		d.Errors[0].Code != adminapi.CodeSession || len(d.Errors[0].Message) > 1100 {
		t.Errorf(
			"the errors are %.300v, want one, short, of session %v with code %v",
			d.Errors, id, adminapi.CodeSession,
		)
	}
	if len(d.Gates) != 1 || d.Gates[0].Decision != "deny" || d.Gates[0].Reason != "too risky" ||
		d.Gates[0].Provider != "sample" || d.Gates[0].Tool != "risky" {
		t.Errorf(`the gates are %+v, want that of sample, which denied risky: "too risky"`, d.Gates)
	}
	if p := d.Providers; len(p) != 1 || p[0].Name != "sample" || p[0].Calls != 2 ||
		p[0].Errors != 1 || p[0].InFlight != 0 || p[0].P99Ms < p[0].P50Ms || p[0].P50Ms <= 0 {
		t.Errorf(
			"the providers are %+v, want sample with 2 calls, 1 error, none in flight and its times", d.Providers)
	}
	if p := d.Pushes; len(p) != 1 || p[0].Provider != "tapctl" || p[0].Session != id ||
		p[0].Limit != protocol.PushRate || p[0].Dropped < 1 || p[0].Used < 1 {
		t.Errorf(
			"the pushes are %+v, want that of tapctl in session %v, %d of which some were dropped",
			d.Pushes, id, protocol.PushRate,
		)
	}
}

// Each gate's decision is there, with how long it took; one that says nothing
// denies at its time, unless it may be left out.
func TestDiagnosticsGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateway.New(
			gateway.Options{Starters: map[string]gateway.Starter{
				gateway.HostLocal: gateway.LocalStarter{},
			}},
		)
		f := &apiFixture{t: t, gateway: g}
		s, err := g.Start(t.Context(), gateway.StartRequest{Host: gateway.HostLocal,
			CWD: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		f.provide(s.ID())
		call := func() string {
			return s.CallTool(t.Context(),
				gateway.Call{Name: "echo", Args: protocol.Raw(`{"text":"x"}`),
					AskGates: true}).
				Text()
		}
		gates := func() (list []string) {
			for _, n := range g.Diagnostics().Gates {
				list = append(list, fmt.Sprintf("%s %s %s %v", n.Provider, n.Decision, n.Reason,
					n.DurationMs))
			}
			return list
		}
		f.gatekeep(s.ID(), "yes", false)
		f.gatekeep(s.ID(), "hm", false)
		if got := call(); !strings.Contains(got, "echoed") {
			t.Errorf(`the call: %s, want "echoed" in it`, got)
		}
		got := gates()
		slices.Sort(got)
		if want := []string{"hm context be careful 0", "yes allow  0"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		f.gatekeep(s.ID(), "mute", true)
		if got := call(); !strings.Contains(got, "echoed") {
			t.Errorf(`the call: %s, want "echoed" in it`, got)
		}
		if got := gates(); got[0] != "mute allow Gate provider 'mute' did not respond in time. 5000" {
			t.Errorf("got %q, want %q", got,
				"mute allow Gate provider 'mute' did not respond in time. 5000")
		}
		f.gatekeep(s.ID(), "no", false)
		if got := call(); !strings.Contains(got, "not now") {
			t.Errorf(`the call: %s, want "not now" in it`, got)
		}
		if got := gates(); !slices.Contains(got[:3], "no deny not now 0") {
			t.Errorf(`got %q, want "no deny not now 0" among them`, got)
		}
		// A decision has its call and its rule, which is one of those in force.
		notes := g.Diagnostics().Gates
		last := notes[slices.IndexFunc(notes, func(n adminapi.GateNote) bool {
			return n.Decision == "deny"
		})]
		rules := s.Rules()
		isOf := func(r adminapi.SessionRule) bool {
			return r.Session == last.Session && r.Provider == last.Provider && r.Rule == last.Rule
		}
		if len(rules) != 5 || !slices.ContainsFunc(rules, isOf) || last.Rule.Action != "gate" ||
			last.Args != `{"text":"x"}` || last.Tool != "echo" {
			t.Errorf(
				"the rules are %+v, and the last decision is %+v; want five, one of them its rule",
				rules, last)
		}
		g.Drain(t.Context())
	})
}
