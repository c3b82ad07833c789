// Package evals runs the cases of tapctl evals in sessions of a gateway, and reports how many of
// the runs pass.
//
// A run has a fresh workspace, a session of its own and the case's providers, which connect to the
// gateway as any other. The verdict rests on the gateway's report of the session, the files and the
// streams. The model's words count only where a case asks for them. Every session that a run
// started ends with the run.
package evals

import (
	"context"
	"errors"
	"slices"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
)

// Options say how to run cases.
type Options struct {
	Gateway    *client.Client
	Host       string                 // of the sessions
	Settings   adminapi.ModelSettings // of the sessions
	JudgeModel string                 // "": the model of the sessions
	NoJudge    bool                   // leave out the claims that a model has to judge
	// answer the sessions' permission questions with yes; else with no
	Allow       bool
	Concurrency int          // runs at the same time, at least 1
	Artifacts   string       // a directory for transcripts; "": they are not written
	Ended       func(Result) // gets each ended run, one at a time; may be nil
}

// States of a [Result] and of a [Case].
const (
	Passed    = "passed"
	Failed    = "failed"
	Undecided = "undecided" // no check failed, but the judge's verdicts don't count
	Broken    = "error"     // the run could not be made
)

// Failure is a failed check of a run, with its reason.
type Failure struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
}

// Result is the result of one run of a case.
type Result struct {
	Case         string    `json:"case"`
	Variant      string    `json:"variant,omitempty"` // "": the case without a variant
	Run          int       `json:"run"`               // from 1
	State        string    `json:"state"`
	Session      string    `json:"session,omitempty"`
	DurationMs   int64     `json:"durationMs"` // from the first prompt to the end
	Turns        int       `json:"turns"`
	Calls        int       `json:"calls"`
	InputTokens  int64     `json:"inputTokens"`
	OutputTokens int64     `json:"outputTokens"`
	Failures     []Failure `json:"failures"`
	Denied       int       `json:"denied,omitempty"` // questions that were answered with no
	// why the run could not be made, or is undecided
	Error      string `json:"error,omitempty"`
	Transcript string `json:"transcript,omitempty"` // a file
}

// Why is the first reason for a state other than passed, for people.
func (r *Result) Why() string {
	if len(r.Failures) > 0 {
		return r.Failures[0].Check + ": " + r.Failures[0].Reason
	}
	return r.Error
}

// Case is the result of a case's runs. Rate is the rate of the decided runs that passed, with its
// 95 % interval.
type Case struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Category string   `json:"category,omitempty"`
	State    string   `json:"state"`
	MinRate  float64  `json:"minRate"`
	Judge    []string `json:"judge,omitempty"` // how the judge was wrong about its examples
	Sums
	Results []Result `json:"results"`
}

// Sums add up runs: how many of the decided runs passed, and means of the other numbers.
type Sums struct {
	Runs       int     `json:"runs"`
	Decided    int     `json:"decided"`
	Passed     int     `json:"passed"`
	Rate       float64 `json:"rate"` // Passed of Decided; 0 if no run is decided
	Low        float64 `json:"low"`  // the interval of Rate
	High       float64 `json:"high"`
	DurationMs int64   `json:"durationMs"` // the median
	Calls      float64 `json:"calls"`      // a mean, like the numbers below
	Tokens     float64 `json:"tokens"`     // read and written
}

// Report is how all cases went. Error says why not all runs were made.
type Report struct {
	State string `json:"state"` // passed if all cases passed
	Cases []Case `json:"cases"`
	Error string `json:"error,omitempty"`
}

// Run runs cases as often as they say, interleaved, and reports how they went. The error says why
// it ended early: ctx has ended, or the gateway is gone; the report then has the runs that were
// made.
func Run(ctx context.Context, o Options, cases []configs.EvalCase) (*Report, error) {
	var round []job
	for i := range cases {
		round = append(round, job{c: &cases[i]})
	}
	results, judge, err := o.runAll(ctx, rounds(round))
	report := &Report{State: Passed, Cases: []Case{}}
	for i := range cases {
		c := &cases[i]
		of := Case{ID: c.ID, Title: c.Title, Category: c.Category, MinRate: c.MinRate,
			Judge: judge.wrong(c.ID), Results: runsOf(results, c.ID, "")}
		of.Sums = sum(of.Results)
		of.State = of.state()
		if of.State != Passed {
			report.State = Failed
		}
		report.Cases = append(report.Cases, of)
	}
	if err != nil {
		report.State, report.Error = Failed, cli.AsError(err).Message
	}
	return report, err
}

// state returns the state of a case by its runs.
func (c *Case) state() string {
	has := func(state string) bool {
		return slices.ContainsFunc(c.Results, func(r Result) bool { return r.State == state })
	}
	switch {
	case c.Decided > 0 && c.Rate < c.MinRate:
		return Failed
	case has(Broken) || len(c.Results) == 0:
		return Broken
	case has(Undecided):
		return Undecided
	}
	return Passed
}

