// Package terminals makes sessions of Copilot CLIs that people run in terminals. A terminal joins
// in several ways: its hooks run `tapgw hook`, it starts `tapgw mcp`, its extension hands over a
// pipe, or a person attaches its port. All ways of one terminal are one session, which has the id
// that the CLI gave it.
//
// The package translates hooks itself. It does not speak the CLI's own protocol: a package that
// does gives the registry a [Link]. Without terminals a [Registry] is empty and runs no goroutine.
package terminals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/git"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
)

// Kind is the kind of host of these sessions, as lists of sessions show it.
const Kind = "terminal"

// Way is one way in which a terminal has joined.
type Way string

// The ways in which a terminal joins. docs/terminals.md has the abilities of each.
const (
	WayHooks     Way = "hooks"     // the CLI runs `tapgw hook` at its events
	WayMCP       Way = "mcp"       // the CLI runs `tapgw mcp` as an MCP server
	WayExtension Way = "extension" // the CLI's extension handed over its pipe
	WayPort      Way = "port"      // a person attached the port of `copilot --ui-server`
)

// Bounds. A local program that has the admin token could otherwise fill the gateway with terminals.
const (
	maxTerminals = 200
	maxOfProcess = 20  // sessions of one CLI, which keeps the sessions that /new left
	maxSessionID = 128 // bytes
)

// Terminal says which terminal something comes from. A CLI may have several sessions at once.
type Terminal struct {
	Session string // the CLI's id of the session
	PID     int    // of the CLI's process; 0 when it is not known
	CWD     string // absolute
}

// Link speaks with the CLI of one terminal. The registry calls SetTools, Send and Interrupt from
// one goroutine each, and Close once.
type Link interface {
	// SetTools replaces the tools that providers give the session.
	SetTools(ctx context.Context, tools []gateway.Tool) error
	// Has reports whether SetTools has ever given the CLI a tool of this name. It must not block.
	Has(tool string) bool
	// Send gives the CLI a prompt, as [gateway.Host] says.
	Send(ctx context.Context, p gateway.Prompt) error
	// Log shows a line in the terminal. It must not block.
	Log(level adminapi.LogLevel, message string)
	// Interrupt stops the running turn, as [gateway.Host] says.
	Interrupt(ctx context.Context, reason string) (dropped []string, err error)
	// Close ends the link. The CLI goes on without it.
	Close()
}

// OpenLink makes the link of a terminal. calls is its session: the link gives it all that the CLI
// does and asks.
type OpenLink func(ctx context.Context, calls gateway.HostCalls) (Link, error)

// Options of a registry. Log may be nil.
type Options struct {
	Gateway *gateway.Gateway
	Log     *slog.Logger
}

// Registry holds the terminals that have joined a gateway. Any goroutine may call its methods.
type Registry struct {
	gateway *gateway.Gateway
	log     *slog.Logger
	begun   time.Time
	own     int             // the PID of this process
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex // guards the fields that follow; above the locks of terminals
	terminals map[string]*terminal
	// sessions of a CLI, whose end is waited for; the last used one last
	processes map[proc.ID][]string
	stopped   map[string]bool // sessions that a person has stopped while their terminal goes on
}

// New makes a registry without terminals.
func New(o Options) *Registry {
	r := &Registry{gateway: o.Gateway, log: o.Log, begun: time.Now(), own: os.Getpid(),
		terminals: map[string]*terminal{}, processes: map[proc.ID][]string{},
		stopped: map[string]bool{}}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Close stops following the terminals and waits for running work. It ends no session:
// [gateway.Gateway.Drain] does.
func (r *Registry) Close() {
	r.cancel()
	r.mu.Lock()   // no goroutine starts while it is held
	r.mu.Unlock() //nolint:staticcheck // a barrier
	r.running.Wait()
}

// Join adds a way to a terminal. The session begins with the first way. open makes the link of the
// ways extension and port; it is nil for the others. The caller calls leave once, when the way is
// gone. The session ends with its last way, or with the CLI's process.
func (r *Registry) Join(
	ctx context.Context, who Terminal, way Way, open OpenLink,
) (leave func(), err error) {
	if r.isStopped(who.Session) {
		return nil, &protocol.Error{Code: protocol.CodeInvalidState, SessionID: who.Session,
			Message: "somebody has stopped this session; it comes back when something happens in " +
				"its terminal"}
	}
	t, err := r.enter(ctx, who)
	if err != nil {
		return nil, err
	}
	if open == nil {
		t.addWay(way)
	} else if err := t.openLink(ctx, way, open); err != nil {
		return nil, err
	}
	r.gateway.TouchTools()
	return sync.OnceFunc(func() {
		if open != nil {
			t.dropLink()
		}
		if t.removeWay(way) {
			r.end(t, "the terminal is gone")
		}
		r.gateway.TouchTools()
	}), nil
}

// HasLink reports whether a session is the session of a terminal whose link gives its model the
// tools of providers, so that no other way should. [gateway.Gateway.ToolChanges] counts when that
// changes.
func (r *Registry) HasLink(session string) bool {
	t := r.find(session)
	return t != nil && t.currentLink() != nil
}

// isStopped reports whether a person has stopped a session. Ways that join by themselves would
// bring it back at once.
func (r *Registry) isStopped(session string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped[session]
}

// forgive lets a stopped session come back.
func (r *Registry) forgive(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.stopped, session)
}

