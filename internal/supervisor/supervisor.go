// Package supervisor keeps the providers running that files name: it compares
// what the files want with what runs, starts, replaces and ends the difference,
// and starts again what ended by itself.
//
// What always holds: a provider whose file says what it said before is left
// alone; a file that can't be used leaves what it said before running; one that
// was changed is there before the one that it replaces goes, and a session never
// has tools of both; and nothing that was started here outlives [Supervisor.Close].
package supervisor

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/watch"
)

// Options of a [Supervisor].
type Options struct {
	Gateway *gateway.Gateway
	Files   configs.Files
	// TokenDir is where the tokens of providers that start themselves lie.
	TokenDir string
	// Launch runs the kinds of providers that this package doesn't.
	Launch map[string]Launcher
	// HTTPClient connects providers that run in this process; nil: the default.
	HTTPClient *http.Client
	Log        *slog.Logger
}

// Launcher runs a provider until ctx ends, and returns then; before that only
// with what went wrong.
type Launcher func(ctx context.Context, r Run) error

// Run is a provider to run.
type Run struct {
	Provider configs.Provider
	Workdir  string // from which its paths are seen
	URL      string
	Token    string
	Session  string                  // an id, or [providers.AllSessions]
	Client   *http.Client            // that connects, in this process; nil: the default
	Line     func(from, line string) // takes what it prints, and what is to be known of it
	// Faults takes what is wrong with the files that the provider is made of: all of
	// it, each time.
	Faults func([]configs.Fault)
	// Trouble takes what keeps it from being bound; it is a fault until it is bound.
	Trouble func(error)
}

// Supervisor runs providers.
type Supervisor struct {
	// Fixed once it is open.
	o           Options
	url         string
	launch      map[string]Launcher
	ctx         context.Context
	cancel      context.CancelFunc
	requests    chan func()
	rereadTimer *time.Timer    // reads the files again after a Reload
	wake        chan struct{}  // holds one: a unit is bound
	loop        sync.WaitGroup // the loop and what feeds it
	units       sync.WaitGroup // every goroutine of a unit
	isQuiesced  atomic.Bool    // nothing is started any more

	tokenLock sync.Mutex // held while a token file is written or removed

	readLock   sync.Mutex // one reads the files at a time
	lastListed []string   // those that were there; guarded by reading

	// The loop's.
	files          []configs.ProviderFile
	usable         map[string]configs.Provider // what a file said when it last could be used
	slots          map[slotKey]*slot
	stoppedByUser  map[string]bool // stopped by the user, by name
	outputs        map[string]*output
	reportedFaults []configs.Fault
}

// slotKey is what one unit is for: a provider, of the user ("") or of a project, in a
// session, or in all ("").
type slotKey struct{ name, project, session string }

func keyOf(p configs.Provider, session string) slotKey { return slotKey{p.Name, p.Project, session} }

// isFor reports whether a unit of the key runs what a file names.
func (k slotKey) isFor(p configs.Provider) bool { return k.name == p.Name && k.project == p.Project }

// slot is what runs for a key: now, and what is to take its place when it is
// bound.
type slot struct {
	now, next  *unit
	isOutgoing bool // nothing is wanted for the key: others are to take its place
}

// New makes a supervisor that runs nothing yet.
func New(o Options) *Supervisor {
	s := &Supervisor{o: o, launch: map[string]Launcher{configs.KindCommand: runCommand, configs.KindHTTP: runHTTP},
		requests: make(chan func()), wake: make(chan struct{}, 1),
		usable: map[string]configs.Provider{}, slots: map[slotKey]*slot{}, stoppedByUser: map[string]bool{}, outputs: map[string]*output{}}
	if s.o.Log == nil {
		s.o.Log = slog.New(slog.DiscardHandler)
	}
	s.launch[configs.KindConnect] = s.runConnect
	maps.Copy(s.launch, o.Launch)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Open starts what the files want and follows them, and the gateway's sessions,
// until Close. Providers connect at url. All but Quiesce and Close may be called
// from then on.
func (s *Supervisor) Open(url string) {
	s.url = url
	s.rereadTimer = time.AfterFunc(rereadDelay, s.reload)
	s.loop.Go(s.run)
	s.Reload()
	s.loop.Go(func() {
		watch.Changing(
			s.ctx, s.o.Files.ProviderDirs, func(i fs.FileInfo) bool { return configs.IsProviderFile(i.Name()) },
			func(watch.Snapshot) { s.reload() },
		)
	})
}

// Quiesce lets nothing start any more. What runs goes on until Close.
func (s *Supervisor) Quiesce() { s.isQuiesced.Store(true) }

// Close ends every provider and returns when they are gone. More than once does
// no harm.
func (s *Supervisor) Close() {
	if s.rereadTimer != nil {
		s.rereadTimer.Stop()
	}
	s.cancel()
	s.loop.Wait()
	s.units.Wait()
}

// run is the loop, which owns the state.
func (s *Supervisor) run() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case f := <-s.requests:
			f()
		case <-s.o.Gateway.SessionsChanged():
			s.reconcile()
		case <-s.wake:
			s.reconcile()
		}
	}
}

