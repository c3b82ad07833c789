// Package providers is for writing a provider: a process that gives tools and
// events to an agent's session, through the gateway.
//
// A provider is made with [New], gets its tools with [AddTool] and runs with
// [Provider.Run], which finds the gateway, waits for a session, serves calls
// and comes back by itself when the gateway or the session goes away. What a
// tool does is a plain Go function; its arguments and its result are Go values.
//
// Every call gets exactly one result, whatever its function does: a panic
// becomes an error, and a function that does not heed a cancelled context is
// answered for.
//
// Beyond tools a provider may hold rules and gates ([Provider.Deny],
// [Provider.Gate]), change the prompt ([Provider.SetContext],
// [Provider.Transform]), push and query events ([Provider.Push],
// [Provider.Query]) and listen ([Subscribe]). All that it offers survives a
// lost connection: the next one begins with it as it is then.
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

	"tapgw/internal/protocol"
)

// AllSessions, as [Options.Session], binds to every session, to those that
// start later too. It takes an internal token, or a grant.
const AllSessions = "all"

// Options adjust a [Provider]. Every zero value is useful.
type Options struct {
	// URL of the gateway. Empty: TAP_GATEWAY_URL, then the url in gateway.json
	// beside the token files; without any, no gateway runs yet. The gateway is
	// sent nothing before it has proved that it knows the token.
	URL string
	// Token that the gateway knows. Empty: TAP_PROVIDER_TOKEN, then the file
	// .provider-token in <COPILOT_HOME or ~/.copilot>/extensions/tap/, read
	// anew for each connection because each gateway has a token of its own.
	// Where TAP_GATEWAY_URL is not set, the file's token also follows one of
	// the environment's that is refused: that may be of an earlier gateway.
	// See [Provider.Pair] for a provider that has none.
	Token string
	// TokenFile holds the token instead of the environment and .provider-token;
	// it is read anew for each connection, too.
	TokenFile string

	// Instance tells several running providers of one name apart; Metadata
	// describes this one to the model, with "title" or "url" for example.
	Instance string
	Metadata map[string]any

	// Session is the id of the only session to bind to, or [AllSessions].
	// Empty: PickSession.
	Session string
	// PickSession returns the id of the session to bind to, or "" to wait for
	// another list. It must not block. Nil: the session that was bound before
	// the connection was lost, else the first of the list, which the gateway
	// sorts for that.
	PickSession func(active []Session) string
	// PrepareSession runs before a provider of [AllSessions] joins a session,
	// once for each, several at a time: what it offers is there only when
	// PrepareSession has returned. The sessions that are there at first are
	// joined together. Its context ends when the session or the connection
	// does (v2, "“all” binding and session churn").
	PrepareSession func(ctx context.Context, s Session)

	// Context is added to every prompt of the user's, see
	// [Provider.SetContext]; StartupContext to the first of a session. Each
	// is 8 KiB at most.
	Context        string
	StartupContext string

	// Concurrency is how many calls the gateway may send at once (v2, "Tool
	// concurrency"). Zero: any number.
	Concurrency Concurrency
	// MaxCalls is how many calls run at once; the others wait. Zero means 64.
	MaxCalls int

	// OnBound runs when the provider is bound to a session, for each session
	// of [AllSessions]. Its context ends with the binding, and it may take as
	// long as that: it is the place for a loop that pushes events.
	OnBound func(ctx context.Context, b Binding)
	// OnSession runs when a bound session's state changes, one change after
	// the other. For [SessionEnding] the context ends at the deadline, and the
	// gateway is told that the session may end when OnSession has returned.
	OnSession func(ctx context.Context, e SessionEvent)
	// OnError hears what goes wrong and is tried again, or cannot be told to
	// anyone else: a lost connection, a session that could not be joined. It
	// runs in order with OnSession.
	OnError func(err error)

	// Logger gets the same errors, and what happens. Nil: [slog.Default].
	Logger *slog.Logger
	// HTTPClient makes the connection. Nil: [http.DefaultClient].
	HTTPClient *http.Client
}

// Concurrency limits the calls that the gateway has in flight to a provider.
// Up to ten more wait there; the next fails with RATE_LIMITED.
type Concurrency struct {
	Max   int
	Scope Scope // empty: [PerInstance]
}