// closed notes that the gateway has ended a terminal's session: a person has stopped it, unless the
// registry did.
func (r *Registry) closed(t *terminal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.terminals[t.id] != t {
		return
	}
	if len(r.stopped) >= maxTerminals {
		clear(r.stopped)
	}
	r.stopped[t.id] = true
	r.drop(t)
}

// find returns the terminal of a session, or nil if there is no such terminal.
func (r *Registry) find(session string) *terminal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terminals[session]
}

// latest returns the terminal whose session a process used last, or nil if there is no such
// terminal.
func (r *Registry) latest(id proc.ID) *terminal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sessions := r.processes[id]; len(sessions) > 0 {
		return r.terminals[sessions[len(sessions)-1]]
	}
	return nil
}

// List lists the terminals, oldest first, as GET /terminals shows them.
func (r *Registry) List() []adminapi.Terminal {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]adminapi.Terminal, 0, len(r.terminals))
	for _, t := range r.terminals {
		view := t.view()
		for id, sessions := range r.processes {
			if slices.Contains(sessions, t.id) {
				view.PIDs = append(view.PIDs, id.PID)
			}
		}
		slices.Sort(view.PIDs)
		list = append(list, view)
	}
	slices.SortFunc(list, func(a, b adminapi.Terminal) int {
		return cmp.Or(a.JoinedAt.Compare(b.JoinedAt), strings.Compare(a.Session, b.Session))
	})
	return list
}

// errForeign is the error for a session id that another host's session has.
var errForeign = &protocol.Error{
	Code:    protocol.CodeInvalidSession,
	Message: "session: another program runs the session of this id",
}

// check refuses a terminal whose session can't be a session of the CLI.
func (who Terminal) check() error {
	switch {
	case who.Session == "":
		return invalid("session: is required")
	case len(who.Session) > maxSessionID:
		return invalid("session: must be at most %d bytes", maxSessionID)
	case who.Session == protocol.AllSessions || strings.ContainsFunc(who.Session, notInSessionID):
		return invalid("session: %q must be letters, digits, '-', '_' and '.' only", who.Session)
	case who.Session[0] == '.':
		return invalid("session: %q begins with a dot", who.Session)
	case !filepath.IsAbs(who.CWD):
		return invalid("cwd: %q must be an absolute path", who.CWD)
	case who.PID < 0:
		return invalid("pid: %d is no process", who.PID)
	}
	return nil
}

// notInSessionID reports whether the CLI's ids of sessions never have a character. The ids stand in
// paths and URLs.
func notInSessionID(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' &&
		c != '_' && c != '.'
}

func invalid(format string, args ...any) error {
	return protocol.Errorf(protocol.CodeInvalidJSON, format, args...)
}

// enter finds the terminal, or begins its session. It follows the terminal's process.
func (r *Registry) enter(ctx context.Context, who Terminal) (*terminal, error) {
	if err := who.check(); err != nil {
		return nil, err
	}
	var id proc.ID
	if who.PID != 0 {
		var ok bool
		if id, ok = proc.IDOf(who.PID); !ok {
			return nil, invalid("pid: there is no process %d", who.PID)
		}
	}
	for {
		t, isNew, err := r.reserve(who)
		if err != nil {
			return nil, err
		}
		if isNew {
			err = r.begin(ctx, t)
		} else if err = t.wait(ctx); err == nil && t.isEnding() {
			r.remove(t) // the CLI goes on all the same
			continue
		}
		switch {
		case errors.Is(err, errEnding):
			continue // the previous session has ended by now
		case err != nil:
			return nil, err
		}
		if id != (proc.ID{}) {
			r.follow(id, t)
		}
		return t, nil
	}
}

