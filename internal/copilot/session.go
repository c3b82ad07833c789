package copilot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/gateway"
)

// session is one session in the runtime. It implements [gateway.Host] for the gateway.
type session struct {
	// Fixed at creation.
	r            *Runtime
	o            *Options // the options when the session started
	log          *slog.Logger
	id           string
	cwd          string
	profile      string             // its name, or ""
	returns      bool               // it was a session before; set before the gateway knows it
	firstModel   string             // the model that the session began with
	baseConfig   *sdk.SessionConfig // made from the profile; sent again at each resume
	faults       []string           // parts of the project that are left out, for the timeline
	projectHooks []gateway.Hook     // of the project that the user trusts
	// when it started, calls of providers' tools needed no permission
	skipsTools bool
	// the runtime may start the language servers of the trusted project
	hasLSP        bool
	offeredModels []string // models of its own endpoint that may be chosen; nil: any
	// the user's endpoint, sent again at each resume; nil: GitHub's models
	provider        *sdk.ProviderConfig
	requestURL      string // the endpoint's URL if the request named it, else ""
	githubToken     string // the session's own; "": the runtime's
	hasRequestToken bool   // githubToken came with the request
	// the runtime's own tools; set before the gateway knows the session
	runtimeTools []string
	outputDir    string          // where the runtime puts large tool results
	shellFile    string          // from which its shell reads its environment, or ""
	ctx          context.Context // ends with the session
	cancel       context.CancelFunc
	ready        chan struct{} // closed when calls is set
	calls        gateway.HostCalls
	// how the gateway joined a session of a terminal; 0: the session is its own
	joined joinedBy
	items  *queue[item]  // for the pump
	lines  *queue[line]  // for the logger
	logged chan struct{} // closed when the logger is done

	// over ends with setOver when the terminal reports the end of a joined session.
	over    context.Context
	setOver context.CancelFunc

	hasShownImage atomic.Bool // the model was given an image
	lacksVision   atomic.Bool // the model refused an image

	searches atomic.Bool // the runtime has the searchers instead of the providers' tools

	saveError atomic.Pointer[string] // why the runtime can't save the session; nil while it can

	sendLock chans.Lock // one Send or Interrupt at a time

	configLock   chans.Lock                           // guards the fields that follow
	appliedTools []rpc.ProtocolExternalToolDefinition // the providers' tools that the runtime has
	// tools that the runtime can't have, with the reason
	warnedTools  map[string]string
	promptResets int // see resetPrompt

	sections sections

	mu     sync.Mutex    // guards the fields that follow
	conn   *conn         // nil while the runtime is down
	up     chan struct{} // closed while conn is set
	gen    int           // of the last conn
	ended  bool
	label  string
	model  string
	effort string // of reasoning; "": the model's default
	tools  []gateway.Tool
	// the names of all tools that the runtime ever had from us
	everSet map[string]bool
	// calls of call_tool that the hooks allowed, by tool and arguments
	asked        map[string]int
	toolsChanged chan struct{}                 // closed and replaced when tools change
	inFlight     map[string]context.CancelFunc // calls of providers' tools, by request id
	sent         []*sentPrompt                 // prompts that have not begun, in order

	tightened     *configs.Permissions // made stricter by projects' files; nil: not yet
	approvals     map[approval]bool    // by a person, for the session
	created       createdFile          // a person allowed it, and the runtime has not asked yet
	attachedPaths []attachedPath       // of prompts' attachments
}

// conn is the session in one process of the runtime. After the runtime died, the session gets a new
// conn.
type conn struct {
	process      *process
	sdk          *sdk.Session
	gen          int  // the number of the conn; events of older ones are dropped
	hooksEnabled bool // the runtime asks our hooks
}

var errEnded = errors.New("the session has ended")

// info describes the session to the gateway. Call it after the session is in the runtime.
func (s *session) info() gateway.HostInfo {
	return gateway.HostInfo{
		Kind: Kind, Send: true, Log: true, Hooks: true, Interrupt: true, StopsFirst: true,
		LiveTools: true, Spans: true,
		CachesPrompt: !s.replacesSystemMessage(), RuntimeEvents: true, Turns: true,
		Attachments: true, Usage: true, EnableHooks: s.EnableHooks, Commands: s.Commands,
		RunCommand: s.RunCommand, PermitShell: s.PermitShell, PermitRead: s.PermitRead,
		Mode: s.Mode, SetMode: s.SetMode, SetLabel: s.SetLabel, SetModel: s.SetModel,
		Effort: s.Effort,
		Tools:  s.runtimeTools,
		// Runtime 1.0.85 has bash (powershell on Windows), create, edit, view, grep and glob. Other
		// models and versions have the others.
		Aliases: map[string][]string{
			"shell": {"bash", "write_bash", "powershell", "write_powershell", "local_shell"},
			"edit":  {"create", "edit", "str_replace_editor", "apply_patch"},
			"read":  {"view", "grep", "glob", "rg"},
		},
	}
}

