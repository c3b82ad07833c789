// Package providers is the Go SDK for writing a provider: a process that gives tools, events, rules
// and prompt text to the sessions of a coding agent, through a gateway.
//
// # A provider
//
// [New] makes a provider, [AddTool] gives it tools, and [Provider.Run] serves them:
//
//	type Args struct {
//		Name string `json:"name" jsonschema:"who to greet"`
//	}
//	p := providers.New("hello", nil)
//	providers.AddTool(p, "greet", "Say hello to someone",
//		func(ctx context.Context, in Args) (string, error) {
//			return "Hello, " + in.Name + "!", nil
//		})
//	err := p.Run(ctx)
//
// Run finds the gateway, waits for a session, serves calls, and connects again when the gateway or
// the session goes away. The gateway can start the process for each session if a provider file
// names it (docs/providers.md).
//
// # Tools
//
// A tool is a Go function. [NewTool] infers its JSON Schema from the type of its arguments; a
// [Tool] can have a schema written by hand. Each call gets exactly one result, whatever the
// function does: a panic becomes an error, and a call that ignores its cancelled context is
// answered after two seconds. A function finds its call with [CallFrom], shows progress with
// [Progress], and fails with an [*Error] to give a code.
//
// # Events
//
// [Provider.Push] brings an event into a session: into a stream, into the timeline, or to the model
// as a prompt. [Provider.SetFilter] lets the gateway choose how far events go, [Provider.Query]
// reads streams, and [Subscribe] listens to what happens in the session. [Options.OnQuestion] hears
// what the session asks its user, and answers it.
//
// # Rules and the prompt
//
// [Provider.Deny], [Provider.AddContext] and [Provider.Gate] add rules about the session's tool
// calls, those of its own tools too. [Provider.SetContext] adds text to prompts; [Provider.Append]
// and [Provider.Transform] change sections of the system prompt. What a provider may do depends on
// its token: docs/protocol.md, "Trust", has the table.
//
// # Connections
//
// The offer of a provider, its tools, rules, filters and texts, outlives a lost connection: the
// next one begins with it. The provider does not send its token before the gateway has proved that
// it knows the token. A provider that has no token is let in by a person, see [Provider.Pair].
package providers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"tapgw/internal/chans"
	"tapgw/internal/protocol"
)

// AllSessions is the [Options.Session] that binds to every session, also those that start later. It
// needs an internal token, or a provider file with sessions = "all" (docs/protocol.md, "All
// sessions").
const AllSessions = "all"

// Options configure a [Provider]. The zero value of each field is useful.
type Options struct {
	// URL is the gateway's URL: ws://, wss://, http:// or https://. Empty: TAP_GATEWAY_URL, then
	// the url in gateway.json beside the token files. Without any of them, Run waits for a gateway
	// to write gateway.json.
	URL string
	// Token authenticates the provider. Empty: TAP_PROVIDER_TOKEN, then the file .provider-token in
	// <COPILOT_HOME or ~/.copilot>/extensions/tap/, which is read for each connection because each
	// gateway has a token of its own. If the gateway refuses TAP_PROVIDER_TOKEN, maybe one of an
	// earlier gateway, and TAP_GATEWAY_URL is not set, the file's token is tried too. A provider
	// without a token calls [Provider.Pair].
	Token string
	// TokenFile is a file with the token, instead of TAP_PROVIDER_TOKEN and .provider-token. It is
	// read for each connection.
	TokenFile string

	// Instance distinguishes several running providers of one name, in at most 256 bytes. Metadata
	// describes this instance to the model, with "title" or "url" for example (docs/protocol.md,
	// "Instances").
	Instance string
	Metadata map[string]any

	// Session is the id of the only session to bind to, or [AllSessions].
	// Empty: PickSession.
	Session string
	// PickSession returns the id of the session to bind to, or "" to wait for another list. It must
	// not block. Nil: the session that was bound before the connection was lost, else the first of
	// the list, where the gateway puts the one that fits best.
	PickSession func(active []Session) string
	// PrepareSession runs before a provider of [AllSessions] joins a session: once for each
	// session, several at a time. The session does not have the provider's tools before
	// PrepareSession has returned, and the sessions that exist at first are joined together. Its
	// context ends with the session or the connection.
	PrepareSession func(ctx context.Context, s Session)

	// Context is added to each prompt of the user, see [Provider.SetContext]; StartupContext only
	// to a session's first prompt. Each is at most 8 KiB.
	Context        string
	StartupContext string

	// Concurrency limits how many calls the gateway sends at once. Zero: no limit.
	Concurrency Concurrency
	// MaxCalls limits how many calls run in this process at once; other calls wait in their order.
	// Zero: 64.
	MaxCalls int

	// OnBound runs when the provider is bound to a session, for each session of [AllSessions]. Its
	// context ends with the binding, and OnBound may run as long: it is the place for a loop that
	// pushes events.
	OnBound func(ctx context.Context, b Binding)
	// OnSession runs when the state of a bound session changes, one change after the other. For
	// [SessionEnding] its context ends at the deadline, and the session may end when OnSession has
	// returned.
	OnSession func(ctx context.Context, e SessionEvent)
	// OnQuestion runs for each question of a bound session that waits for an answer, several at the
	// same time; also for those that waited before. Its context ends when the question is over,
	// with the cause [*QuestionEnd], or with the binding. After a reconnect it runs anew for
	// questions that still wait. Needs the grant "questions" of the provider's file, else Run
	// returns UNAUTHORIZED (docs/protocol.md, "Questions").
	OnQuestion func(ctx context.Context, q Question)
	// OnError gets the errors that Run survives: a lost connection, a session that could not be
	// joined, a tool of [AddTool] that the gateway refused. It runs in order with OnSession.
	OnError func(err error)

	// Logger gets the same errors, and a line for each binding. Nil: [slog.Default].
	Logger *slog.Logger
	// HTTPClient makes the connection. Nil: [http.DefaultClient].
	HTTPClient *http.Client
}

