package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/protocol"
)

// TestCallsEndOnce drives a gateway with everything that can end a call at once:
// results, results that come twice or late, nonsense, cancels, timeouts, lost
// connections, takeovers, rebinds, updates, gates, interrupts and sessions that
// end. Time is the bubble's, in whole milliseconds, so that much of it falls on
// the same instant. Each call must end exactly once, at its timeout at the
// latest, and nothing may be left over. TAPGW_SEED repeats a run.
func TestCallsEndOnce(t *testing.T) {
	calls := 100_000
	if testing.Short() {
		calls = 20_000
	}
	storm(t, calls)
}

func storm(t *testing.T, calls int) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("TAPGW_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("TAPGW_SEED=%d", seed)
	blow := func(t *testing.T) {
		w := &weather{t: t, g: New(Options{}), seed: seed, left: int64(calls)}
		w.blow()
	}
	if raceEnabled {
		// In a bubble of this size the race detector itself breaks (Go 1.26),
		// so time is real here and the promises about it are wider.
		blow(t)
		return
	}
	synctest.Test(t, blow)
}

const (
	stormSessions  = 4
	stormProviders = 12
	stormCallers   = 128
	stormTools     = 6
)

// weather is a gateway in a storm.
type weather struct {
	t    *testing.T
	g    *Gateway
	seed uint64

	left  int64 // calls to make
	made  atomic.Int64
	ended atomic.Int64
	codes sync.Map // protocol.Code -> *atomic.Int64

	sessions [stormSessions]atomic.Pointer[Session]
	over     atomic.Bool
}

func (w *weather) blow() {
	t := w.t
	for i := range w.sessions {
		w.register(i)
	}
	var providers, callers, others sync.WaitGroup
	for i := range stormProviders {
		providers.Go(func() { w.provider(i, rand.New(rand.NewPCG(w.seed, uint64(i)))) })
	}
	for i := range stormCallers {
		callers.Go(func() { w.caller(rand.New(rand.NewPCG(w.seed, uint64(1000+i)))) })
	}
	others.Go(func() { w.disturber(rand.New(rand.NewPCG(w.seed, 2000))) })
	callers.Wait()
	w.over.Store(true)
	others.Wait()
	providers.Wait()
	if !raceEnabled {
		// What providers were slow to answer, and tokens that fade.
		sleep(time.Minute)
	}

	if made, ended := w.made.Load(), w.ended.Load(); made != ended {
		t.Errorf("%d calls were made, %d ended", made, ended)
	}
	if n := w.g.stats.Calls.Load(); n != uint64(w.made.Load()) {
		t.Errorf("%d calls were made, %d counted", w.made.Load(), n)
	}
	for _, code := range []protocol.Code{"", protocol.CodeNotFound, protocol.CodeTimeout, protocol.CodeCancelled, protocol.CodeDisconnected, protocol.CodeInternal, protocol.CodeDenied, protocol.CodeRateLimited} {
		if n, ok := w.codes.Load(code); !ok {
			t.Errorf("no call ended with %q: the storm is too mild", code)
		} else {
			t.Logf("%-13s %d", code, n.(*atomic.Int64).Load())
		}
	}
	w.nothingLeft()
	w.g.Drain(context.Background())
}

// nothingLeft looks into the gateway when every provider has gone.
func (w *weather) nothingLeft() {
	t, g := w.t, w.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.conns); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	if n := len(g.memories); n != 0 && !raceEnabled {
		t.Errorf("%d reconnect tokens are left", n)
	}
	if n := len(g.limits); n != 0 {
		t.Errorf("%d limits are left", n)
	}
	if n := len(g.tokens); n != 2 {
		t.Errorf("%d tokens are left", n)
	}
	for _, s := range g.order {
		s.mu.Lock()
		if len(s.bindings) != 0 || len(s.gating) != 0 || len(s.jobs) != 0 || len(s.routes.Load().list) != 0 {
			t.Errorf("session %s: %d bindings, %d calls at gates, %d jobs, %d routes are left",
				s.id, len(s.bindings), len(s.gating), len(s.jobs), len(s.routes.Load().list))
		}
		s.mu.Unlock()
	}
}

