// Package supervisor runs the providers that provider files name. It compares the providers in the
// files with the running ones, starts, replaces and ends the difference, and restarts providers
// that end by themselves.
//
// Invariants:
//
//   - A provider whose file has not changed in content is left alone.
//   - A file with a fault leaves its last good version running.
//   - The new version of a changed provider is bound before the old one goes, and a session never
//     has the tools of both.
//   - Nothing that was started here outlives [Supervisor.Close].
package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/link"
	"tapgw/internal/watch"
)

// Options of a [Supervisor]. Gateway and Files are required.
type Options struct {
	Gateway *gateway.Gateway
	Files   configs.Files
	// Own are the gateway's own providers, which no file names. A user's file of the same name
	// takes the place of one, unless it has never been without a fault.
	Own []configs.Provider
	// TokenDir is the directory for the tokens of providers that start themselves (kind connect).
	TokenDir string
	// Launch has launchers, by kind, for the kinds of providers that this package does not run
	// itself.
	Launch map[string]Launcher
	// Dial connects providers that run in this process. nil: they connect to the gateway's URL.
	Dial link.Dial
	Log  *slog.Logger
	// Elsewhere returns the sessions of other gateways that a provider of a name may serve.
	// Providers run for at most MaxElsewhere of them, one for each session and file. If Elsewhere
	// is nil or MaxElsewhere is 0, providers run only for sessions here.
	Elsewhere    func(name string) []adminapi.Session
	MaxElsewhere int
}

// Launcher runs a provider until ctx ends, and then returns. A return before that means that the
// provider failed; the supervisor reports the error and starts the provider again after a pause. A
// provider of the SDK that runs with ctx connects to the gateway without a socket.
//
// A launcher whose provider needs no goroutine while it has nothing to do returns [ErrDetached] at
// once instead. It calls Run.Ended when the provider has ended.
type Launcher func(ctx context.Context, r *Run) error

// ErrDetached is the answer of a [Launcher] whose provider runs on after its return.
var ErrDetached = errors.New("the provider runs on")

// Run describes a provider process to a [Launcher]: its program, how it connects to the gateway,
// and the functions that take its output and its faults. The functions may be called from any
// goroutine.
type Run struct {
	Provider *configs.Provider // fixed
	Workdir  string            // the directory of its relative paths
	URL      string
	Token    string
	Session  string                  // an id, or [providers.AllSessions]
	Line     func(from, line string) // takes a line that it prints, or a message about it
	// Faults takes all present faults of the files that the provider consists of. It replaces the
	// earlier ones.
	Faults func([]configs.Fault)
	// Trouble takes the reason why the provider is not bound. It counts as a fault until the
	// provider is bound.
	Trouble func(error)
	// Away takes the reason why a provider in this process has lost its service, which its state
	// shows; nil when it is back. It counts as no fault.
	Away func(error)
	// Ended takes the error of a provider that was detached, in its launcher's place: once, and
	// from any goroutine.
	Ended func(error)
}

// Supervisor runs the providers of files. One goroutine, the loop, owns its state. The methods but
// Open, Quiesce and Close run in that loop and may be called from any goroutine while it is open.
type Supervisor struct {
	// Fixed after Open.
	o           Options
	url         string
	launch      map[string]Launcher
	ctx         context.Context
	unitCtx     context.Context // ends with ctx, and has Dial
	cancel      context.CancelFunc
	requests    chan func()
	rereadTimer *time.Timer // see rereadDelay
	// holds one item; a unit was bound, or the sessions elsewhere are others
	wake       chan struct{}
	starts     *rate.Limiter  // of providers for sessions elsewhere
	startTimer *time.Timer    // wakes the loop when another may be started
	loop       sync.WaitGroup // the loop and the watch of the files
	units      sync.WaitGroup // every unit, and every goroutine of one
	isQuiesced atomic.Bool    // no unit is started any more

	tokenLock sync.Mutex // held while a token file is written or removed

	readLock   sync.Mutex // held while the files are read
	lastListed []string   // the files at the last reading; guarded by readLock

	// Owned by the loop.
	files          []configs.ProviderFile
	usable         map[fileKey]*configs.Provider // the last version without a fault
	placements     map[placementKey]*placement
	stoppedByUser  map[string]bool // by name
	outputs        map[string]*output
	expected       []*configs.Provider // as the gateway was told last
	reportedFaults []configs.Fault
	// isFullElsewhere says that more sessions of other gateways want a provider than may have one.
	isFullElsewhere bool
}

