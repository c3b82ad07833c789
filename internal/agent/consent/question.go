// Package consent decides what the tools of an agent may do: the configuration allows it, or a person
// does, or it is refused. How a person is asked is the matter of an [Asker].
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
	Worker  string           // that asks; "" outside an orchestration
	Text    string           // what the model wants to do, safe to show; it may have several lines
	Whole   string           // all of it if Text is shortened, else ""
	Edits   []tools.FileEdit // what the model wants to change; then there is no Text
	Diffs   []diff.Diff      // of the Edits that are no directories
	Choices []Choice
}

// Choice is an answer other than no, and what it covers beyond this question.
type Choice struct{ Answer, Covers string }

// Answer is what a person has answered: one of the choices, or "" for no. The reason of a no is for
// the model.
type Answer struct{ Word, Reason string }

// The answers that a question may offer. Each begins with a letter of its own.
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