func (w *weather) register(i int) {
	s, err := w.g.Register(SessionSpec{Label: "l", CWD: "/c"}, HostInfo{Kind: "storm", Send: true, Interrupt: true, LiveTools: i%2 == 0, Hooks: i == 3}, quietHost{})
	if err != nil {
		w.t.Error(err)
		return
	}
	w.sessions[i].Store(s)
}

// quietHost takes everything.
type quietHost struct{}

func (quietHost) SetTools(context.Context, uint64, []Tool) error { return nil }
func (quietHost) Send(context.Context, Prompt) error             { return nil }
func (quietHost) Log(LogLevel, string)                           {}
func (quietHost) Interrupt(context.Context, string) error        { return nil }
func (quietHost) Close(context.Context, string) error            { return nil }

func sleep(d time.Duration) { <-time.After(d) }

// caller makes calls one after the other, and some without waiting.
func (w *weather) caller(r *rand.Rand) {
	for atomic.AddInt64(&w.left, -1) >= 0 {
		s := w.sessions[r.IntN(stormSessions)].Load()
		c := Call{Name: fmt.Sprintf("t%d", r.IntN(stormTools)), Args: protocol.Raw(`{"n":1}`)}
		if list := s.routes.Load().list; len(list) > 0 && r.IntN(4) != 0 {
			c.Name = list[r.IntN(len(list))].name
		}
		if r.IntN(20) == 0 {
			c.Args = protocol.Raw(`{"n":"x"}`)
		}
		if r.IntN(3) == 0 {
			c.Timeout = time.Duration(1+r.IntN(20)) * time.Millisecond
		}
		w.made.Add(1)
		limit := 60 * time.Millisecond // the longest of the tools
		if raceEnabled {
			limit += 10 * time.Second // of a busy machine
		}
		if !s.info.Hooks {
			limit += protocol.GateTimeout * 3
		}
		begun := time.Now()
		var once atomic.Int32
		done := make(chan struct{})
		missed := false
		end := func(o Outcome) {
			if once.Add(1) != 1 {
				w.t.Errorf("a call ended again, with %s", o.Text())
				return
			}
			if took := time.Since(begun); took > limit {
				w.t.Errorf("a call took %s: %s", took, o.Text())
			}
			if o.ErrorCode == protocol.CodeNotFound {
				missed = true
			}
			n, _ := w.codes.LoadOrStore(o.ErrorCode, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			w.ended.Add(1)
			close(done)
		}
		if r.IntN(2) == 0 {
			ctx, cancel := context.WithCancel(context.Background())
			if r.IntN(4) == 0 {
				time.AfterFunc(time.Duration(r.IntN(15))*time.Millisecond, cancel)
			}
			end(s.CallTool(ctx, c))
			cancel()
		} else {
			k := s.BeginCall(c, end)
			if r.IntN(4) == 0 {
				if r.IntN(2) == 0 {
					sleep(time.Duration(r.IntN(10)) * time.Millisecond)
				}
				k.Cancel("given up")
				k.Cancel("twice")
			}
			<-done
		}
		if missed { // until somebody has it again
			sleep(time.Duration(1+r.IntN(3)) * time.Millisecond)
		}
	}
}

// disturber interrupts, ends and begins sessions, and pushes.
func (w *weather) disturber(r *rand.Rand) {
	var ends sync.WaitGroup
	for !w.over.Load() {
		i := r.IntN(stormSessions)
		s := w.sessions[i].Load()
		switch r.IntN(12) {
		case 0:
			ends.Go(func() { _ = s.Stop(context.Background(), "the storm") })
			ends.Go(func() { _ = s.Stop(context.Background(), "the storm again") })
			w.register(i)
		case 1, 2:
			_ = s.Interrupt(context.Background(), "the storm")
		case 3:
			s.Busy()
			s.Idle()
		case 4:
			_, _ = s.Push(context.Background(), "storm", &protocol.Push{Level: protocol.LevelInject, Event: "e"})
			s.Idle()
		case 5:
			w.g.StopProvider(fmt.Sprintf("p%d", r.IntN(stormProviders)))
		}
		sleep(time.Duration(r.IntN(8)) * time.Millisecond)
	}
	ends.Wait()
	for i := range w.sessions {
		w.sessions[i].Load().Idle()
	}
}

// inbox is the provider's end of a connection.
type inbox struct {
	in   chan protocol.Message
	gone chan struct{}
	once sync.Once
}

func (p *inbox) Send(m protocol.Message) {
	select {
	case <-p.gone:
	case p.in <- m:
	default:
		panic("the inbox is full")
	}
}
func (p *inbox) Flush() {}
func (p *inbox) Close(protocol.CloseCode, string) {
	p.once.Do(func() { close(p.gone) })
}

// provider connects again and again, and is of every kind in turn.
func (w *weather) provider(i int, r *rand.Rand) {
	token := ""
	for !w.over.Load() {
		life := &stormLife{w: w, r: r, name: fmt.Sprintf("p%d", i), peer: &inbox{in: make(chan protocol.Message, 1<<16), gone: make(chan struct{})}}
		if i < 4 { // instances of one provider
			life.name, life.instance = "tab", strconv.Itoa(i)
		}
		life.conn = w.g.Connect(life.peer, ConnOptions{})
		old := life
		token = life.live(token)
		if token != "" && r.IntN(3) == 0 && !w.over.Load() {
			// A newer connection takes over while the old one is still up.
			life = &stormLife{w: w, r: r, name: old.name, instance: old.instance, peer: &inbox{in: make(chan protocol.Message, 1<<16), gone: make(chan struct{})}}
			life.conn = w.g.Connect(life.peer, ConnOptions{})
			token = life.live(token)
			life.leave(r)
		}
		if old.leave(r) {
			token = ""
		}
		sleep(time.Duration(r.IntN(5)) * time.Millisecond)
	}
}

// stormLife is one connection of a provider.
type stormLife struct {
	w        *weather
	r        *rand.Rand
	name     string
	instance string
	peer     *inbox
	conn     *Conn
	token    string // the reconnect token
	open     []string
	done     []string // answered ids
}

// leave ends a connection in one of the ways there are; true when its token is void.
func (l *stormLife) leave(r *rand.Rand) bool {
	switch r.IntN(3) {
	case 0:
		l.say(`{"type":"goodbye"}`)
		l.conn.Closed()
		return true
	case 1:
		l.say(`nonsense`)
	}
	l.conn.Closed()
	return false
}

func (l *stormLife) say(format string, args ...any) {
	l.conn.Receive(fmt.Appendf(nil, format, args...))
}

// live plays a provider for a while and returns its reconnect token.
func (l *stormLife) live(token string) string {
	if token != "" && l.r.IntN(2) == 0 {
		l.say(`{"type":"auth","reconnectToken":%q}`, token)
	} else {
		l.say(`{"type":"auth","token":%q}`, l.w.g.InstanceToken())
	}
	l.hello(token)
	for range 20 + l.r.IntN(200) {
		timer := time.NewTimer(time.Duration(l.r.IntN(4)) * time.Millisecond)
		select {
		case m := <-l.peer.in:
			l.hear(m)
		case <-timer.C:
			l.act()
		case <-l.peer.gone:
			timer.Stop()
			return l.token
		}
		timer.Stop()
		if l.w.over.Load() {
			break
		}
	}
	return l.token
}

func (l *stormLife) hello(token string) {
	s := l.w.sessions[l.r.IntN(stormSessions)].Load()
	more := ""
	if l.instance != "" {
		more += `,"instance":"` + l.instance + `"`
	}
	if token != "" {
		more += `,"reconnectToken":"` + token + `"`
	}
	if l.r.IntN(4) == 0 {
		more += fmt.Sprintf(`,"concurrency":{"max":%d,"scope":%q}`, 1+l.r.IntN(2), []string{"instance", "provider", "tool"}[l.r.IntN(3)])
	}
	switch l.r.IntN(12) {
	case 0:
		more += `,"hooks":{"onPreToolUse":[{"match":{"tool":"t1"},"action":"gate","gateId":"g"}]}`
	case 1:
		more += `,"hooks":{"onPreToolUse":[{"match":{"tool":"t2"},"action":"deny"}]}`
	}
	l.say(`{"type":"hello","name":%q,"protocolVersion":2,"session":%q,"tools":[%s]%s}`, l.name, s.ID(), l.tools(), more)
}

// tools are some of those that there are; instances all have the same.
func (l *stormLife) tools() string {
	list := ""
	for i := range stormTools {
		mine := l.instance != "" && i == 0
		if l.instance == "" && i > 0 {
			mine = i == 1+int(l.name[len(l.name)-1])%(stormTools-1) || l.r.IntN(20) == 0
		}
		if !mine {
			continue
		}
		if list != "" {
			list += ","
		}
		list += fmt.Sprintf(`{"name":"t%d","description":"d","timeout":%d,"parameters":{"properties":{"n":{"type":"integer"}}}}`, i, 1+l.r.IntN(50))
	}
	return list
}

func (l *stormLife) hear(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.HelloAck:
		l.token = m.ReconnectToken
	case *protocol.ToolCall:
		switch l.r.IntN(4) {
		case 0:
			l.answer(m.ID)
		default:
			l.open = append(l.open, m.ID)
		}
	case *protocol.ToolCancel:
		if l.r.IntN(2) == 0 {
			l.say(`{"type":"tool.result","id":%q,"error":"Cancelled","errorCode":"CANCELLED"}`, m.ID)
		}
	case *protocol.GateCheck:
		if n := l.r.IntN(3); n > 0 {
			l.say(`{"type":"gate.result","callId":%q,"decision":%q}`, m.CallID, []string{"", "allow", "deny"}[n])
		}
	case *protocol.SessionLifecycle:
		if m.State == protocol.LifecycleShutdownPending && l.r.IntN(8) != 0 {
			l.say(`{"type":"shutdown.ready","sessionId":%q}`, m.SessionID)
		}
	}
}

