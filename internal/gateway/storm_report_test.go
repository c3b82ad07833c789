package gateway

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"tapgw/internal/protocol"
)

// tally counts what happened, by name.
type tally struct{ counts sync.Map }

func (t *tally) add(what string) {
	n, ok := t.counts.Load(what)
	if !ok {
		n, _ = t.counts.LoadOrStore(what, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(1)
}

func (t *tally) count(what string) int64 {
	n, ok := t.counts.Load(what)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// stormReport lists the events of a storm, and how often each must happen at least in
// 100,000 calls. The numbers are low, since some are rarer on a busy machine.
var stormReport = []struct {
	what  string
	least int64
}{
	// How calls end.
	{"call: ok", 2000},
	{"call: ok, a file", 100},
	{"call: ok, of a meta-tool", 500},
	{"call: NOT_FOUND", 500},
	{"call: INVALID_ARGUMENTS", 200},
	{"call: UNAUTHORIZED", 400}, // the provider's own error
	{"call: PAYLOAD_TOO_LARGE", 50},
	{"call: INTERNAL, protocol error", 50},
	{"call: INTERNAL, went wrong", 50},
	{"call: TIMEOUT", 1000},
	{"call: CANCELLED, given up", 500},
	{"call: CANCELLED, interrupted", 200},
	{"call: CANCELLED, binding anew", 20},
	{"call: CANCELLED, session has ended", 5},
	{"call: DISCONNECTED", 100},
	{"call: RATE_LIMITED", 100}, // ten wait already
	{"call: DENIED, by a rule", 300},
	{"call: DENIED, said no", 50},
	{"call: DENIED, a malformed message", 10},
	{"call: DENIED, disconnected before it answered", 50},
	{"call: DENIED, did not respond in time", 1},
	{"call: runs, a gate failed open", 1},
	{"call: runs, on its target", 50},
	{"call: retried", 10},
	{"slot: freed without an answer", 1},

	// What providers answer.
	{"result: data", 1000},
	{"result: data and error", 50},
	{"result: error", 100},
	{"result: error, of an unknown code", 50},
	{"result: error, retryable", 200},
	{"result: file", 50},
	{"result: malformed", 50},
	{"result: too large", 50},
	{"result: late", 20},
	{"result: CANCELLED", 300},
	{"result: never, to a cancel", 10},
	{"cancel: timeout", 300},
	{"cancel: given up", 200},
	{"cancel: interrupted", 100},
	{"cancel: rebind", 20},
	{"gate: allow", 200},
	{"gate: context", 30},
	{"gate: deny", 30},
	{"gate: malformed", 20},
	{"gate: never answered", 20},
	{"gate: leaves instead of an answer", 20},
	{"transform: answered", 20},
	{"transform: malformed", 5},
	{"transform: never answered", 5},
	{"push: stored", 10},
	{"push: surfaced", 5},
	{"push: queued", 2},
	{"push: delivered", 2},
	{"push: dropped", 5},

	// How they come and go, and what they are refused.
	{"step: auth by reconnectToken", 20},
	{"step: hello with reconnectToken", 20},
	{"step: hello, as it was", 20},
	{"step: hello, unbound", 10},
	{"step: session.ready", 2},
	{"step: shutdown.ready", 2},
	{"step: goodbye", 20},
	{"step: leaves, with gates asked", 20},
	{"step: tools.update", 30},
	{"step: tools.update, silent", 3},
	{"step: hooks.update", 30},
	{"step: hooks.update, silent", 3},
	{"step: context.update", 30},
	{"step: filter.set", 30},
	{"step: an update for whatever session", 10},
	{"connection: closed with 1000", 5},  // stopped
	{"connection: closed with 4001", 10}, // taken over
	{"connection: closed with 4002", 5},  // failed fast
	{"error: AUTH_FAILED", 10},           // the token of a life that took its leave
	{"error: DUPLICATE_INSTANCE", 2},
	{"error: TOOL_CONFLICT", 1},
	{"error: INVALID_SESSION", 10},
	{"error: INVALID_STATE", 10},
	{"error: INVALID_JSON", 50},
	{"error: UNKNOWN_CALL_ID", 5},

	// What hosts do.
	{"host asks gates: allowed", 500},
	{"host asks gates: allowed with context", 50},
	{"host asks gates: denied", 50},
	{"prompt: with context", 50},
	{"prompt: rewritten", 10},
	{"session: ends", 2},
	{"session: interrupted", 2},
	{"session: busy and idle", 10},
	{"session: pushed to", 5},
	{"session: foreground", 2},
	{"session: a provider stopped", 2},
}

// nextCall returns the number of the next call. It returns false once enough calls were
// made and everything in the report has happened, or the extra calls are used up. The
// extra calls come slowly, because some events take seconds.
func (w *world) nextCall(r *rand.Rand) (int64, bool) {
	n := w.numbers.Add(1)
	if n <= w.calls {
		return n, true
	}
	if n >= int64(len(w.records)) || w.t.Failed() || len(w.missing()) == 0 {
		return 0, false
	}
	pause(r, 1000)
	return n, true
}

// missing lists what did not happen often enough.
func (w *world) missing() (list []string) {
	want := func(what string, least int64) {
		if n, least := w.tally.count(what), least*w.calls/100_000; n < least {
			list = append(list, fmt.Sprintf("%s: %d times, %d is the least", what, n, least))
		}
	}
	for _, r := range stormReport {
		want(r.what, r.least)
	}
	for _, s := range steps {
		want("step: "+s.name, 5)
	}
	return list
}

// checkReport prints the report and fails if something is missing.
func (w *world) checkReport() {
	var lines []string
	w.tally.counts.Range(func(what, n any) bool {
		lines = append(lines, fmt.Sprintf("%-50s%7d", what, n.(*atomic.Int64).Load()))
		return true
	})
	slices.Sort(lines)
	w.t.Logf("it consisted of\n%s", strings.Join(lines, "\n"))
	for _, m := range w.missing() {
		w.t.Errorf("the storm was too mild: %s", m)
	}
}

// causes are texts that tell outcomes of one code apart.
var causes = map[protocol.Code][]string{
	protocol.CodeDenied: {"did not respond in time", "disconnected before it answered",
		"a malformed message", "said no", "by a rule", "changed faster"},
	protocol.CodeCancelled: {"given up", "interrupted", "session has ended", "binding anew"},
	protocol.CodeInternal:  {"protocol error", "went wrong"},
}

// outcomeName names a call's outcome by its code, and by its cause if the code has
// several.
func (w *world) outcomeName(o Outcome) string {
	if !o.Failed() {
		return "call: ok"
	}
	list := causes[o.ErrorCode]
	if list == nil {
		return fmt.Sprintf("call: %s", o.ErrorCode)
	}
	i := slices.IndexFunc(list, func(cause string) bool { return strings.Contains(o.Error, cause) })
	if i < 0 {
		w.t.Errorf("a call ended with %s", o.Text())
		return ""
	}
	return fmt.Sprintf("call: %s, %s", o.ErrorCode, list[i])
}
