package copilot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/internal/chans"
)

// The runtime's process: its start, the requests to it, and its end.

// Deadlines of requests to the runtime.
const (
	startTimeout  = time.Minute // a full CLI unpacks 200 MB at its first start
	createTimeout = time.Minute // creating a session may start the user's MCP servers
	askTimeout    = 20 * time.Second
	pingTimeout   = 10 * time.Second
)

// errUnanswered ends a request that the runtime did not answer in time.
var errUnanswered = errors.New("the Copilot runtime did not answer in time")

// process is one process of the runtime, from its start to its end.
type process struct {
	client *sdk.Client
	log    *slog.Logger
	pid    int           // 0 with pipe
	output *outlet       // nil with pipe
	pipe   *dialablePipe // to a runtime that a person started; nil: to one of ours

	canEnableHooksLater bool // see lateHooksVersion

	gone  chan struct{} // closed when the process has ended
	once  sync.Once
	cause error // why it ended; set before gone is closed

	handled chan struct{} // closed when the supervisor has handled the end

	ping       time.Duration  // how long the runtime may take to answer a ping
	asking     sync.WaitGroup // requests under way, abandoned ones included
	isChecking atomic.Bool    // checkAlive runs

	// stopping keeps the client's methods from running at the same time as its Stop.
	stopping  sync.RWMutex
	isStopped bool // guarded by stopping

	mu       sync.Mutex     // guards the fields below
	sessions []*sdk.Session // to be disconnected at the end; each leaks a goroutine otherwise
}

// startProcess starts a runtime and checks that it speaks the SDK's protocol.
func startProcess(ctx context.Context, o Options, dir string, log *slog.Logger) (*process, error) {
	found, err := Find(o.CLI)
	if err != nil {
		return nil, invalidState("%v", err)
	}
	launcher, err := o.launcher()
	if err != nil {
		return nil, err
	}
	conn := sdk.StdioConnection{Path: found.Path, Env: o.environ()}
	token, err := tokenFromEnv(o.Profile.GitHubTokenEnv)
	if err != nil {
		return nil, err
	}
	output, err := openOutlet(dir)
	if err != nil {
		return nil, err
	}
	conn.Path = launcher[0]
	conn.Args = slices.Concat(launcher[1:], []string{outletSocket(dir), found.Path})
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
		output.close()
		err = cmp.Or(output.fault(), err)
		return nil, fmt.Errorf("starting the Copilot runtime %s: %w", found.Path, joinLines(err))
	}
	enableLater := false
	if st, err := client.GetStatus(ctx); err == nil {
		enableLater = st.Version == lateHooksVersion
	}
	p := &process{
		client: client, log: log, canEnableHooksLater: enableLater, ping: pingTimeout,
		gone: make(chan struct{}), handled: make(chan struct{}), pid: output.process(),
		output: output,
	}
	log.Info("Copilot runtime started", "path", found.Path, "pid", p.pid)
	return p, nil
}

// watch waits until the process ends. The SDK waits for it too; only one of the two learns the exit
// status.
func (p *process) watch() {
	if p.pid == 0 {
		return // ask notices the end at the next request
	}
	child, err := os.FindProcess(p.pid)
	if err != nil {
		p.markEnded(errors.New("the process is gone"))
		return
	}
	state, err := child.Wait()
	cause := errors.New("the process ended")
	if err == nil {
		cause = errors.New(state.String())
	}
	p.markEnded(cmp.Or(p.output.fault(), cause))
}

func (p *process) markEnded(cause error) {
	if p.pipe != nil {
		p.pipe.end(cause) // which sets the cause
		return
	}
	p.once.Do(func() {
		p.cause = fmt.Errorf("the Copilot runtime ended: %w", cause)
		close(p.gone)
	})
}

func (p *process) hasEnded() bool { return chans.IsClosed(p.gone) }

// ask makes a request of the runtime and returns its answer. It returns an error at the deadline,
// or as soon as the runtime has ended. A request that is stuck in writing is left behind; it ends
// with the process.
func ask[T any](
	ctx context.Context, p *process, timeout time.Duration,
	request func(context.Context) (T, error),
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
		select { // watch is about to set the cause
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

// execute is ask for requests whose answer is of no use.
func execute(
	ctx context.Context, p *process, timeout time.Duration, request func(context.Context) error,
) error {
	_, err := ask(ctx, p, timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, request(ctx)
	})
	return err
}

var errStopping = errors.New("the Copilot runtime is being stopped")

// askClient is ask for the client's own methods, which must not run at the same time as its Stop.
func askClient[T any](
	ctx context.Context, p *process, timeout time.Duration,
	request func(context.Context) (T, error),
) (T, error) {
	return ask(ctx, p, timeout, func(ctx context.Context) (T, error) {
		p.stopping.RLock()
		defer p.stopping.RUnlock()
		if p.isStopped {
			var none T
			return none, errStopping
		}
		return request(ctx)
	})
}

// isExitError reports whether an error of the SDK means that the process has ended.
func isExitError(err error) bool {
	text := err.Error()
	return strings.Contains(text, "CLI process exited") || strings.Contains(text, "broken pipe") ||
		strings.Contains(text, "file already closed")
}

// checkAlive pings the runtime after an unanswered request, and ends one that hangs. Its sessions
// are then resumed in a new process.
func (p *process) checkAlive() {
	if !p.isChecking.CompareAndSwap(false, true) {
		return
	}
	p.asking.Go(func() {
		defer p.isChecking.Store(false)
		_, err := askClient(context.Background(), p, p.ping,
			func(ctx context.Context) (*sdk.PingResponse, error) {
				return p.client.Ping(ctx, "")
			})
		if err == nil || errors.Is(err, errStopping) || p.hasEnded() {
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

// track remembers an SDK session, to disconnect it at the end.
func (p *process) track(s *sdk.Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions = append(p.sessions, s)
}

// disconnect closes a session in the runtime. Its history stays on disk.
func (p *process) disconnect(ctx context.Context, s *sdk.Session) error {
	var before []*sdk.Session // older SDK sessions of the same session on this connection
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
		// This fails, because the session is closed already, but it ends a goroutine of the SDK.
		_ = execute(ctx, p, askTimeout, func(context.Context) error { return old.Disconnect() })
	}
	return err
}

// stop ends the runtime: politely until ctx ends, then by force. It returns when nothing is left of
// the process and of the SDK's goroutines for it.
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
	if p.output != nil {
		p.output.close()
	}
	p.dropSessions()
}

// dropSessions ends the SDK's goroutines for the sessions of a process that has ended, and waits
// for requests.
func (p *process) dropSessions() {
	p.mu.Lock()
	sessions := p.sessions
	p.sessions = nil
	p.mu.Unlock()
	for _, s := range sessions {
		_ = s.Disconnect() // fails at once, but ends a goroutine of the SDK
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
