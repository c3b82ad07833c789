package copilot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// joinedBy says how the gateway joined a session that a person's terminal runs. Such a session is
// the person's: the gateway adds tools, prompts and lines to it, but the terminal decides about its
// model, its permissions and its end.
type joinedBy int

const (
	// byExtension is the pipe of an extension. The CLI refuses tools.set there, and asks its person
	// for consent to hooks and to tools that need no permission, so such a session has no hooks and
	// no such tools.
	byExtension joinedBy = iota + 1
	// byPort is the port of a terminal that was started with --ui-server.
	byPort
)

// Link is the gateway's way into a session that a person's terminal runs. It has the methods that a
// gateway's host needs. Any goroutine may call them.
type Link struct {
	s     *session
	p     *process // nil: the port's, which outlives the link
	ended chan struct{}
}

// Join joins a session of a terminal over the pipe that the terminal gave to its extension. calls
// gets the session's events; it asks the gates about each call of a provider's tool. had names the
// tools that the terminal has had from other gateways, which it still lists. The link ends with the
// pipe, and with the Runtime. Join closes the pipe if it fails.
func (r *Runtime) Join(
	ctx context.Context, pipe io.ReadWriteCloser, id, cwd string, had []string,
	calls gateway.HostCalls,
) (*Link, error) {
	ctx, cancel := r.untilClosed(ctx)
	defer cancel()
	p, err := pipeProcess(ctx, pipe, r.log.With("session", id))
	if err != nil {
		return nil, err
	}
	l, err := r.join(ctx, p, byExtension, id, cwd, had, calls)
	if err != nil {
		p.leave()
		return nil, err
	}
	l.p = p
	if !r.spawn(func() { l.untilEnd(r.ctx) }) {
		l.Close()
		return nil, errClosed
	}
	return l, nil
}

// join joins a session of the runtime at the other end of a pipe.
func (r *Runtime) join(
	ctx context.Context, p *process, by joinedBy, id, cwd string, had []string,
	calls gateway.HostCalls,
) (*Link, error) {
	s := r.joinedSession(by, id, cwd)
	for _, tool := range had {
		s.everSet[tool] = true
	}
	s.calls = calls
	close(s.ready)
	gen := s.nextGen()
	resumed, err := askClient(ctx, p, createTimeout, func(ctx context.Context) (*sdk.Session,
		error) {
		return p.client.ResumeSession(ctx, id, s.resumeConfig(gen, false))
	})
	if err != nil {
		s.end()
		return nil, fmt.Errorf("joining the terminal's session: %w", err)
	}
	p.track(resumed)
	activity, err := ask(ctx, p, askTimeout, resumed.RPC.Metadata.Activity)
	if err == nil && activity.HasActiveWork {
		s.pushChange((*tracker).reportBusy)
	}
	c := &conn{process: p, sdk: resumed, gen: gen, hooksEnabled: true}
	s.mu.Lock()
	s.conn = c
	s.mu.Unlock()
	close(s.up)
	l := &Link{s: s, ended: make(chan struct{})}
	if !r.spawn(s.pump) || !r.spawn(s.logger) {
		s.end()
		return nil, errClosed
	}
	if by == byPort && len(had) > 0 {
		s.endLost(ctx, c)
	}
	return l, nil
}

// endLost ends the calls of a previous gateway that was lost: the terminal still waits for them,
// and nothing else answers them. They are not repeated, because they may have done their work.
func (s *session) endLost(ctx context.Context, c *conn) {
	events, err := ask(ctx, c.process, createTimeout, c.sdk.GetEvents)
	if err != nil {
		s.log.Warn("calls that a lost gateway left may wait until the turn is interrupted", "error",
			err)
		return
	}
	for _, d := range pendingCalls(events) {
		if s.hasSet(d.ToolName) {
			s.runCall(c, d, func(context.Context, gateway.Call) gateway.Outcome {
				return gateway.Outcome{ErrorCode: protocol.CodeDisconnected,
					Error: "the gateway was lost during the call, which may have done its work"}
			})
		}
	}
}

