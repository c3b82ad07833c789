// Package tapconfig reads tap.config.json, the file in which a project keeps its event streams and
// emitters for tap, an extension of the Copilot CLI. It reads the documented keys, their aliases,
// and the older forms of filters. It also makes provider files of kind source from the emitters.
package tapconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/match"
)

// FileName is the name of the file.
const FileName = "tap.config.json"

// Files are the places where the file may be, from a project's directory, with slashes. The first
// existing file counts.
var Files = []string{FileName, ".github/" + FileName}

const (
	maxFile    = 1 << 20 // bytes
	maxEntries = 1000    // of streams, and of emitters
)

// Error is a fault in the text of a tap.config.json, and its position: line and column count from
// 1.
type Error struct {
	Line, Column int
	Message      string
}

// Error is LINE:COLUMN: MESSAGE.
func (e *Error) Error() string { return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Message) }

// Position is where an entry begins in the text: line and column, in characters, count from 1.
type Position struct{ Line, Column int }

// Config is the content of a tap.config.json, in the order of the file. Entries that can't be used
// say why.
type Config struct {
	File     string
	Streams  []Stream
	Emitters []Emitter
}

// Stream is an entry of streams. Injector is nil if the entry has no injector.
type Stream struct {
	Name        string
	Description string
	Injector    *Injector
	Reason      string // why the entry can't be used, "" if it can
	At          Position
}

// Injector says which part of a stream the session itself gets: one of the Delivery constants, if
// it is enabled at all.
type Injector struct {
	Enabled  bool
	Delivery string
}

// Values of delivery.
const (
	DeliveryImportant = "important"
	DeliveryAll       = "all"
	DeliveryInject    = "inject"
	DeliverySurface   = "surface"
	DeliveryKeep      = "keep"
	DeliveryDrop      = "drop"
)

// Deliveries are the values of delivery.
var Deliveries = []string{
	DeliveryImportant, DeliveryAll, DeliveryInject, DeliverySurface, DeliveryKeep, DeliveryDrop,
}

// Emitter is an entry of emitters: a command or a prompt. Idle and Every say when it runs again;
// without both it runs once, and a command runs on.
type Emitter struct {
	Name        string
	Description string
	Command     string
	Prompt      string
	CWD         string // as the file has it; "" for the project's directory
	Stream      string
	Idle        bool
	Every       []time.Duration // pauses; the last one repeats
	MaxRuns     int             // 0: no limit
	AutoStart   bool
	Stderr      bool
	ModelOwned  bool   // a model may change it without being told to by a person
	Filter      []Rule // nil keeps all
	Reason      string // why the entry can't be used, "" if it can
	At          Position
}

// Rule gives an outcome to lines that match a JavaScript regular expression, without regard to
// case: drop, keep, surface or inject.
type Rule struct{ Match, Outcome string }

// ErrNone is the error of [Read] for a directory without the file.
var ErrNone = errors.New("there is neither tap.config.json nor .github/tap.config.json")

// Read reads the tap.config.json of a project's directory, or of its .github directory. It returns
// [ErrNone] if there is neither file. Any other error describes the file's fault in one line.
func Read(dir string) (*Config, error) {
	for _, name := range Files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		info, err := os.Stat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("reading tap.config.json: %w", err)
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("reading %s: it is no file", file)
		}
		data, err := readFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading tap.config.json: %w", err)
		}
		c, err := Parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s:%w", file, err)
		}
		c.File = file
		return c, nil
	}
	return nil, fmt.Errorf("%s: %w", dir, ErrNone)
}

func readFile(file string) ([]byte, error) {
	f, err := os.Open(file) //nolint:gosec // the file that the user means
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d KiB", file, maxFile>>10)
	}
	return data, err
}

// Parse reads the text of a tap.config.json. An error is an [*Error].
func Parse(data []byte) (*Config, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		return nil, &Error{1, 1, "is not UTF-8 text"}
	}
	var all struct{ Streams, Emitters []any }
	if err := unmarshal(data, &all); err != nil {
		return nil, err
	}
	if n := max(len(all.Streams), len(all.Emitters)); n > maxEntries {
		return nil, &Error{1, 1, fmt.Sprintf("has a list of %d entries: at most %d", n, maxEntries)}
	}
	c := &Config{}
	at := positions(data)
	taken := map[string]bool{}
	for i, v := range all.Streams {
		s := readStream(v)
		s.Reason = entryReason(s.Reason, "stream", s.Name, taken)
		if s.Name == "" {
			s.Name = fmt.Sprintf("streams[%d]", i)
		}
		s.At = at["streams"][i]
		c.Streams = append(c.Streams, s)
	}
	taken = map[string]bool{}
	for i, v := range all.Emitters {
		e := readEmitter(v)
		e.Reason = entryReason(e.Reason, "emitter", e.Name, taken)
		if e.Name == "" {
			e.Name = fmt.Sprintf("emitters[%d]", i)
		}
		e.At = at["emitters"][i]
		c.Emitters = append(c.Emitters, e)
	}
	return c, nil
}

