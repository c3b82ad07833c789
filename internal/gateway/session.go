package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// hostTimeout bounds what the gateway asks of a host.
const hostTimeout = 30 * time.Second

// Session is an agent's session with the providers that are bound to it. It
// implements [HostCalls].
type Session struct {
	// Fixed at creation.
	g         *Gateway
	id        string
	cwd       string
	host      Host
	info      HostInfo
	createdAt time.Time
	timeline  *feed[TimelineLine]
	live      *feed[LiveLine]
	pushed    *feed[HistoryRow]
	arrivals  counter // numbers what comes into these three
	runtime   *feed[adminapi.RuntimeEvent]
	responses *Responses // nil until somebody asks; guarded by live.mu

	usage usage // of its models
	spans turnSpans

	// routes is what dispatch reads: immutable, replaced under Gateway.mu.
	routes   atomic.Pointer[routes]
	routesMu sync.RWMutex // held to send a call by the routes, and to replace them

	// The one goroutine that calls the host: it refreshes tools and sends
	// prompts. Stop waits for it.
	worker sync.WaitGroup
	wakeup chan struct{} // holds one
	quit   chan struct{}
	ctx    context.Context // ends with the session
	cancel context.CancelFunc

	// stopping is closed when the session begins to end, stopped when it did.
	stopCalled atomic.Bool
	stopping   chan struct{}
	stopped    chan struct{}

	// Guarded by Gateway.mu.
	bindings   []*binding
	nameOwners map[string]nameOwner
	unanswered int           // bindings that were told of the end and did not answer
	allReady   chan struct{} // closed when waiting comes to 0; nil before the end

	startContext atomic.Pointer[chan string] // answer of the session_start hooks; nil: none, or used
	runningHooks sync.WaitGroup              // user hooks
	// needsHooks is set once something is bound that needs the host's hooks.
	// pendingHooks counts the changes that are about to bind such things.
	needsHooks   atomic.Bool
	pendingHooks atomic.Int32

	mu            sync.Mutex
	hooksClosed   bool // no user hook may start
	labelText     string
	model         string
	busy          bool
	promptCount   uint64           // given ids
	followedTurns map[string]*Turn // by the id of their prompt, until they end
	endedTurns    uint64           // ended turns
	turnEnded     chan struct{}    // closed at the next Idle; nil while nobody waits
	promptQueue   []*queuedPrompt
	injects       []*inject
	pushers       map[string]*pusher // by providerId
	streams       map[streamKey]*stream
	streamBytes   map[string]int           // bytes of events in streams, by provider
	runningTools  map[string]toolExecution // tool executions by id, for subscribers
	askingGates   map[*Pending]struct{}
	oldestChange  time.Time // the oldest tool change that the host was not told of
	newestChange  time.Time
	refreshing    bool          // the worker gives the host a list
	refreshed     chan struct{} // closed when the host was told of all changes; nil while nobody waits

	// revision counts the lists that the host was given; sent is the last, and
	// rewrites are the transforms of that time. All are written by the worker.
	revision       atomic.Uint64
	sentTools      []Tool
	sentTransforms map[string][]*transform
	maySentDiffer  bool // the host may have another list than sent
}

// HostCalls is what a session offers to its host.
var _ HostCalls = (*Session)(nil)

const (
	maxTimelineLines = 1000
	maxLiveLines     = 8192
	maxLiveBytes     = 8 << 20
	maxPushedRows    = 1000
	maxTextBytes     = 8 << 20 // of the timeline, and of what followers of streams may read again
)

func newSession(g *Gateway, spec SessionSpec, info HostInfo, h Host) *Session {
	s := &Session{
		g: g, id: spec.ID, cwd: spec.CWD, host: h, info: info, createdAt: time.Now(),
		timeline:      newFeed(maxTimelineLines, maxTextBytes, func(l TimelineLine) int { return len(l.Message) }),
		live:          newFeed(maxLiveLines, maxLiveBytes, liveSize),
		pushed:        newFeed(maxPushedRows, maxTextBytes, func(r HistoryRow) int { return len(r.Event) + len(r.Prompt) + len(r.Metadata) }),
		runtime:       newRuntimeLog(),
		wakeup:        make(chan struct{}, 1),
		quit:          make(chan struct{}),
		stopping:      make(chan struct{}),
		stopped:       make(chan struct{}),
		labelText:     spec.Label,
		model:         spec.Model,
		followedTurns: map[string]*Turn{},
		pushers:       map[string]*pusher{},
		streams:       map[streamKey]*stream{},
		nameOwners:    map[string]nameOwner{},
		streamBytes:   map[string]int{},
		runningTools:  map[string]toolExecution{},
		askingGates:   map[*Pending]struct{}{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.routes.Store(&routes{})
	return s
}

// ID implements [HostCalls].
func (s *Session) ID() string { return s.id }

func (s *Session) label() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.labelText
}

func (s *Session) isIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.busy
}

func (s *Session) isEnding() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// View is the session as people see it.
func (s *Session) View() adminapi.Session {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.view()
}

