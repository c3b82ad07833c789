package gateway

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tapgw/internal/protocol"
)

// kind is what all lives of a provider have in common.
type kind struct {
	name, instance string
	tools          []int
	guard          bool // has gates, texts and transforms
	limited        bool // takes one call at a time, or two
	steady         bool // lives for seconds, longer than a gate or a slot is waited for
	all            bool // is bound to all sessions
}

var kinds = []kind{
	{name: "p1", tools: []int{1}},
	{name: "p2", tools: []int{2}},
	{name: "p3", tools: []int{3, 4}},
	{name: "guard-a", guard: true},
	{name: "tab", instance: "0", tools: []int{0}},
	{name: "tab", instance: "1", tools: []int{0}},
	{name: "tab", instance: "2", tools: []int{0}},
	{name: "tab", instance: "3", tools: []int{0}},
	{name: "guard-b", guard: true},
	{name: "guard-c", guard: true},
	{name: "queue", tools: []int{5}, limited: true, steady: true},
	{name: "warden", tools: []int{6}, guard: true, steady: true, all: true},
}

const stormGuards = 4

// provider connects again and again. The next life takes over with the reconnect
// token, after the end of the last one or while it goes on.
func (w *weather) provider(i int, r *rand.Rand) {
	k := &kinds[i]
	var lives sync.WaitGroup
	defer lives.Wait()
	token := ""
	for !w.isQuiet() {
		l := w.newLife(i, rand.New(rand.NewPCG(r.Uint64(), r.Uint64())))
		ended, before := make(chan struct{}), token
		lives.Go(func() {
			defer close(ended)
			l.live(before)
		})
		early := time.Hour
		if !k.steady && r.IntN(3) == 0 {
			early = time.Duration(r.IntN(200)) * time.Millisecond
		}
		timer := time.NewTimer(early)
		select {
		case <-ended:
		case <-timer.C:
		case <-w.quiet:
		}
		timer.Stop()
		token, _ = l.token.Load().(string)
		pause(r, 5)
	}
}

// life is one connection of a provider.
type life struct {
	w     *weather
	index int // of its kind
	kind  *kind
	r     *rand.Rand
	conn  *Conn
	peer  *inbox
	local bool            // speaks without text where it can
	token atomic.Value    // the reconnect token
	ends  bool            // has had enough
	tried bool            // said hello since it was told that it may not say anything else
	known map[string]bool // sessions that it is ready for

	heard    int // calls
	strays   int // answers to nothing that it gave
	open     []received
	answered []received
	running  map[string]time.Time         // calls without an answer; the time of their cancel
	checks   []*protocol.GateCheck        // to be answered later
	requests []*protocol.TransformRequest // to be answered later

	// What was asked, in this order, and is not answered. Updates may ask for
	// no answer: silent counts those.
	asked  []*question
	number int
	silent int
	fates  map[string]int // what was heard of a push

	// What holds by the answers that were heard so far.
	session  string          // that it is bound to, if it is only one
	offered  map[string]bool // tools; nil when it can't be told
	denying  bool            // a rule of its own denies all its tools
	max      int             // calls at once; 0: any
	restored bool            // may have a past
	revision map[string]lastAck
}

// received is a call that came; heard is its number.
type received struct {
	id    string
	n     int64
	heard int
}

// question is a message that the gateway answers.
type question struct {
	id     string // of the request; the type of a hello, which has none
	silent int    // updates before it that asked for no answer
	then   func() // what holds from the answer on, unless it is an error
	acked  bool
}

// lastAck is the last acknowledged revision of a session.
type lastAck struct {
	revision uint64
	silent   int
}

func (w *weather) newLife(i int, r *rand.Rand) *life {
	l := &life{w: w, index: i, kind: &kinds[i], r: r, known: map[string]bool{}, local: r.IntN(4) == 0,
		running: map[string]time.Time{}, fates: map[string]int{}, revision: map[string]lastAck{},
		peer: &inbox{bell: make(chan struct{}, 1), gone: make(chan struct{})}}
	l.conn = w.g.Connect(l.peer, ConnOptions{})
	return l
}

// live runs a life, from auth to the end of the connection.
func (l *life) live(token string) {
	defer l.leave()
	l.join(token)
	for until := l.lifetime(); !l.ends && time.Now().Before(until); {
		timer := time.NewTimer(time.Duration(l.r.IntN(stormPace)) * time.Millisecond)
		select {
		case <-l.peer.bell:
			l.hearAll()
		case <-timer.C:
			l.act()
		case <-l.peer.gone:
			l.hearAll()
			l.w.tally.add(fmt.Sprintf("connection: closed with %d", l.peer.code))
			return
		case <-l.w.quiet:
			l.linger()
			return
		}
		timer.Stop()
	}
}

func (l *life) lifetime() time.Time {
	if l.kind.steady {
		return time.Now().Add(2*protocol.GateTimeout + time.Duration(l.r.IntN(5000))*time.Millisecond)
	}
	return time.Now().Add(time.Duration(20+l.r.IntN(400)) * time.Millisecond)
}