// Concurrency limits the calls that the gateway sends to a provider at once. Ten more wait in the
// gateway; the next one fails with RATE_LIMITED (docs/protocol.md, "Concurrency").
type Concurrency struct {
	Max   int   // zero: no limit
	Scope Scope // empty: [PerInstance]
}

// Scope says which calls a [Concurrency] counts together.
type Scope string

// Scopes of a [Concurrency].
const (
	PerInstance Scope = "instance" // the calls to this instance
	PerProvider Scope = "provider" // the calls to all instances of the name
	PerTool     Scope = "tool"     // the calls of each tool, to all instances
)

// Session is an entry of the gateway's list of sessions, as [Options.PickSession] gets it.
type Session struct {
	ID    string
	Label string // for people
	// its working directory; empty for a session that this provider may not bind to
	CWD        string
	Foreground bool // it is the one that the user is looking at
}

// Binding describes the session that a provider is bound to.
type Binding struct {
	Session    string // the id of the session
	CWD        string // the session's working directory
	ProviderID string // the gateway's id of this provider, as its logs and errors show it
	// PersistDir is a directory for files that outlive the session, and the only one for a [File].
	// It is empty for a provider without the right to one.
	PersistDir string
}

// SessionState is a state of a bound session.
type SessionState string

// States of a session.
const (
	SessionStarted SessionState = "started"          // the provider has joined it
	SessionIdle    SessionState = "idle"             // it waits for a prompt
	SessionEnding  SessionState = "shutdown.pending" // it ends when its providers have cleaned up
)

// SessionEvent is a change of a bound session's state.
type SessionEvent struct {
	Session  string // its id
	State    SessionState
	Deadline time.Duration // of SessionEnding: how long cleaning up may take
}

const defaultMaxCalls = 64

// Provider is a provider, running or not. Its methods may be called from any goroutine, before Run
// and while it runs.
//
// Methods that change the offer return when the gateway has confirmed the change, with the revision
// of the session's state; from then on the session uses the new state. Revision 0 without an error
// means that no session is bound; the next one gets the new state. A change that the gateway
// refuses has no effect. A change whose context ends before the gateway has answered may still have
// one (docs/protocol.md, "Updates").
type Provider struct {
	// Fixed at creation.
	name    string
	opts    Options
	log     *slog.Logger
	wakeups chan struct{} // has room for one: the offer or the queue may have changed

	// mu guards the fields that follow. It is never held during I/O or a callback.
	mu         sync.Mutex
	running    bool
	offer      *offer // the gateway has it, or gets it next
	sent       *offer // sent to the gateway and not confirmed; may be nil
	queue      []*change
	changeConn *conn // sends the queue; nil: changes happen without a gateway
	pushConn   *conn // sends pushes and queries; nil while no session is bound
	gateCount  uint64
	listeners  map[string][]listener // by event
	paired     endpoint              // the gateway that Pair got a token from; zero without pairing
}