// view needs Gateway.mu held.
func (s *Session) view() adminapi.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := adminapi.Session{ID: s.id, Label: s.labelText, Host: s.info.Kind, Model: s.model, CWD: s.cwd, State: "idle",
		Providers: len(s.bindings), Tools: len(s.routes.Load().list), CreatedAt: s.createdAt.UTC()}
	if s.busy {
		v.State = "busy"
	}
	if s.isEnding() {
		v.State = "ending"
		for _, b := range s.bindings {
			if b.isUnanswered && !slices.Contains(v.WaitsFor, b.provider.name) {
				v.WaitsFor = append(v.WaitsFor, b.provider.name)
			}
		}
	} else {
		v.Foreground = s.isForeground()
	}
	return v
}

// isForeground is current without the locks of the sessions' own. Call with
// Gateway.mu held.
func (s *Session) isForeground() bool { return s.g.foregroundSession() == s }

// Tools lists the providers' tools in the session, in registration order.
func (s *Session) Tools() []adminapi.Tool {
	list := s.routes.Load().list
	views := make([]adminapi.Tool, len(list))
	for i, t := range list {
		d := t.definition
		views[i] = adminapi.Tool{Name: d.Name, Description: d.Description, Parameters: []byte(d.Parameters), Provider: d.Provider,
			Session: s.id, TimeoutMs: t.timeout.Milliseconds()}
	}
	return views
}

// HostTools is the present list for the host and the revision of the last one
// that it was given.
func (s *Session) HostTools() ([]Tool, uint64) {
	return hostTools(s.routes.Load()), s.revision.Load()
}

func hostTools(r *routes) []Tool {
	tools := make([]Tool, len(r.list))
	for i, t := range r.list {
		tools[i] = t.definition
	}
	return tools
}

// Update changes what a session says of itself; "" leaves a thing as it is.
func (s *Session) Update(label, model string) {
	s.mu.Lock()
	if label != "" {
		s.labelText = label
	}
	if model != "" {
		s.model = model
	}
	s.mu.Unlock()
	s.g.touch()
	if label != "" {
		s.g.mu.Lock()
		told := s.g.announce()
		s.g.mu.Unlock()
		flush(told)
	}
}

// bind adds a provider with what it offers. Call with Gateway.mu held.
func (s *Session) bind(p *Provider, o *offer) {
	b := &binding{provider: p, session: s, offer: o, record: p.recordIn(s.id)}
	s.bindings = append(s.bindings, b)
	p.bindings = append(p.bindings, b)
	s.rebuildRoutes()
	s.note(LogInfo, sourceGateway, fmt.Sprintf("provider %s joined with %d tools", p.name, len(o.tools)))
	s.warnUnmatchedRules(p, o.rules)
}

// unbind removes a binding. Call with Gateway.mu held.
func (s *Session) unbind(b *binding) {
	s.removeBinding(b)
	s.rebuildRoutes()
}

// removeBinding takes a binding out of the session, whose routes are rebuilt by the
// caller. Call with Gateway.mu held.
func (s *Session) removeBinding(b *binding) {
	drop := func(list []*binding) []*binding {
		return slices.DeleteFunc(list, func(x *binding) bool { return x == b })
	}
	s.bindings, b.provider.bindings = drop(s.bindings), drop(b.provider.bindings)
	s.markAnswered(b)
	s.note(LogInfo, sourceGateway, fmt.Sprintf("provider %s left", b.provider.name))
}

// markAnswered notes that a provider is done with a session that ends. Call with
// Gateway.mu held.
func (s *Session) markAnswered(b *binding) {
	if !b.isUnanswered {
		return
	}
	b.isUnanswered = false
	if s.unanswered--; s.unanswered == 0 {
		close(s.allReady)
	}
}

// rebuildRoutes swaps in the routes of the present bindings and lets the host know.
// Call with Gateway.mu held.
func (s *Session) rebuildRoutes() {
	r := newRoutes(s.bindings, s.g.hookRules())
	s.routesMu.Lock()
	s.routes.Store(r)
	s.routesMu.Unlock()
	now := time.Now()
	s.mu.Lock()
	if s.oldestChange.IsZero() {
		s.oldestChange = now
	}
	s.newestChange = now
	s.mu.Unlock()
	s.g.touch()
	s.wake()
}

func (s *Session) wake() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// stopPatience is how long calls of a turn that is stopped wait for it to be.
const stopPatience = 5 * time.Second

