package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/taptest/membus"
)

// hostile is a gateway "c" that sends any records it likes to gateway "a".
type hostile struct {
	t    *testing.T
	bus  *membus.Bus
	mine uint64

	mu     sync.Mutex
	theirs uint64
	seq    uint64
	got    []record
}

// newHostile makes one that a knows.
func newHostile(t *testing.T, b *membus.Bus) *hostile {
	t.Helper()
	h := &hostile{t: t, bus: b, mine: 99}
	stop, err := b.Subscribe(trunkSubject("c", "a"), h.receive)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	h.publish(head{kind: kindHello, from: h.mine}.append(nil))
	synctest.Wait()
	h.publish(head{kind: kindHello, from: h.mine, to: h.theirs}.append(nil))
	synctest.Wait()
	return h
}

func (h *hostile) publish(data []byte) {
	_ = h.bus.Publish(trunkSubject("a", "c"), trunkSubject("c", "a"), data)
}

func (h *hostile) receive(data []byte, _ bool) {
	head, rest, err := readHead(data)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if head.kind == kindHello {
		h.theirs = head.from
	}
	for len(rest) > 0 {
		r, next, err := readRecord(rest)
		if err != nil {
			return
		}
		h.got, rest = append(h.got, r), next
	}
}

// message is a message of records with the next number.
func (h *hostile) message(records ...record) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	data := head{kind: kindRecords, from: h.mine, to: h.theirs, seq: h.seq}.append(nil)
	for _, r := range records {
		data = r.append(data)
	}
	return data
}

func (h *hostile) send(records ...record) {
	h.publish(h.message(records...))
	synctest.Wait()
}

// take returns the records that came, as texts.
func (h *hostile) take() string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	texts := []string{}
	for _, r := range h.got {
		texts = append(texts, string(r.data))
	}
	h.got = nil
	return strings.Join(texts, "\n")
}

// refusals lists the records of the hostile gateway that a refused.
func refusals(m *machine) string {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(m.cluster.refused["c"])), ", ")
}

