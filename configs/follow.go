package configs

import (
	"context"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"sync"
	"time"

	"tapgw/internal/watch"
)

// Follower keeps a program by what its config files say while they change. Files
// that can't be used leave what they said before. Set its fields before use.
type Follower[C any] struct {
	// Load reads the files. Notes are what is to be known of files that can be
	// used: what of them counts at the program's start only, what is left out.
	Load func() (c C, notes Faults, err error)
	// Apply makes the program go by what they say now.
	Apply func(old, now C)
	// Tell is told once of each fault and each note: good says which.
	Tell func(f Fault, good bool)
	// Told is called when Faults has changed; nil: nobody looks.
	Told func()
	// Now is what the files said at start.
	Now C

	mu     sync.Mutex // held while files are read and applied; guards Now and the fields that follow
	faults Faults
	again  *time.Timer
}

// readAgain is how long after a Reload the files are read once more: later than
// the watch tells of anything that was there then.
const readAgain = 3 * time.Second

// Follow reads the files again when those of directories that match have changed,
// until ctx ends. dirs is asked again after each change.
func (f *Follower[C]) Follow(ctx context.Context, dirs func() []string, match func(name string) bool) {
	f.mu.Lock()
	f.again = time.AfterFunc(readAgain, f.read)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.again.Stop()
		f.again = nil
	}()
	watch.Changing(ctx, dirs, func(i fs.FileInfo) bool { return match(i.Name()) }, func(watch.Snapshot) { f.read() })
}

// Reload reads the files now, and soon again: the watch compares with what it told
// itself, so a change that is undone before it has told of it is none to it.
func (f *Follower[C]) Reload() {
	f.read()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.again != nil {
		f.again.Reset(readAgain)
	}
}

func (f *Follower[C]) read() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, faults, err := f.Load()
	if err != nil {
		var ok bool
		if faults, ok = errors.AsType[Faults](err); !ok {
			faults = Faults{{Line: 1, Column: 1, Message: err.Error()}}
		}
	}
	for _, fault := range faults {
		if !slices.Contains(f.faults, fault) {
			f.Tell(fault, err == nil)
		}
	}
	if !slices.Equal(f.faults, faults) && f.Told != nil {
		defer f.Told()
	}
	f.faults = faults
	if err == nil && !reflect.DeepEqual(now, f.Now) {
		f.Apply(f.Now, now)
		f.Now = now
	}
}

// Faults are what is wrong with the files, and what is to be known of them.
func (f *Follower[C]) Faults() Faults {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.faults)
}
