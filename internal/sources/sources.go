// Package sources runs the sources of events that provider files name: commands, prompts, watched
// files, polled URLs and webhooks. A source is a provider like any other. It only speaks to the
// gateway in the same process, and needs no power that a program at a WebSocket lacks.
package sources

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/match"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// Options say which source runs for which sessions. Provider, Gateway, Token, Session and the
// functions are required; functions may be called from any goroutine.
type Options struct {
	Provider *configs.Provider // of kind source; fixed
	Gateway  Gateway
	Token    string
	Session  string          // an id, or [protocol.AllSessions]
	Dir      string          // where the command runs and the files are; absolute
	Env      func() []string // of the command, as NAME=value
	State    string          // the file that keeps the source's progress; may be ""
	// Taken is the file that keeps which requests the webhooks of Provider have taken; it may be
	// "".
	Taken string

	// Line takes a line that the command prints, or a message about the source.
	Line func(from, line string)
	// Faults takes all present faults of the source, one line each. It replaces the earlier ones.
	Faults func(lines []string)
	// Check returns why the command may not run now, and each run asks it; nil: it always may.
	Check func() error
	// Record takes the record of a run that has ended, and must not block; it may be nil.
	Record func(adminapi.Record)
}

// Gateway is what sources need of the gateway. It is an interface, so that tapctl can try a source
// without the domain.
type Gateway interface {
	// Connect opens a connection of a provider in this process. peer gets the gateway's messages.
	Connect(peer Peer) Conn
	// Touch tells the readers of lists that a source has changed.
	Touch()
	Spans() *spans.Maker
}

// Conn is a provider's connection, as its provider sees it.
type Conn interface {
	Receive(message []byte)
	Closed()
}

// Peer is the way from the gateway to a provider, as the gateway sees it. Send never blocks.
type Peer interface {
	Send(m protocol.Message)
	Flush()
	Close(code protocol.CloseCode, reason string)
}

// fromGateway is the source of messages about a source of events.
const fromGateway = "tapgw"

// maxDisk is how many sources read or write files at once, because each takes a thread meanwhile,
// which stays.
const maxDisk = 4

// Set has the sources that run. Any goroutine may call its methods.
type Set struct {
	disk chan struct{} // holds one item for each source that reads or writes its file

	mu    sync.Mutex // guards the fields that follow
	list  map[*source]bool
	clock clock
	taken map[string]*taken // by Options.Taken
}

// NewSet returns a set without sources.
func NewSet() *Set {
	return &Set{disk: make(chan struct{}, maxDisk), list: map[*source]bool{}}
}

// Run runs a source until ctx ends, and then returns nil. An error says why the source can't go on;
// the caller decides whether it is started again. A source without further runs stays until ctx
// ends, so that it is shown.
func (set *Set) Run(ctx context.Context, o Options) error {
	ended := make(chan error, 1)
	if err := set.Start(ctx, &o, func(err error) { ended <- err }); err != nil {
		return err
	}
	return <-ended
}

// Start is [Set.Run] without waiting: it calls ended, once, with the result that Run would return.
// The error says why the source can't start; ended is not called then. o must not be changed any
// more.
func (set *Set) Start(ctx context.Context, o *Options, ended func(error)) error {
	var s *source
	var err error
	set.onDisk(func() { s, err = newSource(o, set) })
	if err != nil {
		return err
	}
	set.mu.Lock()
	set.list[s] = true
	set.clock.follow(len(set.list), set.lookAtClock)
	set.mu.Unlock()
	o.Gateway.Touch()
	s.over = func(err error) {
		set.mu.Lock()
		delete(set.list, s)
		set.clock.follow(len(set.list), set.lookAtClock)
		set.mu.Unlock()
		o.Gateway.Touch()
		close(s.gone)
		ended(err)
	}
	s.open(ctx)
	return nil
}

// onDisk runs f, which reads or writes a file, while few others do.
func (set *Set) onDisk(f func()) {
	set.disk <- struct{}{}
	defer func() { <-set.disk }()
	f()
}

// List describes the sources that run, in no order.
func (set *Set) List() []adminapi.Source {
	set.mu.Lock()
	defer set.mu.Unlock()
	list := make([]adminapi.Source, 0, len(set.list))
	for s := range set.list {
		list = append(list, s.view())
	}
	return list
}

// Trigger makes the sources of a name run now, whatever their schedule. It returns how many do:
// those that run already and those that have no session don't, nor do webhooks and watched files.
func (set *Set) Trigger(name string) int {
	set.mu.Lock()
	defer set.mu.Unlock()
	n := 0
	for s := range set.list {
		if v := s.view(); v.Name == name && v.State != adminapi.SourceRunning &&
			v.Reason != reasonNoSession && !s.config.Webhook && !s.listens() {
			n++
			s.do(s.trigger)
		}
	}
	return n
}