// replacesSystemMessage reports whether the user's own text is the whole system message.
func (s *session) replacesSystemMessage() bool {
	return s.baseConfig.SystemMessage.Mode == configs.SystemReplace
}

func (s *session) newSpec(label string) gateway.SessionSpec {
	model, _ := s.chosenModel()
	return gateway.SessionSpec{
		ID: s.id, Label: label, CWD: s.cwd, Model: model, Returns: s.returns, Hooks: s.projectHooks,
	}
}

// runtimeModelName returns the name of a model to give the runtime. When the config names a known
// model whose abilities an endpoint's model has (model_id), the runtime must be given that name.
// With the model's own name, it would send that name and assume no abilities.
func (s *session) runtimeModelName(model string) string {
	if s.provider != nil && s.provider.ModelID != "" && model == s.firstModel {
		return s.provider.ModelID
	}
	return model
}

// chosenModel returns the session's present model and reasoning effort.
func (s *session) chosenModel() (model, effort string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.model, s.effort
}

// Effort is [gateway.HostInfo].Effort.
func (s *session) Effort() string {
	_, effort := s.chosenModel()
	return effort
}

// startLoops starts the session's goroutines after the gateway registered it.
func (s *session) startLoops(calls gateway.HostCalls) {
	s.calls = calls
	s.writeShellEnv()
	close(s.ready)
	for _, fault := range s.faults {
		s.note(adminapi.LogWarning, fault)
	}
	if !s.r.spawn(s.pump) {
		return
	}
	if !s.r.spawn(s.logger) {
		close(s.logged)
	}
}

// create makes the session in the runtime.
func (s *session) create(ctx context.Context, p *process) error {
	gen, withHooks := s.nextGen(), !p.canEnableHooksLater || s.needsHooks()
	created, err := askClient(ctx, p, createTimeout, func(ctx context.Context) (*sdk.Session,
		error) {
		return p.client.CreateSession(ctx, s.createConfig(gen, withHooks))
	})
	if err != nil {
		return err
	}
	c := &conn{process: p, sdk: created, gen: gen, hooksEnabled: withHooks}
	if err := s.storeMetadata(ctx, c, s.metadata()); err != nil {
		return err
	}
	return s.prepare(ctx, c)
}

// prepare makes a session ready to be registered: it connects c and asks for the runtime's own
// tools.
func (s *session) prepare(ctx context.Context, c *conn) error {
	if err := s.connect(ctx, c, false); err != nil {
		return err
	}
	names, err := s.builtinNames(ctx, c)
	if err != nil {
		return fmt.Errorf("asking for the runtime's own tools: %w", err)
	}
	s.runtimeTools = slices.Sorted(maps.Keys(names))
	return nil
}

// connect makes c the session's conn and gives the runtime the session's tools and, if needed, its
// hooks. With back, the pump learns that the session is back before any event that a later
// request to the session causes.
func (s *session) connect(ctx context.Context, c *conn, back bool) error {
	c.process.track(c.sdk)
	// Without this request the runtime knows its own tools only after the first turn began, and we
	// could not see which names are taken.
	err := execute(ctx, c.process, createTimeout, func(ctx context.Context) error {
		_, err := c.sdk.RPC.Tools.InitializeAndValidate(ctx)
		return err
	})
	if err != nil && !methodNotFound(err) {
		return fmt.Errorf("initializing the session's tools: %w", err)
	}
	if err := s.configLock.Lock(ctx); err != nil {
		return err
	}
	s.appliedTools = nil
	// The runtime made its system message already, without the providers.
	err = s.resetPrompt(ctx, c)
	s.configLock.Unlock()
	if err != nil {
		return err
	}

	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return errEnded
	}
	s.conn = c
	hasTools := len(s.tools) > 0
	s.mu.Unlock()
	if hasTools {
		if err := s.applyTools(ctx, c); err != nil {
			return err
		}
	}
	if s.needsHooks() { // since it was asked for
		if err := s.EnableHooks(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil || s.conn.gen != c.gen {
		return errLost
	}
	if back {
		s.pushChange(func(t *tracker) {
			t.gen = c.gen
			t.processReplaced()
		})
	}
	close(s.up)
	return nil
}

var errLost = errors.New("the Copilot runtime ended meanwhile")

// resume brings the session back in a new process.
func (s *session) resume(ctx context.Context, p *process) error {
	gen, withHooks := s.nextGen(), !p.canEnableHooksLater || s.needsHooks()
	resumed, err := askClient(ctx, p, createTimeout, func(ctx context.Context) (*sdk.Session,
		error) {
		return p.client.ResumeSession(ctx, s.id, s.resumeConfig(gen, withHooks))
	})
	if err != nil && notFound(err) {
		// The old process died before it wrote anything to the disk.
		resumed, err = askClient(ctx, p, createTimeout, func(ctx context.Context) (*sdk.Session,
			error) {
			return p.client.CreateSession(ctx, s.createConfig(gen, withHooks))
		})
	}
	if err != nil {
		return err
	}
	c := &conn{process: p, sdk: resumed, gen: gen, hooksEnabled: withHooks}
	if err := s.storeMetadata(ctx, c, s.metadata()); err != nil {
		return err
	}
	return s.connect(ctx, c, true)
}

func (s *session) nextGen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gen++
	return s.gen
}

