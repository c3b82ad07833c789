package copilot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"tapgw/internal/proc"
	"time"

	sdk "github.com/github/copilot-sdk/go"
)

// Deadlines of what is asked of the runtime.
const (
	startTimeout  = time.Minute // a full CLI unpacks 200 MB at its first start
	createTimeout = time.Minute // may start the MCP servers of the user
	askTimeout    = 20 * time.Second
	pingTimeout   = 10 * time.Second
)

// errUnanswered ends a request that the runtime did not answer in time.
var errUnanswered = errors.New("the Copilot runtime did not answer in time")

// process is one life of the runtime.
type process struct {
	client *sdk.Client
	log    *slog.Logger
	pid    int // 0 where there is no launcher
	// lateHooks: all that goes on in a session asks hooks that come later. See lateHooksVersion.
	canEnableHooksLater bool

	gone  chan struct{} // closed when the process has ended
	once  sync.Once
	cause error // why; set before gone is closed

	handled chan struct{} // closed when its end was seen to

	ping       time.Duration  // how long a runtime may take to show that it lives
	asking     sync.WaitGroup // requests under way, abandoned ones included
	isChecking atomic.Bool    // somebody finds out whether the runtime hangs

	// client's own methods must not run beside its Stop.
	stopping  sync.RWMutex
	isStopped bool // guarded by stopping

	mu       sync.Mutex
	sessions []*sdk.Session // to be disconnected in the end, or they leak a goroutine each
}

// startProcess starts a runtime and checks that it speaks our protocol.
func startProcess(ctx context.Context, o Options, dir string, log *slog.Logger) (*process, error) {
	found, err := Find(o.CLI)
	if err != nil {
		return nil, err
	}
	launcher, err := o.launcher()
	if err != nil {
		return nil, err
	}
	conn := sdk.StdioConnection{Path: found.Path, Env: o.environ()}
	if launcher != nil {
		_ = os.Remove(pidFile(dir))
		conn.Path = launcher[0]
		conn.Args = append(append([]string(nil), launcher[1:]...), pidFile(dir), found.Path)
	}
	token, err := tokenFromEnv(o.Profile.GitHubTokenEnv)
	if err != nil {
		return nil, err
	}
	client := sdk.NewClient(&sdk.ClientOptions{
		Connection:      conn,
		BaseDirectory:   o.Home,
		GitHubToken:     token,
		UseLoggedInUser: new(token == "" && o.usesGitHub()),
	})
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errUnanswered)
	defer cancel()
	if err := client.Start(ctx); err != nil {
		client.ForceStop()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("starting the Copilot runtime %s: %w", found.Path, joinLines(err))
	}
	enableLater := false
	if st, err := client.GetStatus(ctx); err == nil {
		enableLater = st.Version == lateHooksVersion
	}
	p := &process{
		client: client, log: log, canEnableHooksLater: enableLater, ping: pingTimeout, gone: make(chan struct{}),
		handled: make(chan struct{}),
	}
	if launcher != nil {
		p.pid = proc.ReadPID(pidFile(dir))
		_ = os.Remove(pidFile(dir))
	}
	log.Info("Copilot runtime started", "path", found.Path, "pid", p.pid)
	return p, nil
}

// watch waits for the process to end, however it does. The SDK waits for it as
// well; whichever of the two does not get its status learns no more than that.
func (p *process) watch() {
	if p.pid == 0 {
		return // ask notices, at the next request
	}
	child, err := os.FindProcess(p.pid)
	if err != nil {
		p.markEnded(errors.New("the process is gone"))
		return
	}
	state, err := child.Wait()
	if err != nil {
		p.markEnded(errors.New("the process ended"))
		return
	}
	p.markEnded(errors.New(state.String()))
}

func (p *process) markEnded(cause error) {
	p.once.Do(func() {
		p.cause = fmt.Errorf("the Copilot runtime ended: %w", cause)
		close(p.gone)
	})
}

func (p *process) hasEnded() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// ask makes a request of the runtime and returns its answer, or an error at
// the deadline or as soon as the runtime has ended. A request that is stuck in
// writing is left behind; it ends with the process.
func ask[T any](
	ctx context.Context, p *process, timeout time.Duration, request func(context.Context) (T, error),
) (T, error) {
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errUnanswered)
	defer cancel()
	var none T
	if p.hasEnded() {
		return none, p.cause
	}
	done := make(chan answer, 1)
	p.asking.Go(func() {
		v, err := request(ctx)
		done <- answer{v, err}
	})
	select {
	case a := <-done:
		if a.err == nil {
			return a.value, nil
		}
		if p.hasEnded() {
			return none, p.cause
		}
		if ctx.Err() != nil {
			break
		}
		if !isExitError(a.err) {
			return none, joinLines(a.err)
		}
		if p.pid == 0 {
			p.markEnded(joinLines(a.err))
		}
		select { // watch is about to say why
		case <-p.gone:
			return none, p.cause
		case <-ctx.Done():
		}
	case <-p.gone:
		return none, p.cause
	case <-ctx.Done():
	}
	err := context.Cause(ctx)
	if errors.Is(err, errUnanswered) {
		p.checkAlive()
	}
	return none, err
}

