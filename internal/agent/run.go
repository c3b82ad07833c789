package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tapgw/internal/agent/outputschema"
	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
	"tapgw/internal/visible"
)

// A run is the turn of a prompt with the turns that follow from it.

// RunOptions are the options of [Conversation.Run].
type RunOptions struct {
	MaxTurns int                  // how often the model may answer in all turns; 0: no limit
	Schema   *outputschema.Schema // the answer to the prompt must match it; nil: any text will do
	Retries  int                  // how often the model may answer again if it does not match
}

// run is a prompt with all turns that follow from it.
type run struct {
	RunOptions
	v      *Conversation
	rounds int // of all turns so far
}

// Run runs the turn of a prompt, and then the turns of prompts that providers inject. If a turn
// fails, Run returns the error that its [TurnEnded] had.
func (v *Conversation) Run(ctx context.Context, prompt string, o RunOptions) error {
	r := &run{RunOptions: o, v: v}
	if err := r.first(ctx, prompt); err != nil {
		return err
	}
	return r.injected(ctx)
}

// first runs the turn of the prompt until its answer matches the schema, if there is one.
func (r *run) first(ctx context.Context, prompt string) error {
	if r.Schema == nil {
		return r.v.end(r.turn(ctx, prompt, ""))
	}
	var output json.RawMessage
	var fault error
	result, err := r.turn(ctx, r.Schema.Request(prompt), "")
	for attempt := 0; err == nil; attempt++ {
		if output, fault = r.Schema.Read(result.Answer); fault == nil {
			break
		}
		if attempt == r.Retries {
			err = &cli.Error{Exit: cli.ExitFailed, Code: "SCHEMA", Message: fault.Error(),
				Err: fault}
			break
		}
		r.v.Show(Rejected{fault})
		before := result.Usage
		result, err = r.turn(ctx, fmt.Sprintf(
			"This was rejected: %v. Answer again, with nothing but the JSON value.", fault), "")
		result.Usage.Prompt += before.Prompt
		result.Usage.Completion += before.Completion
		result.Usage.Cached += before.Cached
	}
	r.v.Show(TurnEnded{r.v.ID(), result, output, err})
	return err
}

// injected runs the turns of the prompts that providers have injected.
func (r *run) injected(ctx context.Context) error {
	for r.v.session != nil {
		p, ok := r.v.session.waitPrompt(ctx)
		if !ok {
			break
		}
		r.v.Show(Injected{Prompt: p.Prompt})
		if err := r.v.end(r.turn(ctx, p.Prompt, p.Source)); err != nil {
			return err
		}
	}
	return nil
}

// turn runs a turn within the rounds that are left.
func (r *run) turn(ctx context.Context, prompt, source string) (langserver.Turn, error) {
	tooMany := &cli.Error{Exit: cli.ExitFailed, Code: "MAX_TURNS", Message: fmt.Sprintf(
		"the model has not finished after %s (--max-turns)", visible.Count(r.MaxTurns, "round"))}
	if r.MaxTurns > 0 {
		left := r.MaxTurns - r.rounds
		if left < 1 {
			return langserver.Turn{}, tooMany
		}
		if err := r.v.Server.SetMaxRounds(min(left, r.v.maxRounds())); err != nil {
			return langserver.Turn{}, err
		}
	}
	r.v.Show(Working{"thinking"})
	defer r.v.Show(Working{})
	result, err := r.v.turn(ctx, &r.v.worker, prompt, source)
	r.rounds += result.Rounds
	failed, ok := errors.AsType[*langserver.TurnError](err)
	if ok && failed.Code == langserver.CodeTooManyRounds && r.rounds == r.MaxTurns {
		err = tooMany
	}
	return result, err
}

// Turn runs one turn. source names the provider that sent the prompt; "" is the person. Turn
// returns the error that its [TurnEnded] had.
func (v *Conversation) Turn(ctx context.Context, prompt, source string) error {
	return v.end(v.turn(ctx, &v.worker, prompt, source))
}

// end shows that a turn has ended, and returns its error.
func (v *Conversation) end(result langserver.Turn, err error) error {
	v.Show(TurnEnded{v.ID(), result, nil, err})
	return err
}

// turn runs a turn of the conversation itself, and keeps it. The events name the worker w.
func (v *Conversation) turn(
	ctx context.Context, w *worker, prompt, source string,
) (langserver.Turn, error) {
	if err := v.Server.SetInstructions(v.instructionText()); err != nil {
		return langserver.Turn{}, workspace.ExitError(err)
	}
	v.kept.check(v.kept.writer.Prompt(prompt, v.model))
	result, err := v.turnOf(ctx, w, v.beginTurn(prompt), source, v.kept.event)
	v.kept.end(result, err)
	return result, err
}

// turnOf runs a turn of a worker, as a turn of its session if it has one. Each event goes to keep,
// and is shown.
func (v *Conversation) turnOf(ctx context.Context, w *worker, prompt, source string,
	keep func(langserver.Event)) (result langserver.Turn, err error) {
	run := func(ctx context.Context, prompt string) (langserver.Turn, error) {
		return w.Conversation.Turn(ctx, prompt, func(e langserver.Event) {
			keep(e)
			v.progress(w, e)
		})
	}
	if w.session != nil {
		result, err = w.session.runTurn(ctx, prompt, source, run)
	} else {
		result, err = run(ctx, prompt)
	}
	return result, workspace.ExitError(err)
}

// progress reports the events of a worker's turn to the gateway and to the agent's display.
func (v *Conversation) progress(w *worker, e langserver.Event) {
	p := Progress{Worker: w.name, Event: e}
	if call, ok := e.(langserver.ToolCall); ok && call.State != langserver.Running {
		p.Diffs, p.Seen = v.edits.take(w.ID() + " " + call.ID)
		if w.session != nil {
			w.session.toolDone(call)
		}
	}
	v.Show(p)
}
