package copilot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/visible"
)

// OpenFunc joins a session that a terminal runs. calls gets the session's events.
type OpenFunc func(ctx context.Context, calls gateway.HostCalls) (*Link, error)

// JoinFunc brings a session of a terminal to the gateway, with the link that open makes. The cwd is
// "" if the terminal does not tell it. leave ends that.
type JoinFunc func(ctx context.Context, id, cwd string, open OpenFunc) (leave func(), err error)

// Attachment is the loopback port of a terminal that was started with --ui-server.
type Attachment struct {
	Port int
	// Had names the tools that the terminal has had from earlier gateways: it goes on to list them
	// until its next turn, and they are not its own.
	Had   []string
	Join  JoinFunc
	Ended func() // is called once when the terminal is not attached any more, unless Attach failed
}

// port is a connection to the port of a terminal.
type port struct {
	Attachment
	r *Runtime
	p *process

	mu         sync.Mutex    // guards the field that follows
	foreground string        // the session that the terminal shows
	changed    chan struct{} // holds one
}

// portSession is a session that a port is joined to.
type portSession struct {
	id    string
	link  *Link
	leave func()
}

// Attach connects to the port of a terminal, and joins the session that the terminal shows: its id
// is the result. From then on it also joins each other session that the terminal shows. It leaves a
// session when the terminal ends it or somebody stops it in the gateway, and the port with the
// terminal, with the Runtime, or when somebody has stopped the last session. A turn goes on in a
// session that the terminal does not show any more, so its gates stay. Anything on this machine may
// connect to such a port, because the CLI asks for no token.
func (r *Runtime) Attach(ctx context.Context, a Attachment) (id string, err error) {
	ctx, cancel := r.untilClosed(ctx)
	defer cancel()
	dialer := net.Dialer{Timeout: pingTimeout}
	pipe, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(a.Port)))
	if err != nil {
		return "",
			invalidState(
				"port: nothing answers at %d: %v; start the terminal with: copilot --ui-server",
				a.Port, err)
	}
	p, err := pipeProcess(ctx, pipe, r.log.With("port", a.Port))
	if err != nil {
		return "", noTerminal(a.Port, err)
	}
	o := &port{Attachment: a, r: r, p: p, changed: make(chan struct{}, 1)}
	// The SDK reads nothing more while this handler runs.
	p.client.OnEventType(sdk.SessionLifecycleForeground, func(e sdk.SessionLifecycleEvent) {
		o.show(e.SessionID)
	})
	s, err := o.first(ctx)
	if err != nil {
		p.leave()
		return "", err
	}
	if !r.spawn(func() { o.follow(s) }) {
		o.end(s)
		p.leave()
		return "", errClosed
	}
	return s.id, nil
}

// maxSaid bounds the part of an answer from a port that an error quotes, in bytes.
const maxSaid = 200

// noTerminal is the error for a port at which something else listens. Its answer may be anything.
func noTerminal(port int, err error) error {
	text := joinLines(err).Error()
	if len(text) > maxSaid {
		text = strings.ToValidUTF8(text[:maxSaid], "") + "…"
	}
	return invalidState(
		"port: the program at %d does not answer as a Copilot terminal does: %s; give "+
			"the port of one "+
			"that was started with: copilot --ui-server", port, visible.Line(text))
}

// show notes which session the terminal shows.
func (o *port) show(id string) {
	o.mu.Lock()
	o.foreground = id
	o.mu.Unlock()
	o.wake()
}

// wake makes [port.follow] look for changes.
func (o *port) wake() { chans.Wake(o.changed) }

func (o *port) shown() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.foreground
}

// first joins the session that the terminal shows at the beginning.
func (o *port) first(ctx context.Context) (*portSession, error) {
	id, err := askClient(ctx, o.p, askTimeout, o.p.client.GetForegroundSessionID)
	switch {
	case err != nil:
		return nil, noTerminal(o.Port, err)
	case id == nil || *id == "":
		return nil,
			invalidState("the terminal shows no session yet; try again when it has its prompt")
	}
	o.mu.Lock()
	if o.foreground == "" {
		o.foreground = *id
	}
	o.mu.Unlock()
	return o.enter(ctx, *id)
}

// enter joins a session of the terminal.
func (o *port) enter(ctx context.Context, id string) (*portSession, error) {
	s := &portSession{id: id}
	open := func(ctx context.Context, calls gateway.HostCalls) (*Link, error) {
		l, err := o.r.join(ctx, o.p, byPort, id, o.cwd(ctx, id), o.Had, calls)
		if err != nil {
			return nil, err
		}
		s.link = l
		context.AfterFunc(l.s.ctx, func() {
			close(l.ended)
			o.wake()
		})
		context.AfterFunc(l.s.over, o.wake)
		return l, nil
	}
	leave, err := o.Join(ctx, id, o.cwd(ctx, id), open)
	if err != nil {
		return nil, err
	}
	s.leave = leave
	return s, nil
}

// cwd is the working directory of a session, "" if the terminal does not tell it.
func (o *port) cwd(ctx context.Context, id string) string {
	m, err := askClient(ctx, o.p, askTimeout, func(ctx context.Context) (*sdk.SessionMetadata,
		error) {
		return o.p.client.GetSessionMetadata(ctx, id)
	})
	if err != nil || m == nil || m.Context == nil {
		return ""
	}
	return m.Context.WorkingDirectory
}

// follow joins the sessions that the terminal shows, and leaves those that have ended.
func (o *port) follow(first *portSession) {
	defer o.Ended()
	defer o.p.leave()
	sessions := map[string]*portSession{first.id: first}
	for {
		select {
		case <-o.changed:
		case <-o.p.gone:
		case <-o.r.ctx.Done():
		}
		isLeft, wasStopped := o.p.hasEnded() || o.r.ctx.Err() != nil, false
		for id, s := range sessions {
			isOver := s.link.s.over.Err() != nil
			isStopped := !isOver && s.link.s.ctx.Err() != nil // in the gateway
			if !isLeft && !isOver && !isStopped {
				continue
			}
			o.end(s)
			delete(sessions, id)
			o.unshow(id) // it is joined again when the terminal shows it again
			wasStopped = wasStopped || isStopped
		}
		if isLeft || wasStopped && len(sessions) == 0 {
			return
		}
		if id := o.shown(); id != "" && sessions[id] == nil {
			s, err := o.enter(o.r.ctx, id)
			if err == nil {
				sessions[id] = s
				continue
			}
			o.unshow(id)
			if !errors.Is(err, errClosed) {
				o.r.log.Warn("a session of a terminal could not be joined", "session", id, "error",
					err)
			}
		}
	}
}

// unshow forgets that the terminal shows a session.
func (o *port) unshow(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.foreground == id {
		o.foreground = ""
	}
}

// end leaves a session. The terminal goes on with it, or with another one.
func (o *port) end(s *portSession) {
	if o.p.hasEnded() {
		s.link.s.disconnected(o.p.cause)
	} else {
		s.link.detach()
	}
	s.link.s.end()
	s.leave()
}

// detach takes our part out of a session whose terminal lives.
func (l *Link) detach() {
	s := l.s
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	s.disconnected(errDetached)
	if c != nil {
		ctx, cancel := context.WithTimeout(context.Background(), logTimeout)
		defer cancel()
		_ = c.process.disconnect(ctx, c.sdk)
	}
}

var errDetached = errors.New("the terminal has ended the session, or the gateway has left it")
