package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/taptest/membus"
)

// machine is a gateway of a test's cluster.
type machine struct {
	t       *testing.T
	name    string
	gateway *gateway.Gateway
	cluster *Cluster
}

func newMachine(t *testing.T, b Bus, name string, change func(*Options)) *machine {
	t.Helper()
	g := gateway.New(gateway.Options{
		Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}},
	})
	o := Options{Gateway: g, Log: slog.New(slog.DiscardHandler), Version: "test", Name: name,
		Share: []string{"*"}, Admit: map[string]gateway.Trust{}}
	for _, other := range []string{"a", "b", "c"} {
		if other != name {
			o.Admit[other] = gateway.TrustProject
		}
	}
	if change != nil {
		change(&o)
	}
	c, err := Start(o, b)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{t, name, g, c}
}

func (m *machine) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	m.gateway.Drain(ctx)
	m.cluster.Close()
}

func (m *machine) session(label string) *gateway.Session {
	m.t.Helper()
	s, err := m.gateway.Start(m.t.Context(), gateway.StartRequest{Host: gateway.HostLocal, CWD: "/",
		Label: label})
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// provider is a provider of a test. It keeps the messages that it gets.
type provider struct {
	t    *testing.T
	conn *Conn

	mu     sync.Mutex
	got    []protocol.Message
	closed string
}

func (m *machine) connect(token string) *provider {
	p := &provider{t: m.t}
	p.conn = m.cluster.Connect(p, gateway.ConnOptions{})
	p.send(fmt.Sprintf(`{"type":"auth","token":%q}`, token))
	return p
}

func (p *provider) send(text string) {
	p.conn.Receive([]byte(text))
	synctest.Wait()
}

func (p *provider) Send(m protocol.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, m)
}

func (p *provider) Flush() {}

func (p *provider) Close(code protocol.CloseCode, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = fmt.Sprint(code, " ", reason)
}

// take returns the messages since the last take, as JSON.
func (p *provider) take() (list []string) {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.got {
		list = append(list, string(protocol.Append(nil, m)))
	}
	p.got = nil
	return list
}

// last returns the last message of a type that came since.
func last[M protocol.Message](p *provider) (found M) {
	p.t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	ok := false
	for _, m := range p.got {
		if m, is := m.(M); is {
			found, ok = m, true
		}
	}
	if !ok {
		p.t.Fatalf("no %T came, only %v", found, p.got)
	}
	p.got = nil
	return found
}

// meet lets the gateways find each other.
func meet() {
	time.Sleep(2 * helloSeldom)
	synctest.Wait()
}

const helloTool = `{"type":"hello","name":"gpu","protocolVersion":2,"session":%q,` +
	`"tools":[{"name":"t","description":"d","parameters":{"type":"object"}}]}`

// call calls a tool of a session and returns the outcome when it has come.
func call(s *gateway.Session, name string) <-chan gateway.Outcome {
	done := make(chan gateway.Outcome, 1)
	go func() {
		done <- s.Execute(context.Background(), gateway.Call{Name: name, AskGates: true})
	}()
	synctest.Wait()
	return done
}

