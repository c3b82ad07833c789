package taptools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
	"tapgw/internal/sources"
	"tapgw/providers"
)

// emitters runs sources as the gateway does, and keeps provider files in memory.
type emitters struct {
	gateway *gateway.Gateway
	set     *sources.Set
	home    string

	mu    sync.Mutex
	saved map[string]string
	lines map[string][]string // of the logs that are kept
	users map[string]int
}

func (e *emitters) log(name string) (line func(from, line string), done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users[name]++
	return func(from, line string) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.lines[name] = append(e.lines[name], from+": "+line)
		}, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.users[name]--; e.users[name] == 0 {
				delete(e.users, name)
				delete(e.lines, name)
			}
		}
}

// logs are the names and lines of the logs that are kept.
func (e *emitters) logs() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Sprint(e.users, e.lines)
}

func (e *emitters) Run(
	ctx context.Context, p *configs.Provider, line func(from, line string), ended func(string),
) error {
	pass := e.gateway.Issue(gateway.PassSpec{
		Trust: gateway.TrustProject, Session: "s", Name: p.Name, Owner: "tap", Model: true,
	})
	defer pass.Revoke()
	return e.set.Run(ctx, sources.Options{
		Provider: p, Gateway: ofSources{e.gateway}, Token: pass.Token(), Session: "s", Dir: p.CWD,
		// not this machine's profile
		Env:  func() []string { return proc.Environ(map[string]string{"HOME": e.home}) },
		Line: line, Faults: func([]string) {}, Record: func(r adminapi.Record) { ended(r.Reason) },
	})
}

func (e *emitters) SetFilter(name string, filter []configs.FilterRule, level string) (bool, error) {
	return e.set.SetFilter("s", name, filter, level)
}

func (e *emitters) Counts(name string) (int, int) { return e.set.Counts("s", name) }

func (e *emitters) Sources() []adminapi.Source {
	return append(e.set.List(), adminapi.Source{Name: "nightly", File: "/home/nightly.toml",
		Kind: "prompt"})
}

func (e *emitters) Try(p *configs.Provider, rows []adminapi.StreamRow) (map[string]int, error) {
	events, err := sources.TryFilter(*p, rows)
	counts := map[string]int{}
	for _, event := range events {
		counts[event.Outcome]++
	}
	return counts, err
}

func (e *emitters) Save(name string, text []byte) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.saved[name] != "" {
		return "", errors.New("a provider file has the name")
	}
	e.saved[name] = string(text)
	return "/home/" + name + ".toml", nil
}

func (e *emitters) Remove(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.saved, name)
	return nil
}

// PermitShell is [gateway.HostInfo].PermitShell: every command that has "rm" in it is denied.
func (h *host) PermitShell(_ context.Context, c gateway.ShellCommand) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.command = c
	if strings.Contains(c.Line(), "rm ") {
		return "rm is denied here"
	}
	return ""
}

// until calls a tool until its answer has all texts.
func (w *world) until(tool string, args object, want ...string) {
	w.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		got := w.call(tool, args)
		missing := ""
		for _, part := range want {
			if !strings.Contains(got, part) {
				missing = part
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			w.Fatalf("%s: got %q, want %q in it", tool, got, missing)
		}
	}
}

func TestEmitter(t *testing.T) {
	w := newWorld(t)
	marker := filepath.Join(w.dir, "more")
	command :=
		"echo booting; echo error: x; until test -e more; do sleep 0.01; done; echo error: y; exec sleep 1000"
	w.want("the start", w.call("tap_start_emitter", object{
		"name": " My Build ", "command": command, "channel": "ops",
		"eventFilter": []object{{"match": "BOOTING", "outcome": "drop"},
			{"match": "error", "outcome": "surface"}},
	}), "Started emitter 'my-build'.", "type=command", "stream=ops", "ownership=modelOwned")
	w.until("tap_list_emitters", object{}, "- my-build: type=command status=running stream=ops",
		"acceptedLines=1 droppedLines=1", "- nightly: kind=prompt")
	w.until("tap_stream_history", object{"channel": "ops"},
		"source=emitter emitter=tap.my-build error: x")

	w.want("a second one of the name",
		w.call("tap_start_emitter", object{"name": "my-build", "command": "true"}), "error: ",
		"runs: stop it first")
	w.want("a new filter",
		w.call("tap_set_event_filter", object{"name": "my-build", "excludePattern": "error"}),
		"Of the events so far: drop=1")
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.until("tap_list_emitters", object{}, "acceptedLines=1 droppedLines=2")
	w.want("the end", w.call("tap_stop_emitter", object{"name": "my-build"}),
		"Stopped emitter 'my-build'.")
	w.want("the list", w.call("tap_list_emitters", object{}), "Emitters (0):")
	w.until("tap_stream_history", object{"channel": "ops"},
		"source=system emitter 'my-build': stopped")
}

