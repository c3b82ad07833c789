package conformance

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/chans"
	"tapgw/internal/protocol"
)

// This file has the steps of the talk with a provider that checks are made of: greet it, call a
// tool, wait until it has handled all messages.

// heard watches a frame and answers it if that needs no decision: requests, and another hello of a
// bound provider. It runs on the goroutine that reads the connection.
func (k *kit) heard(l *providerConn, f frame) {
	switch m := k.ledger.heard(l, f).(type) {
	case *protocol.Push:
		if m.RequestID == "" {
			return
		}
		fate := map[protocol.Level]string{protocol.LevelKeep: "stored",
			protocol.LevelSurface: "surfaced", protocol.LevelInject: "delivered"}[m.Level]
		k.answer(l, m.RequestID, protocol.TypePush, object{"type": "ack", "requestId": m.RequestID,
			"sessionId": firstSession, "seq": 1, "fate": fate})
	case *protocol.ToolsUpdate, *protocol.HooksUpdate, *protocol.ContextUpdate, *protocol.FilterSet:
		if id := f.str("requestId"); id != "" {
			k.answer(l, id, m.MessageType(), object{"type": "ack", "requestId": id,
				"sessionId": firstSession, "revision": 1})
		}
	case *protocol.QuestionAnswer:
		if m.RequestID != "" {
			k.answer(l, m.RequestID, m.MessageType(),
				object{"type": "ack", "requestId": m.RequestID,
					"sessionId": firstSession})
		}
	case *protocol.StreamQuery:
		k.answer(l, m.QueryID, m.MessageType(),
			object{"type": "stream.history", "queryId": m.QueryID,
				"streams": object{}})
	}
}

// answer answers a request after a ping: a provider that sends the next request without waiting has
// sent it by then.
func (k *kit) answer(l *providerConn, id string, typ protocol.Type, m object) {
	l.stage.wg.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, patience)
		defer cancel()
		_ = l.ws.Ping(ctx)
		k.ledger.answered(l, id, typ)
		l.sendObject(m)
	})
}

// info is a session in a list.
func (k *kit) info(id string) object {
	return object{"id": id, "label": "the kit's " + id, "cwd": k.home, "foreground": true}
}

// list makes a list of sessions.
func (k *kit) list(typ protocol.Type, ids ...string) object {
	active := []object{}
	for _, id := range ids {
		active = append(active, k.info(id))
	}
	return object{"type": typ, "active": active}
}

// sessions sends a list of sessions.
func (k *kit) sessions(l *providerConn, typ protocol.Type, ids ...string) {
	l.sendObject(k.list(typ, ids...))
}

// pairingTime is how long a person has to type a pairing code.
const pairingTime = 2 * time.Minute

// pair pairs a provider that has no token, and returns the one that it gets.
func (k *kit) pair(l *providerConn) (token string, err error) {
	if k.opts.Pairing == nil {
		return "", fail("auth with the token that it was given", "auth asks for pairing")
	}
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		return "", err
	}
	code := fmt.Sprintf("%06d", n)
	k.opts.Pairing(code)
	l.sendObject(object{"type": "auth.pairing",
		"prompt": "Type the code that tapctl conformance shows"})
	f, err := k.nextWithin(pairingTime, l, protocol.TypeAuthConfirm)
	if err != nil {
		return "", err
	}
	if f.str("code") != code {
		l.close(protocol.ClosePolicy)
		return "", fail("auth.confirm with the code that was shown", "another code")
	}
	return k.opts.Token, nil
}

// greet takes a new connection to the point where hello has come. It accepts a hello that comes too
// early, since another rule judges that.
func (k *kit) greet(l *providerConn, ids ...string) error {
	f, err := k.next(l, protocol.TypeAuth, protocol.TypeHello)
	if err != nil {
		return err
	}
	early := f.typ() == protocol.TypeHello
	list := k.list(protocol.TypeSessions, ids...)
	if f.str("mode") == protocol.ModePair {
		if list["token"], err = k.pair(l); err != nil {
			return err
		}
	}
	l.sendObject(list)
	if !early {
		return k.awaitHello(l)
	}
	k.hello = f
	return nil
}

// awaitHello waits for a hello and keeps it.
func (k *kit) awaitHello(l *providerConn) (err error) {
	k.hello, err = k.next(l, protocol.TypeHello)
	return err
}

// ack binds the provider by the hello that came last.
func (k *kit) ack(l *providerConn) {
	k.session = k.hello.str("session")
	all := k.session == protocol.AllSessions
	bound := k.session
	if all || bound == "" {
		k.session = firstSession
	}
	if bound == "" {
		bound = firstSession
	}
	k.acked = l
	k.tokens++
	token := fmt.Sprintf("rt-%d-%s", k.tokens, uuid.NewString())
	k.ledger.bound(l, token, all, k.session)
	l.sendObject(object{"type": "hello.ack", "protocolVersion": protocol.Version,
		"providerId": "p-1", "sessionId": bound, "reconnectToken": token,
		"persistDir": k.ledger.persistDir})
	for _, state := range []string{"started", "idle"} {
		l.sendObject(object{"type": "session.lifecycle", "sessionId": k.session, "state": state})
	}
}

