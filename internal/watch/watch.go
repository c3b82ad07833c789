// Package watch reports when the files of directories have changed: once for a burst of changes,
// and only when their content differs from the last report. It handles the ways of editors and
// deployments: renames over files, symbolic links that are swapped, directories that are made,
// removed and replaced.
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
	// quietTime is how long the files must stay unchanged before they are read, so that no
	// half-written file is read.
	quietTime = 200 * time.Millisecond
	// maxWait is when the files are read even if changes go on, as in a directory with a log file.
	maxWait = 2 * time.Second
	// pollInterval is how often the files are read in any case. Network file systems, and the
	// renaming of a directory further up, cause no events.
	pollInterval = 10 * time.Second
	// pollOnlyInterval replaces pollInterval if the system can't watch all of them.
	pollOnlyInterval = time.Second
)

// maxHashed is the size in bytes of the largest file whose content is compared. For larger files,
// the size and the time of the last change are compared.
const maxHashed = 1 << 20

// Sum stands for the content and the permissions of a file.
type Sum [sha256.Size]byte

// Snapshot is the state of files at one time, by path. Compare two with maps.Equal.
type Snapshot map[string]Sum

// Dirs reports the files of directories at once and then after each change, until ctx ends. A
// directory may be made later. A file is an entry for which match is true, of the entry or of a
// link's target; subdirectories are not searched. For a file that is not regular only its kind is
// reported. Dirs calls changed for one report at a time; changes while it runs are reported after
// it returns.
func Dirs(
	ctx context.Context, dirs []string, match func(fs.FileInfo) bool, changed func(Snapshot),
) {
	w := newWatcher()
	defer w.close()
	reportChanges(ctx, w.poke, func() (Snapshot, time.Duration) {
		next := pollInterval
		if w.update(func() targets { return targetsOf(dirs, match) }) != nil {
			next = pollOnlyInterval
		}
		return Scan(dirs, match), next
	}, changed)
}

// Changing is [Dirs] for a list of directories that depends on their content: dirs is called again
// after each change.
func Changing(
	ctx context.Context, dirs func() []string, match func(fs.FileInfo) bool, changed func(Snapshot),
) {
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

// reportChanges reports the result of look: at once, and then each time that it differs, after a
// poke and a quiet time. look also returns the time of the next look that needs no poke.
func reportChanges(
	ctx context.Context, poke <-chan struct{}, look func() (Snapshot, time.Duration),
	changed func(Snapshot),
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

// waitQuiet waits for a poke and then until pokes have stopped for a while, or until again has
// passed. It returns false when ctx ends.
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

// Scan takes a snapshot of the files of directories for which match is true; see [Dirs].
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