// do runs f in the loop; false when there is none any more.
func (s *Supervisor) do(f func()) bool {
	done := make(chan struct{})
	select {
	case s.requests <- func() { f(); close(done) }:
		<-done
		return true
	case <-s.ctx.Done():
		return false
	}
}

// rereadDelay is how long after a Reload the files are read once more: later than
// the watch tells of anything that was there then.
const rereadDelay = 3 * time.Second

// Reload reads the files and acts on them at once, and soon again: the watch
// compares with what it told itself, so a change that is undone before it has
// told of it, which Reload has seen, is none to it.
func (s *Supervisor) Reload() {
	s.reload()
	s.rereadTimer.Reset(rereadDelay)
}

func (s *Supervisor) reload() {
	if s.ctx.Err() != nil {
		return
	}
	s.readLock.Lock() // what was read first is to count first
	defer s.readLock.Unlock()
	files := s.read()
	s.do(func() {
		s.setFiles(files)
		s.reconcile()
		s.removeStaleTokens()
		s.reportFaults()
	})
}

// read reads the files. A listing of a directory can miss one that is being
// replaced just then, and nothing is to end by that. Call with reading held.
func (s *Supervisor) read() (files []configs.ProviderFile) {
	for range 5 {
		files = s.o.Files.Providers()
		found := make(map[string]bool, len(files))
		for _, f := range files {
			found[f.File] = true
		}
		missed := slices.ContainsFunc(s.lastListed, func(file string) bool {
			_, err := os.Stat(file)
			return !found[file] && err == nil
		})
		if !missed {
			break
		}
	}
	s.lastListed = s.lastListed[:0]
	for _, f := range files {
		s.lastListed = append(s.lastListed, f.File)
	}
	return files
}

// setFiles makes files those that count. Those of a directory that can't be read stay
// what they were, where the user trusts it.
func (s *Supervisor) setFiles(files []configs.ProviderFile) {
	for _, f := range files {
		if f.Name != "" || f.LeftOut {
			continue // a file, not a directory; or one whose files don't count
		}
		for _, old := range s.files {
			same := func(f configs.ProviderFile) bool { return f.Name == old.Name }
			if filepath.Dir(old.File) == f.File && !slices.ContainsFunc(files, same) {
				files = append(files, old)
			}
		}
	}
	s.files = files
	good := make(map[string]configs.Provider, len(files))
	for _, f := range files {
		if p, known := s.usable[f.File]; len(f.Faults) == 0 {
			good[f.File] = f.Provider
		} else if known && !f.LeftOut {
			good[f.File] = p
		}
	}
	s.usable = good
	for name := range s.outputs {
		if !s.isNamed(name) {
			s.outputs[name].end()
			delete(s.outputs, name)
			delete(s.stoppedByUser, name)
		}
	}
}

// isNamed reports whether a file names a provider.
func (s *Supervisor) isNamed(name string) bool {
	return slices.ContainsFunc(s.files, func(f configs.ProviderFile) bool { return f.Name == name && !f.LeftOut })
}

// enabledProviders are the providers that are to run, in the sessions that they are for.
func (s *Supervisor) enabledProviders() (list []configs.Provider) {
	for _, f := range s.files {
		if p, ok := s.usable[f.File]; ok && p.Enabled && !s.stoppedByUser[p.Name] && s.launch[p.Kind] != nil {
			list = append(list, p)
		}
	}
	return list
}

// reserveNames keeps their names for them: a session is not to find somebody else there
// who was faster, or came when one had given up.
func (s *Supervisor) reserveNames() {
	var names []gateway.ReservedName
	for _, p := range s.enabledProviders() {
		names = append(names, gateway.ReservedName{Name: p.ExpectedName(), Owner: ownerOf(p), Match: sessionFilter(p)})
	}
	s.o.Gateway.ReserveNames(names)
}

