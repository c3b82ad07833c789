package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// host is a session's host that takes prompts and counts them.
type host struct {
	mu      sync.Mutex
	prompts []string
}

func (*host) SetTools(context.Context, uint64, []gateway.Tool) error { return nil }
func (*host) Log(adminapi.LogLevel, string)                          {}
func (*host) Interrupt(context.Context, string) ([]string, error)    { return nil, nil }
func (*host) Close(context.Context, string) error                    { return nil }

func (h *host) Send(_ context.Context, p gateway.Prompt) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prompts = append(h.prompts, p.Text)
	return nil
}

func (h *host) got() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.prompts, " ")
}

// pushRecords are the records of one machine, which outlive its gateway.
type pushRecords struct {
	mu   sync.Mutex
	list []adminapi.Record
}

func (p *pushRecords) Record(r adminapi.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, r)
}

func (p *pushRecords) Pushed(session string) (list []adminapi.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.list {
		if r.Session == session && r.Kind == adminapi.RecordPush {
			list = append(list, r)
		}
	}
	return list
}

// keeping is a machine whose streams last. Its gateway may end and begin again.
type keeping struct {
	t       testing.TB
	name    string
	url     string
	state   string
	records pushRecords
	keep    Keep
	change  func(*Options)

	*joined
	stop func()
}

func startKeeping(t testing.TB, name, url string, keep Keep) *keeping {
	t.Helper()
	m := &keeping{t: t, name: name, url: url, state: filepath.Join(t.TempDir(), "events.json"),
		keep: keep}
	m.start()
	t.Cleanup(func() { m.stop() })
	return m
}

func (m *keeping) start() {
	m.t.Helper()
	keeper := NewKeeper(m.keep)
	o := gateway.Options{Recorder: &m.records}
	if keeper != nil {
		o.Keeper = keeper
	}
	g := gateway.New(o)
	options := Options{Gateway: g, Log: slog.New(slog.DiscardHandler), Name: m.name,
		Share: []string{"*"}, Keeper: keeper, StateFile: m.state, Admit: map[string]gateway.Trust{}}
	for _, other := range []string{"a", "b", "c"} {
		if other != m.name {
			options.Admit[other] = gateway.TrustExternal
		}
	}
	if m.change != nil {
		m.change(&options)
	}
	j, err := Join(options, Server{URLs: []string{m.url}})
	if err != nil {
		m.t.Fatal(err)
	}
	m.joined = &joined{m.t, g, j}
	if keeper != nil {
		until(m.t, "events are kept", func() bool {
			j.positions.mu.Lock()
			defer j.positions.mu.Unlock()
			o := j.positions.origins[m.name]
			return o != nil && o.hasLooked && !o.Created.IsZero()
		})
	}
	m.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		j.Close()
		g.Drain(ctx)
	})
}

// session registers a session, which may have been there before.
func (m *keeping) session(id string) (*gateway.Session, *host) {
	m.t.Helper()
	h := &host{}
	s, err := m.gateway.Register(gateway.SessionSpec{ID: id, Label: id, Returns: true},
		gateway.HostInfo{Kind: "test", Send: true}, h)
	if err != nil {
		m.t.Fatal(err)
	}
	return s, h
}

// hasPlace waits until a session will get the events that a gateway keeps from now on.
func (m *keeping) hasPlace(origin, session string) {
	m.t.Helper()
	until(m.t, "session "+session+" has a place in what "+origin+" keeps", func() bool {
		m.positions.mu.Lock()
		defer m.positions.mu.Unlock()
		o := m.positions.origins[origin]
		return o != nil && o.Places[session] != nil
	})
}

// tell pushes an event to all sessions everywhere. Each ten have a provider of their own, because
// of the budget.
func (m *keeping) tell(from, to int) (receipts []string) {
	m.t.Helper()
	for n := from; n <= to; n++ {
		r, err := m.gateway.Broadcast(m.t.Context(), fmt.Sprintf("ci-%d", n/10),
			&protocol.Push{Stream: "builds", Level: protocol.LevelKeep, Event: fmt.Sprint(n)})
		if err != nil {
			m.t.Fatal(err)
		}
		receipts = append(receipts, string(r.Fate))
	}
	return receipts
}

