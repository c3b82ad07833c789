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

// Follower reads config files again when they change, and makes a program apply them. A file with
// faults leaves the settings as they are. Set the fields before use. Follower calls Load, Apply and
// Report under its lock, so they must not call its methods.
type Follower[C any] struct {
	// Load reads the files. Notes are faults that don't keep the files from being used,
	// such as a key that takes effect at the next start.
	Load func() (c C, notes Faults, err error)
	// Apply makes the program use new settings.
	Apply func(old, current C)
	// Report is called once for each new fault; isNote is true for a note of Load.
	Report func(f Fault, isNote bool)
	// FaultsChanged is called when Faults has changed, without the lock: it may call Faults. It may
	// be nil.
	FaultsChanged func()
	// Current are the settings in use, at first the settings of the program's start.
	Current C

	// held while files are read and applied; guards Current and the fields that follow
	mu     sync.Mutex
	faults Faults
	reread *time.Timer // set while Follow runs
}

// rereadDelay is the time after a Reload at which the files are read once more. The watch
// reports within this time each change that came before the Reload.
const rereadDelay = 3 * time.Second

// Follow reads the files again when a file changes that is in one of dirs and that match accepts,
// until ctx ends; the caller's goroutine does it. It calls dirs again after each change.
func (f *Follower[C]) Follow(
	ctx context.Context, dirs func() []string, match func(name string) bool,
) {
	f.mu.Lock()
	f.reread = time.AfterFunc(rereadDelay, f.read)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.reread.Stop()
		f.reread = nil
	}()
	watch.Changing(ctx, dirs, func(i fs.FileInfo) bool {
		return match(i.Name())
	}, func(watch.Snapshot) { f.read() })
}

// Reload reads the files now, and once more soon. The second reading finds a change that was undone
// after the first one and before the watch looked at the files.
func (f *Follower[C]) Reload() {
	f.read()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reread != nil {
		f.reread.Reset(rereadDelay)
	}
}

func (f *Follower[C]) read() {
	if f.apply() && f.FaultsChanged != nil {
		f.FaultsChanged()
	}
}

// apply reads the files and makes the program use them. It reports whether the faults are others
// than before.
func (f *Follower[C]) apply() (faultsChanged bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	loaded, faults, err := f.Load()
	if err != nil {
		var ok bool
		if faults, ok = errors.AsType[Faults](err); !ok {
			faults = Faults{{Line: 1, Column: 1, Message: err.Error()}}
		}
	}
	for _, fault := range faults {
		if !slices.Contains(f.faults, fault) {
			f.Report(fault, err == nil)
		}
	}
	faultsChanged = !slices.Equal(f.faults, faults)
	f.faults = faults
	if err == nil && !reflect.DeepEqual(loaded, f.Current) {
		f.Apply(f.Current, loaded)
		f.Current = loaded
	}
	return faultsChanged
}

// Faults returns a copy of the faults and notes of the last time that the files were read. Any
// goroutine may call it.
func (f *Follower[C]) Faults() Faults {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.faults)
}
