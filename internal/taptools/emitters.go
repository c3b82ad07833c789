package taptools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/tapconfig"
	"tapgw/internal/visible"
	"tapgw/providers"
)

// Emitters runs the sources of events that the model of one session starts. The methods may be
// called from any goroutine.
type Emitters interface {
	// Run runs a source for the session until ctx ends. line takes its output, ended each run that
	// has ended: why it failed, or "". It must not block. An error says why the source can't go on.
	Run(ctx context.Context, p *configs.Provider, line func(from, line string),
		ended func(failure string)) error
	// SetFilter changes the filter of a source that runs. It returns false if no such source runs.
	SetFilter(name string, filter []configs.FilterRule, level string) (bool, error)
	// Counts returns how many events a source that runs has made and dropped.
	Counts(name string) (accepted, dropped int)
	// Sources lists all sources of the session, those of files too.
	Sources() []adminapi.Source
	// Try counts how the filter of a source would treat events, by outcome.
	Try(p *configs.Provider, rows []adminapi.StreamRow) (map[string]int, error)
	// Save writes a provider file, never over another, and Remove removes one that Save wrote.
	Save(name string, text []byte) (file string, err error)
	Remove(name string) error
}

const (
	// prefix is before the name of an emitter in that of its provider. So no emitter takes the name
	// of another's provider, whose streams are then its own.
	prefix      = Name + "."
	maxEmitters = 20 // of a session, those that have ended too
	// promptRuns is how often a prompt is given if the model names no number. The guard against
	// loops does not end prompts that wait long enough between two runs.
	promptRuns   = 10
	maxInjectors = 200
)

// emitter is a source that the model started. spec and isUsers are guarded by toolset.mu.
type emitter struct {
	spec     map[string]any // as tap.config.json would have it
	provider *configs.Provider
	isUsers  bool // a person's, as the model said
	cancel   context.CancelFunc
	closeLog func()
	ended    chan struct{} // closed when it has ended
	reason   string        // why it ended; read after ended
}

// injector says how far the events of a stream go.
type injector struct {
	enabled  bool
	delivery string
	isUsers  bool
}

type startArgs struct {
	Name           string   `json:"name"                     jsonschema:"the emitter's name"`
	Command        string   `json:"command,omitempty"        jsonschema:"what a shell runs in the session's directory; each line is an event"`
	Prompt         string   `json:"prompt,omitempty"         jsonschema:"in place of command: a prompt for this session"`
	Description    string   `json:"description,omitempty"    jsonschema:"what it is for"`
	Channel        string   `json:"channel,omitempty"        jsonschema:"the stream of its events; its name if left out"`
	Stream         string   `json:"stream,omitempty"         jsonschema:"the same as channel"`
	CWD            string   `json:"cwd,omitempty"            jsonschema:"a directory below the session's, where the command runs"`
	Every          string   `json:"every,omitempty"          jsonschema:"when it runs again, such as 15m; idle for a prompt whenever the session waits"`
	RunInterval    string   `json:"runInterval,omitempty"    jsonschema:"the same as every"`
	EverySchedule  []string `json:"everySchedule,omitempty"  jsonschema:"pauses between runs, the last of them again and again"`
	MaxRuns        int      `json:"maxRuns,omitempty"        jsonschema:"how often it runs at most; 10 for a temporary prompt if left out, else without end"`
	Scope          string   `json:"scope,omitempty"          jsonschema:"temporary, which ends with the session, or persistent, which the person is asked about"`
	Lifespan       string   `json:"lifespan,omitempty"       jsonschema:"the same as scope"`
	ManagedBy      string   `json:"managedBy,omitempty"      jsonschema:"modelOwned, or userOwned if only the person's word may change it"`
	Ownership      string   `json:"ownership,omitempty"      jsonschema:"the same as managedBy"`
	AutoStart      *bool    `json:"autoStart,omitempty"      jsonschema:"of a persistent one: whether it starts by itself"`
	IncludeStderr  *bool    `json:"includeStderr,omitempty"  jsonschema:"whether lines of stderr are events too; true if left out"`
	IncludePattern string   `json:"includePattern,omitempty" jsonschema:"a regular expression: other lines are dropped"`
	ExcludePattern string   `json:"excludePattern,omitempty" jsonschema:"a regular expression: such lines are dropped"`
	NotifyPattern  string   `json:"notifyPattern,omitempty"  jsonschema:"a regular expression: such lines wake the session"`
	EventFilter    any      `json:"eventFilter,omitempty"    jsonschema:"a list of {match, outcome}; the first that matches decides: drop, keep, surface or inject"`
	Subscribe      *bool    `json:"subscribe,omitempty"      jsonschema:"whether events may reach the session at all; true if left out"`
	Delivery       string   `json:"delivery,omitempty"       jsonschema:"of the stream: important, all, inject, surface, keep or drop"`
	Force          bool     `json:"force,omitempty"          jsonschema:"start over a userOwned emitter, because the user says so"`
}

