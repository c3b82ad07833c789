package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/git"
	"tapgw/internal/visible"
)

// A session has one host, which runs the agent, and the providers that are bound to it. One worker
// goroutine gives the host its tools and prompts.

// hostTimeout bounds each request to a host.
const hostTimeout = 30 * time.Second

// Session is a conversation with one agent and the providers that are bound to it.
// [Gateway.Register] makes it, [Session.Stop] ends it. It implements [HostCalls]. All
// methods may be called from any goroutine, under no lock.
type Session struct {
	// Fixed at creation.
	g         *Gateway
	id        string
	cwd       string
	repo      string // owner/name, "" without one
	host      Host
	info      HostInfo
	createdAt time.Time

	// The parts of the session. Each has a lock of its own.
	feed    *feed                          // the timeline, callbacks and stored events
	prompts *prompts                       // on their way to the host, with the turns and injects
	streams *streams                       // of providers, with their filters
	runtime *buffer[adminapi.RuntimeEvent] // as the host's runtime tells them
	usage   usage
	running runningTurns
	tools   toolChanges
	uploads *uploads

	// routes is the table that calls are dispatched by. It is immutable and replaced
	// under Gateway.mu. routesMu is held for writing to replace it, and for reading to
	// send a call by it.
	routes   atomic.Pointer[routes]
	routesMu sync.RWMutex

	// worker is the goroutine that gives the host tools and prompts, see work.
	worker sync.WaitGroup
	wakeup chan struct{} // holds one
	quit   chan struct{} // closed to end the worker
	ctx    context.Context
	cancel context.CancelFunc // when the session is torn down

	stopCalled atomic.Bool
	stopping   chan struct{} // closed when the session begins to end; endReason is set before
	endReason  string
	stopped    chan struct{} // closed when it has ended

	// Guarded by Gateway.mu.
	bindings   []*binding
	nameOwners map[string]*nameOwner
	expects    []*expectation
	mcpToken   string        // "" until it is asked for
	unanswered int           // bindings whose provider has not answered the session's end
	allReady   chan struct{} // closed when unanswered comes to 0; nil before the end

	startContext atomic.Pointer[chan string] // answer of the session_start hooks, until used
	ownHooks     *userHooks                  // of its [SessionSpec]
	runningHooks sync.WaitGroup              // user hooks
	// needsHooks is set once something is bound that needs the host's hooks.
	// pendingHooks counts the changes that are about to bind such things.
	needsHooks   atomic.Bool
	pendingHooks atomic.Int32

	// mu guards the fields below it: the names, and the calls that run or wait.
	mu           sync.Mutex
	hooksClosed  bool // no user hook may start
	labelText    string
	model        string
	runningTools map[string]toolExecution           // by id
	askingGates  map[*Pending]int                   // how many attempts of the call ask
	waits        map[uint64]context.CancelCauseFunc // of calls for required providers
	waitCount    uint64                             // of all waits
	permitted    map[string]bool                    // command lines, by a person for the session

	// Written by the worker only: the number of lists that the host was given, the last
	// one that it took, and the transforms of that time.
	revision       atomic.Uint64
	sentTools      []Tool
	sentTransforms map[string][]*transform
	hostMayDiffer  bool // the last list failed, so the host may have another one than sentTools
}

var _ HostCalls = (*Session)(nil)

func newSession(g *Gateway, spec SessionSpec, info HostInfo, h Host) *Session {
	s := &Session{
		g: g, id: spec.ID, cwd: spec.CWD, host: h, info: info, createdAt: time.Now(),
		feed:         newFeed(),
		runtime:      newRuntimeLog(),
		wakeup:       make(chan struct{}, 1),
		quit:         make(chan struct{}),
		uploads:      newUploads(g.o.UploadDir),
		stopping:     make(chan struct{}),
		stopped:      make(chan struct{}),
		labelText:    labelOf(spec.Label),
		ownHooks:     newUserHooks(spec.Hooks),
		model:        spec.Model,
		nameOwners:   map[string]*nameOwner{},
		runningTools: map[string]toolExecution{},
		askingGates:  map[*Pending]int{},
		waits:        map[uint64]context.CancelCauseFunc{},
		permitted:    map[string]bool{},
	}
	if filepath.IsAbs(spec.CWD) {
		tree, _ := git.Of(spec.CWD)
		s.repo = tree.Repository
	}
	s.streams = newStreams(s.id, s.feed)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.prompts = newPrompts(s.ctx, s.feed, g.touch)
	s.routes.Store(&routes{})
	return s
}

// ID returns the gateway's id of the session.
func (s *Session) ID() string { return s.id }

// Host describes the session's host.
func (s *Session) Host() HostInfo { return s.info }

func (s *Session) label() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.labelText
}

func (s *Session) isIdle() bool {
	s.prompts.mu.Lock()
	defer s.prompts.mu.Unlock()
	return !s.prompts.isBusy
}

func (s *Session) isEnding() bool { return chans.IsClosed(s.stopping) }

// View is the session of this moment as the admin API shows it; the state is idle, busy or
// ending.
func (s *Session) View() adminapi.Session {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.view()
}