// events are those of all streams of a session, oldest first.
func events(s *gateway.Session) string {
	var list []string
	for _, row := range slices.Backward(s.History(nil, 0, time.Time{})) {
		list = append(list, row.Event)
	}
	return strings.Join(list, " ")
}

// isTold reports whether a line of a session's timeline has a text.
func isTold(s *gateway.Session, text string) bool {
	lines, _ := s.Timeline(0)
	return slices.ContainsFunc(lines, func(l adminapi.TimelineLine) bool {
		return strings.Contains(l.Message, text)
	})
}

func numbers(from, to int) string {
	var list []string
	for n := from; n <= to; n++ {
		list = append(list, fmt.Sprint(n))
	}
	return strings.Join(list, " ")
}

func awaitEvents(t *testing.T, s *gateway.Session, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		cursor := s.HistoryCursor()
		got := events(s)
		if got == want {
			return
		}
		if err := s.WaitHistory(ctx, cursor); err != nil {
			t.Fatalf("session %s has the events %s\nwant %s: %v", s.ID(), got, want, err)
		}
	}
}

var allBuilds = Keep{Streams: []string{"builds"}, MaxAge: time.Hour, MaxEvents: 100,
	MaxBytes: 1 << 20}

// Every session of every gateway gets the events in one order, each once and with the same id. A
// session that comes back, with its gateway or without, gets the events that it has missed; a new
// one begins with the next event.
func TestKeptEvents(t *testing.T) {
	s := natsServer(t, nil)
	a, b := startKeeping(t, "a", s.ClientURL(), allBuilds),
		startKeeping(t, "b", s.ClientURL(), Keep{})
	sa, _ := a.session("sa")
	a.hasPlace("a", "sa")
	if got := a.tell(1, 5); slices.Contains(got, "queued") {
		t.Errorf("receipts %v, want stored", got)
	}
	sb, _ := b.session("sb")
	b.hasPlace("a", "sb")
	a.tell(6, 25)
	awaitEvents(t, sa, numbers(1, 25))
	awaitEvents(t, sb, numbers(6, 25))
	ids := func(s *gateway.Session) (list []string) {
		for _, row := range s.History(nil, 20, time.Time{}) {
			list = append(list, row.ID)
		}
		return list
	}
	ours, theirs := ids(sa)[:10], ids(sb)[:10]
	if diff := cmp.Diff(ours, theirs); diff != "" || !strings.HasPrefix(ours[0], "a/") {
		t.Errorf("the ids of the events differ: -a +b:\n%s", diff)
	}
	if err := sb.Stop(t.Context(), "gone"); err != nil { // the session alone goes
		t.Fatal(err)
	}
	a.tell(26, 29)
	awaitEvents(t, sa, numbers(1, 29))
	sb, _ = b.session("sb")
	awaitEvents(t, sb, numbers(6, 29))
	b.stop() // its gateway goes, too
	a.tell(30, 39)
	b.start()
	fresh, _ := b.session("fresh")
	sb, _ = b.session("sb")
	awaitEvents(t, sb, numbers(6, 39))
	b.hasPlace("a", "fresh")
	a.tell(40, 41)
	awaitEvents(t, sb, numbers(6, 41))
	awaitEvents(t, fresh, numbers(40, 41))
}

// A session's timeline has a line about the events that the limits dropped before the session got
// them.
func TestKeptGap(t *testing.T) {
	s := natsServer(t, nil)
	keep := allBuilds
	keep.MaxEvents = 3 // of each of the two streams of the test
	a, b := startKeeping(t, "a", s.ClientURL(), keep), startKeeping(t, "b", s.ClientURL(), Keep{})
	sb, _ := b.session("sb")
	b.hasPlace("a", "sb")
	a.tell(1, 1)
	awaitEvents(t, sb, "1")
	b.stop()
	a.tell(2, 19)
	b.start()
	sb, _ = b.session("sb")
	awaitEvents(t, sb, "1 "+numbers(7, 9)+" "+numbers(17, 19))
	var gaps []string
	lines, _ := sb.Timeline(0)
	for _, l := range lines {
		if strings.Contains(l.Message, "missing") {
			gaps = append(gaps,
				l.Message[:len("up to 5 events of the streams that last of gateway a")])
		}
	}
	if diff := cmp.Diff([]string{"up to 5 events of the streams that last of gateway a",
		"up to 7 events of the streams that last of gateway a"}, gaps); diff != "" {
		t.Errorf("gaps in the timeline: -want +got:\n%s", diff)
	}
}

