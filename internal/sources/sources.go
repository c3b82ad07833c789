// Package sources runs the sources of events that provider files name: commands, prompts, watched files, polled URLs
// and webhooks. A source is a provider like any other. It only speaks to the gateway in the same process, and needs no
// power that a program at a WebSocket lacks.
package sources

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/match"
	"tapgw/internal/protocol"
	"tapgw/internal/watch"
)

// Options say which source runs for which sessions. Provider, Gateway, Token, Session and the functions are required;
// functions may be called from any goroutine.
type Options struct {
	Provider *configs.Provider // of kind source; fixed
	Gateway  *gateway.Gateway
	Token    string
	Session  string   // an id, or [protocol.AllSessions]
	Dir      string   // where the command runs and the files are; absolute
	Env      []string // of the command, as NAME=value
	State    string   // the file that keeps the source's progress; "" for none
	// Taken is the file that keeps which requests the webhooks of Provider have taken; "" for none.
	Taken string

	// Line takes a line that the command prints, or a message about the source.
	Line func(from, line string)
	// Faults takes all present faults of the source, one line each. It replaces the earlier ones.
	Faults func(lines []string)
	// Record takes the record of a run that has ended, and must not block; nil: nobody keeps them.
	Record func(adminapi.Record)
}

// fromGateway is the source of messages about a source of events.
const fromGateway = "tapgw"

// maxDisk is how many sources read or write files at once, because each takes a thread meanwhile, which stays.
const maxDisk = 4

// Set has the sources that run. Any goroutine may call its methods.
type Set struct {
	trees *watch.Trees
	disk  chan struct{} // holds one item for each source that reads or writes its file

	mu    sync.Mutex // guards list and taken
	list  map[*source]bool
	taken map[string]*taken // by Options.Taken
}

// NewSet returns a set without sources.
func NewSet() *Set {
	return &Set{trees: watch.NewTrees(), disk: make(chan struct{}, maxDisk), list: map[*source]bool{}}
}

// Run runs a source until ctx ends, and then returns nil. An error says why the source can't go on; whoever called Run
// decides whether it is started again. A source that has nothing left to do stays until ctx ends, so that it is shown.
func (set *Set) Run(ctx context.Context, o Options) error {
	var s *source
	var err error
	elsewhere(func() { set.onDisk(func() { s, err = newSource(o, set) }) })
	if err != nil {
		return err
	}
	set.mu.Lock()
	set.list[s] = true
	set.mu.Unlock()
	o.Gateway.Touch()
	defer func() {
		set.mu.Lock()
		delete(set.list, s)
		set.mu.Unlock()
		o.Gateway.Touch()
		close(s.gone)
	}()
	return s.run(ctx)
}

// onDisk runs f, which reads or writes a file, while few others do.
func (set *Set) onDisk(f func()) {
	set.disk <- struct{}{}
	defer func() { <-set.disk }()
	f()
}

// elsewhere runs f on a stack of its own, so that the stack of the source, which stays, remains small.
func elsewhere(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
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

// Trigger makes the sources of a name run now, whatever their schedule. It returns how many do: those that run already
// and those that have no session don't, nor do webhooks and watched files.
func (set *Set) Trigger(name string) int {
	set.mu.Lock()
	defer set.mu.Unlock()
	n := 0
	for s := range set.list {
		if v := s.view(); v.Name == name && v.State != adminapi.SourceRunning && v.Reason != reasonNoSession &&
			!s.of.Webhook && !s.listens() {
			n++
			select {
			case s.triggers <- struct{}{}:
			default: // one that waits is enough
			}
		}
	}
	return n
}

// source is one run of [Set.Run]. Its goroutine owns the fields but shown.
type source struct {
	o        Options
	of       *configs.Source
	set      *Set
	timing   timing
	filter   []rule
	link     *link
	binding  binding
	triggers chan struct{}
	hooks    chan hookRequest
	gone     chan struct{} // closed when the source has ended
	progress progress
	ready    time.Time // since when the source has had a session
	lookedAt time.Time // when the source looked at the clock
	job      *job      // the run that is under way, nil for none
	missed   string    // says which run was missed since the last one, and what became of it
	isUnkept bool      // the progress could not be written

	try    func(text string, level protocol.Level) // takes the events instead of the outbox, if it is set
	outbox outbox

	mu    sync.Mutex
	shown adminapi.Source // guarded by mu
}

type rule struct {
	pattern *match.Pattern
	outcome protocol.Level
}

func newSource(o Options, set *Set) (*source, error) {
	s := &source{o: o, set: set, of: o.Provider.Source, triggers: make(chan struct{}, 1), gone: make(chan struct{})}
	if s.of.Webhook {
		s.hooks = make(chan hookRequest)
		if _, missing := hookSecret(s.of.SecretEnv); missing != "" {
			o.Faults([]string{missing})
		}
	}
	var err error
	if s.timing, err = newTiming(s.of); err != nil {
		return nil, err
	}
	if s.filter, err = compile(s.of.Filter); err != nil {
		return nil, err
	}
	if o.State != "" {
		if s.progress, err = loadProgress(o.State); err != nil {
			o.Line(fromGateway, fmt.Sprintf("what it did before is not known: %v", err))
		}
	}
	s.progress = s.progress.of(identity(s.of))
	if s.progress.IsUnderWay {
		s.progress.IsUnderWay = false
		o.Line(fromGateway, "the run of "+s.progress.LastRunAt.UTC().Format(time.RFC3339)+" was cut off")
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

// outcome is what becomes of an event with a text.
func outcome(rules []rule, text string, level protocol.Level) protocol.Level {
	t := match.NewText(text)
	for _, r := range rules {
		if r.pattern.Match(t) == match.Yes {
			return r.outcome
		}
	}
	return level
}
