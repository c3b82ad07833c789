package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/protocol"
)

// connectBind binds the provider for the first time. If that fails, no other check tries it.
func connectBind(k *kit) error {
	if err := k.launch(provesToken); err != nil {
		return err
	}
	_, err := k.comeBack()
	if err != nil {
		k.unbound = err
		return err
	}
	// Tools that come right after hello count too.
	if err := k.settle(k.link); err != nil {
		return err
	}
	return k.choose()
}

func connectToken(k *kit) error {
	if k.start == nil {
		return skipf("the kit did not start the provider")
	}
	if k.unbound != nil {
		return skipf("the provider could not be bound; see connect.bind")
	}
	if err := k.launch(provesToken); err != nil {
		return err
	}
	l, err := k.accept()
	if err != nil {
		return err
	}
	f, err := k.next(l, protocol.TypeAuth, protocol.TypeHello)
	switch token := f.str("token"); {
	case err != nil:
		return err
	case f.typ() != protocol.TypeAuth:
		return skipf("no auth came")
	case token != k.opts.Token:
		return fail("the token of TAP_PROVIDER_TOKEN", "another one, or none (mode %q)",
			f.str("mode"))
	}
	k.sessions(l, protocol.TypeSessions, firstSession)
	if err := k.awaitHello(l); err != nil {
		return err
	}
	k.ack(l)
	return nil
}

// opening starts the provider anew and waits for its auth.
func (k *kit) opening() (*providerConn, error) {
	if k.unbound != nil {
		return nil, skipf("the provider could not be bound; see connect.bind")
	}
	if err := k.launch(provesToken); err != nil {
		return nil, err
	}
	l, err := k.accept()
	if err == nil {
		_, err = k.next(l, protocol.TypeAuth)
	}
	if err != nil && !isSkip(err) {
		return nil, skipf("no auth came: %v", err)
	}
	return l, err
}

// early returns whether hello is among the frames that have come.
func early(l *providerConn) bool {
	for {
		select {
		case f, ok := <-l.frames:
			if !ok {
				return false
			}
			if f.typ() == protocol.TypeHello && f.str("session") != protocol.AllSessions {
				return true
			}
		default:
			return false
		}
	}
}

// settledOpening returns a connection on which the provider had a moment to send messages that are
// forbidden before hello.
func (k *kit) settledOpening() (*providerConn, error) {
	l, err := k.opening()
	if err != nil {
		return nil, err
	}
	if err := k.settle(l); err != nil {
		return nil, skipf("the connection ended before: %v", err)
	}
	return l, nil
}

func connectHelloAfter(k *kit, l *providerConn) error {
	if early(l) {
		return fail("", "hello came before sessions")
	}
	k.sessions(l, protocol.TypeSessions, firstSession)
	if err := k.awaitHello(l); err != nil {
		return skipf("no hello came: %v", err)
	}
	k.ack(l)
	return nil
}

func connectEmptyList(k *kit, l *providerConn) error {
	if early(l) { // it does not wait for any list, which another rule says
		return skipf("hello came before the list")
	}
	k.sessions(l, protocol.TypeSessions)
	if err := k.settle(l); err != nil {
		return fail("the provider waits for sessions", "the connection ended")
	}
	if early(l) {
		return fail("", "hello came after an empty list")
	}
	k.sessions(l, protocol.TypeSessions, firstSession)
	if err := k.awaitHello(l); err != nil {
		return err
	}
	k.ack(l)
	return nil
}

func connectSession(k *kit, l *providerConn) error {
	ids := []string{"kit-" + uuid.NewString(), "kit-" + uuid.NewString()}
	k.sessions(l, protocol.TypeSessions, ids...)
	if err := k.awaitHello(l); err != nil {
		return skipf("no hello came: %v", err)
	}
	defer k.drop() // it knows sessions that no other check has
	session := k.hello.str("session")
	if session != "" && session != protocol.AllSessions && !slices.Contains(ids, session) {
		return fail("one of the sessions "+ids[0]+" and "+ids[1]+", or all", "%q", session)
	}
	return nil
}

func connectBoundFirst(k *kit, l *providerConn) error {
	k.sessions(l, protocol.TypeSessions, firstSession)
	if err := k.awaitHello(l); err != nil {
		return skipf("no hello came: %v", err)
	}
	if err := k.settle(l); err != nil {
		return skipf("the connection ended before: %v", err)
	}
	k.ack(l)
	return nil
}

func connectRefused(k *kit, l *providerConn) error {
	defer k.drop()
	l.sendObject(object{"type": "error", "code": "AUTH_FAILED",
		"message": "not this gateway's token", "replyTo": "auth"})
	l.close(protocol.ClosePolicy)
	return k.calm(func(from *providerConn, f frame) error {
		if from != l && f.typ() == protocol.TypeAuth && f.str("token") == k.opts.Token {
			return fail("", "the same token came again")
		}
		return nil
	})
}

func connectHelloRefused(k *kit, l *providerConn) error {
	defer k.drop()
	k.sessions(l, protocol.TypeSessions, firstSession)
	hellos := 0
	return k.calm(func(l *providerConn, f frame) error {
		switch f.typ() {
		case protocol.TypeAuth:
			k.sessions(l, protocol.TypeSessions, firstSession)
		case protocol.TypeHello:
			if hellos++; hellos > protocol.MaxRebindsAMinute {
				return fail("at most ten hello in a minute", "%d at once", hellos)
			}
			l.sendObject(object{"type": "error", "code": "INVALID_SESSION",
				"message": "it is not yours", "replyTo": "hello"})
		}
		return nil
	})
}

func connectVersion(k *kit, l *providerConn) error {
	defer k.drop()
	k.sessions(l, protocol.TypeSessions, firstSession)
	if _, err := k.next(l, protocol.TypeHello); err != nil {
		return skipf("no hello came: %v", err)
	}
	l.sendObject(object{"type": "error", "code": "UNSUPPORTED_VERSION",
		"message": "this gateway speaks 3", "replyTo": "hello"})
	l.close(protocol.ClosePolicy)
	return k.staysAway(l)
}

// staysAway watches whether a provider comes back after the end of a connection.
func (k *kit) staysAway(l *providerConn) error {
	return k.calm(func(from *providerConn, f frame) error {
		if from != l && f.typ() == protocol.TypeAuth {
			return fail("", "it came back with auth")
		}
		return nil
	})
}

// proofFails lets a provider that asks for a proof get a wrong one.
func proofFails(k *kit, how proving) error {
	if k.unbound != nil {
		return skipf("the provider could not be bound; see connect.bind")
	}
	if err := k.launch(how); err != nil {
		return err
	}
	return unproved(k)
}

// unproved waits for a connection to a gateway that did not prove itself, on which nothing may
// come.
func unproved(k *kit) error {
	defer k.drop()
	l, err := k.accept()
	if err != nil {
		return skipf("it did not connect: %v", err)
	}
	if all := k.stage.connects(); !all[len(all)-1].asked {
		return skipf("it asks for no proof; a client may ask")
	}
	select {
	case f, ok := <-l.frames:
		if ok {
			return fail("", "%s came", f.typ())
		}
		return nil
	case <-k.ctx.Done():
		return context.Cause(k.ctx)
	case <-time.After(quiet):
		return nil
	}
}

func proofReconnect(k *kit, l *providerConn) error {
	k.stage.setProof(provesWrongly)
	l.cut()
	k.link = nil
	return unproved(k)
}
