// Package conformance judges providers of the protocol by running them: [Provider] plays the
// gateway for a provider, and [SDK] plays the scenarios of testdata/sdk with the sample program of
// an SDK. Each rule has a section of docs/protocol.md. It passes, is broken, is advice that was not
// taken, or is skipped with a reason: a rule that could not be judged never passes.
package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Kind says how strongly the protocol asks for a rule.
type Kind string

// Kinds of rules.
const (
	Must   Kind = "must"   // a specification demands it: it says must, required, only or at most
	Should Kind = "should" // advice: a provider that does otherwise is no broken one
)

// Rule is one thing that the protocol asks. ID never changes its meaning: scripts name rules by it.
// Section is a heading of docs/protocol.md, or the file of a scenario. Spec names the text that
// demands a rule of kind Must: a section of one of the two specifications that docs/protocol.md
// brings together, or docs/protocol.md itself.
type Rule struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	Section string `json:"section"`
	Kind    Kind   `json:"kind"`
	Spec    string `json:"spec,omitzero"`
}

// ours is the Spec of a rule that its section of docs/protocol.md itself demands.
const ours = "docs/protocol.md"

// Outcome is the result of a rule in a run.
type Outcome string

// Outcomes of a rule.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed" // a rule of kind Must is broken
	Advice  Outcome = "advice" // a rule of kind Should is not kept
	Skipped Outcome = "skipped"
)

// Result is the outcome of one rule. Level is "must" or "advice". Got and Want are set for a rule
// that is broken: the observed behaviour and the expected one, in one line each. Reason is set for
// a skipped rule.
type Result struct {
	Rule
	Level      string  `json:"level"`
	Outcome    Outcome `json:"outcome"`
	Got        string  `json:"got,omitzero"`
	Want       string  `json:"want,omitzero"`
	Reason     string  `json:"reason,omitzero"`
	DurationMs int64   `json:"durationMs"`
}

// Report is the result of a run, with the rules in the order in which they were judged. Subject is
// the judged command or URL. Stderr has the last lines that the judged program wrote there.
type Report struct {
	Subject string   `json:"subject"`
	Passed  int      `json:"passed"`
	Failed  int      `json:"failed"`
	Advice  int      `json:"advice"`
	Skipped int      `json:"skipped"`
	Results []Result `json:"results"`
	Stderr  []string `json:"stderr,omitzero"`
}

// begin reports that a rule's turn has come; told may be nil.
func begin(told func(Rule), rule Rule) {
	if told != nil {
		told(rule)
	}
}

// add adds a result and counts it.
func (r *Report) add(result Result) {
	r.Results = append(r.Results, result)
	switch result.Outcome {
	case Passed:
		r.Passed++
	case Failed:
		r.Failed++
	case Advice:
		r.Advice++
	case Skipped:
		r.Skipped++
	}
}

// failure is the error of a check whose rule was not kept.
type failure struct{ got, want string }

func (f *failure) Error() string { return "got " + f.got + ", want " + f.want }

// fail returns the error of a broken rule: the behaviour that it expects, and the one observed.
func fail(want, got string, args ...any) error {
	return &failure{got: fmt.Sprintf(got, args...), want: want}
}

// skip is the error of a check that could not judge its rule.
type skip struct{ reason string }

func (s *skip) Error() string { return s.reason }

func skipf(reason string, args ...any) error { return &skip{fmt.Sprintf(reason, args...)} }

// result makes the result of a rule from the error of its check: nil is passed, a [skip] skipped.
// With any other error the rule was not kept; if the error does not say what was expected, the
// rule's title does.
func (r Rule) result(err error, took time.Duration) Result {
	result := Result{Rule: r, Level: string(Must), Outcome: Passed, DurationMs: took.Milliseconds()}
	if r.Kind == Should {
		result.Level = string(Advice)
	}
	if err == nil {
		return result
	}
	if s, ok := errors.AsType[*skip](err); ok {
		result.Outcome, result.Reason = Skipped, s.reason
		return result
	}
	result.Outcome, result.Got, result.Want = Failed, err.Error(), r.Title
	if r.Kind == Should {
		result.Outcome = Advice
	}
	if f, ok := errors.AsType[*failure](err); ok {
		result.Got, result.Want = f.got, cmp.Or(f.want, r.Title)
	}
	return result
}