// source is one run of [Set.Start]. It has no goroutine while it only waits: see do. Its fields
// above mu belong to the functions that run through do, except those that are set before the first
// one.
type source struct {
	o        *Options
	ctx      context.Context
	over     func(error) // tells that the source has ended
	timer    *time.Timer // makes it look at the clock
	config   *configs.Source
	set      *Set
	timing   timing
	filter   atomic.Pointer[filtering]
	conn     *gatewayConn
	binding  binding
	gone     chan struct{} // closed when the source has ended
	progress progress
	ready    time.Time  // since when the source has had a session
	lookedAt time.Time  // when the source looked at the clock
	span     spans.Span // of the run that is under way, or of the last one
	job      *job       // the run that is under way, or nil
	waitsFor string     // why the run waits, for people; "" if it does not
	missed   string     // says which run was missed since the last one, and its fate
	isUnkept bool       // the progress could not be written
	failure  error      // why the source can't go on

	// takes the events instead of the outbox, if it is set
	try    func(text string, level protocol.Level)
	outbox outbox

	accepted, dropped atomic.Int32 // events that the filter let through, and others

	mu      sync.Mutex // guards the fields that follow
	shown   adminapi.Source
	todo    []func()
	isAwake bool // a goroutine does the due work
}

// filtering decides the level of events: by the first rule that matches, else by the default level.
type filtering struct {
	rules []rule
	level protocol.Level
}

func (s *source) setFilter(list []configs.FilterRule, level string) error {
	rules, err := compile(list)
	if err == nil {
		s.filter.Store(&filtering{rules, protocol.Level(level)})
	}
	return err
}

// SetFilter changes the filter of a source that runs for one session, for the events from now on.
// It returns false if there is no such source, and the error of a pattern.
func (set *Set) SetFilter(
	session, name string, list []configs.FilterRule, level string,
) (bool, error) {
	if s := set.find(session, name); s != nil {
		return true, s.setFilter(list, level)
	}
	return false, nil
}

// Counts returns how many events a source that runs for one session has made, and how many its
// filter has dropped.
func (set *Set) Counts(session, name string) (accepted, dropped int) {
	if s := set.find(session, name); s != nil {
		accepted, dropped = int(s.accepted.Load()), int(s.dropped.Load())
	}
	return accepted, dropped
}

func (set *Set) find(session, name string) *source {
	set.mu.Lock()
	defer set.mu.Unlock()
	for s := range set.list {
		if s.o.Session == session && s.o.Provider.Name == name {
			return s
		}
	}
	return nil
}

type rule struct {
	pattern *match.Pattern
	outcome protocol.Level
}

func newSource(o *Options, set *Set) (*source, error) {
	s := &source{o: o, set: set, config: o.Provider.Source, gone: make(chan struct{})}
	if s.config.Webhook {
		if _, missing := hookSecret(s.config.SecretEnv); missing != "" {
			o.Faults([]string{missing})
		}
	}
	var err error
	if s.timing, err = newTiming(s.config); err != nil {
		return nil, err
	}
	if err = s.setFilter(s.config.Filter, s.config.Level); err != nil {
		return nil, err
	}
	if o.State != "" {
		s.progress, err = loadProgress(o.State)
		// it might run more often than the file allows
		if err != nil && (s.config.Runs > 0 || !s.config.At.IsZero()) {
			return nil,
				fmt.Errorf(
					"how often it has run is not known: %w; remove that file, and it begins anew",
					err)
		}
		if err != nil {
			o.Line(fromGateway, fmt.Sprintf("what it did before is not known: %v", err))
		}
	}
	s.progress = s.progress.forSource(identity(s.config))
	if s.progress.IsUnderWay {
		s.progress.IsUnderWay = false
		o.Line(fromGateway, "the run of "+s.progress.LastRunAt.UTC().Format(time.RFC3339)+
			" was cut off")
	}
	s.binding = binding{want: o.Session, hello: func() *protocol.Hello {
		return &protocol.Hello{
			Name: o.Provider.Name, ProtocolVersion: new(protocol.Version), Session: o.Session,
		}
	}}
	s.show(reasonNoSession, time.Time{})
	return s, nil
}

func compile(list []configs.FilterRule) ([]rule, error) {
	rules := make([]rule, len(list))
	for i, r := range list {
		p, err := match.Compile(r.Match)
		if err != nil {
			return nil, fmt.Errorf("filter[%d].match: %w", i, err)
		}
		rules[i] = rule{p, protocol.Level(r.Outcome)}
	}
	return rules, nil
}

// outcome is the level of an event with a text.
func outcome(rules []rule, text string, level protocol.Level) protocol.Level {
	t := match.NewText(text)
	for _, r := range rules {
		if r.pattern.Match(t) == match.Yes {
			return r.outcome
		}
	}
	return level
}