// unmarshal reads JSON whose keys have their exact case.
func unmarshal(data []byte, into *struct{ Streams, Emitters []any }) error {
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		offset := int64(0)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = max(syntax.Offset-1, 0)
		} else {
			err = errors.New("must be an object: { \"streams\": [], \"emitters\": [] }")
		}
		at := positionOf(data, offset)
		return &Error{at.Line, at.Column, "is not what it should be: " + err.Error()}
	}
	for key, list := range map[string]*[]any{"streams": &into.Streams, "emitters": &into.Emitters} {
		switch v := all[key].(type) {
		case nil:
		case []any:
			*list = v
		default:
			return &Error{1, 1, key + " must be a list"}
		}
	}
	return nil
}

func positionOf(data []byte, offset int64) Position {
	return Position{1, 1}.after(data[:min(offset, int64(len(data)))])
}

// after is the position behind a text that begins at p.
func (p Position) after(text []byte) Position {
	if lines := bytes.Count(text, []byte("\n")); lines > 0 {
		p.Line, p.Column = p.Line+lines, 1
		text = text[bytes.LastIndexByte(text, '\n')+1:]
	}
	p.Column += utf8.RuneCount(text)
	return p
}

// positions finds the beginning of each entry of each list in an object that [json.Unmarshal]
// takes. If a key occurs twice, the last one counts, as in json.Unmarshal.
func positions(data []byte) map[string][]Position {
	found := map[string][]Position{}
	now, done := Position{1, 1}, int64(0)
	d := json.NewDecoder(bytes.NewReader(data))
	_, _ = d.Token() // {
	for d.More() {
		key, _ := d.Token()
		name, _ := key.(string)
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return found
		}
		found[name] = nil
		list := json.NewDecoder(bytes.NewReader(value))
		if open, _ := list.Token(); open != json.Delim('[') {
			continue
		}
		start := d.InputOffset() - int64(len(value))
		for list.More() {
			var entry json.RawMessage
			if list.Decode(&entry) != nil {
				return found
			}
			at := start + list.InputOffset() - int64(len(entry))
			now, done = now.after(data[done:at]), at
			found[name] = append(found[name], now)
		}
	}
	return found
}

func entryReason(reason, what, name string, taken map[string]bool) string {
	if reason == "" && name == "" {
		reason = "it has no name"
	}
	if reason == "" && taken[name] {
		reason = "another " + what + " before it has this name"
	}
	taken[name] = true
	return reason
}

var notName = lazyregexp.New(`[^a-z0-9._-]+`)

// Name is how a name of a stream or an emitter is kept: in small letters, with dashes for all that
// is no letter, digit, dot or underscore. It is "" for a text without any of these.
func Name(s string) string {
	return strings.Trim(notName.ReplaceAllString(strings.ToLower(strings.TrimSpace(s)), "-"), "-")
}

func readStream(v any) (s Stream) {
	entry, ok := v.(map[string]any)
	if !ok {
		return Stream{Reason: "it is no object"}
	}
	s = Stream{Name: Name(text(entry, "name")), Description: text(entry, "description")}
	of, ok := first(entry, "sessionInjector", "subscription").(map[string]any)
	if !ok {
		return s
	}
	enabled, _ := of["enabled"].(bool)
	s.Injector = &Injector{Enabled: enabled, Delivery: DeliverySurface}
	if word := text(of, "delivery"); word != "" {
		s.Injector.Delivery = strings.ToLower(strings.TrimSpace(word))
		if !slices.Contains(Deliveries, s.Injector.Delivery) {
			s.Reason = fmt.Sprintf("its delivery %q is none of %s", word,
				strings.Join(Deliveries, ", "))
		}
	}
	return s
}

func readEmitter(v any) Emitter {
	entry, ok := v.(map[string]any)
	if !ok {
		return Emitter{Reason: "it is no object"}
	}
	e := Emitter{
		Name: Name(text(entry, "name")), Description: text(entry, "description"),
		Command: text(entry, "command"),
		Prompt:  text(entry, "prompt"), CWD: text(entry, "cwd"),
		AutoStart: entry["autoStart"] != false, Stderr: entry["includeStderr"] != false,
		Stream:     Name(text(entry, "stream", "channel")),
		ModelOwned: strings.EqualFold(text(entry, "ownership", "managedBy"), "modelOwned"),
	}
	if e.Stream == "" {
		e.Stream = e.Name
	}
	if n, ok := entry["maxRuns"].(float64); ok {
		e.MaxRuns = int(min(max(n, 1), 1e9))
	}
	hasCommand, hasPrompt := strings.TrimSpace(e.Command) != "", strings.TrimSpace(e.Prompt) != ""
	if hasCommand == hasPrompt {
		e.Reason = "it needs exactly one of command and prompt"
		return e
	}
	if err := e.readWhen(entry); err != nil {
		e.Reason = err.Error()
		return e
	}
	var err error
	if e.Filter, err = ReadFilter(entry); err != nil {
		e.Reason = err.Error()
	}
	return e
}