// linger answers calls until the storm is over.
func (l *life) linger() {
	for {
		select {
		case <-l.peer.bell:
			l.hearAll()
		case <-l.peer.gone:
			return
		case <-l.w.over:
			return
		}
	}
}

func (l *life) join(token string) {
	l.restored = token != ""
	secret := l.w.g.InstanceToken()
	if l.kind.all {
		secret = l.w.g.AdminToken()
	}
	if token != "" && l.r.IntN(2) == 0 {
		l.w.tally.add("step: auth by reconnectToken")
		l.say(`{"type":"auth","reconnectToken":%q}`, token)
		token = ""
	} else {
		l.say(`{"type":"auth","token":%q}`, secret)
	}
	if token != "" {
		l.w.tally.add("step: hello with reconnectToken")
	}
	l.hello(token)
}

// leave ends the connection in one of several ways.
func (l *life) leave() {
	l.checkAnswers()
	if len(l.checks) > 0 {
		l.w.tally.add("step: leaves, with gates asked")
	}
	switch l.r.IntN(3) {
	case 0:
		l.w.tally.add("step: goodbye")
		l.say(`{"type":"goodbye"}`)
	case 1:
		l.say(`nonsense`)
	}
	l.conn.Closed()
}

// checkAnswers fails if a question has no answer, unless the connection was closed.
// Messages that come meanwhile may make it ask more.
func (l *life) checkAnswers() {
	var open []*question
	for range 10 {
		l.hearAll()
		open = slices.DeleteFunc(slices.Clone(l.asked), func(q *question) bool { return q.acked })
		if len(open) == 0 {
			return
		}
	}
	select {
	case <-l.peer.gone:
	default:
		l.w.t.Errorf("%s: no answer to %s", l.kind.name, open[0].id)
	}
}

// say sends a message; a local life sends it in process, without JSON text.
func (l *life) say(format string, args ...any) {
	text := fmt.Appendf(nil, format, args...)
	if l.local {
		if f, err := protocol.Open(text); err == nil {
			if m, err := f.Decode(); err == nil {
				l.conn.ReceiveMessage(m)
				return
			}
		}
	}
	l.conn.Receive(text)
}

// ask notes a question before it is sent, and what is true once it is answered.
func (l *life) ask(id string, then func()) {
	l.asked = append(l.asked, &question{id: id, silent: l.silent, then: then})
}

// update sends an update, mostly with a request id.
func (l *life) update(t protocol.Type, members string, then func()) {
	switch l.r.IntN(10) {
	case 0:
		l.silent++
		l.offered, l.denying = nil, false
		l.w.tally.add(fmt.Sprintf("step: %s, silent", t))
	case 1:
		l.number++
		id := fmt.Sprintf("u%d", l.number)
		l.w.tally.add("step: an update for whatever session")
		l.ask(id, then)
		members += fmt.Sprintf(`,"requestId":%q,"sessionId":%q`, id, l.w.session(l.r).ID())
	default:
		l.number++
		id := fmt.Sprintf("u%d", l.number)
		l.w.tally.add(fmt.Sprintf("step: %s", t))
		l.ask(id, then)
		members += fmt.Sprintf(`,"requestId":%q`, id)
	}
	l.say(`{"type":%q,%s}`, t, members)
	l.w.note(l.conn)
}

// note remembers a provider and its slots for the checks at the end.
func (w *weather) note(c *Conn) {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	p := c.provider
	if p == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.providers) > 1000 { // those that left nothing behind need no look in the end
		maps.DeleteFunc(w.providers, func(p *Provider, _ bool) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.isGone && p.holds() == ""
		})
	}
	w.providers[p] = true
	for _, t := range p.base.tools {
		if t.slots != nil {
			w.slots[t.slots] = true
		}
	}
}

// holds counts what a provider still has of calls. Call with p.mu held.
func (p *Provider) holds() string {
	if len(p.pending)+len(p.gateChecks)+len(p.transformRequests)+len(p.keptSlots) == 0 {
		return ""
	}
	return fmt.Sprintf("%d calls, %d gate checks, %d transform requests, %d slots", len(p.pending), len(p.gateChecks),
		len(p.transformRequests), len(p.keptSlots))
}

// inbox is the provider's end of a connection.
type inbox struct {
	mu    sync.Mutex
	list  []protocol.Message
	calls int // that were sent

	bell chan struct{} // holds one
	once sync.Once
	code protocol.CloseCode
	gone chan struct{}
}

// Send implements [Peer].
func (p *inbox) Send(m protocol.Message) {
	p.mu.Lock()
	p.list = append(p.list, m)
	if _, ok := m.(*protocol.ToolCall); ok {
		p.calls++
	}
	p.mu.Unlock()
	select {
	case p.bell <- struct{}{}:
	default:
	}
}

// Flush implements [Peer].
func (p *inbox) Flush() {}

// Close implements [Peer].
func (p *inbox) Close(code protocol.CloseCode, _ string) {
	p.once.Do(func() {
		p.code = code
		close(p.gone)
	})
}

// since is the number of calls after the nth.
func (p *inbox) since(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls - n
}

func (p *inbox) take() []protocol.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.list
	p.list = nil
	return list
}
