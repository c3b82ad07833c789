package conformance

import (
	"errors"
	"strings"

	"github.com/google/uuid"

	"tapgw/internal/protocol"
)

// callAnswered makes the first call. If it has no answer, no other check calls that tool.
func callAnswered(k *kit, l *providerConn) error {
	if _, err := k.result(l, k.call(l, k.tool)); err != nil {
		err = fail("a result", "%s for a call of %s with %.300s", got(err), k.tool.name,
			k.tool.args)
		k.noTool = skipf("its tool %s does not answer", k.tool.name)
		return err
	}
	return k.settle(l)
}

// got returns the observation of a failed check.
func got(err error) string {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.got
	}
	return err.Error()
}

// answered makes a call that must have a result.
func (k *kit) answered(l *providerConn, c call) (frame, error) {
	f, err := k.result(l, k.call(l, c))
	if err != nil {
		return f, fail("a result", "%s for a call of %s", got(err),
			strings.TrimSpace(c.name+" "+string(c.args)))
	}
	return f, nil
}

func callUnknownTool(k *kit, l *providerConn) error {
	f, err := k.answered(l, call{name: "no_such_tool_" + uuid.NewString()[:8]})
	if err != nil {
		return err
	}
	if f.str("error") == "" && f.str("errorCode") == "" {
		return fail("a result with error or errorCode", "%.300s", f.data)
	}
	return nil
}

func callWrongArgs(k *kit, l *providerConn) error {
	wrong := wrongArgs(k.ledger.current().Tools, k.tool.name)
	if _, err := k.answered(l, call{k.tool.name, wrong}); err != nil {
		return err
	}
	return k.alive(l)
}

func callBurst(k *kit, l *providerConn) error {
	n := 30
	if limit := k.ledger.current().Concurrency; limit > 0 {
		n = min(n, limit)
	}
	var ids []string
	for range n {
		ids = append(ids, k.call(l, k.tool))
	}
	return k.results(l, ids)
}

func callParallel(k *kit, l *providerConn) error {
	if k.noTool != nil {
		return k.noTool
	}
	if k.ledger.current().Concurrency == 1 {
		k.serial = true
		return skipf("hello.concurrency allows one call at once")
	}
	id := k.call(l, k.slow)
	if _, err := k.answered(l, k.tool); err != nil {
		k.serial = true
		return err
	}
	k.cancel(l, id)
	_, _ = k.result(l, id)
	return nil
}

// reached shows that the provider has read all messages so far, also while a call runs.
func (k *kit) reached(l *providerConn) error {
	if k.serial {
		return k.ping(l)
	}
	return k.alive(l)
}

func cancelAnswered(k *kit, l *providerConn) error {
	id := k.call(l, k.tool)
	k.cancel(l, id)
	if _, err := k.result(l, id); err != nil {
		return fail("a result, CANCELLED or the tool's own", "%s", got(err))
	}
	return nil
}

func cancelCode(k *kit, l *providerConn) error {
	id := k.call(l, k.slow)
	if err := k.reached(l); err != nil {
		return err
	}
	if k.ledger.results(id) > 0 {
		return skipf(
			"the slow tool had ended: name one with --slow-tool that runs until it is cancelled")
	}
	k.cancel(l, id)
	f, err := k.result(l, id)
	switch code := f.str("errorCode"); {
	case err != nil:
		return fail("a result with errorCode CANCELLED", "%s", got(err))
	case code != string(protocol.CodeCancelled):
		return fail("a result with errorCode CANCELLED", "%.300s", f.data)
	}
	return nil
}

func cancelOthers(k *kit, l *providerConn) error {
	if k.ledger.current().Concurrency == 1 {
		return skipf("hello.concurrency allows one call at once")
	}
	first, second := k.call(l, k.slow), k.call(l, k.slow)
	k.cancel(l, first)
	if _, err := k.result(l, first); err != nil {
		return skipf("the cancelled call was not answered")
	}
	if err := k.settle(l); err != nil {
		return err
	}
	if k.ledger.results(second) > 0 {
		return fail("the other call runs on", "it ended too")
	}
	k.cancel(l, second)
	if _, err := k.result(l, second); err != nil {
		return skipf("the second call was not answered")
	}
	return nil
}

func cancelEnded(k *kit, l *providerConn) error {
	id := k.call(l, k.tool)
	if _, err := k.result(l, id); err != nil {
		return skipf("the call was not answered")
	}
	k.cancel(l, id)
	if err := k.settle(l); err != nil {
		return err
	}
	return k.alive(l)
}

func cancelUnknown(k *kit, l *providerConn) error {
	id := uuid.NewString()
	k.ledger.called(l, id, true)
	k.cancel(l, id)
	if err := k.settle(l); err != nil {
		return err
	}
	return k.alive(l)
}
