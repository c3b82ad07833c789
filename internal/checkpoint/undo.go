package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// This file undoes and redoes the edits of turns. It finds out from the journal which edits hold
// now.

// Turn is a turn with edits, for lists.
type Turn struct {
	Place
	At     time.Time // of its first edit
	Files  []File
	Undone bool
}

// File is a file that a turn edited. Added and Removed count the lines of all of its edits.
type File struct {
	Name           string // relative to the workspace if it lies there
	Created        bool
	Deleted        bool
	Added, Removed int
}

// Outcome is the result of an undo or redo.
type Outcome struct {
	Turns   []int    // that were undone or redone, ascending
	Changed []string // names of files that were brought back
	Dirs    []string // names of directories that were removed, or made again
	Left    []Left   // files that were left as they are
}

// Left is a file that an undo or redo did not change, and why: it was changed since, for example.
type Left struct {
	Name   string
	Reason string
}

// ErrNothing means that there is no turn to undo or redo.
var ErrNothing = errors.New("nothing is there to be undone or redone")

// history is the journal of one conversation, replayed.
type history struct {
	turns []*turn  // by number
	undos []record // that can be taken back
}

type turn struct {
	number int
	edits  []record
	undone bool
}

// replay makes a conversation's history from the records of a journal.
func replay(records []record, conversation string) *history {
	h := &history{}
	void := map[string]bool{}
	for _, r := range records {
		void[r.ID] = void[r.ID] || r.Type == typeVoid
	}
	for _, r := range records {
		if r.Conversation != conversation {
			continue
		}
		switch r.Type {
		case typeEdit:
			if void[r.ID] {
				continue
			}
			t := h.turn(r.Turn)
			t.edits = append(t.edits, r)
			t.undone = false
			h.undos = nil
		case typeUndo:
			h.mark(r.Turns, true)
			h.undos = append(h.undos, r)
		case typeRedo:
			h.mark(r.Turns, false)
			h.undos = h.undos[:max(0, len(h.undos)-1)]
		}
	}
	return h
}

// turn returns the turn of a number, which it adds if it is missing.
func (h *history) turn(number int) *turn {
	i, ok := slices.BinarySearchFunc(h.turns, number, func(t *turn, n int) int {
		return t.number - n
	})
	if !ok {
		h.turns = slices.Insert(h.turns, i, &turn{number: number})
	}
	return h.turns[i]
}

func (h *history) mark(turns []int, undone bool) {
	for _, t := range h.turns {
		if slices.Contains(turns, t.number) {
			t.undone = undone
		}
	}
}

// applied returns the turns from a number on that are not undone; 0 means the last of them alone.
func (h *history) applied(from int) (list []*turn) {
	for _, t := range h.turns {
		if !t.undone && t.number >= from {
			list = append(list, t)
		}
	}
	if from == 0 && len(list) > 0 {
		return list[len(list)-1:]
	}
	return list
}

// Conversations returns the conversations that have edited files of the workspace, that of the last
// edit first.
func (w *Workspace) Conversations() (ids []string, err error) {
	records, err := w.load()
	for _, r := range slices.Backward(records) {
		if r.Type == typeEdit && !slices.Contains(ids, r.Conversation) {
			ids = append(ids, r.Conversation)
		}
	}
	return ids, err
}

// Turns lists the turns of a conversation that edited files, oldest first.
func (w *Workspace) Turns(conversation string) ([]Turn, error) {
	records, err := w.load()
	if err != nil {
		return nil, err
	}
	var list []Turn
	for _, t := range replay(records, conversation).turns {
		item := Turn{Place: Place{conversation, t.number}, At: t.edits[0].At, Undone: t.undone}
		for _, path := range paths([]*turn{t}) {
			edits := editsOf([]*turn{t}, path)
			f := File{Name: w.name(path), Created: edits[0].Was == "" && !edits[0].Unknown,
				Deleted: edits[len(edits)-1].Now == ""}
			for _, e := range edits {
				f.Added += e.Added
				f.Removed += e.Removed
			}
			item.Files = append(item.Files, f)
		}
		list = append(list, item)
	}
	return list, nil
}