// view is [Session.View] for callers with Gateway.mu held.
func (s *Session) view() adminapi.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := adminapi.Session{ID: s.id, Label: s.labelText, Host: s.info.Kind, Model: s.model,
		CWD: s.cwd, State: "idle", Providers: len(s.bindings), Tools: len(s.routes.Load().list),
		CreatedAt: s.createdAt.UTC(), Repository: s.repo, Attachments: s.info.Attachments}
	if !s.isIdle() {
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
		for _, a := range s.routes.Load().required {
			v.WaitsFor = append(v.WaitsFor, a.Name)
		}
	}
	return v
}

// isForeground reports whether the session is the foreground session. Call with
// Gateway.mu held.
func (s *Session) isForeground() bool { return s.g.foregroundSession() == s }

// Tools lists the providers' tools in the session, in registration order, as GET /tools of
// docs/admin-api.md shows them. Tools that instances share are listed once.
func (s *Session) Tools() []adminapi.Tool {
	list := s.routes.Load().list
	views := make([]adminapi.Tool, len(list))
	for i, t := range list {
		d := t.definition
		views[i] = adminapi.Tool{Name: d.Name, Description: d.Description,
			Parameters: []byte(d.Parameters), Provider: d.Provider, Session: s.id,
			TimeoutMs: t.timeout.Milliseconds()}
		if len(t.tools) > 0 {
			own := t.tools[0]
			views[i].Title, views[i].Description = own.Title, own.Description
			views[i].OutputSchema = json.RawMessage(own.OutputSchema)
			views[i].Annotations = (*adminapi.ToolAnnotations)(own.Annotations)
		}
	}
	return views
}

// HostTools returns the current tool list for the host and the revision of the last list that the
// host was given, which may be older. The revision is 0 before the first list.
func (s *Session) HostTools() (tools []Tool, revision uint64) {
	return hostTools(s.routes.Load()), s.revision.Load()
}

func hostTools(r *routes) []Tool {
	tools := make([]Tool, len(r.list))
	for i, to := range r.list {
		tools[i] = to.definition
	}
	return tools
}

// Update changes the session's label and model, and announces a new label to connections.
// "" leaves a value as it is. It does not tell the host, and does not check the values: see
// [Session.Rename] and [Session.SetModel].
func (s *Session) Update(label, model string) {
	s.mu.Lock()
	if label != "" {
		s.labelText = labelOf(label)
	}
	if model != "" {
		s.model = model
	}
	s.mu.Unlock()
	s.g.touch()
	if label != "" {
		s.expectAgain()
		s.g.mu.Lock()
		conns := s.g.announce()
		s.g.mu.Unlock()
		flush(conns)
	}
}

// bind adds a provider with its offer. line is joinLine of them. Call with
// Gateway.mu held.
func (s *Session) bind(p *Provider, o *offer, line string) {
	b := &binding{provider: p, session: s, offer: o, record: p.recordIn(s.id)}
	s.bindings = append(s.bindings, b)
	p.bindings = append(p.bindings, b)
	s.rebuildRoutes()
	s.note(adminapi.LogInfo, sourceGateway, line)
	s.warnUnmatchedRules(p, o.rules)
}

// joinLine is the line in the timelines of all sessions that a provider joins.
func joinLine(p *Provider, o *offer) string {
	return fmt.Sprintf("provider %s joined with %s", p.name, visible.Count(len(o.tools), "tool"))
}

// unbind removes a binding. Call with Gateway.mu held.
func (s *Session) unbind(b *binding) {
	s.removeBinding(b)
	s.rebuildRoutes()
}

// removeBinding removes a binding and leaves it to the caller to rebuild the routes. Call with
// Gateway.mu held.
func (s *Session) removeBinding(b *binding) {
	drop := func(list []*binding) []*binding {
		return slices.DeleteFunc(list, func(x *binding) bool { return x == b })
	}
	s.noteLeft(b)
	s.bindings, b.provider.bindings = drop(s.bindings), drop(b.provider.bindings)
	s.markAnswered(b)
	s.note(adminapi.LogInfo, sourceGateway, fmt.Sprintf("provider %s left", b.provider.name))
}

// markAnswered notes that a provider has answered the session's end. Call with
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

// rebuildRoutes replaces the routes by those of the current bindings, and has the
// worker refresh the host's tools. Call with Gateway.mu held.
func (s *Session) rebuildRoutes() {
	r := newRoutes(s.bindings, s.hookRules())
	r.required = s.awayRequired()
	s.routesMu.Lock()
	s.routes.Store(r)
	s.routesMu.Unlock()
	s.tools.add()
	s.g.touch()
	s.g.toolChanges.increment()
	s.wake()
}

// QueuedInjects is the number of injects of all pushers that wait for the session to be
// idle.
func (s *Session) QueuedInjects() int {
	s.prompts.mu.Lock()
	defer s.prompts.mu.Unlock()
	return len(s.prompts.injects)
}

// wake makes the worker look for work.
func (s *Session) wake() { chans.Wake(s.wakeup) }