// A command that ends says so in its stream, and its name is free again.
func TestEmitterEnds(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		fails := object{"name": "fails", "command": "echo x; exit 3"}
		w.want("the start", w.call("tap_start_emitter", fails), "Started")
		w.until("tap_list_emitters", object{}, "- fails: type=command status=error",
			`exit status 3`)
	}
	const twice = "map[tap.fails:1] map[tap.fails:[stdout: x tapgw: the command ended with exit status 3 " +
		"stdout: x tapgw: the command ended with exit status 3]]"
	if got := w.emitters.logs(); got != twice {
		t.Errorf("the logs: got %s, want that of both runs, for one emitter: %s", got, twice)
	}
	w.until("tap_stream_history", object{"channel": "fails"}, "source=system",
		"ended with exit status 3")
	w.want("the start", w.call("tap_start_emitter", object{"name": "works", "command": "true"}),
		"Started")
	w.until("tap_list_emitters", object{}, "- works: type=command status=done")
	w.until("tap_stream_history", object{"channel": "works"}, "the command ended: it worked")
	for _, name := range []string{"fails", "works"} {
		w.want("the stop", w.call("tap_stop_emitter", object{"name": name}), "Stopped")
	}
	if got := w.emitters.logs(); got != "map[] map[]" {
		t.Errorf("the logs after the stop: got %s, want none", got)
	}
}

// A session that waits for the ends of commands hears of each, also where the tools have all the
// streams that they may have, and where more commands end at once than they may push.
func TestEveryEndIsTold(t *testing.T) {
	w := newWorld(t)
	for i := range protocol.MaxStreams {
		w.until("tap_post", object{"channel": fmt.Sprintf("s%d", i), "message": "x"}, "Posted")
	}
	w.until("tap_post", object{"channel": "one-more", "message": "x"}, "more than the 20")
	const commands = 15
	for i := range commands {
		// It injects nothing: only ten injects may wait, and this test prompts no model.
		args := object{"name": fmt.Sprintf("works-%d", i), "command": "true", "subscribe": false}
		w.want("the start", w.call("tap_start_emitter", args), "Started")
	}
	for i := range commands {
		w.until("tap_stream_history", object{"channel": "s19", "limit": 100},
			fmt.Sprintf("emitter 'works-%d': the command ended: it worked", i))
	}
}

// An injector decides how far the events of a stream go.
func TestInjectors(t *testing.T) {
	for delivery, want := range map[string]string{
		"": "inject=1 surface=1", "important": "inject=1 surface=1",
		"surface": "inject=1 surface=1", "all": "inject=2", "keep": "keep=2", "drop": "drop=2",
		"off": "keep=2",
	} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			filter := []object{{"match": "one", "outcome": "surface"},
				{"match": "two", "outcome": "inject"}}
			w.call("tap_start_emitter", object{
				"name": "e", "command": "echo one; sleep 0.3; echo two; exec sleep 1000",
				"subscribe":   false,
				"eventFilter": filter,
			})
			w.until("tap_stream_history", object{"channel": "e"}, "one", "two")
			args := object{"channel": "e", "delivery": delivery}
			tool := "tap_enable_injector"
			if delivery == "off" {
				args, tool = object{"channel": "e"}, "tap_disable_injector"
			}
			w.want("the injector", w.call(tool, args), "injector of stream 'e'")
			w.want("the events",
				w.call("tap_set_event_filter", object{"name": "e", "rules": filter}), want)
		})
	}
}