type stopArgs struct {
	Name     string `json:"name"               jsonschema:"the emitter's name"`
	Scope    string `json:"scope,omitempty"    jsonschema:"persistent removes its definition too, which the person is asked about"`
	Lifespan string `json:"lifespan,omitempty" jsonschema:"the same as scope"`
	Force    bool   `json:"force,omitempty"    jsonschema:"stop a userOwned emitter, because the user says so"`
}

func (t *toolset) addEmitters() {
	if t.Emitters == nil {
		return
	}
	slow := func(p *providers.Tool) { p.Timeout = modeTimeout + gateSlack }
	addTool(t, "tap_start_emitter", "Start an emitter for this session: a command whose lines are "+
		"events of a stream, or a prompt, once or again and again: without maxRuns, a prompt 10 "+
		"times at most. A "+
		"filter says which events wake you. The rules for your shell hold for the command. Its "+
		"process group ends "+
		"with the emitter; what leaves it, by setsid, does not.", t.start, slow)
	addTool(t, "tap_list_emitters",
		"List the emitters of this session with what they did, and the "+
			"sources that files define.", t.listEmitters, isReadOnly)
	addTool(t, "tap_stop_emitter", "Stop an emitter of this session, and the process group of its "+
		"command. What has left the group, by setsid, runs on.", t.stop, slow)
	addTool(
		t,
		"tap_set_event_filter",
		"Change which events of an emitter wake you. The answer says "+
			"what the new filter makes of the events so far.",
		t.setFilter,
	)
	addTool(t, "tap_enable_injector",
		"Let events of your emitters in a stream reach this session, "+
			"as their filters say.", t.enableInjector)
	addTool(t, "tap_disable_injector", "Keep events of your emitters in their stream: they reach "+
		"this session no more.", t.disableInjector)
}

// spec is the entry of a tap.config.json that the arguments are.
func (in *startArgs) spec() (map[string]any, error) {
	data, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	var spec map[string]any
	return spec, json.Unmarshal(data, &spec)
}

// newSource makes a source of an entry, with the injector of its stream, and its provider file.
func (t *toolset) newSource(
	spec map[string]any,
) (*configs.Provider, *tapconfig.ProviderFile, error) {
	name, _ := spec["name"].(string)
	stream := cmp.Or(streamOf(spec), tapconfig.Name(name))
	file := map[string]any{"emitters": []any{spec}}
	t.mu.Lock()
	if in := t.injectors[stream]; in != nil {
		file["streams"] = []any{map[string]any{
			"name": stream, "sessionInjector": map[string]any{"enabled": in.enabled,
				"delivery": in.delivery},
		}}
	}
	t.mu.Unlock()
	data, err := json.Marshal(file)
	if err != nil {
		return nil, nil, err
	}
	config, err := tapconfig.Parse(data)
	if err != nil {
		return nil, nil, err
	}
	dir := t.Session.View().CWD
	f := &config.Providers(dir)[0]
	if f.Reason != "" {
		return nil, nil, fmt.Errorf("the emitter %q: %s", visible.Line(name), f.Reason)
	}
	p, faults := configs.ParseProvider(f.Name+".toml", f.Text)
	if len(faults) > 0 {
		return nil, nil, fmt.Errorf("the emitter %q: %s", f.Name, faults[0].Message)
	}
	p.Name, p.File, p.Enabled = prefix+f.Name, "", true
	if !configs.IsProviderName(p.Name) {
		return nil, nil, fmt.Errorf("name: %q is too long for an emitter", f.Name)
	}
	if len(p.Source.Run) > 0 {
		if p.CWD, err = inside(dir, p.CWD); err != nil {
			return nil, nil, err
		}
	}
	return &p, f, nil
}

func streamOf(spec map[string]any) string {
	for _, key := range []string{"stream", "channel"} {
		if s, _ := spec[key].(string); tapconfig.Name(s) != "" {
			return tapconfig.Name(s)
		}
	}
	return ""
}

// inside returns where a directory of the session leads, symbolic links followed. The error says
// that it leads out.
func inside(dir, path string) (string, error) {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("cwd: %w", err)
	}
	at, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", errors.New("cwd: there is no such directory")
	}
	rel, err := filepath.Rel(root, at)
	if err != nil || !filepath.IsLocal(rel) {
		return "", errors.New("cwd: is not below the session's directory")
	}
	if info, err := os.Stat(at); err != nil || !info.IsDir() {
		return "", errors.New("cwd: is no directory")
	}
	return at, nil
}

