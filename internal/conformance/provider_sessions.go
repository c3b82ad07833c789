package conformance

import (
	"context"
	"time"

	"tapgw/internal/protocol"
)

func sessionUpdated(k *kit, l *providerConn) error {
	k.sessions(l, protocol.TypeSessionsUpdated, k.session, nextSession)
	if err := k.alive(l); err != nil {
		return err
	}
	k.sessions(l, protocol.TypeSessionsUpdated, k.session)
	return k.alive(l)
}

// ending tells a bound provider that its session ends, and returns the type of its answer; "" if it
// closed the connection.
func (k *kit) ending(l *providerConn) (protocol.Type, error) {
	l.sendObject(object{"type": "session.lifecycle", "sessionId": k.session,
		"state": "shutdown.pending", "deadline": protocol.ShutdownDeadline.Milliseconds()})
	timeout := time.After(patience)
	for {
		select {
		case f, ok := <-l.frames:
			if !ok {
				return "", nil
			}
			if typ := f.typ(); typ == protocol.TypeShutdownReady || typ == protocol.TypeGoodbye {
				return typ, nil
			}
		case <-k.ctx.Done():
			return "", context.Cause(k.ctx)
		case <-timeout:
			return "", fail("shutdown.ready, goodbye, or the end of the connection",
				"none of them in %v", patience)
		}
	}
}

func sessionEnd(k *kit) error    { return k.ends(false) }
func sessionEndAll(k *kit) error { return k.ends(true) }

// ends ends the session of a provider of all sessions, or of one.
func (k *kit) ends(all bool) error {
	l, err := k.bound()
	bindsAll := k.hello.str("session") == protocol.AllSessions
	switch {
	case err != nil:
		return err
	case all && !bindsAll:
		return skipf("it binds to one session")
	case !all && bindsAll:
		return skipf("it binds to all sessions; see session.end-all")
	}
	defer k.drop() // its session has ended
	_, err = k.ending(l)
	k.silent = err != nil
	return err
}

func sessionNext(k *kit) error {
	if k.silent {
		return skipf("shutdown.pending was not answered")
	}
	l, err := k.fresh()
	if err != nil {
		return err
	}
	defer k.drop()
	answer, err := k.ending(l)
	if err != nil {
		return skipf("shutdown.pending was not answered")
	}
	if answer == protocol.TypeShutdownReady { // it stays, and is unbound
		k.sessions(l, protocol.TypeSessionsUpdated)
		k.sessions(l, protocol.TypeSessionsUpdated, nextSession)
		k.sessions(l, protocol.TypeSessions, nextSession)
		if k.hello.str("session") == protocol.AllSessions {
			return nil // it is bound to that one too
		}
		err = k.awaitHello(l)
	} else {
		l.cut()
		if l, err = k.accept(); err == nil {
			err = k.greet(l, nextSession)
		} else if k.ended != errRuns { //nolint:errorlint // it wraps nothing
			return skipf("it ends with its session")
		}
	}
	if err != nil {
		return fail("hello for the next session", "%s", got(err))
	}
	return nil
}