// Emitters of which a person has the last word are changed by the model only with force.
func TestUserOwnedEmitters(t *testing.T) {
	w := newWorld(t)
	const refused = "user-controlled. Pass force=true"
	start := object{"name": "e", "command": "exec sleep 1000", "ownership": "userOwned"}
	w.want("the start", w.call("tap_start_emitter", start), "ownership=userOwned")
	w.want("a second start", w.call("tap_start_emitter", start), refused)
	w.want("a filter", w.call("tap_set_event_filter", object{"name": "e", "notifyPattern": "x"}),
		refused)
	w.want("a stop", w.call("tap_stop_emitter", object{"name": "e"}), refused)
	w.want("an injector",
		w.call("tap_enable_injector", object{"channel": "e", "managedBy": "userOwned"}), "Enabled")
	w.want("its end", w.call("tap_disable_injector", object{"channel": "e"}), refused)
	w.want("its end by force",
		w.call("tap_disable_injector", object{"channel": "e", "force": true}), "Disabled")
	w.want("a filter by force",
		w.call("tap_set_event_filter", object{"name": "e", "notifyPattern": "x", "force": true}),
		"Set the filter")
	start["force"] = true
	w.want("a start by force", w.call("tap_start_emitter", start), "Started")
	w.want("a stop by force", w.call("tap_stop_emitter", object{"name": "e", "force": true}),
		"Stopped")
	for _, tool := range []string{"tap_stop_emitter", "tap_set_event_filter"} {
		w.want("what a file defines", w.call(tool, object{"name": "nightly", "force": true}),
			"a file defines 'nightly', so only a person changes it")
	}
}

// A model that stops and starts an emitter is paused after as many injects as one that lets it run.
func TestStartedAgainIsTheSameStreak(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		want := "nextRunAt=" // the first run has ended
		if i >= 4 {
			want = "paused: too many injects without the user"
		}
		start := object{"name": "again", "prompt": "go on", "every": "1h"}
		w.want("the start", w.call("tap_start_emitter", start), "Started")
		w.until("tap_list_emitters", object{}, "- again: type=prompt status=waiting", "runs=1",
			want)
		w.session.Idle()
		w.want("the stop", w.call("tap_stop_emitter", object{"name": "again"}), "Stopped")
	}
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	if w.host.prompts != 4 {
		t.Errorf("the session got %d prompts, want 4", w.host.prompts)
	}
}

// A prompt of the model has an end, even if the model names no number.
func TestTimedPromptsEnd(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		args object
		want string
	}{
		{object{"prompt": "go", "every": "1h"}, "maxRuns=10"},
		{object{"prompt": "go", "every": "idle"}, "maxRuns=10"},
		{object{"prompt": "go", "everySchedule": []string{"1h", "2h"}, "maxRuns": 3}, "maxRuns=3"},
		{object{"prompt": "go", "every": "1h", "maxRuns": -1}, "maxRuns=1"},
		{object{"prompt": "go"}, ""},
		{object{"command": "true", "every": "1h"}, ""},
	} {
		test.args["name"] = "timed"
		got := w.call("tap_start_emitter", test.args)
		_, runs, _ := strings.Cut(got, "ownership=modelOwned")
		if strings.TrimSpace(runs) != test.want {
			t.Errorf("%v: got %q, want it to end with %q", test.args, got, test.want)
		}
		w.want("the stop", w.call("tap_stop_emitter", object{"name": "timed"}), "Stopped")
	}
}

