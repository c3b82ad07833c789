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

// providerKind describes a simulated provider. All its connections share it.
type providerKind struct {
	name, instance string
	tools          []int
	isGuard        bool // has gates, texts and transforms
	isLimited      bool // runs one call at a time, or two
	isSteady       bool // stays connected for seconds, longer than any wait for a gate or a slot
	inAllSessions  bool
}

var providerKinds = []providerKind{
	{name: "p1", tools: []int{1}},
	{name: "p2", tools: []int{2}},
	{name: "p3", tools: []int{3, 4}},
	{name: "guard-a", isGuard: true},
	{name: "tab", instance: "0", tools: []int{0}},
	{name: "tab", instance: "1", tools: []int{0}},
	{name: "tab", instance: "2", tools: []int{0}},
	{name: "tab", instance: "3", tools: []int{0}},
	{name: "guard-b", isGuard: true},
	{name: "guard-c", isGuard: true},
	{name: "queue", tools: []int{5}, isLimited: true, isSteady: true},
	{name: "warden", tools: []int{6}, isGuard: true, isSteady: true, inAllSessions: true},
}

const stormGuards = 4

// runProvider connects a provider again and again. Each connection takes over with the
// reconnect token of the last one, after its end or while it still lives.
func (w *world) runProvider(i int, r *rand.Rand) {
	kind := &providerKinds[i]
	var links sync.WaitGroup
	defer links.Wait()
	token := ""
	for !w.areCallersDone() {
		l := w.newLink(i, rand.New(rand.NewPCG(r.Uint64(), r.Uint64())))
		ended, before := make(chan struct{}), token
		links.Go(func() {
			defer close(ended)
			l.run(before)
		})
		early := time.Hour
		if !kind.isSteady && r.IntN(3) == 0 {
			early = time.Duration(r.IntN(200)) * time.Millisecond
		}
		timer := time.NewTimer(early)
		select {
		case <-ended:
		case <-timer.C:
		case <-w.callersDone:
		}
		timer.Stop()
		token, _ = l.token.Load().(string)
		pause(r, 5)
	}
}

// link is one connection of a simulated provider.
type link struct {
	w             *world
	index         int // of its kind
	kind          *providerKind
	r             *rand.Rand
	conn          *Conn
	inbox         *inbox
	inProcess     bool            // sends messages without JSON text where it can
	token         atomic.Value    // the reconnect token
	shouldLeave   bool            // ends at its next step
	helloRetried  bool            // sent another hello after INVALID_STATE
	readySessions map[string]bool // sessions that it sent session.ready for

	callCount     int // tool calls that arrived
	strayAnswers  int // answers that it sent to calls that never were
	openCalls     []received
	answeredCalls []received
	// calls without an answer; the time of their cancel
	running           map[string]time.Time
	pendingChecks     []*protocol.GateCheck        // to be answered later
	pendingTransforms []*protocol.TransformRequest // to be answered later

	// Messages to which the gateway has not replied, oldest first. Some updates ask
	// for no reply; silentUpdates counts those.
	questions     []*question
	requestCount  int
	silentUpdates int
	pushFates     map[string]int // receipts of each push

	// State that follows from the replies that arrived.
	session        string          // its session, "" with several
	offered        map[string]bool // tools; nil when they are uncertain
	deniesOwnTools bool            // one of its rules denies all its tools
	maxCalls       int             // calls at once; 0: any
	isReconnect    bool            // may get back the offer of an earlier connection
	acks           map[string]lastAck
}

// received is a call that arrived; number counts the calls of its link.
type received struct {
	id     string
	n      int64
	number int
}

// question is a message that the gateway answers.
type question struct {
	id            string // of the request; for a hello its type
	silentUpdates int    // updates before it that asked for no reply
	onAnswer      func() // updates the link's state unless the answer is an error
	isAnswered    bool
}

// lastAck is the last acknowledged revision of a session.
type lastAck struct {
	revision      uint64
	silentUpdates int
}

func (w *world) newLink(i int, r *rand.Rand) *link {
	l := &link{w: w, index: i, kind: &providerKinds[i], r: r, inProcess: r.IntN(4) == 0,
		readySessions: map[string]bool{}, running: map[string]time.Time{},
		pushFates: map[string]int{}, acks: map[string]lastAck{},
		inbox: &inbox{arrived: make(chan struct{}, 1), closed: make(chan struct{})}}
	l.conn = w.g.Connect(l.inbox, ConnOptions{})
	return l
}

// run drives a connection, from auth to the end of the connection.
func (l *link) run(token string) {
	defer l.leave()
	l.authenticate(token)
	for until := l.endTime(); !l.shouldLeave && time.Now().Before(until); {
		timer := time.NewTimer(time.Duration(l.r.IntN(stepPause)) * time.Millisecond)
		select {
		case <-l.inbox.arrived:
			l.receiveAll()
		case <-timer.C:
			l.runStep()
		case <-l.inbox.closed:
			l.receiveAll()
			l.w.tally.add(fmt.Sprintf("connection: closed with %d", l.inbox.code))
			return
		case <-l.w.callersDone:
			l.answerUntilStop()
			return
		}
		timer.Stop()
	}
}

func (l *link) endTime() time.Time {
	if l.kind.isSteady {
		return time.Now().Add(2*protocol.GateTimeout +
			time.Duration(l.r.IntN(5000))*time.Millisecond)
	}
	return time.Now().Add(time.Duration(20+l.r.IntN(400)) * time.Millisecond)
}

