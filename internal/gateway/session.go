package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
	arrived   ticks // numbers what comes into these three
	runtime   *feed[RuntimeEvent]
	responses *Responses // nil until somebody asks; guarded by live.mu

	used  usage // of its models
	spans turnSpans

	// routes is what dispatch reads: immutable, replaced under Gateway.mu.
	routes atomic.Pointer[routes]
	swap   sync.RWMutex // held to send a call by the routes, and to replace them

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
	bindings []*binding
	waiting  int           // bindings that were told of the end and did not answer
	allReady chan struct{} // closed when waiting comes to 0; nil before the end

	startSaid atomic.Pointer[chan string] // what hooks say for the first prompt; nil: nothing, or it was said
	hooked    sync.WaitGroup              // of hooks that are asked
	// wantsHooks: something is there, or about to come, that the host is to ask
	// about. It stays.
	wantsHooks atomic.Bool

	mu        sync.Mutex
	hooksOver bool // no more are asked
	labelText string
	model     string
	busy      bool
	prompts   uint64           // given ids
	following map[string]*Turn // by the id of their prompt, until they end
	turns     uint64           // ended turns
	turnEnded chan struct{}    // closed at the next Idle; nil while nobody waits
	jobs      []*job
	injects   []*inject
	pushers   map[string]*pusher // by providerId
	streams   map[streamKey]*stream
	kept      map[string]int     // bytes of events in streams, by provider
	running   map[string]toolRun // tool executions by id, for subscribers
	gating    map[*Pending]struct{}
	firstDirt time.Time // the oldest tool change that the host was not told of
	lastDirt  time.Time
	telling   bool          // the worker gives the host a list
	told      chan struct{} // closed when the host was told of all changes; nil while nobody waits

	// revision counts the lists that the host was given; sent is the last, and
	// rewrites are the transforms of that time. All are written by the worker.
	revision atomic.Uint64
	sent     []Tool
	rewrites map[string][]*transform
	unsure   bool // the host may have another list than sent
}

// HostCalls is what a session offers to its host.
var _ HostCalls = (*Session)(nil)

const (
	timelineKept  = 1000
	liveKept      = 8192
	liveBytes     = 8 << 20
	followersKept = 1000
	textBytes     = 8 << 20 // of the timeline, and of what followers of streams may read again
)