// The judge of a command gets its text, its place and its schedule, whatever name the model gives
// it.
func TestCommandIsJudgedWhole(t *testing.T) {
	w := newWorld(t)
	dir, err := filepath.EvalSymlinks(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(w.dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args      object
		why, line string
	}{
		{object{}, "once, now, in " + dir, "rm x"},
		{object{"cwd": "sub/.."}, "once, now, in " + dir, "rm x"},
		{object{"cwd": "sub"}, "once, now, in " + dir + "/sub", "cd '" + dir + "/sub' && rm x"},
		{object{"every": "5m", "maxRuns": 3}, "now, then every 5m0s, 3 times at most, in " + dir,
			"rm x"},
		{
			object{"everySchedule": []string{"1s", "2s", "3s", "4s", "5s", "6s", "7s"}},
			"now, after 1s, after 2s, after 3s, after 4s, after 2 more pauses, then every 7s, in " +
				dir, "rm x",
		},
	} {
		test.args["name"], test.args["command"] = "Tidy\x1b Up", "rm x"
		w.want("the start", w.call("tap_start_emitter", test.args), "error: ")
		w.host.mu.Lock()
		got := w.host.command
		w.host.mu.Unlock()
		if want := "run as the temporary emitter tidy-up, " + test.why; got.Why != want ||
			got.Line() != test.line {
			t.Errorf("%v: got %q for %q, want %q for %q", test.args, got.Line(), got.Why, test.line,
				want)
		}
	}
}

// The model reads why a tool failed, without a code that providers don't have, and without one that
// ends its turn.
func TestErrorsOfTools(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		tool string
		args object
		code protocol.Code
		text string
	}{
		{"tap_start_emitter", object{"name": "e", "command": "rm x"}, "INTERNAL",
			"the command is denied: rm is denied here"},
		{"tap_start_emitter", object{"name": "e", "command": "true", "scope": "x"}, "INTERNAL",
			`scope: "x" is neither temporary nor persistent`},
		{"tap_start_emitter", object{"command": "true"}, "INVALID_ARGUMENTS", ""},
		{"tap_stop_emitter", object{"name": "e"}, "NOT_FOUND",
			"there is no emitter 'e': tap_list_emitters lists them"},
		{"tap_goal_stop", object{"id": "e"}, "NOT_FOUND",
			`this session has no goal "e": tap_goal_list lists its goals`},
		{"tap_goal_start", object{"goal": " ", "checks": []object{}}, "INTERNAL",
			"text: must say what the goal is"},
	} {
		data, err := json.Marshal(test.args)
		if err != nil {
			t.Fatal(err)
		}
		o := w.session.CallTool(t.Context(), gateway.Call{Name: test.tool, Args: data})
		if o.ErrorCode != test.code || test.text != "" && o.Error != test.text {
			t.Errorf("%s %s: got %s, want %s: %s", test.tool, data, o.Text(), test.code, test.text)
		}
	}
}

// A parameter has the meaning of its other name, with each tool that takes it.
func TestOtherNamesOfParameters(t *testing.T) {
	w := newWorld(t)
	const refused, persons = "user-controlled. Pass force=true", "only a person changes what"
	w.want("the start", w.call("tap_start_emitter", object{
		"name": "e", "command": "exec sleep 1000", "stream": "ops", "ownership": "modelOwned",
		"lifespan": "temporary",
	}), "stream=ops", "ownership=modelOwned")
	for tool, args := range map[string]object{
		"tap_set_event_filter": {"name": "e", "notifyPattern": "x"},
		"tap_enable_injector":  {"channel": "ops"}, "tap_disable_injector": {"channel": "other"},
	} {
		with := func(key string, value any) object {
			args := maps.Clone(args)
			args[key] = value
			return args
		}
		w.want(tool+", persistent", w.call(tool, with("lifespan", "persistent")), persons)
		w.want(tool+", a wrong word", w.call(tool, with("lifespan", "long")), `"long" is neither`)
		w.want(tool+", the user's", w.call(tool, with("ownership", "userOwned")), "of ")
		w.want(tool+", once more", w.call(tool, args), refused)
	}
	w.want("a stop", w.call("tap_stop_emitter", object{"name": "e", "lifespan": "long"}),
		`"long" is neither`)
	defer w.gateway.Watch()()
	done := make(chan string, 1)
	go func() {
		done <- w.call("tap_stop_emitter", object{"name": "e", "lifespan": "persistent"})
	}()
	if err := w.session.Answer(w.question().ID,
		gateway.Answer{Decision: adminapi.DecideDeny}); err != nil {
		t.Error(err)
	}
	w.want("a removal", <-done, "the person refused")
}

// A persistent emitter is a provider file, which a person is asked about.
func TestPersistentEmitters(t *testing.T) {
	w := newWorld(t)
	answer := func(decision string) {
		for len(w.gateway.Questions()) == 0 {
			if _, ok := <-time.After(time.Millisecond); !ok || t.Context().Err() != nil {
				return
			}
		}
		q := w.gateway.Questions()[0]
		w.want("the question", q.Message+q.Detail, "source nightly-check", `sessions`, `bash`)
		if err := w.session.Answer(q.ID, gateway.Answer{Decision: decision}); err != nil {
			t.Error(err)
		}
	}
	args := object{"name": "nightly-check", "command": "make check", "every": "1d",
		"scope": "persistent"}
	for decision, want := range map[string]string{
		adminapi.DecideDeny: "the person refused",
		adminapi.DecideOnce: "file=/home/nightly-check.toml",
	} {
		go answer(decision)
		w.want(decision, w.call("tap_start_emitter", args), want)
	}
	if len(w.emitters.saved) != 1 || !strings.Contains(w.emitters.saved["nightly-check"],
		`kind = "source"`) {
		t.Errorf("the files: got %q, want one of kind source", w.emitters.saved)
	}
	w.want("the list", w.call("tap_list_emitters", object{}), "Emitters (0)")
}