// welcome binds the provider on a new connection.
func (k *kit) welcome(l *providerConn) error {
	if err := k.greet(l, firstSession); err != nil {
		return err
	}
	k.ack(l)
	return nil
}

// comeBack waits for the provider's next connection, and binds it there.
func (k *kit) comeBack() (*providerConn, error) {
	l, err := k.accept()
	if err == nil {
		err = k.welcome(l)
	}
	return l, err
}

// fresh starts the provider anew and binds it.
func (k *kit) fresh() (*providerConn, error) {
	if k.unbound != nil {
		return nil, skipf("the provider could not be bound; see connect.bind")
	}
	if err := k.launch(provesToken); err != nil {
		return nil, err
	}
	l, err := k.comeBack()
	if err != nil {
		return nil, skipf("the provider could not be bound: %v", err)
	}
	return l, nil
}

// bound returns a bound connection: the present one while it works, else a new one.
func (k *kit) bound() (*providerConn, error) {
	if l := k.link; l != nil && l == k.acked {
		select {
		case <-l.over:
		default:
			return l, nil
		}
	}
	return k.fresh()
}

// callable returns a bound connection of a provider with a tool that the kit can call.
func (k *kit) callable() (*providerConn, error) {
	if k.noTool != nil {
		return nil, k.noTool
	}
	return k.bound()
}

// slowly returns a bound connection of a provider with a slow tool.
func (k *kit) slowly() (*providerConn, error) {
	if k.slow.name == "" {
		return nil,
			skipf("it needs a tool that runs until it is cancelled: name one with --slow-tool")
	}
	return k.bound()
}

// call makes a call and returns its id.
func (k *kit) call(l *providerConn, c call) string {
	id := uuid.NewString()
	k.ledger.called(l, id, false)
	args := c.args
	if args == nil {
		args = json.RawMessage("{}")
	}
	l.send(protocol.Append(nil, &protocol.ToolCall{ID: id, SessionID: k.session, Tool: c.name,
		Args: protocol.Raw(args)}))
	return id
}

// cancel cancels a call.
func (k *kit) cancel(l *providerConn, id string) {
	k.ledger.cancelled(id)
	l.sendObject(object{"type": "tool.cancel", "id": id, "sessionId": k.session,
		"reason": "interrupted"})
}

// result waits for the result of a call.
func (k *kit) result(l *providerConn, id string) (frame, error) {
	for {
		f, err := k.next(l, protocol.TypeToolResult)
		if err != nil || f.str("id") == id {
			return f, err
		}
	}
}

// results waits until each of the calls has a result.
func (k *kit) results(l *providerConn, ids []string) error {
	left := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		return k.ledger.results(id) > 0
	})
	for len(left) > 0 {
		if _, err := k.next(l, protocol.TypeToolResult); err != nil {
			return fail("a result for each call", "%v for %d of %d calls", err, len(left), len(ids))
		}
		left = slices.DeleteFunc(left, func(id string) bool { return k.ledger.results(id) > 0 })
	}
	return nil
}

// alive shows that the provider has handled all messages before: it answers a call, or without a
// tool that the kit can call, a ping of the WebSocket.
func (k *kit) alive(l *providerConn) error {
	if k.noTool == nil && k.tool.name != "" {
		if _, err := k.result(l, k.call(l, k.tool)); err != nil {
			return fail("the provider goes on: it answers a call that follows", "no result: %s",
				got(err))
		}
	}
	return k.ping(l)
}

// moment is how long a provider has to break a rule by itself, after all messages to it.
const moment = 100 * time.Millisecond

// settle shows that the provider has read all messages so far, and gives it a moment. A provider
// that breaks a rule later may not be found out, but slow providers are not blamed.
func (k *kit) settle(l *providerConn) error {
	if err := k.ping(l); err != nil {
		return err
	}
	return chans.Sleep(k.ctx, moment)
}

// ping waits for pongs. By then the frames that the provider had begun to send have come.
func (k *kit) ping(l *providerConn) error {
	for range 3 {
		ctx, cancel := context.WithTimeout(l.ctx, patience)
		err := l.ws.Ping(ctx)
		cancel()
		if err != nil {
			if k.ctx.Err() != nil {
				return context.Cause(k.ctx)
			}
			return fail("the provider goes on: it answers a ping", "the connection ended")
		}
	}
	return nil
}

// calm watches for a while whether a provider stays quiet, also on new connections. react is called
// with each frame; its error ends the watch, as the end of the program does.
func (k *kit) calm(react func(l *providerConn, f frame) error) error {
	timeout := time.After(quiet)
	for {
		var frames <-chan frame
		if k.link != nil {
			frames = k.link.frames
		}
		select {
		case f, ok := <-frames:
			if !ok {
				k.link = nil
				continue
			}
			if err := react(k.link, f); err != nil {
				return err
			}
		case k.link = <-k.stage.links:
		case err := <-k.done():
			k.end(err)
			return nil
		case <-k.ctx.Done():
			return context.Cause(k.ctx)
		case <-timeout:
			return nil
		}
	}
}