// execute is ask for requests without an answer worth having.
func execute(ctx context.Context, p *process, timeout time.Duration, request func(context.Context) error) error {
	_, err := ask(ctx, p, timeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, request(ctx) })
	return err
}

// askClient is ask for the client's own methods.
func askClient[T any](
	ctx context.Context, p *process, timeout time.Duration, request func(context.Context) (T, error),
) (T, error) {
	return ask(ctx, p, timeout, func(ctx context.Context) (T, error) {
		p.stopping.RLock()
		defer p.stopping.RUnlock()
		if p.isStopped {
			var none T
			return none, errors.New("the Copilot runtime is being stopped")
		}
		return request(ctx)
	})
}

// isExitError reports whether an error of the SDK says that the process has ended.
func isExitError(err error) bool {
	text := err.Error()
	return strings.Contains(text, "CLI process exited") || strings.Contains(text, "broken pipe") ||
		strings.Contains(text, "file already closed")
}

// checkAlive ends a runtime that answers nothing any more. Its sessions are then
// resumed in a new one.
func (p *process) checkAlive() {
	if !p.isChecking.CompareAndSwap(false, true) {
		return
	}
	p.asking.Go(func() {
		defer p.isChecking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), p.ping)
		defer cancel()
		alive := make(chan error, 1)
		p.asking.Go(func() {
			p.stopping.RLock()
			defer p.stopping.RUnlock()
			if p.isStopped {
				alive <- nil
				return
			}
			_, err := p.client.Ping(ctx, "")
			alive <- err
		})
		select {
		case err := <-alive:
			if err == nil {
				return
			}
		case <-ctx.Done():
		case <-p.gone:
			return
		}
		p.log.Warn("the Copilot runtime hangs: ending it", "pid", p.pid)
		p.kill()
	})
}

func (p *process) kill() {
	if p.pid != 0 && !p.hasEnded() {
		kill(p.pid)
		return
	}
	p.markEnded(errors.New("it was stopped"))
}

// track remembers a session of the SDK for the end.
func (p *process) track(s *sdk.Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions = append(p.sessions, s)
}

// disconnect closes a session in the runtime; its history stays on disk.
func (p *process) disconnect(ctx context.Context, s *sdk.Session) error {
	var before []*sdk.Session // what s was resumed on the same connection from
	p.mu.Lock()
	p.sessions = slices.DeleteFunc(p.sessions, func(kept *sdk.Session) bool {
		if kept.SessionID == s.SessionID && kept != s {
			before = append(before, kept)
		}
		return kept.SessionID == s.SessionID
	})
	p.mu.Unlock()
	err := execute(ctx, p, askTimeout, func(context.Context) error { return s.Disconnect() })
	for _, old := range before {
		// It fails, for there is none any more, but lets its goroutine go.
		_ = execute(ctx, p, askTimeout, func(context.Context) error { return old.Disconnect() })
	}
	return err
}

// stop ends the runtime: politely until ctx ends, then by force. It returns
// when nothing of the process and of the SDK's goroutines for it is left.
func (p *process) stop(ctx context.Context) {
	polite := make(chan struct{})
	go func() {
		defer close(polite)
		p.stopping.Lock()
		p.isStopped = true
		p.stopping.Unlock()
		if err := p.client.Stop(); err != nil {
			p.log.Debug("stopping the Copilot runtime", "error", joinLines(err))
		}
	}()
	select {
	case <-polite:
	case <-p.gone:
	case <-ctx.Done():
		p.log.Warn("the Copilot runtime did not stop in time: ending it", "pid", p.pid)
		p.kill()
	}
	if !p.hasEnded() && p.pid == 0 {
		p.markEnded(errors.New("it was stopped"))
	}
	<-polite
	p.client.ForceStop()
	if p.pid != 0 {
		<-p.gone
	}
	p.mu.Lock()
	sessions := p.sessions
	p.sessions = nil
	p.mu.Unlock()
	for _, s := range sessions {
		_ = s.Disconnect() // fails at once, but lets its goroutine go
	}
	p.asking.Wait()
}

// joinLines makes one line of an SDK error, which may hold the process's stderr.
func joinLines(err error) error {
	text := err.Error()
	if !strings.Contains(text, "\n") {
		return err
	}
	var parts []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	return errors.New(strings.Join(parts, "; "))
}