// processDied drops the conn of a process that died. It may be called again before the session is
// back.
func (s *session) processDied(cause error) {
	s.mu.Lock()
	if s.conn == nil || s.ended {
		s.mu.Unlock()
		return
	}
	if chans.IsClosed(s.up) {
		s.up = make(chan struct{})
	}
	gen := s.conn.gen
	s.conn = nil
	prompts := 0
	for _, p := range s.sent {
		p.isDropped = true
		if p.id != "" { // else Send reports that the prompt is lost
			prompts++
		}
	}
	gone := s.sent
	s.sent = nil
	s.mu.Unlock()
	s.cancelCalls()
	s.pushChange(func(t *tracker) { t.processDied(gen, cause, prompts, gone) })
}

// giveUp ends a session that can't be brought back.
func (s *session) giveUp(reason string) {
	if chans.IsClosed(s.ready) {
		s.calls.Ended(reason)
	}
	s.end()
}

// end stops everything that runs for the session on the gateway's side.
func (s *session) end() {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	s.mu.Unlock()
	s.cancel()
	s.items.close()
	s.lines.close()
	if s.outputDir != "" {
		_ = os.RemoveAll(s.outputDir)
	}
	if s.shellFile != "" {
		_ = os.Remove(s.shellFile)
	}
}

// waitConn returns the session's conn. While the runtime is being replaced, it waits for the new
// one.
func (s *session) waitConn(ctx context.Context) (*conn, error) {
	for {
		s.mu.Lock()
		c, up, ended := s.conn, s.up, s.ended
		s.mu.Unlock()
		if ended {
			return nil, errEnded
		}
		var handled <-chan struct{}
		if c != nil && c.process.hasEnded() {
			up, handled = nil, c.process.handled
		}
		select {
		case <-up:
			if c != nil {
				return c, nil
			}
		case <-handled:
			if s.isStale(c) {
				return nil, c.process.cause
			}
		case <-s.ctx.Done():
			return nil, errEnded
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the Copilot runtime to be back: %w",
				context.Cause(ctx))
		}
	}
}

// isStale reports whether c is still the session's conn. If its process ended, nothing replaces it.
func (s *session) isStale(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn == c
}

// Interrupt implements [gateway.Host]. It stops the turn and returns the texts of the prompts that
// waited behind it, because the runtime empties its queue.
func (s *session) Interrupt(ctx context.Context, _ string) (dropped []string, err error) {
	if err := s.sendLock.Lock(ctx); err != nil {
		return nil, err
	}
	defer s.sendLock.Unlock()
	s.mu.Lock()
	c := s.conn
	waiting := append([]*sentPrompt(nil), s.sent...)
	s.mu.Unlock()
	if c == nil {
		return nil, nil // the turn ended with the runtime
	}
	// Before the events of the abort.
	s.pushChange(func(t *tracker) { t.turn.wasStopped = t.isBusy })
	switch err := execute(ctx, c.process, askTimeout, c.sdk.Abort); {
	case err != nil && c.process.hasEnded():
		return nil, nil // as above
	case err != nil:
		return nil, fmt.Errorf("aborting the turn: %w", err)
	}
	s.reportDropped(s.removeSent(waiting), gateway.InterruptedBefore)
	s.pushChange(func(t *tracker) {
		t.recheck()
		if t.isBusy { // its end must come
			t.turn.wasStopped = true
			t.sync(true)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range waiting { // the pump may have dropped some already
		if !p.hasBegun {
			dropped = append(dropped, p.shown)
		}
	}
	return dropped, nil
}

// Close implements [gateway.Host]. The conversation stays on disk.
func (s *session) Close(ctx context.Context, _ string) error {
	s.r.remove(s)
	s.flushLines(ctx)
	s.mu.Lock()
	c := s.conn
	s.conn = nil
	s.mu.Unlock()
	s.end()
	if c == nil || c.process.hasEnded() {
		return nil
	}
	abort, cancel := context.WithTimeout(ctx, logTimeout)
	_ = execute(abort, c.process, askTimeout, c.sdk.Abort)
	cancel()
	if s.configLock.Lock(ctx) == nil { // a resume under way would bring the session back
		defer s.configLock.Unlock()
	}
	err := c.process.disconnect(ctx, c.sdk)
	if why := s.saveError.Load(); why != nil {
		return fmt.Errorf("the session has ended, but it could not be saved: %s", *why)
	}
	if err != nil && !c.process.hasEnded() {
		return fmt.Errorf("disconnecting the session: %w", err)
	}
	return nil
}
