package copilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"tapgw/configs"
	"tapgw/internal/gateway"
)

// Kind is the host kind of the sessions that a [Runtime] starts.
const Kind = "copilot"

// DefaultMaxRounds is how many rounds of model and tools a turn may take unless max_rounds says
// otherwise.
const DefaultMaxRounds = 200

// Options configure a [Runtime]. The zero value is usable: it finds the runtime, uses GitHub's
// models as the user is signed in, and gives a session the permissions of
// [configs.Permissions.WithDefaults].
type Options struct {
	CLI         string   // the runtime's program; "": see [Find]
	Home        string   // COPILOT_HOME of the runtime; "": as inherited
	ProviderURL string   // the user's own model endpoint; "": GitHub's models
	ProviderKey string   // the key of ProviderURL
	Models      []string // the models of ProviderURL; empty: those that it lists
	MaxRounds   int      // 0: DefaultMaxRounds
	GitHubHost  string   // "": github.com
	// of sessions that name no profile; zero: [configs.DefaultProfile]
	Profile     configs.Profile
	Profiles    map[string]configs.Profile // by name
	Permissions configs.Permissions        // of sessions; an empty kind means its default
	// MaxTurnTime is how long a turn may take. 0: [DefaultMaxTurnTime].
	MaxTurnTime time.Duration
	// AnswerTimeout is how long a question waits for a person. 0: the gateway's default.
	AnswerTimeout time.Duration
	AskUser       bool // the model and MCP servers may ask a person
	// ToolThreshold is how many tools of providers a session may have until its model searches
	// them; nil: no limit. It holds for all sessions of the runtime, also for those that run.
	ToolThreshold *int
	// At returns the options for sessions in a directory, where a project's config changes them;
	// nil: these options. An error keeps sessions from starting there.
	At func(dir string) (*Options, error)
	// Trusts reports whether a directory is a project whose files are all as the user trusted them.
	// nil: no directory is.
	Trusts func(dir string) bool
	// ProjectHooks returns the hooks of the trusted project that a directory is in, and for people
	// the reasons why some of them are not asked. nil: projects have no hooks.
	ProjectHooks func(dir string) (list []gateway.Hook, faults []string)
	// Secrets are directories with the gateway's tokens. A session may not read them, even when
	// they lie in its working directory.
	Secrets []string
	// Sources returns directories whose files start programs. A write there asks a person, whatever
	// Permissions say. nil: only the files of package protect.
	Sources func() []string
	// Env returns additions to the runtime's environment. It is called at each start of the
	// runtime.
	Env func() []string
	// SessionEnv returns additions to the environment of one session's shell, such as its token. It
	// is called once for each session, with its id. It may be nil.
	SessionEnv func(session string) []string
	Log        *slog.Logger // nil: no log
	// Launcher is a command that calls [ExecRuntime]. nil: this program with [LaunchArg].
	Launcher []string
}

func (o Options) environ() []string {
	var extra []string
	if o.Env != nil {
		extra = o.Env()
	}
	if o.GitHubHost != "" {
		extra = append(extra, "COPILOT_GH_HOST="+o.GitHubHost, "GH_HOST="+o.GitHubHost)
	}
	return environment(os.Environ(), extra)
}

// Runtime runs sessions in one Copilot runtime process, which it starts, watches and replaces. It
// implements [gateway.Starter] and [gateway.PersistentStarter]. Its methods may be called from any
// goroutine.
type Runtime struct {
	o       Options                 // as given to New
	current atomic.Pointer[Options] // for sessions that start now

	toolThreshold atomic.Int64 // of all sessions; -1: no threshold
	log           *slog.Logger

	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // goroutines of processes and sessions

	// processLock holds one item. Its owner may start, replace or end the process.
	processLock chan struct{}

	mu           sync.Mutex // guards the fields that follow
	closed       bool
	dir          string // private to the gateway and the runtime; made when first needed
	proc         *process
	sessions     map[string]*session
	failureTimes []time.Time // of the last minute, see failed

	lacksToolsSet bool // tests: the runtime lacks session.tools.set
}

