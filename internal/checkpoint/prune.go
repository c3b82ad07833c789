package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tapgw/internal/proc"
)

// limits bound what is kept.
type limits struct {
	age   time.Duration // of a conversation's last edit
	bytes int64         // of a workspace's checkpoints
}

var defaultLimits = limits{age: 30 * 24 * time.Hour, bytes: 256 << 20}

// prune removes what is too old or too much, at the first edit of a turn. It is done as far as it goes: the checkpoints
// that matter now do not depend on it. The caller has the lock.
func (w *Workspace) prune(at Place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pruned == at {
		return
	}
	w.pruned = at
	records, err := w.load()
	if err != nil {
		return
	}
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
	if len(kept) == len(records) {
		return
	}
	var journal bytes.Buffer
	for _, r := range kept {
		journal.Write(marshal(r))
	}
	if proc.WritePrivate(w.journal(), journal.Bytes()) != nil {
		return
	}
	refs := referenced(kept)
	for hash := range sizes {
		if !refs[hash] {
			_ = os.Remove(w.object(hash))
		}
	}
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
		return r.Conversation != "" && r.Conversation != current && last[r.Conversation].Before(than)
	})
}

// dropOldest returns the records without the turn of the oldest edit. If there is no edit, nothing is left.
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
