// Package consent decides about the tool calls of an agent. The configuration allows a call, or a
// person does, or the call is refused. An [Asker] asks the person.
package consent

import (
	"context"

	"tapgw/internal/diff"
	"tapgw/tools"
)

// Asker asks a person.
type Asker interface {
	// Ask shows a question and returns the person's answer. Ctrl-C is the answer no. It returns an
	// error only when ctx ends first.
	Ask(ctx context.Context, q Question) (Answer, error)
}

// Question is a question to a person, about a text or about edits. No is always a choice.
type Question struct {
	Worker  string           // the worker that asks; "" outside an orchestration
	Text    string           // the model's intention, safe to show; it may have several lines
	Whole   string           // the full text if Text is shortened, else ""
	Edits   []tools.FileEdit // the changes that the model wants to make; then there is no Text
	Diffs   []diff.Diff      // of the Edits that are no directories
	Choices []Choice
}

// Choice is an answer other than no. Covers describes its effect beyond this question.
type Choice struct{ Answer, Covers string }

// Answer is a person's answer: one of the choices, or "" for no. The reason of a no is for the
// model.
type Answer struct{ Word, Reason string }

// The answers that a question may offer. They begin with different letters.
const (
	Once    = "yes"
	Always  = "always"
	Session = "session"
)

// workerKey is the key of a worker's name in the context of its calls.
type workerKey struct{}

// WithWorker returns a context in which questions name the worker that asks.
func WithWorker(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, workerKey{}, name)
}
