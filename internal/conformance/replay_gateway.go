package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/coder/websocket"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// ReplayTarget is the gateway that [ReplayGateway] replays against. URL is for the report, Token is
// its admin token. Session is a session there that is not used otherwise.
type ReplayTarget struct {
	URL     string
	Token   string
	Session string
	// Dial opens a WebSocket at a path. It returns one only after the gateway has proved that it
	// knows the token.
	Dial func(ctx context.Context, path string, header http.Header) (
		*websocket.Conn, *http.Response, error)
	// Call makes a tool call in the session, as its model would, and returns at the call's end.
	Call func(ctx context.Context, tool string, args json.RawMessage)
}

// looseFromGateway are the types of messages about actions of hosts, people and other providers.
var looseFromGateway = []string{"sessions.updated", "session.event", "session.lifecycle",
	"transform.request", "auth.pairing"}

// ReplayGateway replays a provider's part of a recording against a gateway: it connects with the
// admin token, sends the provider's messages, makes the tool calls that the provider got, and
// compares the gateway's answers. A provider of all sessions is bound to the one session only. The
// error says why nothing could be replayed.
func ReplayGateway(ctx context.Context, o ReplayOptions, g ReplayTarget) (*ReplayReport, error) {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	calls := &replayCalls{ctx: ctx, target: g, asked: map[string]string{},
		begun: map[string][]context.CancelFunc{}, cancels: map[string]context.CancelFunc{}}
	d := direction{
		ours: adminapi.PartyProvider,
		made: []string{"id", "callId", "providerId", "sessionId", "reconnectToken", "persistDir",
			"traceparent"},
		open: func(ctx context.Context) (replayPeer, error) {
			ws, _, err := g.Dial(ctx, "/", nil)
			if err != nil {
				return nil, err
			}
			l := newProviderConn(context.WithoutCancel(ctx), ws, nil)
			go l.read() // ends with the connection, which the replay cuts
			return l, nil
		},
		loose: looseFromGateway, before: calls.prepare, token: g.Token,
	}
	o.Ignore = append([]string{"/seq", "/active", "/streams/*/*/ts"}, o.Ignore...)
	for _, c := range o.Recording.Start.Connections {
		if c.Provider == o.Provider {
			o.Ignore = append(o.Ignore, "/revision") // it also counts changes before the recording
		}
	}
	r := newReplayer(o, d, g.URL)
	r.setDirs(nil)
	r.ids[o.Recording.Start.Session.ID], r.ids[protocol.AllSessions] = g.Session, g.Session
	r.run(ctx)
	r.cutAll()
	cancel()
	calls.running.Wait()
	return r.report, outer.Err()
}

// replayCalls makes the tool calls of a recording.
type replayCalls struct {
	ctx     context.Context
	target  ReplayTarget
	running sync.WaitGroup
	// the call that a gate was asked about, by the id of the check
	asked map[string]string
	// of calls that a gate was asked about and no provider got, by the call
	begun   map[string][]context.CancelFunc
	cancels map[string]context.CancelFunc // by the id that the recording has
}

// prepare causes the message that a step waits for.
func (c *replayCalls) prepare(s replayStep) {
	var m struct {
		Type                               protocol.Type
		ID, CallID, Tool, Reason, Decision string
		Args                               json.RawMessage
	}
	if s.line.Message == nil || json.Unmarshal(s.line.Message, &m) != nil {
		return
	}
	call := m.Tool + " " + string(m.Args)
	switch m.Type { // of these, the replayed provider sends only gate.result
	case protocol.TypeGateCheck:
		c.asked[m.CallID] = call
		c.begun[call] = append(c.begun[call], c.begin(m.Tool, m.Args))
	case protocol.TypeGateResult:
		if m.Decision == protocol.DecisionDeny {
			c.take(c.asked[m.CallID])
		}
	case protocol.TypeToolCall:
		if c.cancels[m.ID] = c.take(call); c.cancels[m.ID] == nil {
			c.cancels[m.ID] = c.begin(m.Tool, m.Args)
		}
	case protocol.TypeToolCancel:
		if cancel := c.cancels[m.ID]; cancel != nil && m.Reason == protocol.ReasonInterrupted {
			cancel()
		}
	}
}

// take returns a function that cancels the oldest call that a gate was asked about; nil if there is
// no such call.
func (c *replayCalls) take(call string) (cancel context.CancelFunc) {
	if list := c.begun[call]; len(list) > 0 {
		cancel, c.begun[call] = list[0], list[1:]
	}
	return cancel
}

func (c *replayCalls) begin(tool string, args json.RawMessage) context.CancelFunc {
	ctx, cancel := context.WithCancel(c.ctx)
	c.running.Go(func() {
		defer cancel()
		c.target.Call(ctx, tool, args)
	})
	return cancel
}