// reserve finds the terminal of a session, or adds one whose session the caller begins.
func (r *Registry) reserve(who Terminal) (t *terminal, isNew bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.terminals[who.Session]; t != nil {
		return t, false, nil
	}
	if r.ctx.Err() != nil {
		return nil, false, &protocol.Error{Code: protocol.CodeInvalidState,
			Message: "the gateway is shutting down"}
	}
	if len(r.terminals) >= maxTerminals {
		return nil, false, protocol.Errorf(protocol.CodeRateLimited,
			"the gateway has %d terminals already; close some", maxTerminals)
	}
	t = newTerminal(r, who)
	r.terminals[t.id] = t
	return t, true, nil
}

// begin registers a new terminal's session with the gateway. When one of the same id is just
// ending, it waits for that and returns errEnding.
func (r *Registry) begin(ctx context.Context, t *terminal) (err error) {
	defer func() {
		if err != nil {
			r.remove(t)
		}
		t.begun(err)
	}()
	s, err := r.gateway.Register(gateway.SessionSpec{
		ID: t.id, Label: git.Label(t.cwd), CWD: t.cwd, Returns: true,
	}, t.info(), t)
	if err == nil {
		t.session = s
		return nil
	}
	if refused, ok := errors.AsType[*protocol.Error](err); !ok ||
		refused.Code != protocol.CodeInvalidSession {
		return err
	}
	old, ok := r.gateway.Session(t.id)
	switch {
	case !ok:
		return errEnding
	case old.Host().Kind != Kind:
		return errForeign
	}
	select {
	case <-old.Done():
		return errEnding
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errEnding says that the previous session has just ended, so that a new one can begin.
var errEnding = errors.New("the session was just ending")

// remove forgets a terminal.
func (r *Registry) remove(t *terminal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.terminals[t.id] == t {
		r.drop(t)
	}
}

// drop is remove for callers with r.mu held.
func (r *Registry) drop(t *terminal) {
	delete(r.terminals, t.id)
	for id, sessions := range r.processes {
		r.processes[id] = slices.DeleteFunc(sessions, func(session string) bool {
			return session == t.id
		})
	}
}

// follow notes that a process uses a terminal's session now. If a process has too many sessions,
// follow ends the one that it has not used for the longest time.
func (r *Registry) follow(id proc.ID, t *terminal) {
	r.mu.Lock()
	if r.ctx.Err() != nil || r.terminals[t.id] != t {
		r.mu.Unlock()
		return
	}
	sessions, isFollowed := r.processes[id]
	if !isFollowed {
		r.running.Go(func() { r.waitEnd(id) })
	}
	sessions = slices.DeleteFunc(sessions, func(session string) bool { return session == t.id })
	sessions = append(sessions, t.id)
	r.processes[id] = sessions
	var oldest *terminal
	if len(sessions) > maxOfProcess {
		oldest = r.terminals[sessions[0]]
	}
	r.mu.Unlock()
	if oldest != nil {
		r.end(oldest, fmt.Sprintf("its terminal has used %d others since", maxOfProcess))
	}
}

// waitEnd waits until a process has ended, and ends the sessions with it that no other process has.
func (r *Registry) waitEnd(id proc.ID) {
	if id.WaitEnd(r.ctx) != nil {
		return
	}
	var ended []*terminal
	r.mu.Lock()
	sessions := r.processes[id]
	delete(r.processes, id)
	for _, session := range sessions {
		if !r.isUsed(session) {
			ended = append(ended, r.terminals[session])
		}
	}
	r.mu.Unlock()
	for _, t := range ended {
		r.end(t, "the terminal has been closed")
	}
}

// isUsed reports whether a known process has a session. Call with r.mu held.
func (r *Registry) isUsed(session string) bool {
	for _, sessions := range r.processes {
		if slices.Contains(sessions, session) {
			return true
		}
	}
	return false
}

// end ends a terminal's session. It does not wait for that.
func (r *Registry) end(t *terminal, reason string) {
	r.remove(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return // the gateway ends all sessions
	}
	r.running.Go(func() {
		if t.wait(r.ctx) != nil {
			return
		}
		if err := t.session.Stop(r.ctx, reason); err != nil {
			r.log.Warn("ending the session of a terminal", "session", t.id, "error", err)
		}
	})
}
