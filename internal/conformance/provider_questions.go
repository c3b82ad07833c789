package conformance

import (
	"fmt"
	"slices"
	"time"

	"tapgw/internal/protocol"
)

func questionChecks() []check {
	const section, none = "Questions", "it answered no question"
	return []check{
		try("question.told", advice, section, "A question of each kind, and its end, end nothing",
			bound(questionTold)),
		watch("question.waits", advice, section,
			"An answer is to a question that the provider was told of, and that is not over", none),
		watch("question.fits", ours, "question.answer",
			"An answer is one that a question of its kind takes", none),
	}
}

// questionRecord is a question that the kit told the provider of.
type questionRecord struct {
	kind string
	over bool // and the provider knows it
}

// questionAnswer judges an answer. d.mu is held.
func (d *ledger) questionAnswer(m *protocol.QuestionAnswer) {
	q := d.questions[m.Question]
	d.note("question.waits", q != nil && !q.over,
		"an answer to the question %.64q, which does not wait", m.Question)
	if q == nil {
		return
	}
	fits := m.Decision == "deny"
	switch q.kind {
	case "permission":
		fits = slices.Contains([]string{"once", "session", "deny"}, m.Decision)
	case "input":
		fits = fits || m.Decision == "" && m.Text != ""
	case "form":
		fits = fits || m.Decision == "" && len(m.Content) > 0
	}
	d.note("question.fits", fits,
		"a question of kind %s got decision %.20q, text %.64q, content %.64s", q.kind, m.Decision,
		m.Text, m.Content)
}

// question keeps a question that the provider is told of, or that it knows to be over.
func (d *ledger) question(id, kind string, over bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.questions[id] = &questionRecord{kind: kind, over: over}
}

// questionTold asks, waits a moment for answers, and ends its questions.
func questionTold(k *kit, l *providerConn) error {
	if !slices.Contains(k.ledger.current().Subscribe, "question.asked") {
		return skipf("it did not subscribe to question.asked")
	}
	event := func(name string, data object) {
		l.sendObject(object{"type": "session.event", "sessionId": firstSession, "event": name,
			"data": data})
	}
	now := time.Now().UTC()
	kinds := map[string]object{
		"permission": {"detail": "rm -rf build"},
		"input":      {"choices": []string{"yes", "no"}, "freeform": true},
		"form": {"schema": object{"type": "object",
			"properties": object{"name": object{"type": "string"}},
			"required":   []string{"name"}}},
	}
	for kind, data := range kinds {
		id := "q-" + kind
		data["id"], data["kind"], data["message"] = id, kind, fmt.Sprintf("a %s of the kit", kind)
		data["askedAt"], data["expiresAt"] = now.Format(time.RFC3339),
			now.Add(time.Minute).Format(time.RFC3339)
		k.ledger.question(id, kind, false)
		event("question.asked", data)
	}
	if err := k.settle(l); err != nil {
		return err
	}
	for kind := range kinds {
		event("question.ended", object{"id": "q-" + kind, "reason": "withdrawn"})
	}
	if err := k.ping(l); err != nil { // it has read that they are over
		return err
	}
	for kind := range kinds {
		k.ledger.question("q-"+kind, kind, true)
	}
	if err := k.settle(l); err != nil {
		return err
	}
	return k.alive(l)
}
