package configs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/schedule"
)

// Source has the keys of a provider file of kind source: the origin of its events (one of Run,
// Prompt, Files, URL and Webhook), its schedule, and the handling of an event.
type Source struct {
	Run    []string `toml:"run" first:"must be the name of a program" is:"noNUL" shell:"true"`
	Prompt string   `toml:"prompt" is:"prompt"`
	Files  []string `toml:"files" is:"fileGlob"` // globs of files below CWD
	URL    string   // of an HTTP resource
	// of each request to URL, with ${NAME} for variables of the environment
	Headers   map[string]string
	Webhook   bool   `toml:"webhook"` // POST /hooks/NAME
	SecretEnv string `toml:"secret_env" is:"env"`

	// Every has the pauses between runs; the last pause repeats. nil is no such schedule.
	Every  []time.Duration `toml:"every" range:"1s,8784h"`
	Zone   string          `toml:"zone"` // of IANA's database; "" is UTC
	Cron   string          `toml:"cron"` // five fields, in Zone
	At     time.Time       `toml:"at"`   // the only run; zero if there is no such run
	Idle   bool            `toml:"idle"` // a run whenever the session is idle
	Missed string          `toml:"missed" of:"skip,once" default:"skip"`
	Runs   int             `toml:"max_runs" range:"0,1000000"` // at most; 0: no limit

	// Compare says of a command that runs again and again, and of a URL, which change is an event:
	// CompareExit, CompareOutput (the default for a URL), CompareLines, or a JSON pointer. "" makes
	// an event of each line.
	Compare string       `toml:"compare" is:"compare"`
	Stderr  bool         `toml:"stderr" default:"true"` // makes events, too
	Stream  string       `toml:"stream" is:"sourceStream"`
	Level   string       `toml:"level" of:"keep,surface,inject" default:"surface"`
	Text    EventText    `toml:"text"`   // of an event; nil: as it comes
	Filter  []FilterRule `toml:"filter"` // of the stream
}

// Values of missed: how the source handles runs that were due while no gateway ran.
const (
	MissedSkip = "skip"
	MissedOnce = "once"
)

// Values of compare, beside a JSON pointer.
const (
	CompareExit   = "exit"   // the command fails, or works again
	CompareOutput = "output" // the output or the body is another one
	CompareLines  = "lines"  // lines that were not there the last time
)

// does returns a phrase for the source's work, as part of a sentence.
func (s *Source) does() string {
	switch {
	case len(s.Run) > 0:
		return "runs " + strings.Join(s.Run, " ")
	case s.Prompt != "":
		return "prompts: " + s.Prompt
	case len(s.Files) > 0:
		return "watches the files " + strings.Join(s.Files, ", ")
	case s.URL != "":
		return "reads " + s.URL
	}
	return "takes requests to its webhook"
}

// Kind is the word of the source's origin: run, prompt, files, url or webhook; "" without an
// origin.
func (s *Source) Kind() string {
	switch {
	case len(s.Run) > 0:
		return "run"
	case s.Prompt != "":
		return "prompt"
	case len(s.Files) > 0:
		return "files"
	case s.URL != "":
		return "url"
	case s.Webhook:
		return "webhook"
	}
	return ""
}

// isOfOneSession reports whether the source is about one session, so that each session gets its own
// copy.
func (s *Source) isOfOneSession() bool { return s.Prompt != "" }

const maxPromptBytes = 32 << 10

var streamName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// checkValues adds faults for values that are wrong in files of every kind.
func (s *Source) checkValues(t *table) {
	if len(s.Filter) > maxFilterRules {
		t.fault("filter", "has %d rules: at most %d", len(s.Filter), maxFilterRules)
	}
	if !t.has("cron") || !t.isGood("cron") {
		return
	}
	_, err := schedule.ParseCron(s.Cron, s.Zone)
	if _, isZone := errors.AsType[schedule.ZoneError](err); isZone {
		t.fault("zone", "%w", err)
	} else if err != nil {
		t.fault("cron", "%w", err)
	}
}