// readWhen reads when the emitter runs again.
func (e *Emitter) readWhen(entry map[string]any) error {
	values := []any{first(entry, "every", "runInterval")}
	key := "every"
	if list, ok := entry["everySchedule"].([]any); ok && len(list) > 0 {
		values, key = list, "everySchedule"
	}
	for _, v := range values {
		word, ok := v.(string)
		if v == nil {
			continue
		}
		if !ok {
			return fmt.Errorf(`its %s must be a text such as "15m"`, key)
		}
		if strings.EqualFold(strings.TrimSpace(word), "idle") {
			e.Idle = true
			continue
		}
		every, err := ParseEvery(word)
		if err != nil {
			return fmt.Errorf("its %s: %w", key, err)
		}
		e.Every = append(e.Every, every)
	}
	if e.Idle && e.Command != "" {
		return errors.New("a command can't run when the session is idle: only a prompt can")
	}
	return nil
}

var interval = lazyregexp.New(
	`(?i)^(?:every\s+)?([0-9]+)\s*(?:(s|secs?|seconds?)|(m|mins?|minutes?)|(h|hrs?|hours?)|(d|days?))$`,
)

// ParseEvery reads a time between runs: a number with a unit from seconds to days, such as "15m" or
// "every 2 hours".
func ParseEvery(s string) (time.Duration, error) {
	const most = 366 * 24 * time.Hour
	m := interval.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, fmt.Errorf(`%q is no time between runs such as "15m", and not "idle"`, s)
	}
	unit := time.Second
	for i, of := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		if m[2+i] != "" {
			unit = of
		}
	}
	n, err := strconv.ParseInt(m[1], 10, 32)
	if every := time.Duration(n); err == nil && every >= 1 && every <= most/unit {
		return every * unit, nil
	}
	return 0, fmt.Errorf("%q is not from one second to a year", s)
}

// ReadFilter reads the filter of an entry of emitters, in whichever form it has: eventFilter as a
// list of rules, as an object with rules or patterns, the same as classifier, or the three patterns
// in the entry itself. The error names the rule that can't be used; no filter is nil.
func ReadFilter(entry map[string]any) ([]Rule, error) {
	switch f := first(entry, "eventFilter", "classifier").(type) {
	case nil:
		return patterns(entry)
	case []any:
		return rules(f)
	case map[string]any:
		if list, ok := f["rules"].([]any); ok {
			return rules(list)
		}
		return patterns(f)
	default:
		return nil, errors.New("its eventFilter must be a list of rules")
	}
}

const maxRules = 100

func rules(list []any) ([]Rule, error) {
	if len(list) > maxRules {
		return nil, fmt.Errorf("its filter has %d rules: at most %d", len(list), maxRules)
	}
	var found []Rule
	for i, v := range list {
		entry, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("rule %d of its filter is no object", i+1)
		}
		r := Rule{text(entry, "match"), strings.ToLower(text(entry, "outcome"))}
		if !slices.Contains([]string{"drop", "keep", "surface", "inject"}, r.Outcome) {
			return nil,
				fmt.Errorf(
					"rule %d of its filter: the outcome %q is none of drop, keep, surface, inject",
					i+1, text(entry, "outcome"))
		}
		if err := r.check(fmt.Sprintf("rule %d of its filter", i+1)); err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, nil
}

// patterns reads the older form, in which a line is left out, is important, or counts.
func patterns(of map[string]any) ([]Rule, error) {
	var found []Rule
	for _, p := range []struct{ key, outcome string }{
		{"excludePattern", "drop"}, {"notifyPattern", "inject"}, {"includePattern", "keep"},
	} {
		r := Rule{text(of, p.key), p.outcome}
		if r.Match == "" {
			continue
		}
		if err := r.check("its " + p.key); err != nil {
			return nil, err
		}
		found = append(found, r)
		if p.outcome == "keep" {
			found = append(found, Rule{".*", "drop"})
		}
	}
	return found, nil
}

func (r Rule) check(what string) error {
	if r.Match == "" {
		return fmt.Errorf("%s has no match", what)
	}
	if _, err := match.Compile(r.Pattern()); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Pattern is Match as a pattern for which the case of letters counts: one in which it is switched
// off.
func (r Rule) Pattern() string {
	if strings.ToLower(r.Match) == strings.ToUpper(r.Match) { // it has no letters
		return r.Match
	}
	return "(?i:" + r.Match + ")"
}

// first returns the value of the first key that an entry has.
func first(entry map[string]any, keys ...string) any {
	for _, key := range keys {
		if v := entry[key]; v != nil {
			return v
		}
	}
	return nil
}

// text is the first text that is not empty.
func text(entry map[string]any, keys ...string) string {
	for _, key := range keys {
		if s, ok := entry[key].(string); ok && s != "" {
			return s
		}
	}
	return ""
}