// placementKey identifies the work of one unit: a provider, of the user (project "") or of a
// project, for one session or for all (session ""). at is the gateway that has the session, "" for
// this one.
type placementKey struct{ name, project, session, at string }

func keyOf(p *configs.Provider, session string) placementKey {
	return placementKey{name: p.Name, project: p.Project, session: session}
}

// isFor reports whether the key belongs to the provider of a file.
func (k placementKey) isFor(p *configs.Provider) bool {
	return k.name == p.Name && k.project == p.Project
}

// fileKey identifies the declaration of one provider in a file: a tap.config.json has several.
type fileKey struct{ file, name string }

func fileKeyOf(f configs.ProviderFile) fileKey { return fileKey{f.File, f.Name} }

// placement holds the unit that runs for a key, and the one that replaces it as soon as it is
// bound.
type placement struct {
	now, next *unit // next is nil unless a new version is starting
	restarts  bool  // next is of the same version as now
	// the key is not wanted any more, and units of other keys will replace this one
	isOutgoing bool
}

// New returns a supervisor that runs nothing yet. Call [Supervisor.Open] when the gateway accepts
// connections.
func New(o Options) *Supervisor {
	s := &Supervisor{o: o, launch: map[string]Launcher{configs.KindCommand: runCommand,
		configs.KindHTTP: runHTTP},
		requests: make(chan func()), wake: make(chan struct{}, 1),
		usable: map[fileKey]*configs.Provider{}, placements: map[placementKey]*placement{},
		stoppedByUser: map[string]bool{}, outputs: map[string]*output{},
		starts: rate.NewLimiter(1, o.MaxElsewhere)}
	if s.o.Log == nil {
		s.o.Log = slog.New(slog.DiscardHandler)
	}
	s.launch[configs.KindConnect] = s.runConnect
	maps.Copy(s.launch, o.Launch)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.unitCtx = link.WithDial(s.ctx, s.o.Dial)
	return s
}

// Open starts the providers that the files want, and follows the files and the gateway's sessions
// until [Supervisor.Close]. Providers connect to url. Only Quiesce and Close may be called before
// Open.
func (s *Supervisor) Open(url string) {
	s.url = url
	s.rereadTimer = time.AfterFunc(rereadDelay, s.reload)
	if s.o.MaxElsewhere > 0 {
		s.startTimer = time.AfterFunc(startAgain, s.wakeLoop)
	}
	s.loop.Go(s.run)
	s.Reload()
	s.loop.Go(func() {
		watch.Changing(
			s.ctx, s.o.Files.ProviderDirs, func(i fs.FileInfo) bool {
				return configs.IsProviderFile(i.Name())
			},
			func(watch.Snapshot) { s.reload() },
		)
	})
}

// Quiesce keeps new units from being started. Running ones continue until [Supervisor.Close].
func (s *Supervisor) Quiesce() { s.isQuiesced.Store(true) }

