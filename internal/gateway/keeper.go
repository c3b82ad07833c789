package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// Keeper keeps the events of streams that last. An event of such a stream goes to no session when
// it is pushed: the keeper keeps it first, and then gives it to each session that it is for, here
// and at other gateways, in the order in which it was kept ([Session.Deliver]).
type Keeper interface {
	// Keeps reports whether a stream lasts. Both names are normal ones. It must not block.
	Keeps(stream, provider string) bool
	// Keep takes an event. report gets the receipt once the event is kept, and one before that says
	// so if it takes long. It must not block. The error is RATE_LIMITED.
	Keep(e KeptEvent, report func(Receipt)) *protocol.Error
}

// KeptEvent is an event of a stream that lasts.
type KeptEvent struct {
	ID string `json:"-"` // once it is kept
	// Gateway is the gateway of a cluster whose provider pushed it; "" for this one. Trust is that
	// of its providers here.
	Gateway string `json:"-"`
	Trust   Trust  `json:"-"`

	Provider string       `json:"provider"` // its normal name
	Stream   string       `json:"stream"`   // as the push spells it
	TS       time.Time    `json:"ts"`
	Sessions []string     `json:"sessions,omitzero"` // the ids of those that it is for; nil for all
	IsPerson bool         `json:"person,omitzero"`   // its injects are the user's word
	Event    string       `json:"event,omitzero"`
	Prompt   string       `json:"prompt,omitzero"`
	Level    string       `json:"level"`
	Metadata protocol.Raw `json:"metadata,omitzero"`
	Trace    string       `json:"traceparent,omitzero"`
}

// IsFor reports whether a session gets the event.
func (e *KeptEvent) IsFor(session string) bool {
	return e.Sessions == nil || slices.Contains(e.Sessions, session)
}

// Push is the event as the message that it came in.
func (e *KeptEvent) Push() *protocol.Push {
	return &protocol.Push{Stream: e.Stream, Event: e.Event, Prompt: e.Prompt,
		Level: protocol.Level(e.Level), Metadata: e.Metadata, Traceparent: e.Trace}
}

// NewKeptEvent makes an event of a push of a provider, for the sessions with the ids, or for all
// sessions if there are no ids.
func NewKeptEvent(provider string, m *protocol.Push, sessions []string) KeptEvent {
	e := KeptEvent{Provider: provider, Stream: m.Stream, TS: time.Now().UTC(), Sessions: sessions,
		Event: m.Event, Prompt: m.Prompt, Level: string(m.Level), Metadata: m.Metadata,
		Trace: m.Traceparent}
	if e.Stream == "" {
		e.Stream = provider
	}
	return e
}

// keeps reports whether the push of a source goes to the keeper. A push of a session's own model or
// of a goal does not: it is about this session. Nor does a push of another gateway's provider: its
// own gateway keeps it.
func (g *Gateway) keeps(source pushSource, stream string) bool {
	if g.o.Keeper == nil || source.isModel() || source.isBudgeted() || source.pass != nil &&
		source.pass.Gateway != "" {
		return false
	}
	if stream == "" {
		stream = source.name
	}
	return g.o.Keeper.Keeps(protocol.NormalName(stream), source.name)
}

// keep gives a provider's push to the keeper.
func (c *Conn) keep(source pushSource, m *protocol.Push, bindings []*binding) *protocol.Error {
	session, ids := protocol.AllSessions, []string(nil)
	if !m.Broadcast || !c.provider.all {
		for _, b := range bindings {
			ids = append(ids, b.session.id)
		}
		session = ids[0]
	}
	e := NewKeptEvent(source.name, m, ids)
	e.IsPerson = source.isPerson
	receipts := newPushReceipts(c, m, session)
	return c.g.o.Keeper.Keep(e, receipts.send)
}

// keepNow gives a push of the admin side to the keeper, for the sessions of some ids or all, and
// waits for the first receipt.
func (g *Gateway) keepNow(
	ctx context.Context, source pushSource, m *protocol.Push, ids []string,
) (Receipt, error) {
	e := NewKeptEvent(source.name, m, ids)
	e.IsPerson = source.isPerson
	receipts := make(chan Receipt, 2)
	if err := g.o.Keeper.Keep(e, func(r Receipt) { receipts <- r }); err != nil {
		return Receipt{}, err
	}
	select {
	case r := <-receipts:
		return r, nil
	case <-ctx.Done():
		return Receipt{}, ctx.Err()
	}
}