func TestServesSessionElsewhere(t *testing.T) {
	for _, session := range []string{"one", "all"} {
		t.Run(session, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membus.New(1 << 20)
				var records []adminapi.Record
				here := newMachine(t, b, "a", nil)
				there := newMachine(t, b, "b", func(o *Options) {
					o.Record = func(r adminapi.Record) { records = append(records, r) }
				})
				defer here.close()
				defer there.close()
				s := here.session("work")
				meet()
				p := there.connect(there.gateway.AdminToken())
				defer p.conn.Closed()
				id := last[*protocol.Sessions](p).Active[0].ID
				if id != s.ID() {
					t.Fatalf("the list has %s, want %s", id, s.ID())
				}
				if session == "all" {
					id = "all"
				}
				p.send(fmt.Sprintf(helloTool, id))
				if ack := last[*protocol.HelloAck](p); ack.SessionID != id {
					t.Errorf("bound to %q, want %q", ack.SessionID, id)
				}
				view := here.gateway.Providers()
				if len(view) != 1 || view[0].Gateway != "b" || view[0].Trust != "project" {
					t.Errorf("providers %+v, want one of gateway b, trust project", view)
				}
				done := call(s, "t")
				c := last[*protocol.ToolCall](p)
				p.send(fmt.Sprintf(`{"type":"tool.result","id":%q,"data":{"n":1}}`, c.ID))
				if o := <-done; string(o.Data) != `{"n":1}` {
					t.Errorf("outcome %+v, want the data", o)
				}
				if len(records) != 1 ||
					records[0].Gateway+records[0].Tool+records[0].Outcome != "atok" {
					t.Errorf("records of the provider's gateway: %+v, want one of the call, ok",
						records)
				}
				p.send(`{"type":"push","event":"e","level":"keep","requestId":"r","sessionId":"` +
					s.ID() + `"}`)
				if ack := last[*protocol.Ack](p); ack.Fate != "stored" || ack.SessionID != s.ID() {
					t.Errorf("receipt %+v, want stored", ack)
				}
				p.send(`{"type":"tools.update","requestId":"u","tools":[]}`)
				last[*protocol.Ack](p)
				if n := len(s.Tools()); n != 0 {
					t.Errorf("%d tools after the update, want none", n)
				}
			})
		})
	}
}

// A gateway that dies in mid-call ends the call at once if NATS knows, else within 2 s.
func TestCallEndsWithItsGateway(t *testing.T) {
	for name, die := range map[string]func(*membus.Bus){
		"killed": func(b *membus.Bus) {
			b.Kill("b")
		}, "cut off": func(b *membus.Bus) { b.Cut("a", "b", true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membus.New(1 << 20)
				here, there := newMachine(t, b, "a", nil), newMachine(t, b, "b", nil)
				defer here.close()
				defer there.close()
				s := here.session("work")
				meet()
				p := there.connect(there.gateway.InstanceToken())
				defer p.conn.Closed()
				p.send(fmt.Sprintf(helloTool, s.ID()))
				p.take()
				done := call(s, "t")
				last[*protocol.ToolCall](p)
				die(b)
				began := time.Now()
				o := <-done
				if took := time.Since(began); o.ErrorCode != protocol.CodeDisconnected ||
					took > 2*time.Second {
					t.Errorf("%+v after %s, want DISCONNECTED within 2 s", o, took)
				}
				if o := <-call(s, "t"); o.ErrorCode != protocol.CodeDisconnected || o.Duration > 0 {
					t.Errorf("the next call: %+v, want DISCONNECTED at once", o)
				}
				if name == "killed" {
					return
				}
				time.Sleep(deadAfter)
				if !strings.HasPrefix(p.closed, "1001") {
					t.Errorf("the provider's connection: %q, want closed, so that it binds again",
						p.closed)
				}
			})
		})
	}
}

// A gateway that takes long to handle a message of another one does not take that for silent.
func TestSlowGatewayKeepsTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membus.New(1 << 20)
		here := newMachine(t, b, "a", nil)
		there := newMachine(t, b, "b", func(o *Options) {
			o.PersistDir = func(string) (string, error) { // when the answer to a hello is handled
				time.Sleep(10 * deadAfter)
				return "/dir", nil
			}
		})
		defer here.close()
		defer there.close()
		s := here.session("work")
		meet()
		p := there.connect(there.gateway.AdminToken())
		defer p.conn.Closed()
		p.send(fmt.Sprintf(helloTool, s.ID()))
		time.Sleep(11 * deadAfter)
		if ack := last[*protocol.HelloAck](p); ack.SessionID != s.ID() || p.closed != "" {
			t.Errorf("bound to %q, closed: %q, want bound", ack.SessionID, p.closed)
		}
		done := call(s, "t")
		c := last[*protocol.ToolCall](p)
		p.send(fmt.Sprintf(`{"type":"tool.result","id":%q,"data":1}`, c.ID))
		if o := <-done; o.Failed() {
			t.Errorf("the call: %+v, want the answer", o)
		}
	})
}