// joinedSession makes a session that a terminal runs. The person at the terminal is its budget.
func (r *Runtime) joinedSession(by joinedBy, id, cwd string) *session {
	s := &session{
		r: r, o: &Options{MaxRounds: math.MaxInt, MaxTurnTime: math.MaxInt64},
		log: r.log.With("session", id), id: id, cwd: cwd, joined: by,
		baseConfig: &sdk.SessionConfig{
			SystemMessage: &sdk.SystemMessageConfig{Mode: configs.SystemReplace},
		},
	}
	s.over, s.setOver = context.WithCancel(context.Background())
	s.makeQueues()
	return s
}

// joinConfig asks for the gateway's part in a terminal's session, and leaves its settings alone.
func (s *session) joinConfig(gen int) *sdk.ResumeSessionConfig {
	c := &sdk.ResumeSessionConfig{ClientName: clientName, OnEvent: s.onEvent(gen),
		SuppressResumeEvent: true}
	if s.joined == byPort {
		c.Hooks = s.hooks()
	}
	return c
}

// untilEnd waits until the pipe or the Runtime ends, and ends the link then.
func (l *Link) untilEnd(ctx context.Context) {
	select {
	case <-l.p.gone:
		l.s.disconnected(l.p.cause)
	case <-l.s.ctx.Done():
	case <-ctx.Done():
	}
	l.s.end()
	l.p.leave()
	close(l.ended)
}

// disconnected ends the open parts of a session whose terminal is gone, and waits until the gateway
// knows that.
func (s *session) disconnected(cause error) {
	s.mu.Lock()
	c, sent := s.conn, s.sent
	s.conn, s.sent = nil, nil
	for _, p := range sent {
		p.isDropped = true
	}
	s.mu.Unlock()
	if c == nil {
		return
	}
	s.cancelCalls()
	done := make(chan struct{})
	s.pushChange(func(t *tracker) {
		t.sessionLeft(c.gen, cause.Error(), sent)
		close(done)
	})
	select {
	case <-done:
	case <-s.ctx.Done():
	}
}

// sessionLeft ends the open parts of a session that the gateway has left, and its turn too, since
// the gateway can't see the turn's end any more.
func (t *tracker) sessionLeft(gen int, why string, dropped []*sentPrompt) {
	t.gen = gen + 1
	t.pendingSyncs = nil
	t.endParts(why)
	t.endAgent()
	t.endTurn(why)
	t.s.reportDropped(dropped, why)
	if t.isBusy {
		t.isBusy = false
		t.s.calls.Idle()
	}
}

// Done is closed when the link has ended and nothing is left of it.
func (l *Link) Done() <-chan struct{} { return l.ended }

// SetTools replaces the tools that providers give the session. The person at the terminal is asked
// about each call.
func (l *Link) SetTools(ctx context.Context, tools []gateway.Tool) error {
	err := l.s.SetTools(ctx, 0, tools)
	if err != nil && l.s.ctx.Err() != nil {
		return errLeft
	}
	return err
}

var errLeft = errors.New("the terminal is gone")

// Has reports whether SetTools has ever given the terminal a tool of this name.
func (l *Link) Has(tool string) bool { return l.s.hasSet(tool) }

// Send gives the session a prompt, as [gateway.Host] says. The person at the terminal sees it, and
// for a provider's prompt also from which provider it comes.
func (l *Link) Send(ctx context.Context, p gateway.Prompt) error { return l.s.Send(ctx, p) }

// Log shows a line in the terminal. It does not block.
func (l *Link) Log(level adminapi.LogLevel, message string) { l.s.Log(level, message) }

// Interrupt stops the running turn, as [gateway.Host] says.
func (l *Link) Interrupt(ctx context.Context, reason string) (dropped []string, err error) {
	return l.s.Interrupt(ctx, reason)
}

// Close ends the link and waits until nothing is left of it. The terminal goes on.
func (l *Link) Close() {
	l.s.end()
	<-l.ended
}