func (l *stormLife) answer(id string) {
	l.done = append(l.done, id)
	switch l.r.IntN(8) {
	case 0:
		l.say(`{"type":"tool.result","id":%q,"error":"no","errorCode":"NOT_FOUND","retryable":true}`, id)
	case 1:
		l.say(`{"type":"tool.result","id":%q}`, id)
	default:
		l.say(`{"type":"tool.result","id":%q,"data":{"n":1}}`, id)
	}
}

// act does something unasked.
func (l *stormLife) act() {
	switch n := l.r.IntN(40); {
	case n < 25 && len(l.open) > 0:
		i := l.r.IntN(len(l.open))
		id := l.open[i]
		l.open = append(l.open[:i], l.open[i+1:]...)
		l.answer(id)
	case n < 28 && len(l.done) > 0:
		l.answer(l.done[l.r.IntN(len(l.done))]) // again
	case n == 28:
		l.say(`nonsense`)
	case n == 29:
		l.say(`{"type":"tool.result","id":"never","data":1}`)
	case n < 32:
		l.hello("")
	case n < 35:
		l.say(`{"type":"tools.update","requestId":"r","tools":[%s]}`, l.tools())
	case n == 35:
		l.say(`{"type":"hooks.update","onPreToolUse":[]}`)
	case n == 36:
		l.say(`{"type":"push","level":"inject","event":"e"}`)
	case n == 37:
		l.say(`{"type":"goodbye"}`)
	}
}
