package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tapgw/internal/proc"
)

// This file removes checkpoints that are too old or take too much room.

// limits bound the kept checkpoints.
type limits struct {
	age   time.Duration // of a conversation's last edit
	bytes int64         // of a workspace's checkpoints
}

var defaultLimits = limits{age: 30 * 24 * time.Hour, bytes: 256 << 20}

// prune removes checkpoints beyond the limits, at the first edit of a turn. It stops at the first
// failure without harm: the checkpoints that matter now do not depend on it. The error is that of a
// journal that can't be read. The caller has the lock.
func (w *Workspace) prune(at Place) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pruned == at {
		return nil
	}
	records, err := w.load()
	if err != nil {
		return err
	}
	w.pruned = at
	w.pruneOthers()
	kept := dropOld(records, time.Now().Add(-w.limits.age), at.Conversation)
	sizes, total := w.sizes()
	for total > w.limits.bytes && len(kept) > 0 {
		kept = dropOldest(kept)
		total = 0
		for hash := range referenced(kept) {
			total += sizes[hash]
		}
	}
	if len(kept) < len(records) {
		_ = w.rewrite(kept)
	}
	return nil
}

// rewrite makes these the journal's lines, and removes the contents that no line names. The caller
// has the lock.
func (w *Workspace) rewrite(records []record) error {
	var journal bytes.Buffer
	for _, r := range records {
		journal.Write(marshal(r))
	}
	if err := proc.WritePrivate(w.journal(), journal.Bytes()); err != nil {
		return err
	}
	refs := referenced(records)
	sizes, _ := w.sizes()
	for hash := range sizes {
		if !refs[hash] {
			_ = os.Remove(w.object(hash))
		}
	}
	return nil
}

// Forget removes the checkpoints of a conversation, in all workspaces of a store. Its edits can't
// be undone any more. The error names a journal that can't be read or written.
func Forget(ctx context.Context, store, conversation string) error {
	entries, err := os.ReadDir(store)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		w := &Workspace{dir: filepath.Join(store, e.Name())}
		err = errors.Join(err, w.forget(ctx, conversation))
	}
	return err
}

func (w *Workspace) forget(ctx context.Context, conversation string) error {
	lock, err := w.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	records, err := w.load()
	if err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(records), func(r record) bool {
		return r.Conversation == conversation
	})
	if len(kept) == len(records) {
		return nil
	}
	return w.rewrite(kept)
}

// dropOld returns the records without the conversations whose last edit is older than a time.
func dropOld(records []record, than time.Time, current string) []record {
	last := map[string]time.Time{}
	for _, r := range records {
		if r.At.After(last[r.Conversation]) {
			last[r.Conversation] = r.At
		}
	}
	return slices.DeleteFunc(slices.Clone(records), func(r record) bool {
		return r.Conversation != "" && r.Conversation != current &&
			last[r.Conversation].Before(than)
	})
}

// dropOldest returns the records without the turn of the oldest edit. If there is no edit, nothing
// is left.
func dropOldest(records []record) []record {
	i := slices.IndexFunc(records, func(r record) bool { return r.Type == typeEdit })
	if i < 0 {
		return nil
	}
	oldest := records[i]
	return slices.DeleteFunc(slices.Clone(records), func(r record) bool {
		return r.Conversation == oldest.Conversation &&
			(r.Type == typeEdit && r.Turn == oldest.Turn || slices.Contains(r.Turns, oldest.Turn))
	})
}

// referenced returns the hashes that records name.
func referenced(records []record) map[string]bool {
	refs := map[string]bool{}
	for _, r := range records {
		for _, f := range r.Files {
			refs[f.Was], refs[f.Now] = true, true
		}
		for _, m := range r.Moves {
			refs[m.From], refs[m.To] = true, true
		}
	}
	return refs
}

// sizes returns the sizes of the kept contents.
func (w *Workspace) sizes() (sizes map[string]int64, total int64) {
	sizes = map[string]int64{}
	entries, _ := os.ReadDir(filepath.Dir(w.object("x")))
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			sizes[e.Name()] = info.Size()
			total += info.Size()
		}
	}
	return sizes, total
}

// pruneOthers removes the checkpoints of workspaces in which nothing was edited for long.
func (w *Workspace) pruneOthers() {
	store := filepath.Dir(w.dir)
	entries, _ := os.ReadDir(store)
	for _, e := range entries {
		dir := filepath.Join(store, e.Name())
		info, err := os.Stat(filepath.Join(dir, "journal.jsonl"))
		if dir == w.dir || err != nil || time.Since(info.ModTime()) < w.limits.age {
			continue
		}
		if lock, err := proc.TryLock(filepath.Join(dir, "lock")); err == nil && lock != nil {
			_ = os.RemoveAll(dir)
			lock.Unlock()
		}
	}
}