var _ gateway.PersistentStarter = (*Runtime)(nil)

// New returns a Runtime. It starts no process; the first session does, or the first question to the
// runtime. Call [Runtime.Close] when you are done.
func New(o Options) *Runtime {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.fillProfile()
	r := &Runtime{o: o, log: o.Log, processLock: make(chan struct{}, 1),
		sessions: map[string]*session{}}
	r.Configure(o)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Configure sets the options of sessions that start from now on, and the threshold of tools of all.
// The options of the process do not change: CLI, Home, Env, SessionEnv, Log and Launcher stay as
// they were given to [New].
func (r *Runtime) Configure(o Options) {
	o.fillDefaults()
	r.current.Store(&o)
	r.setToolThreshold(o.ToolThreshold)
}

// setToolThreshold gives the sessions that run their tools anew if the threshold is another one.
func (r *Runtime) setToolThreshold(most *int) {
	threshold := int64(-1)
	if most != nil {
		threshold = int64(*most)
	}
	if r.toolThreshold.Swap(threshold) == threshold {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	for _, s := range r.sessions {
		r.wg.Go(s.renewTools)
	}
}

// fillDefaults gives each unset option of sessions its default.
func (o *Options) fillDefaults() {
	if o.MaxRounds <= 0 {
		o.MaxRounds = DefaultMaxRounds
	}
	o.MaxTurnTime = cmp.Or(o.MaxTurnTime, DefaultMaxTurnTime)
	o.Permissions = o.Permissions.WithDefaults()
	o.fillProfile()
}

// optionsAt returns the options for a session in a directory. The error is INVALID_STATE.
func (r *Runtime) optionsAt(dir string) (*Options, error) {
	o := r.current.Load()
	if o.At == nil {
		return o, nil
	}
	at, err := o.At(dir)
	if err != nil {
		return nil, invalidState("%v", err)
	}
	if at == nil {
		return o, nil
	}
	at.fillDefaults()
	return at, nil
}

// Start implements [gateway.Starter].
func (r *Runtime) Start(
	ctx context.Context, g *gateway.Gateway, req gateway.StartRequest,
) (*gateway.Session, error) {
	return registerWith(g, func(reg register) error { return r.start(ctx, req, reg) })
}

// registerWith returns the session that open registers at the gateway.
func registerWith(g *gateway.Gateway, open func(register) error) (*gateway.Session, error) {
	var made *gateway.Session
	err := open(func(spec gateway.SessionSpec, info gateway.HostInfo, h gateway.Host) (
		gateway.HostCalls, error) {
		s, err := g.Register(spec, info, h)
		if err != nil {
			return nil, err
		}
		made = s
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// register registers a session at the gateway.
type register func(gateway.SessionSpec, gateway.HostInfo, gateway.Host) (gateway.HostCalls, error)

func (r *Runtime) start(ctx context.Context, req gateway.StartRequest, reg register) error {
	id, err := uuid.NewV7()
	if err != nil {
		return internalError(fmt.Errorf("making a session id: %w", err))
	}
	s, err := r.newSession(ctx, id.String(), req)
	if err != nil {
		return err
	}
	return r.open(ctx, s, req.Label, s.create, reg)
}

// open brings a new session into the runtime with begin, and then registers it at the gateway.
func (r *Runtime) open(
	ctx context.Context, s *session, label string, begin func(context.Context, *process) error,
	reg register,
) error {
	ctx, cancel := r.untilClosed(ctx)
	defer cancel()
	p, err := r.process(ctx)
	if err != nil {
		s.end()
		return internalError(err)
	}
	if s.provider == nil {
		model, effort := s.chosenModel()
		if err := r.checkModel(ctx, p, model, effort, s.githubToken); err != nil {
			s.end()
			return err
		}
	}
	s.mu.Lock()
	s.label = label
	s.mu.Unlock()
	if err := begin(ctx, p); err != nil {
		_ = s.Close(ctx, "it could not be started")
		return internalError(fmt.Errorf("starting a Copilot session: %w", err))
	}
	calls, err := reg(s.newSpec(label), s.info(), s)
	if err != nil {
		_ = s.Close(ctx, "it could not be registered")
		return err
	}
	s.startLoops(calls)
	if err := r.add(s, p); err != nil {
		calls.Ended(err.Error())
		return internalError(err)
	}
	return nil
}

// add makes a session one that is resumed when the runtime dies.
func (r *Runtime) add(s *session, p *process) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// If the process ends after this check, the session is recovered with the others.
	if p.hasEnded() {
		return p.cause
	}
	if r.closed {
		return errClosed
	}
	r.sessions[s.id] = s
	return nil
}

func (r *Runtime) remove(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[s.id] == s {
		delete(r.sessions, s.id)
	}
}

var errClosed = errors.New("the gateway is shutting down")

// acquireProcess acquires the right to start, replace or end the process.
func (r *Runtime) acquireProcess(ctx context.Context) error {
	select {
	case r.processLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.ctx.Done():
		return errClosed
	}
}

func (r *Runtime) releaseProcess() { <-r.processLock }

// untilClosed makes a caller's context end at Close too.
func (r *Runtime) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.ctx, func() { cancel(errClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// process returns the running process. It starts the process if it does not run, and waits while a
// dead one is being replaced.
func (r *Runtime) process(ctx context.Context) (*process, error) {
	for {
		p, err := r.ensureProcess(ctx)
		if err != nil || !p.hasEnded() {
			return p, err
		}
		select { // supervise is about to replace it
		case <-p.handled:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// ensureProcess returns the present process, which may be dead, or starts one.
func (r *Runtime) ensureProcess(ctx context.Context) (*process, error) {
	if err := r.acquireProcess(ctx); err != nil {
		return nil, err
	}
	defer r.releaseProcess()
	r.mu.Lock()
	p, closed := r.proc, r.closed
	r.mu.Unlock()
	switch {
	case closed:
		return nil, errClosed
	case p != nil:
		return p, nil
	}
	return r.launch(ctx)
}

// spawn starts a goroutine that Close waits for. It returns false, and starts nothing, after Close
// was called.
func (r *Runtime) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Go(f)
	return true
}

// launch starts a process and its supervision. Call it with the right of acquireProcess.
func (r *Runtime) launch(ctx context.Context) (*process, error) {
	dir, err := r.privateDir()
	if err != nil {
		return nil, err
	}
	p, err := startProcess(ctx, r.o, dir, r.log)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.proc = p
	r.mu.Unlock()
	r.wg.Go(p.watch)
	r.wg.Go(func() { r.supervise(p) })
	return p, nil
}

// privateDir returns a directory that only the gateway's user can enter. The first call makes it.
func (r *Runtime) privateDir() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir != "" {
		return r.dir, nil
	}
	dir, err := os.MkdirTemp("", "tapgw-copilot-")
	if err != nil {
		return "", fmt.Errorf("making a directory for the Copilot runtime: %w", err)
	}
	// The runtime reports files by their real path.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", fmt.Errorf("resolving the directory for the Copilot runtime: %w", err)
	}
	r.dir = dir
	return dir, nil
}

// PrivateDir returns the directory with the large results of sessions and the tokens of their
// shells; "" before the first session.
func (r *Runtime) PrivateDir() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dir
}

// Close ends the runtime: politely until ctx ends, then by force. Sessions that are left end with
// it and are not reported, because the gateway ends its sessions before. The error is about the
// private directory, which Close removes.
func (r *Runtime) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	sessions := slices.Collect(maps.Values(r.sessions))
	r.mu.Unlock()
	r.cancel()
	for _, s := range sessions {
		s.end()
	}
	// A goroutine that starts or replaces the process now gives up soon, because r.ctx has ended.
	r.processLock <- struct{}{}
	defer r.releaseProcess()
	r.mu.Lock()
	p, dir := r.proc, r.dir
	r.proc, r.dir = nil, ""
	r.mu.Unlock()
	if p != nil {
		p.stop(ctx)
	}
	r.wg.Wait()
	if dir == "" {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing the runtime's directory: %w", err)
	}
	return nil
}
