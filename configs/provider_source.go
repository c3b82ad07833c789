package configs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/google/jsonschema-go/jsonschema"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/schedule"
)

// Source is what a provider file of kind source says: where events come from (one of Run, Prompt, Files, URL and
// Webhook), when it looks, and what becomes of an event.
type Source struct {
	Run       []string          // a command: a program and its arguments
	Prompt    string            // the text of a prompt
	Files     []string          // globs of files below CWD
	URL       string            // of an HTTP resource
	Headers   map[string]string // of each request to URL, with ${NAME} for variables of the environment
	Webhook   bool              // POST /hooks/NAME
	SecretEnv string            // the variable that has the webhook's secret

	Every  []time.Duration // pauses between runs, the last of them again and again; nil for none
	Cron   string          // five fields, in Zone
	Zone   string          // of IANA's database; "" is UTC
	At     time.Time       // the only run; zero for none
	Idle   bool            // a run whenever the session is idle
	Missed string          // MissedSkip or MissedOnce
	Runs   int             // at most; 0: no limit

	// Compare says of a command that runs again and again, and of a URL, which change is an event: CompareExit,
	// CompareOutput (the default for a URL), CompareLines, or a JSON pointer. "" makes an event of each line.
	Compare string
	Stderr  bool // whether the command's stderr makes events, too
	Stream  string
	Level   string       // keep, surface or inject
	Text    EventText    // of an event; nil: as it comes
	Filter  []FilterRule // of the stream
}

// Values of missed: what becomes of runs that were due while no gateway ran.
const (
	MissedSkip = "skip"
	MissedOnce = "once"
)

// Values of compare, besides a JSON pointer.
const (
	CompareExit   = "exit"   // the command fails, or works again
	CompareOutput = "output" // the output or the body is another one
	CompareLines  = "lines"  // lines that were not there the last time
)

// does says what the source does, as part of a sentence.
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

// Kind is the word of the origin that a source has: run, prompt, files, url or webhook; "" for none.
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

// isOfOneSession reports whether the source is about one session, so that each session has one of its own.
func (s *Source) isOfOneSession() bool { return s.Prompt != "" }

const (
	maxPromptBytes = 32 << 10
	maxSourceRuns  = 1_000_000
	longestEvery   = 366 * 24 * time.Hour
	shortestEvery  = time.Second
)

var streamName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// read reads the keys that only a source has. The caller reads url and headers, which a provider of kind mcp has too.
func (s *Source) read(t *table) {
	s.Missed, s.Stderr, s.Level = MissedSkip, true, "surface"
	t.command("run", &s.Run)
	t.str("prompt", &s.Prompt, func(text string) error {
		if strings.TrimSpace(text) == "" || len(text) > maxPromptBytes {
			return fmt.Errorf("must be a text of at most %d KiB", maxPromptBytes>>10)
		}
		return nil
	})
	t.strs("files", &s.Files, isFileGlob)
	t.boolean("webhook", &s.Webhook)
	t.str("secret_env", &s.SecretEnv, func(name string) error {
		if !envName.MatchString(name) {
			return errors.New("is not the name of an environment variable")
		}
		return nil
	})
	s.readWhen(t)
	t.str("compare", &s.Compare, func(word string) error {
		if !slices.Contains([]string{CompareExit, CompareOutput, CompareLines}, word) &&
			!jsonPointer.MatchString(word) {
			return fmt.Errorf(`%q is none of "exit", "output", "lines" and JSON pointers such as "/status"`, word)
		}
		return nil
	})
	t.boolean("stderr", &s.Stderr)
	t.str("stream", &s.Stream, func(name string) error {
		if !streamName.MatchString(name) {
			return fmt.Errorf("%q is not a stream's name: small letters, digits, dots, dashes and underscores", name)
		}
		return nil
	})
	t.str("level", &s.Level, oneOf(eventLevels...))
	var text string
	t.str("text", &text, func(text string) (err error) {
		s.Text, err = ParseEventText(text)
		return err
	})
	t.tables("filter", []FilterRule{}, func(rule *table) { s.Filter = append(s.Filter, readFilterRule(rule)) })
	if len(s.Filter) > maxFilterRules {
		t.fault("filter", "has %d rules: at most %d", len(s.Filter), maxFilterRules)
	}
}