func (t *toolset) start(ctx context.Context, in startArgs) (string, error) {
	scope, err := scopeOf(in.Scope, in.Lifespan)
	if err != nil {
		return "", err
	}
	isUsers, err := isUserOwned(in.ManagedBy, in.Ownership)
	if err != nil {
		return "", err
	}
	spec, err := in.spec()
	if err != nil {
		return "", err
	}
	p, file, err := t.newSource(spec)
	if err != nil {
		return "", err
	}
	if err := t.mayStart(p.Name, in.Force); err != nil {
		return "", err
	}
	isTimed := len(p.Source.Every) > 0 || p.Source.Idle
	if in.MaxRuns == 0 && scope == temporary && p.Source.Prompt != "" && isTimed {
		spec["maxRuns"] = promptRuns
	}
	if err := t.permit(ctx, p, scope); err != nil {
		return "", err
	}
	if scope == persistent {
		return t.persist(ctx, file)
	}
	on := in.Subscribe == nil || *in.Subscribe
	stream := p.Source.Stream
	if err := t.subscribe(stream, on, in.Delivery); err != nil {
		return "", err
	}
	permitted := p.CWD
	if p, file, err = t.newSource(spec); err != nil { // with the injector
		return "", err
	}
	if p.CWD != permitted {
		return "", errors.New("cwd: leads elsewhere now than when the command was permitted")
	}
	if err := t.run(p, spec, isUsers, in.Force); err != nil {
		return "", err
	}
	lines := []string{
		fmt.Sprintf("Started emitter '%s'.", file.Name), "type=" + kindOf(p), "stream=" + stream,
		"lifespan=temporary", "ownership=" + ownership(isUsers),
	}
	if p.Source.Runs > 0 {
		lines = append(lines, fmt.Sprint("maxRuns=", p.Source.Runs))
	}
	for _, note := range file.Notes {
		lines = append(lines, "note="+visible.Line(note))
	}
	return strings.Join(lines, "\n"), nil
}

// permit asks all gates and rules that stand before the host's own shell about a command that a
// shell will run. The person reads the command that will run, not the model's arguments.
func (t *toolset) permit(ctx context.Context, p *configs.Provider, scope string) error {
	run := p.Source.Run
	if len(run) == 0 {
		return nil
	}
	dir, home := p.CWD, t.Session.View().CWD
	if root, err := inside(home, home); err == nil && root == dir {
		dir = ""
	}
	call, _ := providers.CallFrom(ctx)
	return t.Session.PermitShell(ctx, gateway.ShellCommand{
		Text: run[len(run)-1], Dir: dir, Call: call.ID,
		Why: fmt.Sprintf("run as the %s emitter %s, %s, in %s", scope,
			strings.TrimPrefix(p.Name, prefix), schedule(p.Source), visible.Line(p.CWD)),
	})
}

// maxPauses is how many pauses a question names, beside the last.
const maxPauses = 4

// schedule says when a command runs.
func schedule(s *configs.Source) string {
	last := len(s.Every) - 1
	if last < 0 {
		return "once, now"
	}
	when := []string{"now"}
	for _, pause := range s.Every[:min(last, maxPauses)] {
		when = append(when, "after "+pause.String())
	}
	if more := last - maxPauses; more > 0 {
		when = append(when, "after "+visible.Count(more, "more pause"))
	}
	when = append(when, "then every "+s.Every[last].String())
	if s.Runs > 0 {
		when = append(when, visible.Count(s.Runs, "time")+" at most")
	}
	return strings.Join(when, ", ")
}

// mayStart returns why no emitter of a name may be started.
func (t *toolset) mayStart(name string, force bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mayStartLocked(name, force)
}

func (t *toolset) mayStartLocked(name string, force bool) error {
	short := strings.TrimPrefix(name, prefix)
	has := t.emitters[name]
	switch {
	case has == nil || has.isDone(t.states()[name]):
	case has.isUsers && !force:
		return userControlled("emitter", short)
	case !has.isUsers:
		return fmt.Errorf("the emitter '%s' runs: stop it first, or choose another name", short)
	}
	if has == nil && len(t.emitters) >= maxEmitters && !t.forgetOne() {
		return fmt.Errorf("%d emitters run in this session, which is the limit: stop one first",
			maxEmitters)
	}
	return nil
}