// While NATS is out of reach, events wait: the receipt says so. Afterwards each session gets them
// once, in order, also if the server has forgotten the events kept before.
func TestKeptWithoutNATS(t *testing.T) {
	for name, forgets := range map[string]bool{"it remembers": false, "it forgets": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			port := -1
			run := func() *server.Server {
				return natsServer(t, func(o *server.Options) { o.StoreDir, o.Port = dir, port })
			}
			s := run()
			port = s.Addr().(*net.TCPAddr).Port
			a, b := startKeeping(t, "a", s.ClientURL(), allBuilds),
				startKeeping(t, "b", s.ClientURL(), Keep{})
			sa, _ := a.session("sa")
			sb, _ := b.session("sb")
			a.hasPlace("a", "sa")
			b.hasPlace("a", "sb")
			a.tell(1, 3)
			awaitEvents(t, sb, numbers(1, 3))
			awaitEvents(t, sa, numbers(1, 3))
			s.Shutdown()
			s.WaitForShutdown()
			if got := a.tell(4, 6); !slices.Equal(got, []string{"queued", "queued", "queued"}) {
				t.Errorf("receipts %v, want queued", got)
			}
			until(t, "b notices", func() bool {
				return strings.Contains(b.Fault(), "not connected")
			})
			faults := b.History(t.Context(), nil, 0, time.Time{}).Faults
			if !slices.Contains(faults, "gateway a: not connected to NATS") {
				t.Errorf("faults of the history: %q, want that b is not connected", faults)
			}
			if fault := a.Fault(); !strings.Contains(fault, "not connected") {
				t.Errorf("fault %q, want that it is not connected", fault)
			}
			if forgets {
				dir = t.TempDir()
			}
			run()
			awaitEvents(t, sb, numbers(1, 6))
			awaitEvents(t, sa, numbers(1, 6))
			for _, session := range []*gateway.Session{sa, sb} {
				if told := isTold(session, "begin anew"); told != forgets {
					t.Errorf("session %s is told that the streams begin anew: %v, want %v",
						session.ID(), told, forgets)
				}
			}
			until(t, "nothing is wrong", func() bool { return a.Fault() == "" && b.Fault() == "" })
		})
	}
}

// A receipt comes without a lock of the keeper: its receiver may ask the keeper, or end a
// connection that does.
func TestKeeperReportsUnderNoLock(t *testing.T) {
	s := natsServer(t, nil)
	a := startKeeping(t, "a", s.ClientURL(), allBuilds)
	keeper := a.o.Keeper
	s.Shutdown()
	s.WaitForShutdown()
	until(t, "the connection is lost", func() bool { return !a.conn.IsConnected() })
	receipts := make(chan gateway.Receipt, 2)
	for range 2 {
		e := gateway.NewKeptEvent("ci", &protocol.Push{Stream: "builds", Event: "x",
			Level: protocol.LevelKeep}, nil)
		if err := keeper.Keep(e, func(r gateway.Receipt) {
			_ = keeper.Fault()
			receipts <- r
		}); err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-receipts:
			if r.Fate != adminapi.FateQueued ||
				!strings.HasSuffix(r.Reason, "to be kept: not connected to NATS") {
				t.Errorf("%+v, want queued, and why", r)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no receipt")
		}
	}
}

// An event for one session reaches that one alone, an inject as a prompt.
func TestKeptForOne(t *testing.T) {
	s := natsServer(t, nil)
	a := startKeeping(t, "a", s.ClientURL(), allBuilds)
	one, h := a.session("one")
	other, _ := a.session("other")
	a.hasPlace("a", "one")
	a.hasPlace("a", "other")
	r, err := one.Push(t.Context(), "ci",
		&protocol.Push{Stream: "builds", Event: "for one", Level: protocol.LevelInject})
	if err != nil || r.Fate != adminapi.FateStored || r.Seq != 1 {
		t.Fatalf("%+v, %v, want stored as the first", r, err)
	}
	if r, err = one.Push(t.Context(), "ci",
		&protocol.Push{Event: "not kept", Level: protocol.LevelKeep}); err != nil {
		t.Fatal(err)
	}
	a.tell(1, 1)
	awaitEvents(t, other, "1")
	until(t, "the session gets the inject", func() bool { return h.got() == "for one" })
	if got := events(one); !strings.Contains(got, "for one") ||
		strings.Count(got, "not kept") != 1 {
		t.Errorf("events %q, want both", got)
	}
	if _, err := a.gateway.Broadcast(t.Context(), "ci", &protocol.Push{Stream: "other", Event: "x",
		Level: protocol.LevelKeep}); err == nil || !strings.Contains(err.Error(), "cluster.keep") {
		t.Errorf("a stream that does not last: %v, want an error that names [cluster.keep]", err)
	}
}