// Close stops every provider and returns after they have ended. Further calls do nothing.
func (s *Supervisor) Close() {
	if s.rereadTimer != nil {
		s.rereadTimer.Stop()
	}
	if s.startTimer != nil {
		s.startTimer.Stop()
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

// do runs f in the loop. It returns false if the loop has ended.
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

// rereadDelay is how long after a Reload the files are read once more. It is longer than the watch
// needs to report a change that was there at the Reload.
const rereadDelay = 3 * time.Second

// Reload reads the files and applies them at once, and again after rereadDelay. The watch reports
// only differences from its last report. So it would miss a change that Reload applied and that was
// undone before the watch saw it.
func (s *Supervisor) Reload() {
	s.reload()
	s.rereadTimer.Reset(rereadDelay)
}

func (s *Supervisor) reload() {
	if s.ctx.Err() != nil {
		return
	}
	s.readLock.Lock() // files are applied in the order in which they were read
	defer s.readLock.Unlock()
	files := s.read()
	s.do(func() {
		s.setFiles(files)
		s.reconcile()
		s.removeStaleTokens()
		s.reportFaults()
	})
}

// read reads the files. The listing of a directory can miss a file that is being replaced at that
// moment, and no provider may end because of that. Call it with readLock held.
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

// setFiles makes files the current ones. The files of a directory that can't be read stay as they
// were, if the user trusts the directory.
func (s *Supervisor) setFiles(files []configs.ProviderFile) {
	for _, f := range files {
		if f.Name != "" || f.LeftOut {
			continue // a file, or a directory that the user does not trust
		}
		for _, old := range s.files {
			same := func(f configs.ProviderFile) bool { return f.Name == old.Name }
			if filepath.Dir(old.File) == f.File && !slices.ContainsFunc(files, same) {
				files = append(files, old)
			}
		}
	}
	for _, p := range s.o.Own {
		// A project must not take away a provider that all sessions get from the gateway.
		isOfUser := func(f configs.ProviderFile) bool {
			_, isKnown := s.usable[fileKeyOf(f)]
			return f.Name == p.Name && f.Provider.Project == "" && !f.LeftOut &&
				(len(f.Faults) == 0 || isKnown)
		}
		if !slices.ContainsFunc(files, isOfUser) {
			files = append(files, configs.ProviderFile{Name: p.Name, File: p.File, Provider: &p})
		}
	}
	for i, f := range files { // share the unchanged files
		if p := s.usable[fileKeyOf(f)]; p != nil && sameConfig(p, f.Provider) {
			files[i].Provider = p
		}
	}
	s.files = files
	good := make(map[fileKey]*configs.Provider, len(files))
	for _, f := range files {
		if p, known := s.usable[fileKeyOf(f)]; len(f.Faults) == 0 {
			good[fileKeyOf(f)] = f.Provider
		} else if known && !f.LeftOut {
			good[fileKeyOf(f)] = p
		}
	}
	s.usable = good
	s.dropOutputs()
}

// dropOutputs drops the lines of providers that no file names any more.
func (s *Supervisor) dropOutputs() {
	for name, o := range s.outputs {
		if o.users == 0 && !s.isNamed(name) {
			o.end()
			delete(s.outputs, name)
			delete(s.stoppedByUser, name)
		}
	}
}

// Output keeps lines under a name that no file has, for [Supervisor.Lines], until done is called.
// Those who use one name share its lines. done must be called once.
func (s *Supervisor) Output(name string) (line func(from, line string), done func()) {
	o := &output{base: s.o.Log, name: name} // of a supervisor that is closed
	s.do(func() {
		o = s.output(name)
		o.users++
	})
	return o.line, func() {
		s.do(func() {
			o.users--
			s.dropOutputs()
		})
	}
}

// isNamed reports whether a file names a provider.
func (s *Supervisor) isNamed(name string) bool {
	return slices.ContainsFunc(s.files, func(f configs.ProviderFile) bool {
		return f.Name == name && !f.LeftOut
	})
}

// enabledProviders returns the providers that should run in the sessions that they match.
func (s *Supervisor) enabledProviders() (list []*configs.Provider) {
	for _, f := range s.files {
		if p, ok := s.usable[fileKeyOf(f)]; ok && p.Enabled && !s.stoppedByUser[p.Name] &&
			s.launch[p.Kind] != nil {
			list = append(list, p)
		}
	}
	return list
}

// reserveNames reserves the providers' names at the gateway, so that no other program takes a name
// while its provider is not connected.
func (s *Supervisor) reserveNames() {
	var names []gateway.ReservedName
	for _, p := range s.enabledProviders() {
		names = append(names, gateway.ReservedName{Name: p.ExpectedName(), Owner: ownerOf(p),
			Match: sessionFilter(p)})
	}
	s.o.Gateway.ReserveNames(names)
}

// desired returns the providers that should run in these sessions.
func (s *Supervisor) desired(sessions []adminapi.Session) map[placementKey]*configs.Provider {
	want := map[placementKey]*configs.Provider{}
	for _, p := range s.enabledProviders() {
		if p.StartsItself() || p.Sessions.Mode == configs.SessionsAll {
			want[keyOf(p, "")] = p
			continue
		}
		for _, v := range sessions {
			key := keyOf(p, v.ID)
			// A session that ends keeps its providers, which may have to clean up.
			if p.Sessions.Match(v.Label, v.CWD, v.Host) &&
				(v.State != "ending" || s.placements[key] != nil) {
				want[key] = p
			}
		}
	}
	return want
}

// reconcile makes the running providers equal to the desired ones.
func (s *Supervisor) reconcile() {
	if s.isQuiesced.Load() {
		return
	}
	s.reserveNames()
	s.expectProviders()
	sessions := s.o.Gateway.Sessions()
	want := s.desired(sessions)
	s.addElsewhere(want)
	s.updateProgramNames()
	for _, pl := range s.placements {
		if pl.next.isBound() {
			pl.now.retire()
			pl.now, pl.next, pl.restarts = pl.next, nil, false
		}
	}
	// First end unwanted providers, because another provider may have their tools.
	for key, pl := range s.placements {
		if _, ok := want[key]; ok {
			pl.isOutgoing = false
			continue
		}
		pl.next.stop()
		pl.next = nil
		there := key.session == "" ||
			slices.ContainsFunc(sessions, func(v adminapi.Session) bool {
				return v.ID == key.session
			})
		switch {
		case s.stoppedByUser[key.name]:
			pl.now.stop()
		case there && s.needsSuccessor(key, pl, want):
			pl.isOutgoing = true
			continue
		default:
			pl.now.retire()
		}
		delete(s.placements, key)
	}
	for key, p := range want {
		if pl := s.placements[key]; pl != nil {
			s.updatePlacement(key, pl, p)
		} else {
			s.placements[key] = &placement{now: s.start(p, key, s.outgoing(key))}
		}
	}
}

// overlaps reports whether two keys belong to one provider and have a session in common.
func (k placementKey) overlaps(other placementKey) bool {
	return k.name == other.name && k.project == other.project && k.at == other.at &&
		(k.session == other.session || k.session == "" || other.session == "")
}

// needsSuccessor reports whether a placement that is no longer wanted has to wait until another
// placement of its provider is bound.
func (s *Supervisor) needsSuccessor(
	key placementKey, pl *placement, want map[placementKey]*configs.Provider,
) bool {
	if !pl.now.isBound() || pl.now.failure() != nil {
		return false
	}
	for k, p := range want {
		if !k.overlaps(key) || p.StartsItself() || losesGrant(pl.now.spec, p) {
			continue // its program may never connect, and lost rights end at once
		}
		if heir := s.placements[k]; heir == nil || !heir.now.isBound() ||
			heir.now.pass.IsReplaced() {
			return true
		}
	}
	return false
}

// outgoing returns the units of other placements that a unit of this key replaces.
func (s *Supervisor) outgoing(key placementKey) (units []*unit) {
	for k, pl := range s.placements {
		if pl.isOutgoing && k.overlaps(key) {
			units = append(units, pl.now)
		}
	}
	return units
}

// updatePlacement makes a placement run a version of its provider.
func (s *Supervisor) updatePlacement(key placementKey, pl *placement, p *configs.Provider) {
	switch isReplaced := pl.now.pass.IsReplaced(); {
	case pl.restarts && pl.next != nil && sameConfig(pl.next.spec, p):
	case !isReplaced && sameConfig(pl.now.spec, p) && (pl.next == nil || pl.now.failure() == nil):
		pl.next.stop()
		pl.next = nil
		// The next unit may have been bound between the look and its stop. It has taken
		// over then, and nothing runs: the loop starts the unit anew.
		if pl.now.pass.IsReplaced() {
			s.wakeLoop()
		}
	case pl.next != nil && sameConfig(pl.next.spec, p):
	case key.at != "":
		// The other gateway would refuse the new one's tools while it has the old one's.
		pl.now.stop()
		pl.now = s.start(p, key, nil)
	case p.StartsItself() || !pl.now.isBound() || pl.now.failure() != nil ||
		losesGrant(pl.now.spec, p):
		// The old process serves no session: it waits for a new token, was never bound, or gave up.
		// Ending it also ends rights that the file no longer grants at once, whether or not the new
		// version is ever bound.
		pl.next.stop()
		pl.next = nil
		pl.now.retire()
		pl.now = s.start(p, key, s.outgoing(key))
	default:
		pl.next.stop()
		pl.next = s.start(p, key, append(s.outgoing(key), pl.now))
	}
}

// losesGrant reports whether a provider's new version has fewer rights than its old one.
func losesGrant(before, now *configs.Provider) bool {
	return slices.ContainsFunc(before.Grants, func(grant string) bool {
		return !slices.Contains(now.Grants, grant)
	})
}

// sameConfig reports whether two files have the same content, whatever their paths.
func sameConfig(a, b *configs.Provider) bool {
	if a == b {
		return true
	}
	c, d := *a, *b
	c.File, d.File = "", ""
	return reflect.DeepEqual(c, d)
}

// wakeLoop makes the loop reconcile.
func (s *Supervisor) wakeLoop() { chans.Wake(s.wake) }

func (s *Supervisor) output(name string) *output {
	if s.outputs[name] == nil {
		s.outputs[name] = &output{base: s.o.Log, name: name}
	}
	return s.outputs[name]
}