// forgetOne removes an emitter that has ended, to make place for another.
func (t *toolset) forgetOne() bool {
	states := t.states()
	for _, name := range slices.Sorted(maps.Keys(t.emitters)) {
		if e := t.emitters[name]; e.isDone(states[name]) {
			e.cancel()
			delete(t.emitters, name)
			e.closeLog()
			return true
		}
	}
	return false
}

func userControlled(what, name string) error {
	//nolint:staticcheck // the model reads it as sentences
	return fmt.Errorf(
		"the %s '%s' is user-controlled. Pass force=true only when the user explicitly wants to "+
			"override it.", what, name)
}

// states has the sources of this session that the model started, by the names of their providers.
func (t *toolset) states() map[string]adminapi.Source {
	found := map[string]adminapi.Source{}
	for _, s := range t.Emitters.Sources() {
		if s.File == "" && s.Session == t.Provider.Session {
			found[s.Name] = s
		}
	}
	return found
}

// isDone reports whether an emitter runs no more.
func (e *emitter) isDone(now adminapi.Source) bool {
	select {
	case <-e.ended:
		return true
	default:
		return now.State == adminapi.SourceDone
	}
}

// run starts a source beside the tools.
func (t *toolset) run(p *configs.Provider, spec map[string]any, isUsers, force bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.mayStartLocked(p.Name, force); err != nil { // another call may have been faster
		return err
	}
	if t.ctx.Err() != nil {
		return gateway.ErrSessionEnded
	}
	before := t.emitters[p.Name]
	ctx, cancel := context.WithCancel(t.ctx)
	line, closeLog := t.Log(p.Name)
	if before != nil { // its lines stay
		before.closeLog()
	}
	e := &emitter{
		spec: spec, provider: p, isUsers: isUsers, cancel: cancel, closeLog: closeLog,
		ended: make(chan struct{}),
	}
	t.emitters[p.Name] = e
	t.running.Go(func() {
		defer close(e.ended)
		defer cancel()
		if before != nil { // two can't have one name
			before.cancel()
			<-before.ended
		}
		once := len(p.Source.Every) == 0 && !p.Source.Idle && p.Source.Prompt == ""
		ended := func(failure string) {
			if failure == "" && once {
				t.tell(p, "the command ended: it worked", true)
			} else if !once && failure != "" {
				t.tell(p, "a run failed: "+failure, false)
			}
		}
		if err := t.Emitters.Run(ctx, p, line, ended); err != nil && ctx.Err() == nil {
			e.reason = err.Error()
			line("tapgw", e.reason)
			t.tell(p, e.reason, true)
		}
	})
	return nil
}

// tell writes a line about an emitter into its stream, without waiting. With wakes, the line may
// wake the session, if the stream's injector lets it.
func (t *toolset) tell(p *configs.Provider, text string, wakes bool) {
	event := providers.Event{
		Stream: p.Source.Stream, Level: providers.Keep,
		Metadata: map[string]any{"source": "system"},
		Text: fmt.Sprintf("emitter '%s': %s", strings.TrimPrefix(p.Name, prefix),
			visible.Line(text)),
	}
	t.mu.Lock()
	if in := t.injectors[p.Source.Stream]; wakes && in != nil && in.enabled {
		switch in.delivery {
		case tapconfig.DeliverySurface:
			event.Level = providers.Surface
		case tapconfig.DeliveryImportant, tapconfig.DeliveryAll, tapconfig.DeliveryInject:
			event.Level = providers.Inject
		}
	}
	t.mu.Unlock()
	if t.ctx.Err() == nil { // else no receiver waits for it
		t.running.Go(func() { t.pushLine(event, wakes) })
	}
}

// pushLine pushes a line of [toolset.tell]. One that wakes is not lost: a session may wait for the
// end of its command. Where the tools can have no further stream it goes into the one that they
// wrote into last, and it waits for its turn if too many come at once.
func (t *toolset) pushLine(event providers.Event, wakes bool) {
	for {
		_, err := t.provider.Push(t.ctx, event)
		refused, ok := errors.AsType[*providers.Error](err)
		switch {
		case !ok:
			return
		case refused.Code == providers.CodePayloadTooLarge:
			rows := t.Session.History(nil, 1, time.Time{}) // newest first
			own := slices.IndexFunc(rows, func(r gateway.HistoryRow) bool {
				return r.Provider == Name
			})
			if own < 0 || rows[own].Stream == event.Stream {
				return
			}
			event.Stream = rows[own].Stream
		case refused.Code == providers.CodeRateLimited && wakes:
			if chans.Sleep(t.ctx, time.Second) != nil {
				return
			}
		default:
			return
		}
	}
}