// An admitted gateway that sends a forbidden record is refused, named and counted, and neither the
// session nor the providers of others notice.
func TestHostileGateway(t *testing.T) {
	up := func(conn uint64, text string) record {
		return record{op: opUp, conn: conn, data: []byte(text)}
	}
	hidden := "a-session-of-nobody-else"
	open := func(conn uint64) record { return record{op: opOpen, conn: conn, data: []byte("{}")} }
	for name, test := range map[string]struct {
		attack func(h *hostile, session string)
		want   string // the refusal
		answer string // part of the answer that it gets
	}{
		"replays": {func(h *hostile, _ string) {
			data := h.message(open(1))
			for range 3 {
				h.publish(data)
			}
		}, "messages that came twice", `"type":"sessions"`},
		"speaks of another life": {func(h *hostile, _ string) {
			data := h.message(open(1))
			data[8]++ // of its own
			h.publish(data)
			h.seq--
		}, "messages of another life", ""},
		"sends nonsense": {func(h *hostile, _ string) {
			h.publish([]byte("nonsense"))
			h.publish(bytes.Repeat([]byte{1}, headSize+3))
		}, "malformed messages", ""},
		"sends records that are none": {func(h *hostile, _ string) {
			h.publish(append(h.message(), 1, 2, 3))
		}, "malformed messages", ""},
		"says more than it sends": {func(h *hostile, _ string) {
			data := h.message(up(1, "x"))
			data[headSize+recordSize-1] = 200
			h.publish(data)
		}, "malformed messages", ""},
		"uses a connection that is not open": {func(h *hostile, _ string) {
			h.send(up(7, `{"type":"goodbye"}`),
				record{op: opDown, conn: 7, data: []byte(`{"type":"sessions","active":[]}`)})
		}, "messages of connections that are not open", ""},
		"answers what nobody asked": {func(h *hostile, _ string) {
			h.send(record{op: opAnswer, conn: 5, data: []byte{0}})
		}, "answers to nothing that was asked", ""},
		"takes a number twice": {func(h *hostile, _ string) { h.send(open(1), open(1)) },
			"connections: their number is in use", ""},
		"opens too many": {func(h *hostile, _ string) {
			for i := range uint64(maxGuests) {
				h.publish(h.message(open(i)))
			}
			time.Sleep(time.Second)
			h.send(open(maxGuests))
		}, "connections: too many", `"reason":"too many"`},
		"opens and closes too fast": {func(h *hostile, _ string) {
			for i := range uint64(maxGuests + 1) {
				h.publish(h.message(open(i), record{op: opCloseUp, conn: i}))
			}
		}, "connections: too many at once, messages of connections that are not open",
			`"reason":"too many at once"`},
		"asks too fast": {func(h *hostile, _ string) {
			for range 3 * askRate {
				h.publish(h.message(record{op: opAsk, conn: 3, data: []byte("l")}))
			}
		}, "requests beyond the rate", `"label":"work"`},
		"wants gates": {func(h *hostile, session string) {
			h.send(open(1),
				up(1, fmt.Sprintf(`{"type":"hello","name":"evil","protocolVersion":2,"session":%q,`+
					`"hooks":{"onPreToolUse":[{"match":{"tool":"*"},"action":"deny"}]}}`, session)))
		}, "", `"code":"UNAUTHORIZED"`},
		"wants the name of another": {func(h *hostile, session string) {
			h.send(open(1), up(1, fmt.Sprintf(helloTool, session)))
		}, "", `"code":"UNAUTHORIZED"`},
		"wants a session that is not shared": {func(h *hostile, _ string) {
			h.send(open(1),
				up(1, strings.Replace(fmt.Sprintf(helloTool, hidden), `"gpu"`, `"evil"`, 1)))
		}, "", `"code":"INVALID_SESSION"`},
		"answers the call of another": {func(h *hostile, session string) {
			h.send(open(1),
				up(1, fmt.Sprintf(`{"type":"hello","name":"evil","protocolVersion":2,"session":%q}`,
					session)),
				up(1, `{"type":"tool.result","id":"CALL","data":"stolen"}`))
		}, "", `"code":"UNKNOWN_CALL_ID"`},
		"authenticates again": {func(h *hostile, _ string) {
			h.send(open(1), up(1, `{"type":"auth","token":"adm-x"}`))
		}, "", `"code":"INVALID_STATE"`},
		"asks what nobody knows": {func(h *hostile, _ string) {
			h.send(record{op: opAsk, conn: 3, data: []byte("?")})
		}, "", "does not know the question"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membus.New(1 << 20)
				m := newMachine(t, b, "a", func(o *Options) {
					o.Admit["c"], o.Share = gateway.TrustExternal, []string{"work"}
				})
				defer m.close()
				s := m.session("work")
				if _, err := m.gateway.Register(gateway.SessionSpec{ID: hidden, Label: "private",
					CWD: "/"},
					gateway.HostInfo{Kind: "test"}, noHost{}); err != nil {
					t.Fatal(err)
				}
				p := m.connect(m.gateway.InstanceToken())
				defer p.conn.Closed()
				p.send(fmt.Sprintf(helloTool, s.ID()))
				p.take()
				done := call(s, "t")
				pending := last[*protocol.ToolCall](p)
				h := newHostile(t, b)
				test.attack(h, s.ID())
				synctest.Wait()
				if got := refusals(m); got != test.want {
					t.Errorf("refused %q, want %q", got, test.want)
				}
				if got := h.take(); !strings.Contains(got, test.answer) ||
					strings.Contains(got, "private") {
					t.Errorf("it is told %.500s, want %q and nothing of what is not shared", got,
						test.answer)
				}
				p.send(fmt.Sprintf(`{"type":"tool.result","id":%q,"data":"right"}`, pending.ID))
				if o := <-done; string(o.Data) != `"right"` {
					t.Errorf("the call of another: %+v, want the answer of its provider", o)
				}
			})
		})
	}
}

// noHost runs a session that does nothing.
type noHost struct{}

func (noHost) SetTools(context.Context, uint64, []gateway.Tool) error { return nil }
func (noHost) Send(context.Context, gateway.Prompt) error             { return nil }
func (noHost) Log(adminapi.LogLevel, string)                          {}
func (noHost) Interrupt(context.Context, string) ([]string, error)    { return nil, nil }
func (noHost) Close(context.Context, string) error                    { return nil }

