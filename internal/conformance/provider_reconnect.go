package conformance

import (
	"context"
	"errors"
	"time"

	"tapgw/internal/protocol"
)

// returns waits for the provider to come back, and for its tool to work.
func (k *kit) returns() error {
	l, err := k.comeBack()
	if err != nil {
		return fail("auth and hello on a new connection", "%s", got(err))
	}
	return k.alive(l)
}

func reconnectCut(k *kit, l *providerConn) error {
	l.cut()
	if err := k.returns(); err != nil {
		k.absent = true
		return err
	}
	return nil
}

// returning returns a bound connection of a provider that comes back.
func (k *kit) returning() (*providerConn, error) {
	if k.absent {
		return nil, skipf("it does not come back")
	}
	return k.bound()
}

func reconnectRestart(k *kit, l *providerConn) error {
	l.close(protocol.CloseGoingAway)
	l.cut()
	return k.returns()
}

func reconnectTakenOver(k *kit, l *providerConn) error {
	defer k.drop()
	l.close(protocol.CloseTakenOver)
	return k.staysAway(l)
}

// leastPause is how long four attempts to connect take at least. By the protocol they take five
// times as long.
const leastPause = 250 * time.Millisecond

func reconnectPause(k *kit, l *providerConn) error {
	before := len(k.stage.connects())
	k.stage.setProof(isAway)
	began := time.Now()
	l.cut()
	k.link = nil
	timeout := time.After(2 * patience)
	for len(k.stage.connects()) < before+4 {
		select {
		case <-k.stage.tried:
		case err := <-k.done():
			k.end(err)
			return fail("attempts to connect again while the gateway is away",
				"the provider ended: %v", k.ended)
		case <-k.ctx.Done():
			return context.Cause(k.ctx)
		case <-timeout:
			return fail("attempts to connect again while the gateway is away", "%d in %v",
				len(k.stage.connects())-before, 2*patience)
		}
	}
	took := k.stage.connects()[before+3].at.Sub(began)
	k.stage.setProof(provesToken)
	if took < leastPause {
		return fail("0.2 s before the first attempt, and 1.5 times as long each time",
			"four attempts within %v", took.Round(time.Millisecond))
	}
	return k.returns()
}

func reconnectVoid(k *kit, l *providerConn) error {
	l.cut()
	l, err := k.accept()
	if err != nil {
		return skipf("it did not come back: %v", err)
	}
	auth, err := k.next(l, protocol.TypeAuth)
	if err != nil {
		return skipf("it did not come back: %v", err)
	}
	if auth.str("reconnectToken") == "" {
		k.drop()
		return skipf("its auth has no reconnect token")
	}
	l.sendObject(object{"type": "error", "code": "AUTH_FAILED",
		"message": "the reconnect token is void", "replyTo": "auth"})
	l.close(protocol.ClosePolicy)
	l.cut()
	if l, err = k.accept(); err == nil {
		auth, err = k.next(l, protocol.TypeAuth)
	}
	switch {
	case err != nil:
		return fail("auth with the token", "%s", got(err))
	case auth.str("token") == "":
		return fail("auth with the token", "auth without it")
	}
	k.sessions(l, protocol.TypeSessions, firstSession)
	if err := k.awaitHello(l); err != nil {
		return fail("hello", "%s", got(err))
	}
	k.ack(l)
	return nil
}

// reconnectCalls cuts the connection while calls run, and looks for their results on the next one.
func reconnectCalls(k *kit) error {
	if k.noTool != nil && k.slow.name == "" {
		return k.noTool
	}
	l, err := k.returning()
	if err != nil {
		return err
	}
	if k.slow.name != "" {
		k.call(l, k.slow)
		if err := k.reached(l); err != nil {
			return err
		}
	}
	for range 5 {
		if k.noTool == nil {
			k.call(l, k.tool)
		}
	}
	l.cut()
	if l, err = k.comeBack(); err != nil {
		return skipf("it did not come back: %v", err)
	}
	return k.settle(l)
}

// stoppable returns a bound connection of a provider that the kit can stop.
func (k *kit) stoppable() (*providerConn, error) {
	if k.start == nil {
		return nil, skipf("the kit did not start the provider")
	}
	return k.bound()
}

func stopGoodbye(k *kit, l *providerConn) error {
	defer k.drop()
	k.program.Stop()
	if _, err := k.next(l, protocol.TypeGoodbye); err != nil {
		return fail("goodbye", "%s", got(err))
	}
	_ = k.settle(l) // wait for messages after goodbye
	return nil
}

// stopped stops the provider and waits for its end.
func (k *kit) stopped() error {
	defer k.drop()
	k.program.Stop()
	select {
	case err := <-k.done():
		k.end(err)
		if errors.Is(err, errKilled) {
			k.stays = true
			return fail("the end of the process", "it ran on, and was killed after %v", stopLimit)
		}
		return nil
	case <-k.ctx.Done():
		return context.Cause(k.ctx)
	case <-time.After(2 * patience):
		return fail("the end of the process", "it still ran after %v", 2*patience)
	}
}

func stopEnds(k *kit) error {
	if _, err := k.stoppable(); err != nil {
		return err
	}
	return k.stopped()
}

func stopCalls(k *kit) error {
	if k.start == nil {
		return skipf("the kit did not start the provider")
	}
	if k.stays {
		return skipf("it does not end, without a call either")
	}
	l, err := k.slowly()
	if err != nil {
		return err
	}
	k.call(l, k.slow)
	if err := k.reached(l); err != nil {
		return err
	}
	return k.stopped()
}