// desired is what should run in these sessions.
func (s *Supervisor) desired(sessions []adminapi.Session) map[slotKey]configs.Provider {
	want := map[slotKey]configs.Provider{}
	for _, p := range s.enabledProviders() {
		if p.Kind == configs.KindConnect || p.Sessions.Mode == configs.SessionsAll {
			want[keyOf(p, "")] = p
			continue
		}
		for _, v := range sessions {
			key := keyOf(p, v.ID)
			// One that ends keeps what it has, for what there is to clean up.
			if p.Sessions.Match(v.Label, v.CWD, v.Host) && (v.State != "ending" || s.slots[key] != nil) {
				want[key] = p
			}
		}
	}
	return want
}

// reconcile makes what runs what should run.
func (s *Supervisor) reconcile() {
	if s.isQuiesced.Load() {
		return
	}
	s.reserveNames()
	sessions := s.o.Gateway.Sessions()
	want := s.desired(sessions)
	s.updateProgramNames()
	for _, sl := range s.slots {
		if sl.next.isBound() {
			sl.now.retire()
			sl.now, sl.next = sl.next, nil
		}
	}
	// First what goes: another may have its tools from now on.
	for key, sl := range s.slots {
		if _, ok := want[key]; ok {
			sl.isOutgoing = false
			continue
		}
		sl.next.stop()
		sl.next = nil
		there := key.session == "" ||
			slices.ContainsFunc(sessions, func(v adminapi.Session) bool { return v.ID == key.session })
		switch {
		case s.stoppedByUser[key.name]:
			sl.now.stop()
		case there && s.needsSuccessor(key, sl, want):
			sl.isOutgoing = true
			continue
		default:
			sl.now.retire()
		}
		delete(s.slots, key)
	}
	for key, p := range want {
		if sl := s.slots[key]; sl != nil {
			s.updateSlot(key, sl, p)
		} else {
			s.slots[key] = &slot{now: s.start(p, key.session, s.outgoing(key))}
		}
	}
}

// overlaps reports whether two keys are of one provider and have a session in common.
func (k slotKey) overlaps(other slotKey) bool {
	return k.name == other.name && k.project == other.project &&
		(k.session == other.session || k.session == "" || other.session == "")
}

// needsSuccessor reports whether a slot that nothing is wanted for has to wait for what
// is to take its place.
func (s *Supervisor) needsSuccessor(key slotKey, sl *slot, want map[slotKey]configs.Provider) bool {
	if !sl.now.isBound() || sl.now.failure() != nil {
		return false
	}
	for k, p := range want {
		if !k.overlaps(key) || p.Kind == configs.KindConnect { // nobody knows whether that one comes
			continue
		}
		if heir := s.slots[k]; heir == nil || !heir.now.isBound() || heir.now.pass.IsReplaced() {
			return true
		}
	}
	return false
}

// outgoing are the units of other slots whose place one of this key is to take.
func (s *Supervisor) outgoing(key slotKey) (units []*unit) {
	for k, sl := range s.slots {
		if sl.isOutgoing && k.overlaps(key) {
			units = append(units, sl.now)
		}
	}
	return units
}

// updateSlot makes a slot run a version of its provider.
func (s *Supervisor) updateSlot(key slotKey, sl *slot, p configs.Provider) {
	switch yielded := sl.now.pass.IsReplaced(); {
	case !yielded && sameConfig(sl.now.spec, p) && (sl.next == nil || sl.now.failure() == nil):
		sl.next.stop()
		sl.next = nil
		if sl.now.pass.IsReplaced() { // to what was bound just before it was stopped
			s.wakeLoop()
		}
	case sl.next != nil && sameConfig(sl.next.spec, p):
	case p.Kind == configs.KindConnect || !sl.now.isBound() || sl.now.failure() != nil:
		// There is nothing to take over: its program finds the new token when the
		// old one ends, or it never came to anything, or gave up.
		sl.next.stop()
		sl.next = nil
		sl.now.retire()
		sl.now = s.start(p, key.session, s.outgoing(key))
	default:
		sl.next.stop()
		sl.next = s.start(p, key.session, append(s.outgoing(key), sl.now))
	}
}

// sameConfig reports whether two files say the same.
func sameConfig(a, b configs.Provider) bool {
	a.File, b.File = "", ""
	return reflect.DeepEqual(a, b)
}

// wakeLoop makes the loop look.
func (s *Supervisor) wakeLoop() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Supervisor) output(name string) *output {
	if s.outputs[name] == nil {
		s.outputs[name] = &output{log: s.o.Log.With("provider", name)}
	}
	return s.outputs[name]
}
