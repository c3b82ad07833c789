package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/protocol"
)

// SessionSpec describes a session to register. Foreground makes it the foreground session
// at once; a later session is not foreground by itself while one is chosen.
type SessionSpec struct {
	ID         string // "": the gateway makes one
	Label      string
	CWD        string
	Model      string
	Foreground bool
	// Returns says that there was a session of this ID before, whose streams come back if records
	// have them.
	Returns bool
	// Hooks are asked in this session besides the gateway's, such as those of a project that the
	// user trusts.
	Hooks []Hook
}

// Register adds a session that a host runs, gives it the waiting events, and announces it
// to providers. The host may be called before Register returns. The error is
// INVALID_SESSION if the id is in use, or INVALID_STATE while the gateway shuts down.
func (g *Gateway) Register(spec SessionSpec, info HostInfo, h Host) (*Session, error) {
	if spec.ID == "" {
		spec.ID = uuid.NewString()
	}
	s := newSession(g, spec, info, h)
	if spec.Returns {
		s.restoreStreams()
	}
	g.mu.Lock()
	if g.isDraining {
		g.mu.Unlock()
		return nil, errorf(protocol.CodeInvalidState, "the gateway is shutting down")
	}
	if g.sessions[spec.ID] != nil {
		g.mu.Unlock()
		return nil, errorf(protocol.CodeInvalidSession, "session %q exists already", spec.ID)
	}
	g.sessions[spec.ID] = s
	s.expect()
	s.routes.Store(&routes{rules: s.hookRules(), required: s.awayRequired()})
	g.order = append(g.order, s)
	if spec.Foreground {
		g.foreground = spec.ID
	}
	if h := g.hooks.Load(); h != nil && h.needHost() || s.ownHooks.needHost() ||
		s.requiresAny(g.expected) {
		s.needsHooks.Store(true) // even if the hooks are removed before the first prompt
	}
	s.worker.Go(s.work)
	for c := range g.conns {
		c.needsSessionList = c.needsSessionList || c.is(unbound)
	}
	conns := g.announce()
	waiting := g.waitingEvents
	g.waitingEvents = waitingEvents{}
	g.mu.Unlock()
	flush(conns)
	s.note(adminapi.LogInfo, sourceGateway, "session started")
	s.recordState(adminapi.RecordStart, "")
	s.storeWaitingEvents(waiting)
	s.askStartHooks()
	g.o.Log.Info("session started", "session", s.id, "host", info.Kind, "cwd", spec.CWD)
	return s, nil
}

// Start makes a session of the kind of host that the request names, and returns it once it
// runs. The error is INVALID_JSON for an unknown kind, or that of the [Starter], which
// names the field that is wrong.
func (g *Gateway) Start(ctx context.Context, r StartRequest) (*Session, error) {
	starter, err := g.starter(r.Host)
	if err != nil {
		return nil, err
	}
	return starter.Start(ctx, g, r)
}

// Models lists the models that sessions of a kind of host can use. The error is
// INVALID_JSON for an unknown kind, or that of the [Starter].
func (g *Gateway) Models(ctx context.Context, host string) ([]adminapi.Model, error) {
	starter, err := g.starter(host)
	if err != nil {
		return nil, err
	}
	return starter.Models(ctx)
}

func (g *Gateway) starter(host string) (Starter, error) {
	if s := g.o.Starters[host]; s != nil {
		return s, nil
	}
	kinds := slices.Sorted(maps.Keys(g.o.Starters))
	return nil, errorf(protocol.CodeInvalidJSON, "host: %q is not one of %v", host, kinds)
}

// Session returns the session with an id, if there is one; a session that is ending counts
// until its providers are unbound.
func (g *Gateway) Session(id string) (*Session, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[id]
	return s, s != nil
}

// Foreground returns the foreground session: the chosen one until it ends, then the newest. It is
// false while there is no session.
func (g *Gateway) Foreground() (*Session, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.foregroundSession()
	return s, s != nil
}

// Sessions lists all sessions, oldest first, as GET /sessions of docs/admin-api.md shows
// them. Sessions that are ending are listed too.
func (g *Gateway) Sessions() []adminapi.Session {
	g.mu.Lock()
	defer g.mu.Unlock()
	views := make([]adminapi.Session, 0, len(g.order))
	for _, s := range g.order {
		views = append(views, s.view())
	}
	return views
}

// SetForeground makes a session the foreground session until it ends, and announces that to
// providers. The error is INVALID_SESSION if there is no such session, or if it is ending.
func (g *Gateway) SetForeground(id string) error {
	g.mu.Lock()
	s := g.sessions[id]
	if s == nil || s.isEnding() {
		g.mu.Unlock()
		return noSession(id)
	}
	g.foreground = id
	conns := g.announce()
	g.mu.Unlock()
	flush(conns)
	return nil
}

// foregroundSession returns the chosen session until it ends, then the newest. It returns nil if
// there is no session. Call with g.mu held.
func (g *Gateway) foregroundSession() *Session {
	if s := g.sessions[g.foreground]; s != nil && !s.isEnding() {
		return s
	}
	for _, s := range slices.Backward(g.order) {
		if !s.isEnding() {
			return s
		}
	}
	return nil
}

// sessionsFor lists the sessions that a connection of an identity may know: those that
// it may bind first, each part with the foreground session first and then the newest.
// Sessions that it may not bind have no cwd. Call with g.mu held.
func (g *Gateway) sessionsFor(id *identity) []protocol.SessionInfo {
	foreground := g.foregroundSession()
	bindable, others := []protocol.SessionInfo{}, []protocol.SessionInfo{}
	add := func(s *Session) {
		info := protocol.SessionInfo{ID: s.id, Label: s.label(), Foreground: s == foreground}
		switch {
		case id.Trust == TrustProject && !id.includes(s):
			// A project's providers know the project's sessions only.
		case id.mayBind(s):
			info.CWD = s.cwd
			bindable = append(bindable, info)
		default:
			others = append(others, info)
		}
	}
	if foreground != nil {
		add(foreground)
	}
	for _, s := range slices.Backward(g.order) {
		if s != foreground && !s.isEnding() {
			add(s)
		}
	}
	return append(bindable, others...)
}

// announce queues the list of sessions on every connection that wants it, and returns
// these, for the caller to flush without g.mu. Call with g.mu held.
func (g *Gateway) announce() []*Conn {
	g.touch()
	g.toolChanges.increment()
	chans.Wake(g.sessionsChanged)
	var conns []*Conn
	for c := range g.conns {
		if c.announce() {
			conns = append(conns, c)
		}
	}
	return conns
}

func flush(conns []*Conn) {
	for _, c := range conns {
		c.peer.Flush()
	}
}

func noSession(id string) *protocol.Error {
	return &protocol.Error{Code: protocol.CodeInvalidSession, SessionID: id,
		Message: fmt.Sprintf("session %q does not exist", id)}
}
