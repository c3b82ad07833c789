package terminals

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// A CLI's hooks and its link are told of the same events, and no event has an id. A gate may ask a person, count, or be
// slow, so it is asked once for each call: whoever comes first asks, and the others get its answer.

// questions are what the ways of one terminal have asked the gateway lately. Its zero value is empty.
type questions struct {
	mu   sync.Mutex
	list []*question // oldest first
}

// question is something that the gateway was asked about a terminal.
type question struct {
	key    questionKey
	begun  time.Time
	ways   []Way         // that asked it
	passed bool          // the call was made
	done   chan struct{} // closed when answer is set
	answer gateway.Decision
}

// questionKey tells questions apart: what is asked about, and a hash of its text.
type questionKey struct {
	about string // a tool, or one of the names below
	sum   [sha256.Size]byte
}

// What questions are about beside tools. Names of tools have no blanks.
const (
	aboutPrompt = "user prompt"
	aboutStop   = "agent stop"
	aboutAfter  = "after "
)

const (
	// sameEvent is how far apart the ways of a terminal tell of the same event.
	sameEvent = 30 * time.Second
	// maxConsent is how long after the gates a call may come: the CLI may ask a person in between.
	maxConsent   = 30 * time.Minute
	maxQuestions = 256
)

func keyOf(about string, text []byte) questionKey { return questionKey{about, sha256.Sum256(text)} }

// callKey is the key of a call. Different spellings of the same arguments are the same.
func callKey(tool string, args protocol.Raw) questionKey {
	var v any
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	if d.Decode(&v) == nil && v != nil {
		if text, err := json.Marshal(spelled(v)); err == nil {
			return keyOf(tool, text)
		}
	}
	return keyOf(tool, []byte("{}"))
}

// spelled returns arguments with their numbers in one spelling: the model may write 1.0, which one way of a terminal
// tells as it is and another one as 1. A number that a float64 may not tell from its neighbours keeps its text, for a
// gate that has judged one of them has not judged the other.
func spelled(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = spelled(member)
		}
	case []any:
		for i, item := range v {
			v[i] = spelled(item)
		}
	case json.Number:
		const maxDigits, minSize = 15, 1e-300
		mantissa, _, _ := strings.Cut(strings.ToLower(v.String()), "e")
		digits := strings.Trim(strings.ReplaceAll(mantissa, ".", ""), "-0")
		f, err := v.Float64()
		switch {
		case digits == "":
			return 0
		case err == nil && len(digits) <= maxDigits && math.Abs(f) >= minSize:
			return f
		}
	}
	return v
}

// begin finds the question that another way asked about the same event, or adds it; then isFirst is true and the caller
// must call finish.
func (qs *questions) begin(key questionKey, way Way) (q *question, isFirst bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range slices.Backward(qs.list) {
		if q.key == key && time.Since(q.begun) < sameEvent && !slices.Contains(q.ways, way) {
			q.ways = append(q.ways, way)
			return q, false
		}
	}
	q = &question{key: key, begun: time.Now(), ways: []Way{way}, done: make(chan struct{})}
	if len(qs.list) >= maxQuestions {
		qs.list = slices.Delete(qs.list, 0, 1)
	}
	qs.list = append(qs.list, q)
	return q, true
}

func (q *question) finish(answer gateway.Decision) {
	q.answer = answer
	close(q.done)
}

// isAllowed reports whether the gates have allowed the call. It does not wait.
func (q *question) isAllowed() bool {
	select {
	case <-q.done:
		return !q.answer.Deny
	default:
		return false
	}
}

// decide asks about a call, unless another way of the terminal did. Its context for the model is given once.
func (qs *questions) decide(
	ctx context.Context, way Way, tool string, args protocol.Raw, ask func() gateway.Decision,
) gateway.Decision {
	q, isFirst := qs.begin(callKey(tool, args), way)
	if isFirst {
		answer := gateway.Decision{Deny: true, Reason: "the gates were not asked", By: "the gateway"}
		defer func() { q.finish(answer) }()
		answer = ask()
		return answer
	}
	select {
	case <-q.done:
		answer := q.answer
		answer.Context = ""
		return answer
	case <-ctx.Done():
		return gateway.Decision{Deny: true, Reason: "the gates did not answer in time", By: "the gateway"}
	}
}