// Interrupt stops the turn, ends the session's calls in flight with CANCELLED and
// tells their providers. It returns the beginnings of the prompts that waited and
// are dropped with the turn; the timeline says so, too, and who follows the turn of
// one is told its end.
func (s *Session) Interrupt(ctx context.Context, reason string) (dropped []string, err error) {
	if !s.info.Interrupt {
		s.CancelCalls()
		s.note(LogInfo, sourceGateway, "interrupted: "+reason)
		return nil, errorf(protocol.CodeInvalidState, "the turn goes on: sessions of host %s can't be interrupted; their calls were cancelled", s.info.Kind)
	}
	s.note(LogInfo, sourceGateway, "interrupted: "+reason)
	if s.info.StopsFirst {
		dropped, err = s.stopAndCancel(ctx, reason)
	} else {
		s.CancelCalls()
		dropped, err = s.host.Interrupt(ctx, reason)
	}
	if len(dropped) > 0 {
		s.show(LogWarning, sourceGateway, DroppedPrompts(dropped))
	}
	for i, text := range dropped {
		dropped[i] = firstWords(text)
	}
	if err != nil {
		return dropped, fmt.Errorf("interrupting the session: %w", err)
	}
	return dropped, nil
}

// stopAndCancel stops the turn and then ends its calls: its model would go on with
// them else, and what it says of them be the turn's answer. A host that takes its
// time does not keep the calls.
func (s *Session) stopAndCancel(ctx context.Context, reason string) (dropped []string, err error) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		dropped, err = s.host.Interrupt(ctx, reason)
	}()
	late := time.NewTimer(stopPatience)
	defer late.Stop()
	select {
	case <-stopped:
	case <-late.C:
	}
	s.CancelCalls()
	<-stopped
	return dropped, err
}

// maxNamedPrompts is how many of the prompts that were dropped a line names.
const maxNamedPrompts = 5

// DroppedPrompts says which prompts were dropped, by their texts.
func DroppedPrompts(texts []string) string {
	var names []string
	for _, text := range texts[:min(len(texts), maxNamedPrompts)] {
		names = append(names, strconv.Quote(firstWords(text)))
	}
	if more := len(texts) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	what := "1 prompt that waited is dropped: "
	if len(texts) > 1 {
		what = fmt.Sprintf("%d prompts that waited are dropped: ", len(texts))
	}
	return what + strings.Join(names, ", ")
}

// firstWords is the first words of a text, on one line, of 60 letters at most.
func firstWords(text string) string {
	const most = 60
	line := []rune(strings.Join(strings.Fields(stripEscapes(text)), " "))
	if len(line) > most {
		return string(line[:most-1]) + "…"
	}
	return string(line)
}

// CancelCalls ends all the session's calls in flight with CANCELLED and tells
// their providers that they were interrupted. Nobody is asked any more either.
func (s *Session) CancelCalls() {
	g := s.g
	g.questions.withdraw(s)
	g.mu.Lock()
	var ended []*call
	var told []*Conn
	for c := range g.conns {
		if p := c.provider; p != nil {
			if k := p.cancelCalls(func(k *call) bool { return k.session == s }, protocol.ReasonInterrupted); len(k) > 0 {
				ended, told = append(ended, k...), append(told, c)
			}
		}
	}
	g.mu.Unlock()
	flush(told)
	finishAll(ended, Outcome{Error: "Cancelled: the session was interrupted", ErrorCode: protocol.CodeCancelled})
	s.mu.Lock()
	askingGates := slices.Collect(maps.Keys(s.askingGates))
	s.mu.Unlock()
	for _, w := range askingGates {
		w.Cancel(protocol.ReasonInterrupted)
	}
}

// Busy implements [HostCalls].
func (s *Session) Busy() {
	s.mu.Lock()
	s.busy = true
	s.mu.Unlock()
	s.g.touch()
}

// QueuedInjects is how many pushes wait for the session to be idle.
func (s *Session) QueuedInjects() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.injects)
}

// Idle implements [HostCalls].
func (s *Session) Idle() {
	s.mu.Lock()
	was := s.busy
	s.busy = false
	s.endedTurns++
	s.mu.Unlock()
	s.g.touch()
	if was {
		s.g.stats.Turns.Add(1)
	}
	if !s.info.Turns {
		s.endTurnSpans(nil, "")
	}
	s.publish(Event{Callback: OnIdle})
	s.signalTurnEnd()
	// Providers hear of it before what waited for it begins.
	defer s.wake()
	if !was {
		return
	}
	s.g.mu.Lock()
	told := make([]Peer, 0, len(s.bindings))
	for _, b := range s.bindings {
		b.provider.peer.Send(&protocol.SessionLifecycle{SessionID: s.id, State: protocol.LifecycleIdle})
		told = append(told, b.provider.peer)
	}
	s.g.mu.Unlock()
	for _, p := range told {
		p.Flush()
	}
}

func (s *Session) signalTurnEnd() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turnEnded != nil {
		close(s.turnEnded)
		s.turnEnded = nil
	}
}

// waitForTurnEnd waits until a turn has ended that was not counted yet.
func (s *Session) waitForTurnEnd(ctx context.Context, counted uint64) error {
	for {
		s.mu.Lock()
		if s.endedTurns > counted {
			s.mu.Unlock()
			return nil
		}
		if s.turnEnded == nil {
			s.turnEnded = make(chan struct{})
		}
		ended := s.turnEnded
		s.mu.Unlock()
		select {
		case <-ended:
		case <-s.stopped:
			return ErrSessionEnded
		case <-s.ctx.Done():
			return ErrSessionEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
