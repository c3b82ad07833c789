package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"tapgw/internal/checkpoint"
	"tapgw/internal/diff"
	"tapgw/internal/langserver"
	"tapgw/internal/visible"
	"tapgw/tools"
)

// edits follows what the tools of a conversation do to files.
type edits struct {
	mu     sync.Mutex           // guards the fields that follow
	diffs  map[string]callDiffs // of calls that have not been printed, by conversation and call
	at     checkpoint.Place     // the turn that runs
	notes  []string             // for the model, about what the user has undone
	warned string               // the last warning that an edit can't be undone
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

// beginTurn counts the turn that begins, and returns its prompt with what the model should know about undone edits.
func (v *conversation) beginTurn(prompt string) string {
	e := &v.edits
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at.Conversation != v.kept.id {
		e.at = checkpoint.Place{Conversation: v.kept.id, Turn: v.kept.turns}
		e.notes = v.undoneBefore()
	}
	e.at.Turn++
	if len(e.notes) == 0 {
		return prompt
	}
	prompt = strings.Join(e.notes, "\n") + "\n\n" + prompt
	e.notes = nil
	return prompt
}

// undoneBefore returns the note about turns of a resumed conversation that were undone since.
func (v *conversation) undoneBefore() []string {
	if !v.kept.resumed {
		return nil
	}
	turns, err := v.checkpoints.Turns(v.kept.id)
	if err != nil {
		return nil // an undo says it
	}
	var names []string
	for _, t := range turns {
		for _, f := range t.Files {
			if t.Undone {
				names = append(names, f.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{undoNote("undone", names)}
}

// undoNote tells the model that the files changed.
func undoNote(verb string, names []string) string {
	const most = 20
	more := ""
	if n := len(names); n > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", n-most)
	}
	return fmt.Sprintf(
		"(I have %s edits of yours. Read these files again before you rely on what they hold: %s%s.)",
		verb,
		visible.Line(strings.Join(names, ", ")),
		more,
	)
}

// tell adds a note for the model to the next prompt.
func (e *edits) tell(note string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notes = append(e.notes, note)
}

// edit is the [tools.Env.Edit] of a conversation's tools.
func (v *conversation) edit(ctx context.Context, list []tools.FileEdit) (done func(error), err error) {
	call, _ := ctx.Value(callKey{}).(langserver.Invocation)
	diffs := diffsOf(list)
	asked, err := v.policy.Edit(ctx, v.cmd.workspace.Dir, list, diffs)
	if err != nil {
		return nil, err
	}
	v.edits.mu.Lock()
	at := v.edits.at
	v.edits.mu.Unlock()
	changes := changesOf(list, diffs)
	kept, err := v.checkpoints.Begin(ctx, at, changes)
	if err != nil {
		v.warnNoUndo(err.Error())
	}
	for i, c := range changes {
		if c.TooLarge {
			v.warnNoUndo(visible.Line(list[i].Name) + " is larger than 16 MiB")
		}
	}
	return func(err error) {
		if kept != nil {
			kept.Done(err)
		}
		if err == nil {
			v.edits.add(call.ConversationID+" "+call.CallID, callDiffs{diffs, asked})
		}
	}, nil
}

// warnNoUndo says that an edit can't be undone, and each reason once.
func (v *conversation) warnNoUndo(why string) {
	v.edits.mu.Lock()
	isNew := why != v.edits.warned
	v.edits.warned = why
	v.edits.mu.Unlock()
	if isNew {
		v.cmd.report(
			map[string]any{"type": "notice", "severity": "warning", "message": "this edit can't be undone: " + why},
			"lsclient: this edit can't be undone: %s",
			why,
		)
	}
}

// diffsOf compares the files before and after a call. Directories have no diff.
func diffsOf(list []tools.FileEdit) (diffs []diff.Diff) {
	for _, e := range list {
		switch {
		case e.Dir:
		case e.TooLarge:
			diffs = append(diffs, diff.Diff{Name: e.Name, Deleted: e.Now == nil,
				Note: "larger than 16 MiB before, so it is not compared and can't be undone"})
		default:
			diffs = append(diffs, diff.New(e.Name, e.Was, e.Now))
		}
	}
	return diffs
}

// changesOf returns the edits as checkpoints have them.
func changesOf(list []tools.FileEdit, diffs []diff.Diff) (changes []checkpoint.Change) {
	for _, e := range list {
		c := checkpoint.Change{Path: e.Path, Was: e.Was, Now: e.Now, Mode: e.Mode, Dir: e.Dir,
			TooLarge: e.TooLarge || e.Now != nil && len(*e.Now) > checkpoint.MaxFile}
		if !e.Dir {
			c.Added, c.Removed = diffs[0].Added, diffs[0].Removed
			diffs = diffs[1:]
		}
		changes = append(changes, c)
	}
	return changes
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