func newSession(g *Gateway, spec SessionSpec, info HostInfo, h Host) *Session {
	s := &Session{
		g: g, id: spec.ID, cwd: spec.CWD, host: h, info: info, createdAt: time.Now(),
		timeline:  newFeed(timelineKept, textBytes, func(l TimelineLine) int { return len(l.Message) }),
		live:      newFeed(liveKept, liveBytes, liveSize),
		pushed:    newFeed(followersKept, textBytes, func(r HistoryRow) int { return len(r.Event) + len(r.Prompt) + len(r.Metadata) }),
		runtime:   newRuntimeLog(),
		wakeup:    make(chan struct{}, 1),
		quit:      make(chan struct{}),
		stopping:  make(chan struct{}),
		stopped:   make(chan struct{}),
		labelText: spec.Label,
		model:     spec.Model,
		following: map[string]*Turn{},
		pushers:   map[string]*pusher{},
		streams:   map[streamKey]*stream{},
		kept:      map[string]int{},
		running:   map[string]toolRun{},
		gating:    map[*Pending]struct{}{},
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

func (s *Session) ending() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// View is the session as people see it.
func (s *Session) View() SessionView {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.view()
}

// view needs Gateway.mu held.
func (s *Session) view() SessionView {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := SessionView{ID: s.id, Label: s.labelText, Host: s.info.Kind, Model: s.model, CWD: s.cwd, State: "idle",
		Providers: len(s.bindings), Tools: len(s.routes.Load().list), CreatedAt: s.createdAt.UTC()}
	if s.busy {
		v.State = "busy"
	}
	if s.ending() {
		v.State = "ending"
	} else {
		v.Foreground = s.isForeground()
	}
	return v
}

// isForeground is current without the locks of the sessions' own. Call with
// Gateway.mu held.
func (s *Session) isForeground() bool { return s.g.current() == s }

// Tools lists the providers' tools in the session, in registration order.
func (s *Session) Tools() []ToolView {
	list := s.routes.Load().list
	views := make([]ToolView, len(list))
	for i, t := range list {
		d := t.definition
		views[i] = ToolView{Name: d.Name, Description: d.Description, Parameters: []byte(d.Parameters), Provider: d.Provider,
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
	b := &binding{provider: p, session: s, offer: o, past: p.pastIn(s.id)}
	s.bindings = append(s.bindings, b)
	p.bindings = append(p.bindings, b)
	s.rebuild()
	s.note(LogInfo, sourceGateway, fmt.Sprintf("provider %s joined with %d tools", p.name, len(o.tools)))
	s.warnBlindRules(p, o.rules)
}

// unbind removes a binding. Call with Gateway.mu held.
func (s *Session) unbind(b *binding) {
	s.remove(b)
	s.rebuild()
}

// remove takes a binding out of the session, whose routes are rebuilt by the
// caller. Call with Gateway.mu held.
func (s *Session) remove(b *binding) {
	drop := func(list []*binding) []*binding {
		return slices.DeleteFunc(list, func(x *binding) bool { return x == b })
	}
	s.bindings, b.provider.bindings = drop(s.bindings), drop(b.provider.bindings)
	s.answered(b)
	s.note(LogInfo, sourceGateway, fmt.Sprintf("provider %s left", b.provider.name))
}

// answered notes that a provider is done with a session that ends. Call with
// Gateway.mu held.
func (s *Session) answered(b *binding) {
	if !b.pending {
		return
	}
	b.pending = false
	if s.waiting--; s.waiting == 0 {
		close(s.allReady)
	}
}

// rebuild swaps in the routes of the present bindings and lets the host know.
// Call with Gateway.mu held.
func (s *Session) rebuild() {
	r := newRoutes(s.bindings, s.g.hookRules())
	s.swap.Lock()
	s.routes.Store(r)
	s.swap.Unlock()
	now := time.Now()
	s.mu.Lock()
	if s.firstDirt.IsZero() {
		s.firstDirt = now
	}
	s.lastDirt = now
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

// Stop ends the session: its providers are told and have until their deadline
// to answer, then its calls end, and its host is closed. It returns when all
// that is done; a second call waits for the first. ctx bounds the wait for the
// providers and the host.
func (s *Session) Stop(ctx context.Context, reason string) error {
	if s.stopCalled.CompareAndSwap(false, true) {
		return s.stop(ctx, reason)
	}
	select {
	case <-s.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Session) stop(ctx context.Context, reason string) error {
	g := s.g
	defer close(s.stopped)
	g.mu.Lock()
	close(s.stopping)
	s.allReady = make(chan struct{})
	told := make([]Peer, 0, len(s.bindings))
	for _, b := range s.bindings {
		b.pending = true
		b.provider.peer.Send(&protocol.SessionLifecycle{SessionID: s.id, State: protocol.LifecycleShutdownPending, Deadline: protocol.ShutdownDeadline.Milliseconds()})
		told = append(told, b.provider.peer)
	}
	if s.waiting = len(s.bindings); s.waiting == 0 {
		close(s.allReady)
	}
	g.touch()
	g.mu.Unlock()
	for _, p := range told {
		p.Flush()
	}
	s.note(LogInfo, sourceGateway, "session is ending: "+reason)
	hooked := s.endHooks(ctx, reason)

	deadline := time.NewTimer(protocol.ShutdownDeadline)
	defer deadline.Stop()
	select {
	case <-s.allReady:
	case <-deadline.C:
		g.log.Warn("some providers did not answer the end of the session", "session", s.id)
	case <-ctx.Done():
	}
	s.tearDown()

	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := s.host.Close(closing, reason)
	<-hooked
	s.hooksDone()
	s.endTurnSpans(nil, "the session has ended")
	s.endLive()
	s.timeline.close()
	s.pushed.close()
	s.runtime.close()
	g.log.Info("session ended", "session", s.id, "reason", reason)
	if err != nil {
		return fmt.Errorf("closing the session's host: %w", err)
	}
	return nil
}

// tearDown takes the session out of everything and ends its calls.
func (s *Session) tearDown() {
	g := s.g
	s.cancel() // its host need not hear of the tools that go now
	g.mu.Lock()
	var ended []*call
	var told []*Conn
	for _, b := range slices.Clone(s.bindings) {
		s.unbind(b)
		delete(b.provider.past, s.id)
	}
	mine := func(k *call) bool { return k.session == s }
	for c := range g.conns {
		p := c.provider
		if p == nil {
			continue
		}
		// Also calls to tools that were removed since.
		ended = append(ended, p.cancel(mine, protocol.ReasonInterrupted)...)
		// One that has ended has calls of other sessions to answer still.
		if c.is(bound) && len(p.bindings) == 0 && !p.all && !c.identity.ended {
			c.state.Store(int32(unbound))
		}
		told = append(told, c)
	}
	delete(g.sessions, s.id)
	g.order = slices.DeleteFunc(g.order, func(x *Session) bool { return x == s })
	g.dropTokens(s.id)
	told = append(told, g.announce()...)
	g.mu.Unlock()
	flush(told)
	finish(ended, Outcome{Error: "Cancelled: the session has ended", ErrorCode: protocol.CodeCancelled})
	close(s.quit)
	s.worker.Wait()
	s.failJobs()
	s.wakeTurn()
}

// Ended implements [HostCalls]. It does not wait for the end.
func (s *Session) Ended(reason string) {
	if !s.ending() {
		gone := "the session's host is gone: " + reason
		s.g.diag.noteError(s.id, "", CodeSession, gone)
		s.feed(Event{SessionError: gone})
	}
	go func() {
		if err := s.Stop(context.Background(), reason); err != nil {
			s.g.log.Warn("ending a session", "session", s.id, "error", err)
		}
	}()
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.stopped }

// Interrupt ends the session's calls in flight with CANCELLED, tells their
// providers, and stops the turn.
func (s *Session) Interrupt(ctx context.Context, reason string) error {
	s.CancelCalls()
	s.note(LogInfo, sourceGateway, "interrupted: "+reason)
	if !s.info.Interrupt {
		return faultf(protocol.CodeInvalidState, fmt.Sprintf("the turn goes on: sessions of host %s can't be interrupted; their calls were cancelled", s.info.Kind))
	}
	if err := s.host.Interrupt(ctx, reason); err != nil {
		return fmt.Errorf("interrupting the session: %w", err)
	}
	return nil
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
			if k := p.cancel(func(k *call) bool { return k.session == s }, protocol.ReasonInterrupted); len(k) > 0 {
				ended, told = append(ended, k...), append(told, c)
			}
		}
	}
	g.mu.Unlock()
	flush(told)
	finish(ended, Outcome{Error: "Cancelled: the session was interrupted", ErrorCode: protocol.CodeCancelled})
	s.mu.Lock()
	gating := slices.Collect(maps.Keys(s.gating))
	s.mu.Unlock()
	for _, w := range gating {
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

// Injects is how many pushes wait for the session to be idle.
func (s *Session) Injects() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.injects)
}

// Idle implements [HostCalls].
func (s *Session) Idle() {
	s.mu.Lock()
	was := s.busy
	s.busy = false
	s.turns++
	s.mu.Unlock()
	s.g.touch()
	if !s.info.Turns {
		s.endTurnSpans(nil, "")
	}
	s.feed(Event{Callback: OnIdle})
	s.wakeTurn()
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

func (s *Session) wakeTurn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turnEnded != nil {
		close(s.turnEnded)
		s.turnEnded = nil
	}
}

// awaitTurn waits until a turn has ended that was not counted yet.
func (s *Session) awaitTurn(ctx context.Context, counted uint64) error {
	for {
		s.mu.Lock()
		if s.turns > counted {
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

// job is something for the worker to ask of the host.
type job struct {
	prompt Prompt
	turn   *Turn      // of the prompt; nil where nobody follows it
	cursor uint64     // of the live feed when the host was asked; read after done
	done   chan error // holds one
}

// Prompt gives the session a person's prompt and returns when the host took it.
// The cursor is that of the live feed just before: a turn that ends while the
// prompt waits its turn to be sent is not this prompt's.
func (s *Session) Prompt(ctx context.Context, p Prompt) (cursor uint64, err error) {
	j, err := s.submit(ctx, p, nil)
	if err != nil {
		return 0, err
	}
	return j.cursor, nil
}

// submit has the worker give the host a prompt; t is told what comes of it, where
// somebody wants to know.
func (s *Session) submit(ctx context.Context, p Prompt, t *Turn) (*job, error) {
	if !s.info.Send {
		return nil, faultf(protocol.CodeInvalidState, fmt.Sprintf("sessions of host %s take no prompts", s.info.Kind))
	}
	if err := s.mayBring(p); err != nil {
		return nil, err
	}
	if p.Source == "" {
		p.Source = SourceUser
	}
	if p.Source == SourceUser {
		s.userSpoke()
	}
	j := &job{prompt: p, turn: t, done: make(chan error, 1)}
	s.mu.Lock()
	if s.ending() {
		s.mu.Unlock()
		return nil, noSession(s.id)
	}
	s.jobs = append(s.jobs, j)
	s.mu.Unlock()
	s.wake()
	select {
	case err := <-j.done:
		return j, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// failJobs answers those that came too late for the worker.
func (s *Session) failJobs() {
	s.mu.Lock()
	jobs, injects := s.jobs, s.injects
	s.jobs, s.injects = nil, nil
	s.mu.Unlock()
	for _, j := range jobs {
		j.done <- noSession(s.id)
	}
	for _, in := range injects {
		in.settle(Receipt{Seq: in.seq, Fate: FateDropped, Reason: "the session has ended"})
	}
}

// work is the session's own goroutine.
func (s *Session) work() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		// Tools that are due go first: a prompt that was sent after a change
		// finds it made.
		wait := s.refresh()
		s.runJobs()
		s.deliver()
		timer.Reset(wait)
		select {
		case <-s.wakeup:
		case <-timer.C:
		case <-s.quit:
			return
		}
	}
}

func (s *Session) runJobs() {
	for {
		s.mu.Lock()
		if len(s.jobs) == 0 {
			s.mu.Unlock()
			return
		}
		j := s.jobs[0]
		s.jobs = s.jobs[1:]
		s.mu.Unlock()
		j.cursor = s.live.last()
		j.done <- s.send(j.prompt, j.turn)
	}
}

// send gives the host a prompt. From here on the session counts as busy, so
// that nothing is injected before the host says that its turn began.
func (s *Session) send(p Prompt, t *Turn) error {
	s.name(&p, t)
	s.traceTurn(&p)
	if s.info.LiveTools {
		s.refresh() // a change may have come since the worker's last look
	}
	s.mu.Lock()
	was := s.busy
	turns := s.turns
	s.busy = true
	s.mu.Unlock()
	s.g.touch()
	ctx, cancel := context.WithTimeout(s.ctx, hostTimeout)
	defer cancel()
	err := s.host.Send(ctx, p)
	if err != nil {
		s.endTurnSpans([]string{p.ID}, err.Error())
		s.mu.Lock()
		if !was && s.turns == turns {
			s.busy = false
		}
		s.mu.Unlock()
		s.g.touch()
		return fmt.Errorf("sending the prompt: %w", err)
	}
	return nil
}

// refresh gives the host the tool list when it is due, and returns how long
// until it is. What a host keeps of the prompt goes with its list.
func (s *Session) refresh() time.Duration {
	s.mu.Lock()
	first, last := s.firstDirt, s.lastDirt
	if first.IsZero() || s.ctx.Err() != nil {
		s.mu.Unlock()
		return time.Hour
	}
	if !s.info.LiveTools {
		due := last.Add(protocol.RefreshQuiet)
		if most := first.Add(protocol.RefreshMax); most.Before(due) {
			due = most
		}
		if wait := time.Until(due); wait > 0 {
			s.mu.Unlock()
			return wait
		}
	}
	s.firstDirt = time.Time{}
	s.telling = true
	s.mu.Unlock()
	defer s.wasTold()

	r := s.settled()
	tools := hostTools(r)
	rewritten := s.info.CachesPrompt && !maps.EqualFunc(r.transforms, s.rewrites, slices.Equal)
	if !s.unsure && !rewritten && slices.EqualFunc(tools, s.sent, sameTool) {
		return time.Hour
	}
	ctx, cancel := context.WithTimeout(s.ctx, hostTimeout)
	defer cancel()
	err := s.host.SetTools(ctx, s.revision.Add(1), tools)
	// A host that failed, or was away, may have this list, the last, or one
	// that it took when it came back: the next goes to it whatever it is.
	s.unsure = err != nil
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			s.note(LogWarning, sourceGateway, fmt.Sprintf("the session did not take its tools: %v", err))
		}
		return time.Hour
	}
	s.sent, s.rewrites = tools, r.transforms
	s.g.stats.Refreshes.Add(1)
	return time.Hour
}

// settled is what the session's routes are between two steps of its providers: a
// hello that binds anew takes the old tools out and puts the new ones in, and a
// host is to see neither the one without the other.
func (s *Session) settled() *routes {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.routes.Load()
}

// wasTold wakes those who wait for the host to have the tools.
func (s *Session) wasTold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.telling = false
	if s.told != nil && s.firstDirt.IsZero() {
		close(s.told)
		s.told = nil
	}
}

// settleTime is how long the outcome of a call waits for the host to take its
// tools.
const settleTime = time.Second

// settle waits until a host that takes tools live was told of every change so
// far: what the session does next, knowing the outcome of a call, sees them.
func (s *Session) settle(ctx context.Context) {
	if !s.info.LiveTools {
		return
	}
	s.mu.Lock()
	if !s.telling && s.firstDirt.IsZero() {
		s.mu.Unlock()
		return
	}
	if s.told == nil {
		s.told = make(chan struct{})
	}
	told := s.told
	s.mu.Unlock()
	limit := time.NewTimer(settleTime)
	defer limit.Stop()
	select {
	case <-told:
	case <-limit.C:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

func sameTool(a, b Tool) bool {
	return a.Name == b.Name && a.Description == b.Description && string(a.Parameters) == string(b.Parameters)
}