// Scope says what a [Concurrency] counts.
type Scope string

// Scopes of a limit.
const (
	PerInstance Scope = "instance" // the calls of this instance
	PerProvider Scope = "provider" // those of all instances of the name
	PerTool     Scope = "tool"     // those of one tool, of all instances
)

// Session is a session that the gateway has. CWD is empty for those that this
// provider may not bind to.
type Session struct {
	ID         string
	Label      string
	CWD        string
	Foreground bool
}

// Binding tells what a provider is bound to.
type Binding struct {
	Session    string // its id
	CWD        string // the directory that it works in
	ProviderID string // the gateway's name for this provider, in its logs and errors
	// PersistDir is a directory for files that outlive the session, and the
	// only one that a [File] may lie in. Empty for a provider that may have none.
	PersistDir string
}

// SessionState says where a session is in its life.
type SessionState string

// States of a session.
const (
	SessionStarted SessionState = "started"
	SessionIdle    SessionState = "idle" // it waits for a prompt
	SessionEnding  SessionState = "shutdown.pending"
)

// SessionEvent is a change in a bound session's life.
type SessionEvent struct {
	Session  string
	State    SessionState
	Deadline time.Duration // with SessionEnding: how long cleaning up may take
}

const defaultMaxCalls = 64

// Provider is a provider, running or not. Its methods may be called from any
// goroutine.
//
// Those that change what it offers return when the gateway has confirmed it,
// with the revision of the session's state: what the session does from then on
// goes by the new state. Revision 0 and no error mean that no session is bound;
// the next one gets the new state. A change that the gateway refuses has not
// happened. One whose context ends before the gateway has answered may still.
type Provider struct {
	// Fixed at creation.
	name    string
	opts    Options
	log     *slog.Logger
	changed chan struct{} // holds one: the offer or the queue may have changed

	// mu guards the fields that follow. It is held for no I/O and no callback.
	mu      sync.Mutex
	running bool
	offer   *offer // what the gateway has, or gets next
	trial   *offer // what it was sent and has not confirmed; nil: nothing
	queue   []*change
	link    *conn // takes the queue; nil: changes happen here alone
	bound   *conn // takes pushes; nil while no session is bound
	gates   uint64
	heard   map[string][]listener // by event
	paired  endpoint              // where Pair got a token; zero: nowhere
}

// New makes a provider. The name is its identity towards the gateway: 1 to 64
// letters, digits, '.', '_' or '-'. A nil o means [Options] as they are.
func New(name string, o *Options) *Provider {
	p := &Provider{name: name, changed: make(chan struct{}, 1), offer: &offer{}, heard: map[string][]listener{}}
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

// Run connects to the gateway and serves until ctx ends; then it says goodbye
// and returns nil. A gateway that is not there, goes away or has no session is
// waited for. Run returns an error only for what waiting cannot cure: a token
// given in [Options] that is refused, a pairing that is over ([ErrNotPaired]),
// an offer or an option that is wrong or not allowed, a gateway that speaks
// another version.
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

// check finds what is wrong with the options, and returns the metadata's JSON.
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
		return errors.New("its name must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit")
	}
	return nil
}

// all reports whether the provider is for every session.
func (p *Provider) all() bool { return p.opts.Session == AllSessions }

func (p *Provider) setBound(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bound = c
}

// current is the connection that takes pushes and queries.
func (p *Provider) current() (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bound == nil {
		return nil, ErrNotConnected
	}
	return p.bound, nil
}

// poke tells the connection that there may be something to do.
func (p *Provider) poke() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// marshal writes a value of the user's as JSON, for people and models to read:
// <, > and & stay as they are. What names the value in errors.
func marshal(what string, v any) (protocol.Raw, error) {
	if s, ok := v.(string); ok {
		return protocol.AppendText(nil, s), nil
	}
	data, err := encode(v)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written as JSON: %w", what, err)
	}
	raw := protocol.Raw(data)
	if !raw.IsValid(lenient) {
		return nil, fmt.Errorf("%s cannot be written as JSON: a key stands twice in an object", what)
	}
	return raw, nil
}

// unmarshal reads what marshal's counterpart in a session wrote.
func unmarshal(data []byte, v any) error {
	if len(data) == 0 {
		data = []byte("{}")
	}
	return json.Unmarshal(data, v)
}