// The model tries to do what is forbidden.
func TestHostileEmitters(t *testing.T) {
	w := newWorld(t)
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(w.dir, "link")); err != nil {
		t.Fatal(err)
	}
	guard := w.run("guard")
	if _, err := guard.Deny(w.Context(), providers.Match{Tool: "shell", Args: "secret"},
		"it is private"); err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		args object
		want string
	}{
		"a denied command": {object{"name": "e", "command": "rm -rf x"}, "rm is denied here"},
		"a command behind": {object{"name": "e", "command": "echo x; rm -rf x"},
			"rm is denied here"},
		"a rule for the shell": {object{"name": "e", "command": "cat secret"},
			"the command is denied: provider guard: it is private"},
		"a path out": {object{"name": "e", "command": "true", "cwd": "../.."},
			"leads out"},
		"an absolute path": {object{"name": "e", "command": "true", "cwd": outside},
			"leads out"},
		"a link out": {object{"name": "e", "command": "true", "cwd": "link"}, "not below"},
		"no directory": {object{"name": "e", "command": "true", "cwd": "none"},
			"no such directory"},
		"no name": {object{"name": "\x1b\u202e//", "command": "true"},
			"it has no name"},
		"the tools' own name": {object{"name": "tap", "prompt": "x", "scope": "persistent"},
			"choose another"},
		"the goals' own name": {object{"name": "goals", "prompt": "x", "scope": "persistent"},
			"choose another"},
		"a long name": {object{"name": strings.Repeat("a", 64), "command": "true"}, "too long"},
		"both":        {object{"name": "e", "command": "true", "prompt": "x"}, "exactly one of"},
		"a pattern": {object{"name": "e", "command": "true", "notifyPattern": "("},
			"notifyPattern"},
		"a filter": {object{"name": "e", "command": "true", "eventFilter": "x"}, "must be a list"},
		"an outcome": {object{
			"name": "e", "command": "true",
			"eventFilter": []object{{"match": "x", "outcome": "exec"}},
		}, "none of drop"},
		"too often": {object{"name": "e", "command": "true", "every": "0s"}, "every"},
		"a command when idle": {object{"name": "e", "command": "true", "every": "idle"},
			"only a prompt"},
		"a delivery": {object{"name": "e", "command": "true", "delivery": "x"},
			"delivery"},
		"a scope": {object{"name": "e", "command": "true", "scope": "forever"},
			"scope"},
		"an owner": {object{"name": "e", "command": "true", "managedBy": "root"},
			"managedBy"},
		"NUL in a command": {object{"name": "e", "command": "true\x00"}, "NUL"},
		"a prompt without an end": {object{"name": "e", "prompt": strings.Repeat("x", 40<<10)},
			"32 KiB"},
	} {
		got := w.call("tap_start_emitter", test.args)
		if !strings.HasPrefix(got, "error: ") || !strings.Contains(got, test.want) ||
			strings.ContainsAny(got, "\x1b\u202e") {
			t.Errorf("%s: got %q, want an error with %q", what, got, test.want)
		}
	}
	w.want("the list", w.call("tap_list_emitters", object{}), "Emitters (0)")
	for i := range 20 {
		w.want("one of many", w.call("tap_start_emitter", object{
			"name": fmt.Sprint("many", i), "command": "exec sleep 1000",
		}), "Started")
	}
	w.want("one too many", w.call("tap_start_emitter", object{"name": "e", "command": "true"}),
		"which is the limit")
	w.call("tap_stop_emitter", object{"name": "many7"})
	w.want("one in its place", w.call("tap_start_emitter", object{
		"name": "explodes", "command": "printf 'a%.0s' $(seq 5000); echo; exec sleep 1000",
		"eventFilter": []object{{"match": "(a+)+$^", "outcome": "inject"}},
	}), "Started")
	w.until(
		"tap_list_emitters",
		object{},
		"- explodes: type=command status=running stream=explodes lifespan=temporary "+
			"ownership=modelOwned runs=1 acceptedLines=1",
	)
}

// ofSources is a gateway as sources see it.
type ofSources struct{ *gateway.Gateway }

func (g ofSources) Connect(p sources.Peer) sources.Conn {
	return g.Gateway.Connect(p, gateway.ConnOptions{})
}
