package main

import (
	"context"
	"sync"

	"tapgw/internal/diff"
	"tapgw/internal/langserver"
	"tapgw/tools"
)

// edits follows what the tools of a conversation do to files.
type edits struct {
	mu    sync.Mutex           // guards the field that follows
	diffs map[string]callDiffs // of calls that have not been printed, by their ids
}

// callDiffs is what a call has changed.
type callDiffs struct {
	list []diff.Diff
	seen bool // the person has seen them in a question
}

// callKey is the key of the running call in the context of its tool.
type callKey struct{}

// withCall returns the context of a call's tool, in which [conversation.edit] finds the call.
func withCall(ctx context.Context, call langserver.Invocation) context.Context {
	return context.WithValue(ctx, callKey{}, call)
}

// edit is the [tools.Env.Edit] of a conversation's tools.
func (v *conversation) edit(ctx context.Context, list []tools.FileEdit) (done func(error), err error) {
	call, _ := ctx.Value(callKey{}).(langserver.Invocation)
	diffs := diffsOf(list)
	view := v.cmd.diffView(v.cmd.App.ErrWriter)
	asked, err := v.policy.edit(ctx, v.cmd.workspace, list, diffs, view)
	if err != nil {
		return nil, err
	}
	return func(err error) {
		if err == nil {
			v.edits.add(call.CallID, callDiffs{diffs, asked})
		}
	}, nil
}

// diffsOf compares the files before and after a call.
func diffsOf(list []tools.FileEdit) (diffs []diff.Diff) {
	for _, e := range list {
		switch {
		case e.Dir:
		case e.TooLarge:
			d := diff.New(e.Name, nil, nil)
			d.Note = "the file before was too large to compare"
			d.Deleted = e.Now == nil
			diffs = append(diffs, d)
		default:
			diffs = append(diffs, diff.New(e.Name, e.Was, e.Now))
		}
	}
	return diffs
}

func (e *edits) add(call string, diffs callDiffs) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.diffs == nil {
		e.diffs = map[string]callDiffs{}
	}
	e.diffs[call] = diffs
}

// take removes and returns the diffs of a call.
func (e *edits) take(call string) callDiffs {
	e.mu.Lock()
	defer e.mu.Unlock()
	diffs := e.diffs[call]
	delete(e.diffs, call)
	return diffs
}
