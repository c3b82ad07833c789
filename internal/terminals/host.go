package terminals

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// A terminal is the host of its session: the gateway reaches it over its link, if it has one.

// info describes a terminal to the gateway. A terminal without a link lacks some of these
// abilities. It returns an error when it is asked for them.
func (t *terminal) info() gateway.HostInfo {
	return gateway.HostInfo{
		Kind: Kind, Send: true, Log: true, Hooks: true, Interrupt: true, StopsFirst: true,
		LiveTools: true,
		WhyNotNow: t.whyNotNow,
		// These are the names of CLI 1.0.102 and earlier versions.
		Aliases: map[string][]string{
			"shell": {"bash", "write_bash", "powershell", "write_powershell", "local_shell"},
			"edit":  {"create", "edit", "str_replace_editor", "apply_patch"},
			"read":  {"view", "grep", "glob", "rg"},
		},
	}
}

// terminal is one session of a terminal. It implements [gateway.Host].
type terminal struct {
	r        *Registry
	id       string
	cwd      string
	joinedAt time.Time
	ready    chan struct{} // closed when session or failure is set
	session  *gateway.Session
	failure  error

	heard    heard
	settling sync.Once

	toolsLock chans.Lock // its holder may change the link's tools

	mu    sync.Mutex // guards the fields that follow
	ways  map[Way]int
	link  Link
	tools []gateway.Tool // the last list
	turn  turn
	// missed are the last lines that came while there was no link.
	missed []missedLine
}

// missedLine is a line that the terminal has not shown.
type missedLine struct {
	at      time.Time
	level   adminapi.LogLevel
	message string
}

const (
	maxMissed     = 20
	maxMissedLine = 4 << 10 // bytes; a longer one is in the gateway's own timeline only
	// missedFor is how long a line waits for a link: as long as a pairing code is valid.
	missedFor = 2 * time.Minute
)

func newTerminal(r *Registry, who Terminal) *terminal {
	return &terminal{
		r: r, id: who.Session, cwd: who.CWD, joinedAt: time.Now().UTC(),
		ready: make(chan struct{}), toolsLock: chans.NewLock(), ways: map[Way]int{},
	}
}

// begun says whether the session of a new terminal has begun.
func (t *terminal) begun(err error) {
	t.failure = err
	close(t.ready)
}

// wait waits until the session has begun.
func (t *terminal) wait(ctx context.Context) error {
	select {
	case <-t.ready:
		return t.failure
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isEnding reports whether the gateway is ending the session, whose gates will be unbound soon.
func (t *terminal) isEnding() bool { return t.session.View().State == "ending" }

// settleTime is how long the first hook of a session waits for the providers that are on their way
// to it.
const settleTime = 500 * time.Millisecond

// settle waits, once, until the providers that are connected have had the time to join a new
// session.
func (t *terminal) settle(ctx context.Context) {
	t.settling.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, settleTime)
		defer cancel()
		t.session.AwaitProviders(ctx)
	})
}

func (t *terminal) setWay(way Way) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ways[way] = max(t.ways[way], 1)
}

func (t *terminal) addWay(way Way) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ways[way]++
}

func (t *terminal) hasWay(way Way) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ways[way] > 0
}

// removeWay removes a way and reports whether it was the last one.
func (t *terminal) removeWay(way Way) (none bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ways[way]--; t.ways[way] <= 0 {
		delete(t.ways, way)
	}
	return len(t.ways) == 0
}

func (t *terminal) view() adminapi.Terminal {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := adminapi.Terminal{Session: t.id, CWD: t.cwd, PIDs: []int{}, Ways: []string{},
		JoinedAt: t.joinedAt}
	for way := range t.ways {
		v.Ways = append(v.Ways, string(way))
	}
	slices.Sort(v.Ways)
	return v
}

func (t *terminal) currentLink() Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.link
}

// A second link is refused: the model would get each tool twice.
var (
	errLinked = &protocol.Error{Code: protocol.CodeInvalidState,
		Message: "the terminal has a link already, its extension or an attached port, and needs " +
			"no other"}
	// ErrAttached is the error of [Registry.Join] for a port by which the terminal has its link
	// already.
	ErrAttached = &protocol.Error{Code: protocol.CodeInvalidState,
		Message: "the terminal is attached already"}
)

// openLink gives the terminal its link, and the link its tools.
func (t *terminal) openLink(ctx context.Context, way Way, open OpenLink) error {
	if err := t.toolsLock.Lock(ctx); err != nil {
		return err
	}
	defer t.toolsLock.Unlock()
	if t.currentLink() != nil {
		if way == WayPort && t.hasWay(way) {
			return ErrAttached
		}
		return errLinked
	}
	link, err := open(ctx, &linkCalls{t.session, t})
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.link = link
	t.ways[way]++
	tools := t.tools
	t.mu.Unlock()
	if err := link.SetTools(ctx, tools); err != nil {
		t.dropLink()
		t.removeWay(way)
		return err
	}
	t.session.RetryInjects()
	for _, l := range t.takeMissed() {
		link.Log(l.level, l.message)
	}
	return nil
}