// A gateway whose sessions a provider serves may call the tools that its file allows, and no tool
// before it is bound.
func TestHostileSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membus.New(1 << 20)
		m := newMachine(t, b, "a", nil)
		defer m.close()
		h := newHostile(t, b)
		pass := m.gateway.Issue(gateway.PassSpec{Trust: gateway.TrustProject, All: true,
			Name: "gpu", Owner: "test", Tools: gateway.ToolPolicy{Deny: []string{"rm"}}})
		p := m.connect(pass.Token())
		defer p.conn.Closed()
		synctest.Wait()
		var conn uint64
		for _, r := range h.got {
			if r.op == opOpen {
				conn = r.conn
			}
		}
		down := func(text string) record {
			return record{op: opDown, conn: conn, data: []byte(text)}
		}
		calls := func() (ids []string) {
			for _, text := range p.take() {
				var c struct{ Type, ID string }
				if json.Unmarshal([]byte(text), &c) == nil && c.Type == "tool.call" {
					ids = append(ids, c.ID)
				}
			}
			return ids
		}
		toolCall := func(id, tool string) record {
			return down(
				fmt.Sprintf(`{"type":"tool.call","id":%q,"sessionId":"s","tool":%q,"args":{}}`, id,
					tool))
		}
		h.send(toolCall("early", "t"),
			down(`{"type":"sessions","active":[{"id":"s","label":"x","cwd":"/"}]}`))
		p.send(fmt.Sprintf(helloTool, "s"))
		h.send(
			down(
				`{"type":"hello.ack","protocolVersion":2,"providerId":"p","sessionId":"s","reconnectToken":"tok"}`))
		h.send(toolCall("1", "t"), toolCall("1", "t"), toolCall("2", "rm"),
			down(`{"type":"auth.pairing","prompt":"code?"}`),
			down(`{"type":"tool.result","id":"1","data":1}`), down(`nonsense`),
			down(`{"type":"tool.call"}`))
		if got := calls(); !slices.Equal(got, []string{"1"}) {
			t.Errorf("the provider gets the calls %v, want that of an allowed tool, once", got)
		}
		const want = "calls that it may not make, malformed messages, questions for a pairing code"
		if got := refusals(m); got != want {
			t.Errorf("refused %q, want %q", got, want)
		}
		for i := range maxAsked + 10 {
			h.publish(h.message(toolCall(fmt.Sprint("n", i), "t")))
		}
		if got := len(calls()); got > maxAsked {
			t.Errorf("the provider gets %d calls at once, want at most %d", got, maxAsked)
		}
	})
}

// A user of the NATS server can neither speak in the name of another gateway nor hear messages for
// another.
func TestServerVouchesForNames(t *testing.T) {
	s := natsServer(t, rights("a", "b", "c"))
	a := join(t, "a", withUser(s.ClientURL(), "a"), nil)
	b := join(t, "b", withUser(s.ClientURL(), "b"), nil)
	until(t, "they reach each other", func() bool { return a.reaches("b") && b.reaches("a") })
	denied := make(chan string, 10)
	evil, err := nats.Connect(withUser(s.ClientURL(), "c"), nats.ErrorHandler(
		func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				denied <- err.Error()
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer evil.Close()
	began := head{kind: kindHello, from: 5}.append(nil)
	for _, what := range []struct {
		name string
		do   func() error
	}{
		{"speaks as b", func() error { return evil.Publish(trunkSubject("a", "b"), began) }},
		{"hears what is for a", func() error {
			_, err := evil.SubscribeSync(trunkSubject("a", "b"))
			return err
		}},
		{"hears all", func() error { _, err := evil.SubscribeSync("tap.>"); return err }},
		{"lists b", func() error { return evil.Publish("$KV.tapgw.b", []byte(`{}`)) }},
		{"drops the registry", func() error {
			return evil.Publish("$JS.API.STREAM.DELETE.KV_tapgw", nil)
		}},
	} {
		if err := what.do(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-denied:
		case <-time.After(30 * time.Second):
			t.Errorf("%s: the server allows it", what.name)
		}
	}
	if !a.reaches("b") {
		t.Error("a does not reach b any more")
	}
}

// FuzzTrunk gives a gateway whatever bytes another one may send.
func FuzzTrunk(f *testing.F) {
	f.Add(head{kind: kindHello, from: 5}.append(nil))
	data := head{kind: kindRecords, from: 99, to: 1, seq: 1}.append(nil)
	f.Add(record{op: opOpen, conn: 1, data: []byte("{}")}.append(data))
	f.Add(record{op: opUp, conn: 1, data: []byte(`{"type":"hello"}`)}.append(data))
	f.Add(record{op: opOversized, conn: 1, more: true}.append(data))
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			b := membus.New(1 << 20)
			m := newMachine(t, b, "a", nil)
			defer m.close()
			m.session("work")
			h := newHostile(t, b)
			h.send(record{op: opOpen, conn: 1, data: []byte("{}")})
			h.publish(data)
			h.publish(append(h.message(), data...))
			synctest.Wait()
		})
	})
}