func isPrompt(text string) error {
	if strings.TrimSpace(text) == "" || len(text) > maxPromptBytes {
		return fmt.Errorf("must be a text of at most %d KiB", maxPromptBytes>>10)
	}
	return nil
}

func isCompare(word string) error {
	if !slices.Contains([]string{CompareExit, CompareOutput, CompareLines}, word) &&
		!jsonPointer.MatchString(word) {
		return fmt.Errorf(
			`%q is none of "exit", "output", "lines" and JSON pointers such as "/status"`, word)
	}
	return nil
}

func isFileGlob(glob string) error {
	switch {
	case glob == "" || !doublestar.ValidatePathPattern(glob):
		return fmt.Errorf(`%q is not a glob of files, such as "src/**/*.go"`, glob)
	case strings.HasPrefix(glob, "/") || slices.Contains(strings.Split(glob, "/"), ".."):
		return fmt.Errorf("%q leads out of cwd: set cwd to the directory", glob)
	}
	return nil
}

// checkSource adds faults for keys of kind source that exclude or need each other.
func (p *Provider) checkSource(t *table) {
	s := p.Source
	has := func(key string) bool { _, has := t.values[key]; return has }
	var origins []string
	for _, key := range []string{"run", "prompt", "files", "url", "webhook"} {
		if has(key) && (key != "webhook" || s.Webhook) {
			origins = append(origins, key)
		}
	}
	switch {
	case len(origins) == 0:
		t.fault("kind", `"source" needs one of run, prompt, files, url and webhook = true`)
		return
	case len(origins) > 1:
		t.fault(origins[1], "excludes %s: a file has one source", origins[0])
		return
	}
	origin := origins[0]
	goesWith := func(key string, with ...string) {
		if has(key) && t.isGood(key) && !slices.Contains(with, origin) {
			t.fault(key, "goes with %s, not with %s", strings.Join(with, " and "), origin)
		}
	}
	goesWith("cwd", "run", "files")
	goesWith("env", "run")
	goesWith("stderr", "run")
	goesWith("headers", "url")
	goesWith("secret_env", "webhook")
	goesWith("compare", "run", "url")
	goesWith("idle", "prompt")
	goesWith("max_runs", "run", "prompt", "url")
	goesWith("missed", "run", "prompt", "url")
	goesWith("level", "run", "files", "url", "webhook")
	goesWith("text", "run", "files", "url", "webhook")
	var whens []string
	for _, key := range []string{"every", "cron", "at", "idle"} {
		goesWith(key, "run", "prompt", "url")
		if has(key) && (key != "idle" || s.Idle) {
			whens = append(whens, key)
		}
	}
	if len(whens) > 1 && !slices.Equal(whens, []string{"every", "idle"}) {
		t.fault(whens[1], "excludes %s: a source has one schedule", whens[0])
	}
	needs := func(key, example string) {
		if t.isGood(key) && !has(key) {
			t.fault(origin, "needs %s", example)
		}
	}
	switch origin {
	case "webhook":
		needs("secret_env", `secret_env = "NAME", the variable that has the secret`)
	case "url":
		if len(whens) == 0 {
			t.fault("url", `needs every = "5m" or cron = "*/5 * * * *": how often it is asked`)
		}
	}
	if s.Idle && origin == "prompt" && !has("max_runs") {
		t.fault("idle",
			"needs max_runs = 20: how many prompts it may make at most; 0 is without end")
	}
	if s.Compare == CompareExit && origin == "url" {
		t.fault("compare", `"exit" goes with run`)
	}
	if s.Compare != "" && origin == "run" && len(whens) == 0 {
		t.fault("compare",
			`goes with a command that runs again and again: add every = "1m" or cron`)
	}
	if has("zone") && !has("cron") {
		t.fault("zone", "goes with cron")
	}
}

func isCommandLine(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("must be a command")
	}
	return noNUL(s)
}