// sum adds up runs.
func sum(results []Result) (s Sums) {
	var durations []int64
	for _, r := range results {
		s.Runs++
		switch r.State {
		case Passed:
			s.Passed++
			s.Decided++
		case Failed:
			s.Decided++
		case Broken:
			continue
		}
		durations = append(durations, r.DurationMs)
		s.Calls += float64(r.Calls)
		s.Tokens += float64(r.InputTokens + r.OutputTokens)
	}
	s.Low, s.High = wilson(s.Passed, s.Decided)
	if s.Decided > 0 {
		s.Rate = float64(s.Passed) / float64(s.Decided)
	}
	if n := len(durations); n > 0 {
		slices.Sort(durations)
		s.DurationMs = durations[n/2]
		s.Calls /= float64(n)
		s.Tokens /= float64(n)
	}
	return s
}

// job is a run that is to be made.
type job struct {
	c       *configs.EvalCase
	variant string
	run     int
}

// rounds repeats a round as often as its cases say, so that changes in the meantime affect all
// cases alike.
func rounds(round []job) (jobs []job) {
	for run, isOver := 1, false; !isOver; run++ {
		isOver = true
		for _, j := range round {
			if run <= j.c.Repeat {
				j.run, isOver = run, false
				jobs = append(jobs, j)
			}
		}
	}
	return jobs
}

// runsOf returns the runs of a case with a variant, or with "" without one.
func runsOf(results []Result, id, variant string) []Result {
	found := []Result{}
	for _, r := range results {
		if r.Case == id && r.Variant == variant {
			found = append(found, r)
		}
	}
	return found
}

// runAll makes runs, in their order but several at a time. Without a gateway or after the end of
// ctx it begins no more. It returns the runs that were made, in their order.
func (o *Options) runAll(ctx context.Context, jobs []job) ([]Result, *judge, error) {
	outer := ctx
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	type made struct {
		at     int
		result Result
		err    error
	}
	j := newJudge(o)
	ended, next, running := make(chan made), 0, 0
	results := make([]*Result, len(jobs))
	for {
		for running < max(o.Concurrency, 1) && next < len(jobs) && ctx.Err() == nil {
			at := next
			next++
			running++
			go func() {
				r, err := o.run(ctx, jobs[at], j)
				ended <- made{at, r, err}
			}()
		}
		if running == 0 {
			break
		}
		m := <-ended
		running--
		if m.err != nil {
			cancel(m.err) // the others would end the same way
			continue
		}
		results[m.at] = &m.result
		if o.Ended != nil {
			o.Ended(m.result)
		}
	}
	var done []Result
	for _, r := range results {
		if r != nil {
			done = append(done, *r)
		}
	}
	if outer.Err() != nil {
		e := *cli.AsError(outer.Err()) // the exit code of Ctrl-C, or of the end of the time
		e.Message = "cancelled: not all runs were made; the sessions of those that ran were ended"
		return done, j, &e
	}
	return done, j, context.Cause(ctx)
}

// run makes one run. An error of run ends all runs.
func (o *Options) run(ctx context.Context, j job, judge *judge) (Result, error) {
	r := Result{Case: j.c.ID, Variant: j.variant, Run: j.run, Failures: []Failure{}}
	seen, err := o.observe(ctx, j)
	if seen != nil {
		r.Session, r.Turns, r.Calls, r.Denied = seen.session, seen.turns, len(seen.calls),
			seen.denied
		r.DurationMs = seen.duration.Milliseconds()
		r.InputTokens, r.OutputTokens = seen.usage.Total.Input, seen.usage.Total.Output
	}
	if err == nil {
		r.Failures = append(r.Failures, check(j.c, seen)...)
		err = o.judgeRun(ctx, j.c, seen, judge, &r)
	}
	switch over, isOver := errors.AsType[*overBudget](err); {
	case isOver:
		r.Failures = append(r.Failures, Failure{"budget", over.Error()})
		err = nil
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	case err != nil && cli.AsError(err).Exit == cli.ExitUnreachable:
		return r, err
	}
	switch {
	case len(r.Failures) > 0:
		r.State = Failed
	case isUnjudged(err):
		r.State, r.Error = Undecided, err.Error()
	case err != nil:
		r.State, r.Error = Broken, cli.AsError(err).Message
	default:
		r.State = Passed
	}
	if o.Artifacts != "" && seen != nil {
		if r.Transcript, err = seen.write(o.Artifacts, r); err != nil {
			return r, err
		}
	}
	return r, nil
}

func isUnjudged(err error) bool {
	_, is := errors.AsType[*unjudgedError](err)
	return is
}

// judgeRun adds the judge's findings. The verdicts of a judge that is unreliable do not count.
func (o *Options) judgeRun(
	ctx context.Context, c *configs.EvalCase, seen *observed, j *judge, r *Result,
) error {
	if o.NoJudge || !c.NeedsJudge() {
		return nil
	}
	failures, err := j.judge(ctx, c, seen.messages)
	r.Failures = append(r.Failures, failures...)
	return err
}