// readWhen reads when the source looks for events.
func (s *Source) readWhen(t *table) {
	t.durations("every", &s.Every, shortestEvery, longestEvery)
	t.str("zone", &s.Zone, nil)
	t.str("cron", &s.Cron, func(expression string) error {
		zone, _ := t.values["zone"].(string)
		_, err := schedule.ParseCron(expression, zone)
		if _, isZone := errors.AsType[schedule.ZoneError](err); isZone {
			t.fault("zone", "%w", err)
			return nil
		}
		return err
	})
	t.time("at", &s.At)
	t.boolean("idle", &s.Idle)
	t.str("missed", &s.Missed, oneOf(MissedSkip, MissedOnce))
	t.integer("max_runs", &s.Runs, 0, maxSourceRuns)
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
		t.fault("idle", "needs max_runs = 20: how many prompts it may make at most; 0 is without end")
	}
	if s.Compare == CompareExit && origin == "url" {
		t.fault("compare", `"exit" goes with run`)
	}
	if s.Compare != "" && origin == "run" && len(whens) == 0 {
		t.fault("compare", `goes with a command that runs again and again: add every = "1m" or cron`)
	}
	if has("zone") && !has("cron") {
		t.fault("zone", "goes with cron")
	}
}

// command reads a command: a list of words, or a text for sh -c.
func (t *table) command(key string, into *[]string) {
	switch t.values[key].(type) {
	case string:
		var line string
		t.str(key, &line, func(s string) error {
			return isCommandLine(s)
		})
		*into = []string{"sh", "-c", line}
	default:
		t.list(key, into, func(before []string, s string) error {
			if s == "" && len(before) == 0 {
				return errors.New("must be the name of a program")
			}
			return noNUL(s)
		})
		if t.isGood(key) && t.values[key] != nil && len(*into) == 0 {
			t.fault(key, `must be a command such as ["make", "test"] or "make test"`)
		}
		t.describe(key, func() *jsonschema.Schema {
			words := t.shape.Properties[key]
			words.Default, words.MinItems = nil, new(1)
			return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{words, {Type: "string", Pattern: `\S`}}}
		})
	}
}

// durations reads a time such as "5m", or an array of them.
func (t *table) durations(key string, into *[]time.Duration, least, most time.Duration) {
	t.describe(key, func() *jsonschema.Schema {
		one := &jsonschema.Schema{Type: "string", Pattern: durationPattern}
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{one, {Type: "array", Items: one, MinItems: new(1)}}}
	})
	v, ok := t.lookup(key)
	if !ok {
		return
	}
	values, isList := v.([]any)
	if !isList {
		values = []any{v}
	}
	var list []time.Duration
	for _, v := range values {
		s, ok := v.(string)
		if !ok {
			t.mismatch(key, `a time such as "5m", or an array of them`, v)
			return
		}
		d, err := time.ParseDuration(s)
		switch {
		case err != nil:
			t.fault(key, `%q is not a time such as "30s" or "5m"`, s)
			return
		case d < least || d > most:
			t.fault(key, "%s is not from %s to %s", d, least, most)
			return
		}
		list = append(list, d)
	}
	if len(list) == 0 {
		t.fault(key, `must have a time such as "5m"`)
	}
	*into = list
}

// time reads a date with its time and its distance from UTC.
func (t *table) time(key string, into *time.Time) {
	t.describe(key, func() *jsonschema.Schema {
		return &jsonschema.Schema{} // JSON has no dates
	})
	v, ok := t.lookup(key)
	if !ok {
		return
	}
	when, isTime := v.(time.Time)
	if s, isText := v.(string); isText {
		parsed, err := time.Parse(time.RFC3339, s)
		when, isTime = parsed, err == nil
	}
	if !isTime || strings.HasPrefix(when.Location().String(), "datetime-local") ||
		when.Location().String() == "date-local" || when.Location().String() == "time-local" {
		t.fault(key, "must be a time with its distance from UTC, such as 2026-12-24T18:00:00+01:00")
		return
	}
	*into = when
}

func isCommandLine(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("must be a command")
	}
	return noNUL(s)
}