func (t *terminal) takeMissed() []missedLine {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := slices.DeleteFunc(t.missed, func(l missedLine) bool {
		return time.Since(l.at) > missedFor
	})
	t.missed = nil
	return lines
}

// dropLink closes the link, if there is one.
func (t *terminal) dropLink() {
	t.mu.Lock()
	link := t.link
	t.link = nil
	t.mu.Unlock()
	if link != nil {
		link.Close()
	}
}

// SetTools implements [gateway.Host]. A terminal without a link gets its tools by MCP, if at all.
func (t *terminal) SetTools(ctx context.Context, _ uint64, tools []gateway.Tool) error {
	if err := t.toolsLock.Lock(ctx); err != nil {
		return err
	}
	defer t.toolsLock.Unlock()
	t.mu.Lock()
	t.tools = tools
	link := t.link
	t.mu.Unlock()
	if link == nil {
		return nil
	}
	return link.SetTools(ctx, tools)
}

// errNoLink is a terminal's answer, without a link, to requests that need one.
var errNoLink = errors.New(
	"a terminal that joined by hooks or MCP alone can't do this from outside; " +
		"give it the extension (tapgw install copilot --extension) or attach to its port " +
		"(tapctl attach)")

// Send implements [gateway.Host].
func (t *terminal) Send(ctx context.Context, p gateway.Prompt) error {
	if link := t.currentLink(); link != nil {
		return link.Send(ctx, p)
	}
	return errNoLink
}

// whyNotNow is [gateway.HostInfo].WhyNotNow. Without a link an inject waits until a hook of the CLI
// can take it along.
func (t *terminal) whyNotNow() string {
	if t.currentLink() != nil {
		return ""
	}
	return "the terminal has joined without a link, so nothing wakes it: it gets this at the end " +
		"of its turn " +
		"or with its next prompt"
}

// Log implements [gateway.Host]. A session begins before its link does, so lines wait for a link
// for some time. Without a link, only the gateway's own timeline has them.
func (t *terminal) Log(level adminapi.LogLevel, message string) {
	t.mu.Lock()
	link := t.link
	if link == nil && len(message) <= maxMissedLine {
		t.missed = append(t.missed[max(0, len(t.missed)-maxMissed+1):],
			missedLine{time.Now(), level, message})
	}
	t.mu.Unlock()
	if link != nil {
		link.Log(level, message)
	}
}

// Interrupt implements [gateway.Host].
func (t *terminal) Interrupt(ctx context.Context, reason string) (dropped []string, err error) {
	if link := t.currentLink(); link != nil {
		return link.Interrupt(ctx, reason)
	}
	return nil, errNoLink
}

// Close implements [gateway.Host]. The CLI goes on; at its next hook a new session begins.
func (t *terminal) Close(context.Context, string) error {
	t.r.closed(t)
	t.dropLink()
	return nil
}

// linkCalls is the session of a terminal for its link. The link reports all that the CLI does.
// Where the CLI's hooks ask too, they alone decide about its own tools and add to its prompts, so
// that no gate is asked twice. The gates are asked about a provider's tool when its call comes in.
type linkCalls struct {
	*gateway.Session
	t *terminal
}

var _ gateway.HostCalls = (*linkCalls)(nil)

// PreToolUse implements [gateway.HostCalls].
func (c *linkCalls) PreToolUse(
	ctx context.Context, tool string, args protocol.Raw,
) gateway.Decision {
	if _, isProviders := c.t.tool(tool); isProviders || c.t.hasWay(WayHooks) {
		return gateway.Decision{}
	}
	return c.Session.PreToolUse(ctx, tool, args)
}

// UserPrompt implements [gateway.HostCalls].
func (c *linkCalls) UserPrompt(ctx context.Context, prompt, source string) string {
	if c.t.hasWay(WayHooks) {
		return ""
	}
	return c.Session.UserPrompt(ctx, prompt, source)
}

// Hook implements [gateway.HostCalls].
func (c *linkCalls) Hook(ctx context.Context, e gateway.HookEvent) gateway.HookAnswer {
	if c.t.hasWay(WayHooks) {
		return gateway.HookAnswer{}
	}
	return c.Session.Hook(ctx, e)
}

// Event implements [gateway.HostCalls]. The terminal in which a person types is the foreground
// session.
func (c *linkCalls) Event(e gateway.Event) {
	if e.UserMessage != "" && e.Source == gateway.SourceUser {
		_ = c.t.r.gateway.SetForeground(c.t.id) // an error means that the session has ended
	}
	c.Session.Event(e)
}
