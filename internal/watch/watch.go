// Package watch tells when the files of directories have changed: once for a
// burst of changes, and only when their content differs from what was told last.
// It follows what editors and deployments do to files: renames over them,
// symbolic links that are swapped, directories that come, go and are replaced.
package watch

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// quietTime is for how long nothing must change before it is looked at: a file that
	// is being written is not read in the middle.
	quietTime = 200 * time.Millisecond
	// maxWait is when it is looked at even so: something always changes in a
	// directory with a log in it.
	maxWait = 2 * time.Second
	// pollInterval is how often it is looked at in any case: network file systems tell
	// nothing, and neither does the renaming of a directory further up.
	pollInterval = 10 * time.Second
	// pollOnlyInterval is that where the system has no more watches to give.
	pollOnlyInterval = time.Second
)

// maxHashed is the size of the largest file whose content is read. Of larger ones
// the size and the time of the last change stand for it.
const maxHashed = 1 << 20

// Sum stands for the content and the permissions of a file.
type Sum [sha256.Size]byte

// Snapshot is how files were at one time, by path. Compare with maps.Equal.
type Snapshot map[string]Sum

// Dirs tells how the files of directories are, at once and then after each
// change, until ctx ends. A directory may come later. Files are those that match,
// or are links to what does, not in subdirectories; of one that is not regular the
// kind is told, and nothing is read. changed is never called twice at a time, and
// what happens while it runs is told after it.
func Dirs(ctx context.Context, dirs []string, match func(fs.FileInfo) bool, changed func(Snapshot)) {
	w := newWatcher()
	defer w.close()
	reportChanges(ctx, w.poke, func() (Snapshot, time.Duration) {
		// Watch first, look second: what changes in between pokes again.
		live := w.update(dirs, match)
		if live {
			return Scan(dirs, match), pollInterval
		}
		return Scan(dirs, match), pollOnlyInterval
	}, changed)
}

// Changing is [Dirs] for directories that change with what is in them: dirs is asked
// again after each change.
func Changing(ctx context.Context, dirs func() []string, match func(fs.FileInfo) bool, changed func(Snapshot)) {
	for ctx.Err() == nil {
		now := dirs()
		round, end := context.WithCancel(ctx)
		Dirs(round, now, match, func(s Snapshot) {
			changed(s)
			if !slices.Equal(dirs(), now) {
				end()
			}
		})
		end()
	}
}

// reportChanges tells what look sees, first at once and then each time when it has
// settled after a poke and is not what was told last. look says when to look again
// without a poke.
func reportChanges(
	ctx context.Context, poke <-chan struct{}, look func() (Snapshot, time.Duration), changed func(Snapshot),
) {
	last, next := look()
	changed(last)
	for waitQuiet(ctx, poke, next) {
		var now Snapshot
		if now, next = look(); !maps.Equal(now, last) {
			last = now
			changed(now)
		}
	}
}

// waitQuiet waits for a poke and then until none has come for a while, or for again;
// false when ctx ends.
func waitQuiet(ctx context.Context, poke <-chan struct{}, next time.Duration) bool {
	timer := time.NewTimer(next)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-poke:
	}
	end := time.Now().Add(maxWait)
	for {
		timer.Reset(min(quietTime, time.Until(end)))
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-poke:
		}
	}
}

// Scan takes a snapshot of the files of directories that match; see [Dirs].
func Scan(dirs []string, match func(fs.FileInfo) bool) Snapshot {
	s := Snapshot{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if info, err := os.Stat(path); err == nil && match(info) {
				s[path] = sumFile(path, info)
			}
		}
	}
	return s
}

func sumFile(path string, info fs.FileInfo) (s Sum) {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, uint32(info.Mode()&(fs.ModeType|fs.ModePerm)))
	if !info.Mode().IsRegular() {
		h.Write([]byte("not regular"))
	} else if info.Size() > maxHashed {
		_ = binary.Write(h, binary.BigEndian, [2]int64{info.Size(), info.ModTime().UnixNano()})
	} else if data, err := os.ReadFile(path); err == nil {
		h.Write(data)
	} else {
		h.Write([]byte(err.Error()))
	}
	h.Sum(s[:0])
	return s
}
