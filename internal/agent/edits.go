package agent

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

// edits records the changes that the tools of a conversation make to files.
type edits struct {
	mu     sync.Mutex           // guards the fields that follow
	diffs  map[string]callDiffs // of calls that have not ended, by conversation and call
	at     checkpoint.Place     // the turn that runs
	notes  []string             // for the model, about edits that the user has undone
	warned string               // the last warning that an edit can't be undone
}

// callDiffs are the changes of a call.
type callDiffs struct {
	list []diff.Diff
	seen bool // the person has seen them in a question
}

// callKey is the key of the running call in the context of its tool.
type callKey struct{}

// beginTurn counts the turn that begins, and returns its prompt with notes for the model about
// undone edits.
func (v *Conversation) beginTurn(prompt string) string {
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
func (v *Conversation) undoneBefore() []string {
	if !v.kept.resumed {
		return nil
	}
	turns, err := v.checkpoints.Turns(v.kept.id)
	if err != nil {
		return nil // a later undo reports the error
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
		"(I have %s edits of yours. Read these files again before you rely on what "+
			"they hold: %s%s.)",
		verb,
		visible.Line(strings.Join(names, ", ")),
		more,
	)
}

// Undo undoes the edits of the turns from a number on, with 0 of the last turn with edits. The next
// prompt tells the model.
func (v *Conversation) Undo(ctx context.Context, from int) (checkpoint.Outcome, error) {
	out, err := v.checkpoints.Undo(ctx, v.kept.id, from)
	v.tell("undone", out, err)
	return out, err
}

// Redo reverses the last undo. The next prompt tells the model.
func (v *Conversation) Redo(ctx context.Context) (checkpoint.Outcome, error) {
	out, err := v.checkpoints.Redo(ctx, v.kept.id)
	v.tell("redone", out, err)
	return out, err
}

// EditsSince returns the files that the turns from a number on changed, with their content before
// and their content now. With 0 it returns the files of the last turn with edits.
func (v *Conversation) EditsSince(from int) ([]diff.Diff, error) {
	list, err := v.checkpoints.Since(v.kept.id, from)
	var diffs []diff.Diff
	for _, f := range list {
		if f.Reason != "" {
			diffs = append(diffs, diff.Diff{Name: f.Name, Note: f.Reason})
		} else {
			diffs = append(diffs, diff.New(f.Name, f.Was, f.Now))
		}
	}
	return diffs, err
}

// tell notes the files that an undo or redo changed for the next prompt.
func (v *Conversation) tell(verb string, out checkpoint.Outcome, err error) {
	if err == nil && len(out.Changed) > 0 {
		v.edits.mu.Lock()
		defer v.edits.mu.Unlock()
		v.edits.notes = append(v.edits.notes, undoNote(verb, out.Changed))
	}
}

// edit is the [tools.Env.Edit] of a conversation's tools.
func (v *Conversation) edit(
	ctx context.Context, list []tools.FileEdit,
) (done func(error), err error) {
	call, _ := ctx.Value(callKey{}).(langserver.Invocation)
	diffs, changes := compare(list)
	asked, err := v.Policy.Edit(ctx, v.Workspace.Dir, list, diffs)
	if err != nil {
		return nil, err
	}
	e := &v.edits
	e.mu.Lock()
	at := e.at
	e.mu.Unlock()
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
			e.mu.Lock()
			defer e.mu.Unlock()
			e.diffs[call.ConversationID+" "+call.CallID] = callDiffs{diffs, asked}
		}
	}, nil
}

// warnNoUndo says that an edit can't be undone, and each reason once.
func (v *Conversation) warnNoUndo(why string) {
	v.edits.mu.Lock()
	isNew := why != v.edits.warned
	v.edits.warned = why
	v.edits.mu.Unlock()
	if isNew {
		v.Show(NotUndoable{why})
	}
}

// compare returns the diffs of edits, and the edits in the form of checkpoints. Directories have no
// diff.
func compare(list []tools.FileEdit) (diffs []diff.Diff, changes []checkpoint.Change) {
	for _, e := range list {
		c := checkpoint.Change{Path: e.Path, Was: e.Was, Now: e.Now, Mode: e.Mode, Dir: e.Dir,
			TooLarge: e.TooLarge || e.Now != nil && len(*e.Now) > checkpoint.MaxFile}
		switch {
		case e.Dir:
		case e.TooLarge:
			diffs = append(diffs, diff.Diff{Name: e.Name, Deleted: e.Now == nil,
				Note: "larger than 16 MiB before, so it is not compared and can't be undone"})
		default:
			d := diff.New(e.Name, e.Was, e.Now)
			c.Added, c.Removed = d.Added, d.Removed
			diffs = append(diffs, d)
		}
		changes = append(changes, c)
	}
	return diffs, changes
}

// take removes and returns the changes of a call.
func (e *edits) take(call string) (diffs []diff.Diff, seen bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.diffs[call]
	delete(e.diffs, call)
	return c.list, c.seen
}