// New makes a provider. Its name says to the gateway and to other providers who it is: 1 to 64
// letters, digits, '.', '_' or '-' (docs/protocol.md, "Names"). A nil o means the zero [Options].
// Mistakes in the options are errors of [Provider.Run].
func New(name string, o *Options) *Provider {
	p := &Provider{name: name, wakeups: make(chan struct{}, 1), offer: &offer{},
		listeners: map[string][]listener{}}
	if o != nil {
		p.opts = *o
		p.opts.Metadata = maps.Clone(o.Metadata)
		p.offer.context = o.Context
	}
	if p.opts.MaxCalls <= 0 {
		p.opts.MaxCalls = defaultMaxCalls
	}
	p.log = p.opts.Logger
	if p.log == nil {
		p.log = slog.Default()
	}
	p.log = p.log.With("provider", name)
	return p
}

// Run connects to the gateway and serves until ctx ends; then it says goodbye, waits up to five
// seconds for functions of yours that still run, and returns nil. While there is no gateway or no
// session, Run waits and tries again, at least every second.
//
// Run returns an error only where waiting can't help: the gateway refuses the token of [Options],
// the pairing has ended ([ErrNotPaired]), an option or the offer is wrong or not allowed, the
// gateway speaks another version, or the provider runs already.
func (p *Provider) Run(ctx context.Context) error {
	metadata, err := p.check()
	if err != nil {
		return fmt.Errorf("running provider %q: %w", p.name, err)
	}
	p.mu.Lock()
	busy := p.running
	p.running = true
	p.mu.Unlock()
	if busy {
		return fmt.Errorf("running provider %q: it is running already", p.name)
	}
	defer func() {
		p.mu.Lock()
		p.running = false
		p.mu.Unlock()
	}()
	r := newRunner(p, metadata)
	if err := r.run(ctx); err != nil {
		return fmt.Errorf("running provider %q: %w", p.name, err)
	}
	return nil
}

// check returns the first mistake in the options, or the JSON of the metadata.
func (p *Provider) check() (metadata protocol.Raw, err error) {
	if err := p.checkName(); err != nil {
		return nil, err
	}
	if err := checkURL("Options.URL", p.opts.URL); err != nil {
		return nil, err
	}
	if p.opts.Metadata != nil {
		if metadata, err = marshal("Options.Metadata", p.opts.Metadata); err != nil {
			return nil, err
		}
	}
	hello := p.hello(nil)
	hello.Metadata = metadata
	if err := protocol.Validate(hello); err != nil {
		return nil, fromGateway(err)
	}
	return metadata, nil
}

func (p *Provider) checkName() error {
	if !protocol.ValidName(p.name) {
		return errors.New(
			"its name must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a " +
				"letter or digit")
	}
	return nil
}

// all reports whether the provider binds to every session.
func (p *Provider) all() bool { return p.opts.Session == AllSessions }

func (p *Provider) setBound(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pushConn = c
}

// connected returns the connection for pushes and queries, or [ErrNotConnected].
func (p *Provider) connected() (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pushConn == nil {
		return nil, ErrNotConnected
	}
	return p.pushConn, nil
}

// wake makes the connection's loop look at the offer and the queue.
func (p *Provider) wake() { chans.Wake(p.wakeups) }

// marshal writes a value of the user's as JSON for people and models: <, > and & are not escaped.
// The parameter what names the value in errors.
func marshal(what string, v any) (protocol.Raw, error) {
	if s, ok := v.(string); ok {
		return protocol.AppendText(nil, s), nil
	}
	data, err := protocol.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written as JSON: %w", what, err)
	}
	raw := protocol.Raw(data)
	if !raw.IsValid(allowSurrogates) {
		return nil, fmt.Errorf("%s cannot be written as JSON: a key stands twice in an object",
			what)
	}
	return raw, nil
}

// unmarshal reads the JSON of a session. No data is an empty object.
func unmarshal(data []byte, v any) error {
	if len(data) == 0 {
		data = []byte("{}")
	}
	return json.Unmarshal(data, v)
}