// answerUntilStop answers calls until the storm is over.
func (l *link) answerUntilStop() {
	for {
		select {
		case <-l.inbox.arrived:
			l.receiveAll()
		case <-l.inbox.closed:
			return
		case <-l.w.stopProviders:
			return
		}
	}
}

func (l *link) authenticate(token string) {
	l.isReconnect = token != ""
	secret := l.w.g.InstanceToken()
	if l.kind.inAllSessions {
		secret = l.w.g.AdminToken()
	}
	if token != "" && l.r.IntN(2) == 0 {
		l.w.tally.add("step: auth by reconnectToken")
		l.send(`{"type":"auth","reconnectToken":%q}`, token)
		token = ""
	} else {
		l.send(`{"type":"auth","token":%q}`, secret)
	}
	if token != "" {
		l.w.tally.add("step: hello with reconnectToken")
	}
	l.hello(token)
}

// leave ends the connection in one of several ways.
func (l *link) leave() {
	l.checkAnswers()
	if len(l.pendingChecks) > 0 {
		l.w.tally.add("step: leaves, with gates asked")
	}
	switch l.r.IntN(3) {
	case 0:
		l.w.tally.add("step: goodbye")
		l.send(`{"type":"goodbye"}`)
	case 1:
		l.send(`nonsense`)
	}
	l.conn.Closed()
}

// checkAnswers fails if a question has no answer, unless the connection was closed. It
// receives several times, because a message may make it send another question.
func (l *link) checkAnswers() {
	var open []*question
	for range 10 {
		l.receiveAll()
		open = slices.DeleteFunc(slices.Clone(l.questions), func(q *question) bool {
			return q.isAnswered
		})
		if len(open) == 0 {
			return
		}
	}
	select {
	case <-l.inbox.closed:
	default:
		l.w.t.Errorf("%s: no answer to %s", l.kind.name, open[0].id)
	}
}

// send sends a message; a link in process sends it as a value, without JSON text.
func (l *link) send(format string, args ...any) {
	text := fmt.Appendf(nil, format, args...)
	if l.inProcess {
		if f, err := protocol.Open(text); err == nil {
			if m, err := f.Decode(); err == nil {
				l.conn.Receive(protocol.Append(nil, m))
				return
			}
		}
	}
	l.conn.Receive(text)
}

// expectAnswer notes a question before it is sent, and how its answer changes the state.
func (l *link) expectAnswer(id string, onAnswer func()) {
	l.questions = append(l.questions, &question{id: id, silentUpdates: l.silentUpdates,
		onAnswer: onAnswer})
}

// sendUpdate sends an update, mostly with a request id.
func (l *link) sendUpdate(t protocol.Type, members string, onAnswer func()) {
	switch l.r.IntN(10) {
	case 0:
		l.silentUpdates++
		l.offered, l.deniesOwnTools = nil, false
		l.w.tally.add(fmt.Sprintf("step: %s, silent", t))
	case 1:
		l.requestCount++
		id := fmt.Sprintf("u%d", l.requestCount)
		l.w.tally.add("step: an update for whatever session")
		l.expectAnswer(id, onAnswer)
		members += fmt.Sprintf(`,"requestId":%q,"sessionId":%q`, id, l.w.randomSession(l.r).ID())
	default:
		l.requestCount++
		id := fmt.Sprintf("u%d", l.requestCount)
		l.w.tally.add(fmt.Sprintf("step: %s", t))
		l.expectAnswer(id, onAnswer)
		members += fmt.Sprintf(`,"requestId":%q`, id)
	}
	l.send(`{"type":%q,%s}`, t, members)
	l.w.trackProvider(l.conn)
}

// trackProvider remembers a provider and its slots for the checks at the end.
func (w *world) trackProvider(c *Conn) {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	p := c.provider
	if p == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.providers) > 1000 { // providers without pending work need no check at the end
		maps.DeleteFunc(w.providers, func(p *Provider, _ bool) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.isGone && p.pendingWork() == ""
		})
	}
	w.providers[p] = true
	for _, t := range p.base.tools {
		if t.slots != nil {
			w.slots[t.slots] = true
		}
	}
}

// pendingWork describes the calls that a provider still has, "" for none. Call with p.mu held.
func (p *Provider) pendingWork() string {
	if len(p.pending)+len(p.gateChecks)+len(p.transformRequests)+len(p.keptSlots) == 0 {
		return ""
	}
	return fmt.Sprintf("%d calls, %d gate checks, %d transform requests, %d slots", len(p.pending),
		len(p.gateChecks), len(p.transformRequests), len(p.keptSlots))
}

// inbox is the provider's end of a connection.
type inbox struct {
	mu    sync.Mutex
	list  []protocol.Message
	calls int // that were sent

	arrived chan struct{} // holds one
	once    sync.Once
	code    protocol.CloseCode
	closed  chan struct{}
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
	case p.arrived <- struct{}{}:
	default:
	}
}

// Flush implements [Peer].
func (p *inbox) Flush() {}

// Close implements [Peer].
func (p *inbox) Close(code protocol.CloseCode, _ string) {
	p.once.Do(func() {
		p.code = code
		close(p.closed)
	})
}

// callsAfter is the number of calls after the nth.
func (p *inbox) callsAfter(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls - n
}

func (p *inbox) drain() []protocol.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.list
	p.list = nil
	return list
}