// A session that has no room for an inject gets it later, and holds up no other one.
func TestKeptWaitsForRoom(t *testing.T) {
	s := natsServer(t, nil)
	a := startKeeping(t, "a", s.ClientURL(), Keep{Streams: []string{"builds"}})
	busy, h := a.session("busy")
	other, _ := a.session("other")
	a.hasPlace("a", "busy")
	a.hasPlace("a", "other")
	busy.Busy()
	for n := range 15 { // ten may wait
		if _, err := a.gateway.Broadcast(t.Context(), fmt.Sprintf("p%d", n/10),
			&protocol.Push{Stream: "builds",
				Level: protocol.LevelInject, Event: fmt.Sprint(n)}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the other one has all", func() bool { return strings.HasSuffix(events(other), "14") })
	until(t, "the busy session gets all, in order", func() bool {
		busy.Idle()
		return h.got() == numbers(0, 14)
	})
}

// A session without room takes nothing away from the events that others get in a second, and does
// not count as a refused push.
func TestKeptWaitsForNothing(t *testing.T) {
	s := natsServer(t, nil)
	a, b := startKeeping(t, "a", s.ClientURL(), allBuilds),
		startKeeping(t, "b", s.ClientURL(), Keep{})
	busy, _ := b.session("busy")
	b.hasPlace("a", "busy")
	busy.Busy()
	budget := b.follow("a").limit
	budget.SetLimit(0)
	for n := range 15 {
		if _, err := a.gateway.Broadcast(t.Context(), fmt.Sprintf("p%d", n/10),
			&protocol.Push{Stream: "builds",
				Level: protocol.LevelInject, Event: fmt.Sprint(n)}); err != nil {
			t.Fatal(err)
		}
	}
	var attempts []time.Time
	until(t, "it is tried four times", func() bool {
		b.positions.mu.Lock()
		defer b.positions.mu.Unlock()
		if at := b.positions.origins["a"].Places["busy"].notBefore; !at.IsZero() &&
			!slices.Contains(attempts, at) {
			attempts = append(attempts, at)
		}
		return len(attempts) == 4
	})
	if left := budget.Tokens(); left != followBurst-protocol.MaxQueuedInjects {
		t.Errorf("%v events are left of the budget, want that of the %d that were taken gone", left,
			protocol.MaxQueuedInjects)
	}
	if n := b.gateway.Stats().DroppedPushes.Load(); n > 0 {
		t.Errorf("%d pushes count as refused, want none: they wait", n)
	}
}

// Another gateway's claims are not believed: it can't take another's name, speaks for itself only,
// and its faulty messages are counted.
func TestKeptHostile(t *testing.T) {
	s := natsServer(t, nil)
	a, b := startKeeping(t, "a", s.ClientURL(), allBuilds),
		startKeeping(t, "b", s.ClientURL(), Keep{})
	sb, h := b.session("sb")
	b.hasPlace("a", "sb")
	if _, err := sb.Push(t.Context(), "mine",
		&protocol.Push{Event: "0", Level: protocol.LevelKeep}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine", "taken", "a.taken"} {
		own := connectAnswering(t, b.joined, nil)
		own.todo <- fmt.Sprintf(`{"type":"hello","name":%q,"session":"sb","protocolVersion":2}`,
			name)
		awaitMessage[*protocol.HelloAck](t, own)
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, _ := jetstream.New(nc)
	publish := func(id, data string) {
		if _, err := js.Publish(t.Context(), "tap._.a.x.s", []byte(data),
			jetstream.WithMsgID(id)); err != nil {
			t.Fatal(err)
		}
	}
	for n, data := range []string{
		"", "{", "null", `{"provider":"x"}`, `{"provider":"-","event":"e","level":"keep"}`,
		`{"provider":"x","stream":"s","event":"e","level":"loud"}`,
		`{"provider":"mine","stream":"mine","event":"other","level":"keep"}`,
		`{"provider":"taken","stream":"mine","event":"e","level":"keep"}`,
		`{"provider":"tapctl","stream":"s","event":"1","level":"keep","person":true}`,
	} {
		publish(fmt.Sprint(n), data)
	}
	publish("last", `{"provider":"x","stream":"s","event":"2","level":"keep"}`)
	a.tellKept()
	awaitEvents(t, sb, "0 other 1 2")
	for _, row := range sb.History(nil, 0, time.Time{}) {
		if want := map[string]string{"1": "a", "other": "a.mine"}[row.Event]; want != "" &&
			row.Provider != want {
			t.Errorf("the event %s stands here as one of %s, want %s", row.Event, row.Provider,
				want)
		}
	}
	var refused map[string]uint64
	for _, m := range b.Members() {
		refused = m.Refused
	}
	if diff := cmp.Diff(map[string]uint64{"malformed events": 6, "events: UNAUTHORIZED": 1,
		"names of events that are somebody else's": 1}, refused); diff != "" {
		t.Errorf("what b has counted: -want +got:\n%s", diff)
	}
	if h.got() != "" {
		t.Errorf("the session got %s as a prompt", h.got())
	}
	if !isTold(sb,
		`1 event of the streams that last of gateway a is refused here so far. The last: UNAUTHORIZED`) {
		t.Error("the timeline does not say that an event was refused")
	}
}

// A provider of all sessions whose own gateway has no sessions pushes to those of others. Its
// receipts say that the event is kept.
func TestKeptPushElsewhere(t *testing.T) {
	s := natsServer(t, nil)
	a, b := startKeeping(t, "a", s.ClientURL(), allBuilds),
		startKeeping(t, "b", s.ClientURL(), Keep{})
	sb, _ := b.session("sb")
	second, _ := b.session("second")
	b.hasPlace("a", "sb")
	b.hasPlace("a", "second")
	until(t, "they reach each other", func() bool { return a.reaches("b") && b.reaches("a") })
	p := connectAnswering(t, a.joined, nil)
	awaitSession(t, p, "sb")
	p.todo <- `{"type":"hello","name":"ci","session":"all","protocolVersion":2}`
	awaitMessage[*protocol.HelloAck](t, p)
	p.todo <- `{"type":"push","stream":"builds","event":"1","level":"keep","broadcast":true,"requestId":"r1"}`
	ack := awaitMessage[*protocol.Ack](t, p)
	if ack.Fate != "stored" || ack.RequestID != "r1" || ack.SessionID != "all" {
		t.Errorf("%+v, want stored for all", ack)
	}
	p.todo <- `{"type":"push","stream":"Builds","event":"2","level":"keep","sessionId":"sb","requestId":"r2"}`
	ack = awaitMessage[*protocol.Ack](t, p)
	if ack.Fate != "stored" || ack.Seq != 2 || ack.SessionID != "sb" || ack.Stream != "builds" {
		t.Errorf("%+v, want stored in builds as the second for sb", ack)
	}
	until(t, "new sessions here begin behind the two", func() bool {
		a.positions.mu.Lock()
		defer a.positions.mu.Unlock()
		return a.positions.origins["a"].head == 2
	})
	sa, _ := a.session("sa") // now the provider is bound here, too
	until(t, "it is bound here", func() bool { return sa.View().Providers == 1 })
	a.hasPlace("a", "sa")
	p.todo <- `{"type":"push","stream":"builds","event":"3","level":"keep","broadcast":true,"requestId":"r3"}`
	p.todo <- `{"type":"push","stream":"builds","event":"4","level":"keep","sessionId":"none","requestId":"r4"}`
	if e := awaitMessage[*protocol.Error](t, p); e.Code != protocol.CodeInvalidSession ||
		e.RequestID != "r4" {
		t.Errorf("%+v, want INVALID_SESSION", e)
	}
	awaitEvents(t, sa, "3")
	awaitEvents(t, sb, "1 2 3")
	awaitEvents(t, second, "1 3")
}

// The history has the events that gateways keep, whichever sessions got them: newest first, at most
// so many of each stream.
func TestKeptHistory(t *testing.T) {
	s := natsServer(t, nil)
	keep := Keep{Streams: []string{"builds", "x.y@ci.2"}}
	a := startKeeping(t, "a", s.ClientURL(), keep)
	b := startKeeping(t, "b", s.ClientURL(), Keep{Streams: []string{"*@ops"}})
	tell := func(m *keeping, provider, stream, event string) {
		push := &protocol.Push{Stream: stream, Level: protocol.LevelSurface, Event: event,
			Metadata: protocol.Raw(`{"n":1}`)}
		if r, err := m.gateway.Broadcast(t.Context(), provider, push); err != nil ||
			r.Fate != adminapi.FateStored {
			t.Fatalf("%+v, %v, want stored", r, err)
		}
	}
	tell(a, "ci", "builds", "1")
	tell(b, "ops", "pages", "2")
	tell(a, "ci", "builds", "3")
	tell(a, "ci.2", "X.Y", "4")
	for name, test := range map[string]struct {
		streams []string
		last    int
		want    string
	}{
		"all": {nil, 0,
			"a/x.y@ci.2=4 a/builds@ci=3 b/pages@ops=2 a/builds@ci=1"},
		"the newest of each": {nil, 1, "a/x.y@ci.2=4 a/builds@ci=3 b/pages@ops=2"},
		"of a provider":      {[]string{"x.y@ci.2"}, 0, "a/x.y@ci.2=4"},
		"of any, and named twice": {[]string{"builds", "builds@ci"}, 0,
			"a/builds@ci=3 a/builds@ci=1"},
		"of nobody": {[]string{"builds@ops"}, 0, ""},
	} {
		h := b.History(t.Context(), test.streams, test.last, time.Time{})
		var got []string
		for _, row := range h.Events {
			origin, _, _ := strings.Cut(row.ID, "/")
			got = append(got, origin+"/"+row.Stream+"@"+row.Provider+"="+row.Event)
			if row.Level != "surface" || string(row.Metadata) != `{"n":1}` {
				t.Errorf("%s: %+v, want the level and the metadata of the push", name, row)
			}
		}
		if strings.Join(got, " ") != test.want || len(h.Faults) > 0 {
			t.Errorf("%s: got %v and the faults %v, want %s", name, got, h.Faults, test.want)
		}
	}
	if h := b.History(t.Context(), nil, 0, time.Now().Add(time.Minute)); len(h.Events) > 0 {
		t.Errorf("since a time to come: %v, want nothing", h.Events)
	}
}

// The history of a gateway that keeps large events has the newest of them, and says that there were
// more.
func TestKeptHistoryIsBounded(t *testing.T) {
	s := natsServer(t, nil)
	a := startKeeping(t, "a", s.ClientURL(), Keep{Streams: []string{"builds"}})
	text := strings.Repeat("x", 900<<10)
	for n := range 20 {
		if _, err := a.gateway.Broadcast(t.Context(), fmt.Sprint("p", n/10),
			&protocol.Push{Stream: "builds",
				Level: protocol.LevelKeep, Event: fmt.Sprint(n) + text}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all are kept", func() bool {
		stream, err := a.js.Stream(t.Context(), "tapgw_a")
		return err == nil && stream.CachedInfo().State.LastSeq == 20
	})
	var h adminapi.KeptHistory
	until(t, "the newest 18 are read within a question's time", func() bool {
		h = a.History(t.Context(), nil, 0, time.Time{})
		// On a busy machine the time of a question may end before all are read.
		return len(h.Events) == 18 && len(h.Faults) == 1 && strings.Contains(h.Faults[0], "16 MiB")
	})
	if !strings.HasPrefix(h.Events[0].Event, "19x") {
		t.Errorf("the first event is %.10s, want the newest", h.Events[0].Event)
	}
}

// Users with the rights of docs/cluster.md suffice for streams that last. One without the right to
// read them says so.
func TestKeptRights(t *testing.T) {
	s := natsServer(t, func(o *server.Options) {
		rights("a", "b")(o)
		c := permissions("c")
		c.Publish.Allow = slices.DeleteFunc(c.Publish.Allow, func(s string) bool {
			return strings.Contains(s, "tapgw_") && !strings.Contains(s, "KV_tapgw")
		})
		o.Users = append(o.Users, &server.User{Username: "c", Password: "secret-c", Permissions: c})
	})
	url := func(name string) string { return withUser(s.ClientURL(), name) }
	a, b := startKeeping(t, "a", url("a"), allBuilds), startKeeping(t, "b", url("b"), allBuilds)
	c := startKeeping(t, "c", url("c"), Keep{})
	sb, _ := b.session("sb")
	b.hasPlace("a", "sb")
	a.tell(1, 3)
	awaitEvents(t, sb, numbers(1, 3))
	until(t, "c says that it may not read what they keep", func() bool {
		return strings.Contains(c.Fault(), "keeps do not come") &&
			strings.Contains(c.Fault(), `STREAM.INFO.tapgw_`)
	})
	for user, want := range map[string]string{
		"a": "keeps: ok, gets what b keeps: ok",
		"c": "keeps: fail, gets what a keeps: fail, gets what b keeps: fail",
	} {
		o := CheckOptions{Name: user, Keeps: true, Server: Server{URLs: []string{url(user)}}}
		for _, other := range []string{"a", "b"} {
			if other != user {
				o.Admit = append(o.Admit, other)
			}
		}
		var got []string
		for _, f := range Check(t.Context(), o) {
			if strings.Contains(f.Check, "keeps") {
				got = append(got, f.Check+": "+f.Status)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("the check of %s: %s, want %s", user, strings.Join(got, ", "), want)
		}
	}
}

func TestKeeps(t *testing.T) {
	k := NewKeeper(Keep{Streams: []string{"builds", "deploy-*@ci", "*@ops"}})
	for name, want := range map[string]bool{
		"builds@ci": true, "builds@x": true, "deploy-1@ci": true, "deploy-1@x": false,
		"any@ops":  true,
		"other@ci": false,
	} {
		stream, provider, _ := protocol.SplitStream(name)
		if got := k.Keeps(stream, provider); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if NewKeeper(Keep{}) != nil {
		t.Error("a keeper of no streams, want none")
	}
}

// The queue for NATS is bounded, and so is the rate at which one provider pushes.
func TestKeeperLimits(t *testing.T) {
	k := NewKeeper(Keep{Streams: []string{"*"}})
	keep := func(provider, text string) *protocol.Error {
		e := gateway.NewKeptEvent(provider, &protocol.Push{Event: text, Level: protocol.LevelKeep},
			nil)
		return k.Keep(e, func(gateway.Receipt) {})
	}
	var last *protocol.Error
	for range protocol.PushRate + 1 {
		last = keep("fast", "x")
	}
	if last == nil || last.Code != protocol.CodeRateLimited {
		t.Errorf("%d pushes at once: %v, want RATE_LIMITED", protocol.PushRate+1, last)
	}
	for n := 0; last == nil || n == 0; n++ {
		if n > maxOutboxEvents {
			t.Fatalf("more than %d events wait", n)
		}
		last = keep(fmt.Sprint("p", n), "x")
	}
	if got := len(k.outbox); got != maxOutboxEvents ||
		!strings.Contains(last.Message, "wait to be kept") {
		t.Errorf("%d events wait and then %v, want %d and an error that says so", got, last,
			maxOutboxEvents)
	}
}

// FuzzKeptEvent shows that whatever another gateway keeps is refused, or is an event that a
// provider could have pushed.
func FuzzKeptEvent(f *testing.F) {
	for _, data := range []string{"", "null",
		`{"provider":"x","stream":"s","event":"e","level":"keep"}`,
		`{"provider":"X y","stream":"S","prompt":"p","level":"inject","sessions":["a"],"metadata":{"a":1}}`} {
		f.Add(data, "1", "tap._.a.x.s")
	}
	follows := &follower{c: &Cluster{name: "b"}, origin: "a"}
	f.Fuzz(func(t *testing.T, data, id, subject string) {
		m := &jetstream.RawStreamMsg{Data: []byte(data), Subject: subject, Header: nats.Header{}}
		m.Header.Set(jetstream.MsgIDHeader, id)
		e, why := follows.read(m)
		if (e == nil) == (why == "") {
			t.Fatalf("%+v and %q, want one of both", e, why)
		}
		if e == nil {
			return
		}
		if e.Gateway != "a" || !strings.HasPrefix(e.ID, "a/") || !protocol.ValidName(e.Provider) ||
			protocol.Validate(e.Push()) != nil {
			t.Fatalf("%+v is not an event of gateway a", e)
		}
	})
}