// A gate of a provider elsewhere stays closed in a partition, for longer than a call takes, and
// opens to its provider when that is back.
func TestGateStaysClosedInPartition(t *testing.T) {
	const gated = `{"type":"hello","name":"guard","protocolVersion":2,"session":"all","hooks":{"onPreToolUse":` +
		`[{"match":{"tool":"t"},"action":"gate","gateId":"g"}]}}`
	synctest.Test(t, func(t *testing.T) {
		b := membus.New(1 << 20)
		here, there := newMachine(t, b, "a", nil), newMachine(t, b, "b", nil)
		defer here.close()
		defer there.close()
		s := here.session("work")
		meet()
		tool := here.connect(here.gateway.InstanceToken())
		defer tool.conn.Closed()
		tool.send(fmt.Sprintf(helloTool, s.ID()))
		guard := there.connect(there.gateway.AdminToken())
		defer guard.conn.Closed()
		guard.send(gated)
		guard.take()
		waiting := call(s, "t")
		last[*protocol.GateCheck](guard)
		b.Cut("a", "b", true)
		if o := <-waiting; o.ErrorCode != protocol.CodeDenied ||
			!strings.Contains(o.Error, "out of reach") {
			t.Errorf("the call that waited: %+v, want denied with the reason", o)
		}
		for _, wait := range []time.Duration{0, time.Minute, time.Hour} {
			time.Sleep(wait)
			if o := <-call(s, "t"); o.ErrorCode != protocol.CodeDenied {
				t.Errorf("after %s more: %+v, want denied", wait, o)
			}
		}
		lines, _ := s.Timeline(0)
		if text, _ := json.Marshal(lines); !strings.Contains(string(text),
			"its gates deny until it is back") {
			t.Errorf("the timeline does not say so: %s", text)
		}
		b.Cut("a", "b", false)
		meet()
		tool.take()
		waiting = call(s, "t")
		check := last[*protocol.GateCheck](guard)
		guard.send(fmt.Sprintf(`{"type":"gate.result","callId":%q,"gateId":"g","decision":"allow"}`,
			check.CallID))
		c := last[*protocol.ToolCall](tool)
		tool.send(fmt.Sprintf(`{"type":"tool.result","id":%q,"data":1}`, c.ID))
		if o := <-waiting; o.Failed() {
			t.Errorf("after the partition: %+v, want the tool's answer", o)
		}
		if n := len(here.gateway.Providers()); n != 2 {
			t.Errorf("%d providers, want the tool's and the guard", n)
		}
	})
}

// A person takes away the gates of a provider whose gateway does not come back, and a session ends
// without them.
func TestGateOfLostGatewayIsTakenAway(t *testing.T) {
	for name, end := range map[string]func(*machine, *gateway.Session){
		"the provider is stopped": func(m *machine, _ *gateway.Session) {
			if n := m.gateway.StopProvider("guard"); n != 1 {
				m.t.Errorf("stopped %d providers, want the guard", n)
			}
		},
		"the session ends": func(m *machine, s *gateway.Session) {
			began := time.Now()
			if err := s.Stop(context.Background(), "done"); err != nil {
				m.t.Error(err)
			}
			if took := time.Since(began); took > time.Second {
				m.t.Errorf(
					"the session took %s to end, want no wait for a provider that is out of reach",
					took)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membus.New(1 << 20)
				here, there := newMachine(t, b, "a", nil), newMachine(t, b, "b", nil)
				defer here.close()
				defer there.close()
				s := here.session("work")
				meet()
				guard := there.connect(there.gateway.AdminToken())
				defer guard.conn.Closed()
				guard.send(
					`{"type":"hello","name":"guard","protocolVersion":2,"session":"all","hooks":{"onPreToolUse":` +
						`[{"match":{"tool":"*"},"action":"gate","gateId":"g"}]}}`)
				b.Cut("a", "b", true)
				time.Sleep(2 * deadAfter)
				if d := s.PreToolUse(t.Context(), "anything", protocol.Raw("{}")); !d.Deny {
					t.Errorf("%+v, want denied", d)
				}
				end(here, s)
				time.Sleep(2 * goneAfter)
				if left := here.gateway.Providers(); len(left) != 0 {
					t.Errorf("providers %+v are left, want none", left)
				}
				d := s.PreToolUse(t.Context(), "anything", protocol.Raw("{}"))
				if d.Deny && name != "the session ends" {
					t.Errorf("%+v, want allowed: the gate was taken away", d)
				}
			})
		})
	}
}
