package conformance

import (
	"github.com/google/uuid"

	"tapgw/internal/protocol"
)

// check asks a gate and returns the id of the question.
func (k *kit) check(l *providerConn, gate, tool string, denyOnly bool) string {
	id := uuid.NewString()
	k.ledger.checked(l, id, denyOnly)
	l.sendObject(object{"type": "gate.check", "gateId": gate, "callId": id, "sessionId": k.session,
		"tool": tool,
		"args": object{"command": "git push origin main", "path": "README.md",
			"unexpected": []any{nil}}})
	return id
}

// checkAnswer waits for the answer to a gate check or a transform request.
func (k *kit) checkAnswer(l *providerConn, typ protocol.Type, id string) (frame, error) {
	for {
		f, err := k.next(l, typ)
		if err != nil || f.str("callId") == id {
			return f, err
		}
	}
}

// gates returns the gates that the provider has.
func (k *kit) gates() (gates []protocol.Rule) {
	for _, r := range k.ledger.current().Rules {
		if r.Action == protocol.ActionGate {
			gates = append(gates, r)
		}
	}
	return gates
}

func gateAnswered(k *kit, l *providerConn) error {
	gates := k.gates()
	if len(gates) == 0 {
		return skipf("it has no gates")
	}
	for _, g := range gates {
		id := k.check(l, g.GateID, "bash", false)
		if _, err := k.checkAnswer(l, protocol.TypeGateResult, id); err != nil {
			return fail("gate.result with the check's callId", "%s of the gate %q", got(err),
				g.GateID)
		}
	}
	return k.settle(l)
}

// gateUnknown asks a gate that the provider does not have. It may be silent, since the gateway then
// denies.
func gateUnknown(k *kit, l *providerConn) error {
	gates := k.gates()
	if len(gates) == 0 {
		return skipf("it has no gates")
	}
	k.check(l, "no-such-gate-"+uuid.NewString()[:8], "bash", true)
	if err := k.alive(l); err != nil {
		return err
	}
	// A gate that works on its answer has answered the unknown one by then.
	_, _ = k.checkAnswer(l, protocol.TypeGateResult, k.check(l, gates[0].GateID, "bash", false))
	return k.settle(l)
}

func transformAnswered(k *kit, l *providerConn) error {
	sections := k.ledger.current().Callbacks
	if len(sections) == 0 {
		return skipf("it has no transforms of action callback")
	}
	for _, section := range sections {
		id := uuid.NewString()
		k.ledger.checked(l, id, false)
		l.sendObject(object{"type": "transform.request", "callId": id, "sessionId": k.session,
			"section": section, "current": "The section's text.\n"})
		if _, err := k.checkAnswer(l, protocol.TypeTransformResult, id); err != nil {
			return fail("transform.result with the request's callId", "%s of the section %q",
				got(err), section)
		}
	}
	return k.settle(l)
}