// paths returns the files that turns edited, in the order of their first edits.
func paths(turns []*turn) (list []string) {
	for _, t := range turns {
		for _, r := range t.edits {
			for _, f := range r.Files {
				if !slices.Contains(list, f.Path) {
					list = append(list, f.Path)
				}
			}
		}
	}
	return list
}

// editsOf returns the turns' edits of a file, in order.
func editsOf(turns []*turn, path string) (list []file) {
	for _, t := range turns {
		for _, r := range t.edits {
			for _, f := range r.Files {
				if f.Path == path {
					list = append(list, f)
				}
			}
		}
	}
	return list
}

// Undo brings files back to their content before a turn: the last one that is not undone, or all
// turns from the number from on if it is not 0. It leaves files with any content but the one that
// an edit wrote. The error is [ErrNothing] if there is no such turn. If no file could be brought
// back, the turns do not count as undone.
func (w *Workspace) Undo(ctx context.Context, conversation string, from int) (Outcome, error) {
	lock, err := w.lock(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer lock.Unlock()
	records, err := w.load()
	if err != nil {
		return Outcome{}, err
	}
	turns := replay(records, conversation).applied(from)
	if len(turns) == 0 {
		return Outcome{}, ErrNothing
	}
	r := record{Type: typeUndo, Conversation: conversation, At: time.Now().UTC()}
	var out Outcome
	for _, t := range turns {
		r.Turns = append(r.Turns, t.number)
		for _, e := range t.edits {
			r.Dirs = append(r.Dirs, e.Dirs...)
		}
	}
	done := 0 // files that are as they were, now or already before
	for _, path := range paths(turns) {
		m, reason := w.back(path, editsOf(turns, path))
		if m != nil && m.From != m.To {
			if err := w.move(*m); err != nil {
				m, reason = nil, err.Error()
			} else {
				r.Moves = append(r.Moves, *m)
				out.Changed = append(out.Changed, w.name(path))
			}
		}
		if m != nil {
			done++
		}
		if reason != "" {
			out.Left = append(out.Left, Left{w.name(path), reason})
		}
	}
	if done == 0 && len(out.Left) > 0 {
		return out, nil
	}
	out.Dirs = w.removeDirs(r.Dirs)
	out.Turns = r.Turns
	return out, w.append(r)
}

// back returns how to undo the edits of a file, as far as they follow each other: between two of
// them a person may have written other content, which must stay. m is nil if the file can't be
// changed at all. reason says which content was left.
func (w *Workspace) back(path string, edits []file) (m *move, reason string) {
	p, err := w.open(path)
	if err != nil {
		return nil, err.Error()
	}
	defer p.close()
	now, err := p.read()
	if err != nil {
		return nil, err.Error()
	}
	found, wasGone := false, false
	m = &move{Path: path, From: now.hash, To: now.hash}
	if now.info != nil {
		m.FromMode, m.ToMode = now.info.Mode(), now.info.Mode()
	}
	for _, e := range slices.Backward(edits) {
		switch {
		case e.Unknown && m.To == e.Now:
			return keepFound(m, found), "it was too large to be kept"
		case !e.Unknown && m.To == e.Now:
			wasGone = wasGone || m.To == "" || e.Was == ""
			m.To, found = e.Was, true
			if wasGone && m.To != "" { // else it has its mode all along, or one of the user's
				m.ToMode = e.Mode
			}
		case !e.Unknown && m.To == e.Was:
			found = true // the edit was never made, or is undone already
		case found:
			return m,
				"it holds what it held before the last of the edits; before that, somebody else " +
					"changed it"
		}
	}
	if !found {
		return nil, errChanged.Error()
	}
	return m, ""
}

func keepFound(m *move, found bool) *move {
	if !found {
		return nil
	}
	return m
}

// move brings a file from one content to another, and keeps the one that it replaces.
func (w *Workspace) move(m move) error {
	content, err := w.get(m.To)
	if err != nil {
		return fmt.Errorf("what it held before can't be read: %w", err)
	}
	p, err := w.open(m.Path)
	if err != nil {
		return err
	}
	defer p.close()
	now, err := p.read()
	switch {
	case err != nil:
		return err
	case now.hash == m.To:
		return nil
	case now.hash != m.From:
		return errChanged
	}
	if now.content != nil {
		if _, err := w.put(*now.content); err != nil {
			return fmt.Errorf("keeping what it holds: %w", err)
		}
	}
	mode := m.ToMode
	if now.info != nil && m.FromMode == m.ToMode {
		mode = now.info.Mode() // the user may have changed it
	}
	return p.replace(now, content, mode)
}

// removeDirs removes directories that edits have made, if they are empty, and returns their names.
func (w *Workspace) removeDirs(dirs []string) (names []string) {
	for _, dir := range slices.Backward(dirs) {
		if p, err := w.open(dir); err == nil {
			if info, err := p.root.Lstat(p.rel); err == nil && info.IsDir() &&
				p.checkParents() == nil {
				if p.root.Remove(p.rel) == nil {
					names = append(names, w.name(dir))
				}
			}
			p.close()
		}
	}
	return names
}

// Redo takes the last undo of a conversation back. A new edit of the conversation ends that chance.
// Files that were changed since the undo are left. The error is [ErrNothing] if there is no undo to
// take back.
func (w *Workspace) Redo(ctx context.Context, conversation string) (Outcome, error) {
	lock, err := w.lock(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer lock.Unlock()
	records, err := w.load()
	if err != nil {
		return Outcome{}, err
	}
	undos := replay(records, conversation).undos
	if len(undos) == 0 {
		return Outcome{}, ErrNothing
	}
	undo := undos[len(undos)-1]
	var out Outcome
	for _, dir := range undo.Dirs {
		if p, err := w.open(dir); err == nil {
			if p.checkParents() == nil && p.root.Mkdir(p.rel, 0o777) == nil {
				out.Dirs = append(out.Dirs, w.name(dir))
			}
			p.close()
		}
	}
	for _, m := range undo.Moves {
		if err := w.move(m.reversed()); err != nil {
			out.Left = append(out.Left, Left{w.name(m.Path), err.Error()})
			continue
		}
		out.Changed = append(out.Changed, w.name(m.Path))
	}
	if len(out.Changed) == 0 && len(out.Left) > 0 {
		w.removeDirs(undo.Dirs)
		return out, nil
	}
	out.Turns = undo.Turns
	return out, w.append(record{Type: typeRedo, Conversation: conversation, Turns: undo.Turns,
		At: time.Now().UTC()})
}

// Version is a file before a turn and now. Was and Now are nil if there is no file. Reason says why
// they are not known.
type Version struct {
	Name     string
	Was, Now *string
	Reason   string
}

// Since returns the files that turns edited, as they were before and as they are now: the last turn
// that is not undone, or all from a number on. The error is [ErrNothing] if there is no such turn.
func (w *Workspace) Since(conversation string, from int) ([]Version, error) {
	records, err := w.load()
	if err != nil {
		return nil, err
	}
	turns := replay(records, conversation).applied(from)
	if len(turns) == 0 {
		return nil, ErrNothing
	}
	var list []Version
	for _, path := range paths(turns) {
		v := Version{Name: w.name(path)}
		if err := w.versions(&v, path, editsOf(turns, path)[0]); err != nil {
			v.Reason = err.Error()
		}
		list = append(list, v)
	}
	return list, nil
}

func (w *Workspace) versions(v *Version, path string, first file) (err error) {
	if first.Unknown {
		return errors.New("it was too large to be kept")
	}
	if v.Was, err = w.get(first.Was); err != nil {
		return err
	}
	p, err := w.open(path)
	if err != nil {
		return err
	}
	defer p.close()
	now, err := p.read()
	v.Now = now.content
	return err
}