// isFirst reports whether no other way of the terminal has told of an event.
func (qs *questions) isFirst(key questionKey, way Way) bool {
	q, isFirst := qs.begin(key, way)
	if isFirst {
		q.finish(gateway.Decision{})
	}
	return isFirst
}

func (qs *questions) isEmpty() bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return len(qs.list) == 0
}

// pass reports whether a call that is being made was allowed, and has not been made yet.
func (qs *questions) pass(tool string, args protocol.Raw) bool {
	if qs.isEmpty() {
		return false // a terminal without hooks, whose calls need not be read once more
	}
	key := callKey(tool, args)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.list {
		if q.key == key && !q.passed && time.Since(q.begun) < maxConsent && q.isAllowed() {
			q.passed = true
			return true
		}
	}
	return false
}

// allowed reports whether a call that the CLI is about to make was allowed.
func (qs *questions) allowed(tool string, args protocol.Raw) bool {
	key := callKey(tool, args)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return slices.ContainsFunc(qs.list, func(q *question) bool {
		return q.key == key && time.Since(q.begun) < maxConsent && q.isAllowed()
	})
}

// forget removes the oldest question about a call: it has been made.
func (qs *questions) forget(tool string, args protocol.Raw) {
	key := callKey(tool, args)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if i := slices.IndexFunc(qs.list, func(q *question) bool { return q.key == key }); i >= 0 {
		qs.list = slices.Delete(qs.list, i, i+1)
	}
}

// forgetCalls removes all questions about calls: the turn has ended, so none of them will be made.
func (qs *questions) forgetCalls() {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.list = slices.DeleteFunc(qs.list, func(q *question) bool {
		return q.key.about != aboutPrompt && q.key.about != aboutStop
	})
}

// linkCalls is the session of a terminal for its link. What the hooks of the terminal have asked already is not asked
// again.
type linkCalls struct {
	*gateway.Session
	t   *terminal
	way Way
}

var _ gateway.HostCalls = (*linkCalls)(nil)

// StartCall implements [gateway.HostCalls]. The gates are asked unless hooks have done so.
func (c *linkCalls) StartCall(call gateway.Call) (wait func(context.Context) gateway.Outcome) {
	call.AskGates = !c.t.asked.pass(call.Name, call.Args)
	return c.Session.StartCall(call)
}

// PreToolUse implements [gateway.HostCalls].
func (c *linkCalls) PreToolUse(ctx context.Context, tool string, args protocol.Raw) gateway.Decision {
	return c.t.asked.decide(ctx, c.way, tool, args, func() gateway.Decision {
		return c.Session.PreToolUse(ctx, tool, args)
	})
}

// UserPrompt implements [gateway.HostCalls].
func (c *linkCalls) UserPrompt(ctx context.Context, prompt, source string) string {
	if !c.t.asked.isFirst(keyOf(aboutPrompt, []byte(prompt)), c.way) {
		return ""
	}
	return c.Session.UserPrompt(ctx, prompt, source)
}

// Hook implements [gateway.HostCalls].
func (c *linkCalls) Hook(ctx context.Context, e gateway.HookEvent) gateway.HookAnswer {
	key := keyOf(aboutStop, nil)
	if e.On == gateway.HookPostToolUse {
		key = callKey(aboutAfter+e.Tool, e.Args)
	}
	if !c.t.asked.isFirst(key, c.way) {
		return gateway.HookAnswer{}
	}
	return c.Session.Hook(ctx, e)
}

// Event implements [gateway.HostCalls]. The terminal in which a person types is the foreground session.
func (c *linkCalls) Event(e gateway.Event) {
	if e.UserMessage != "" && e.Source == gateway.SourceUser {
		_ = c.t.r.gateway.SetForeground(c.t.id) // it has ended if that fails
	}
	c.Session.Event(e)
}

// Idle implements [gateway.HostCalls].
func (c *linkCalls) Idle() {
	c.t.asked.forgetCalls()
	c.Session.Idle()
}