// Broadcast gives an event from the admin side to all sessions, of other gateways too. Its stream
// must be one that lasts. Errors are those of [Session.Push], and INVALID_STATE for another stream.
func (g *Gateway) Broadcast(ctx context.Context, from string, m *protocol.Push) (Receipt, error) {
	from, err := checkAdminPush(from, m)
	if err != nil {
		return Receipt{}, err
	}
	source := pushSource{id: from, name: from, isPerson: true}
	if !g.keeps(source, m.Stream) {
		return Receipt{}, errorf(protocol.CodeInvalidState,
			"stream: %q of provider %q does not last; [cluster.keep] in tapgw.toml says "+
				"which streams do",
			m.Stream, from)
	}
	return g.keepNow(ctx, source, m, nil)
}

// maxKeptNames bounds the names of providers of one other gateway whose events a session has got.
const maxKeptNames = 1000

// Deliver gives the session an event that was kept, unless it has it already. If the name of
// another gateway's provider belongs to another owner here, the gateway's name goes before it, as
// in lab.ci, and isRenamed is true. The error is RATE_LIMITED while too many of the session's
// injects wait, and INVALID_SESSION once the session has ended. Any other error means that the
// session will never take the event.
func (s *Session) Deliver(e *KeptEvent) (isRenamed bool, err *protocol.Error) {
	source := pushSource{id: e.Provider, name: e.Provider, isPerson: e.IsPerson, kept: e}
	if e.Gateway != "" {
		// One budget and one guard against loops for all of another gateway: it may claim any
		// number of names.
		source.id, source.isPerson = OwnerGateway(e.Gateway), false
		own := protocol.NormalName(e.Gateway)
		if IsGatewayName(source.name) { // such as tapctl: its lines must not look like ours
			source.name = own
		}
		err = s.claimName(e, source.name)
		if err != nil && err.Code == protocol.CodeUnauthorized &&
			protocol.ValidName(own+"."+source.name) {
			isRenamed, source.name = true, own+"."+source.name
			err = s.claimName(e, source.name)
		}
		if err != nil {
			return isRenamed, err
		}
	}
	_, err = s.receivePush(source, e.Push(), func(Receipt) {})
	return isRenamed, err
}

// claimName makes another gateway the owner of a provider's name and its streams here, as a hello
// of that provider would.
func (s *Session) claimName(e *KeptEvent, name string) *protocol.Error {
	id := &identity{PassSpec: PassSpec{Trust: e.Trust, Gateway: e.Gateway},
		owner: fileOwner(OwnerGateway(e.Gateway))}
	if err := id.checkName(name); err != nil {
		return err
	}
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if err := s.checkOwner(id, name, name); err != nil {
		return err
	}
	if now := s.nameOwners[name]; now != nil && now.owner == id.owner {
		return nil
	}
	if s.countNames(id.owner) >= maxKeptNames {
		return errorf(protocol.CodePayloadTooLarge,
			"%q would be one of more than %d providers of gateway %s", name, maxKeptNames,
			e.Gateway)
	}
	s.nameOwners[name] = id.nameOwner(name, name)
	return nil
}

// countNames counts the names of an owner that have streams. Providers that left without any don't
// count. Call with Gateway.mu held.
func (s *Session) countNames(owner string) (n int) {
	for _, name := range s.streams.owners() {
		if now := s.nameOwners[name]; now != nil && now.owner == owner {
			n++
		}
	}
	return n
}

// OwnerGateway is [PassSpec].Owner of the providers of another gateway.
func OwnerGateway(name string) string { return "gateway " + name }

// NoteMissing says in the session's timeline that n events of a gateway's streams that last, or
// fewer if some were not for this session, are not here, because the limits of these streams had
// dropped them before. gateway is "" for this one.
func (s *Session) NoteMissing(gateway string, n uint64) {
	s.note(adminapi.LogWarning, sourceGateway,
		fmt.Sprintf("up to %s of the streams that last of %s %s missing here: "+
			"the limits of these streams had dropped what was the oldest",
			visible.Count(n, "event"), thisOr(gateway), visible.IsAre(n)))
}

// NoteRefused says in the session's timeline that it has refused n events of a gateway's streams
// that last, and why the last one. gateway is "" for this one.
func (s *Session) NoteRefused(gateway string, n uint64, why *protocol.Error) {
	s.note(adminapi.LogWarning, sourceGateway,
		fmt.Sprintf("%s of the streams that last of %s %s refused here so far. "+
			"The last: %s: %s", visible.Count(n, "event"), thisOr(gateway), visible.IsAre(n),
			why.Code, why.Message))
}

// NoteAnew says in the session's timeline that the streams that last of a gateway, "" for this one,
// began anew, because the NATS servers had lost them.
func (s *Session) NoteAnew(gateway string) {
	s.note(adminapi.LogWarning, sourceGateway,
		fmt.Sprintf("NATS has lost the streams that last of %s, "+
			"and they begin anew: events that had not come here are missing", thisOr(gateway)))
}

func thisOr(gateway string) string {
	if gateway == "" {
		return "this gateway"
	}
	return "gateway " + gateway
}
