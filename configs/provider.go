package configs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/protocol"
)

// Values of sessions beside a filter, which [Sessions] describes. The default is each, but all for
// the kinds tools, http and mcp, for which the gateway itself connects.
const (
	SessionsEach = "each" // one process for each session
	SessionsAll  = "all"  // one process for all sessions
)

// Provider is the content of a provider file, providers/NAME.toml: one provider, checked and with
// its defaults. Kind says which of the other fields have a meaning.
type Provider struct {
	Name string // of the file
	File string

	Kind    string   `toml:"kind" of:"command,connect,tools,http,mcp,source" need:"-"`
	Command []string `toml:"command" first:"must be the name of a program" is:"noNUL" kinds:"command,mcp"`
	// "" for the file's name
	Says string            `toml:"name" is:"providerName?" kinds:"command,connect"`
	CWD  string            `toml:"cwd" is:"cwd" default:"." kinds:"command,mcp,source"`
	Env  map[string]string `toml:"env" names:"providerEnv" kinds:"command,mcp,source"`
	// of drop-in tools, relative as CWD is
	Dir    string      `toml:"dir" is:"dir" kinds:"tools"`
	Permit Permit      `toml:"permit" kinds:"tools"` // of drop-in tools
	HTTP   []HTTPTool  `toml:"tools" names:"httpTool" kinds:"http"`
	MCP    MCPUpstream `toml:",inline"`
	Source *Source     `toml:",inline" kinds:"source"` // nil for other kinds
	// Sessions, without a mode in the file, is for all sessions or for each, as the kind has it.
	Sessions Sessions `toml:"sessions"`
	Grants   []string `toml:"grants" of:"transforms,gates,context,questions" kinds:"command,connect,tools,http,mcp"`
	// Required says that calls wait for the provider while it is away, and are then denied. A file
	// of the user's with faults has it too.
	Required bool      `toml:"required" kinds:"command,connect,tools,http,mcp"`
	Rules    ToolRules `toml:",inline"`
	Enabled  bool      `toml:"enabled" default:"true"`

	// Project is the directory of the trusted project that has the file; its paths are
	// relative to it; "" for the user's own file. Digest is a hash of the content that the
	// user trusted.
	Project, Digest string
}

// ExpectedName is the name that the provider must use in hello: Says, or else the file's name
// (docs/protocol.md, "Names").
func (p *Provider) ExpectedName() string { return cmp.Or(p.Says, p.Name) }

// Sessions says for which sessions a provider is: Mode is [SessionsEach] or [SessionsAll],
// and each other field that is not empty must match.
type Sessions struct {
	Mode  string
	Label string `toml:"label"`                // the label that sessions must have
	CWD   string `toml:"cwd" is:"sessionsCWD"` // a glob that their directory must match
	Host  string `toml:"host" is:"text"`       // the kind of host that they must have
	Below string // the project that their directory must be in, without links
}

// Match reports whether the provider is for a session with this label, working directory and kind
// of host. It resolves the directory's symbolic links if Below is set; a wrong glob matches
// nothing.
func (s Sessions) Match(label, cwd, host string) bool {
	if s.Label != "" && s.Label != label || s.Host != "" && s.Host != host {
		return false
	}
	if s.Below != "" && !isBelow(s.Below, cwd) {
		return false
	}
	if s.CWD == "" {
		return true
	}
	ok, err := doublestar.PathMatch(s.CWD, cwd)
	return ok && err == nil
}

// isBelow reports whether a directory is a project's, or lies in it.
func isBelow(project, dir string) bool {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	rel, err := filepath.Rel(project, dir)
	return err == nil && filepath.IsLocal(rel)
}

// ToolRules limits a provider's tools beyond the provider's own limits. Deny wins over Allow. Both
// are for the names without Prefix, which comes before each name. Concurrency is how many calls run
// at once; 0 leaves it to the provider.
type ToolRules struct {
	// empty: all
	Allow       []string      `toml:"allow" is:"toolGlob" kinds:"command,connect,tools,http,mcp"`
	Deny        []string      `toml:"deny" is:"toolGlob" kinds:"command,connect,tools,http,mcp"`
	Prefix      string        `toml:"prefix" is:"toolPrefix" kinds:"command,connect,tools,http,mcp"`
	Concurrency int           `toml:"concurrency" range:"0,1000" kinds:"command,connect,tools,http,mcp"`
	Timeout     time.Duration `toml:"timeout" range:"0,1h"` // 0: as the tool says
}

// Permit extends the permissions of drop-in tools, which may otherwise only read files in the
// session's directory. The zero value adds no permission.
type Permit struct {
	Tools   []string `toml:"tools" is:"text"`      // tools that edit, run or reach the network
	Outside []string `toml:"outside" is:"outside"` // globs of absolute paths
}

// providerSuffix is how the names of provider files end.
const providerSuffix = ".toml"

var providerName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// IsProviderName reports whether a provider file may have this name, without .toml.
func IsProviderName(s string) bool { return providerName.MatchString(s) }

// nameRule describes providerName.
const nameRule = "1 to 64 letters, digits, dots, dashes and underscores, beginning with a " +
	"letter or digit"

// ParseProvider reads the text of a provider file of the user's own. The file's name without .toml
// is the provider's name. With faults, the Provider has only its name, kind and file, and the keys
// that say whether it is required.
func ParseProvider(file string, data []byte) (Provider, Faults) {
	return parseProvider(file, data, false)
}

// ReadProvider reads the provider file that a user names, as [ParseProvider] does. It returns an
// error if the file is missing, is a directory or a device, or is too large.
func ReadProvider(file string) (Provider, Faults, error) {
	data, err := readFile(file)
	if err != nil {
		return Provider{}, nil, err
	}
	p, faults := ParseProvider(file, data)
	return p, faults, nil
}

// Names of the gateway's own providers. No file may take the name goals, because it would keep
// goals from its sessions. A file tap.toml takes the place of the tap_* tools, so its kind can't be
// source, which has no tools.
const (
	goalsName = "goals"
	tapName   = "tap"
)

func parseProvider(file string, data []byte, project bool) (Provider, Faults) {
	p := defaults[Provider]()
	p.Name, p.File = strings.TrimSuffix(filepath.Base(file), providerSuffix), file
	doc, t := open(file, data)
	if t == nil {
		return Provider{}, doc.faults
	}
	if !providerName.MatchString(p.Name) {
		doc.at(0, fmt.Sprintf("the file's name %q is the provider's: %s", p.Name, nameRule))
	}
	t.read(&p)
	switch name := protocol.NormalName(p.ExpectedName()); {
	case name == goalsName || name == tapName && p.Kind == KindSource:
		doc.at(0, fmt.Sprintf("the name %s is that of the gateway's own provider; choose another",
			name))
	case name == tapName && p.Name != tapName:
		doc.at(0,
			"the name tap is that of the gateway's own provider: only a file tap.toml "+
				"takes its place")
	}
	if project && len(p.Grants) > 0 {
		t.fault("grants",
			"a project's file can't set it: write the file into %s",
			filepath.Join(UserDir(), providerDirName))
	}
	if p.Source != nil && p.Source.Prompt != "" && !project {
		// The user wrote the prompt, so it counts as a prompt of the user, and the guard against
		// loops is max_runs.
		p.Grants = []string{"questions"}
	}
	if len(doc.faults) > 0 {
		faulty := Provider{Name: p.Name, Kind: p.Kind, File: p.File}
		if !project && p.closes(t) {
			faulty.Required, faulty.Sessions = true, p.Sessions
		}
		return faulty, doc.sorted()
	}
	return p, nil
}

// closes reports whether a file with faults makes its provider required, so that calls are denied
// without it. A key with a fault counts as the strictest value.
func (p *Provider) closes(t *table) bool {
	if !p.Enabled {
		return false
	}
	if !t.isGood("sessions") {
		p.Sessions = Sessions{Mode: SessionsAll}
	}
	if _, isSet := t.values["required"]; isSet {
		return p.Required || !t.isGood("required")
	}
	words, _ := t.values["grants"].([]any)
	return slices.Contains(words, any("gates"))
}

// check fills the fields that depend on the kind, and adds faults for keys that exclude or need
// each other.
func (p *Provider) check(t *table) {
	if !t.has("kind") {
		t.doc.at(0,
			`kind: is missing: write kind = "command" for a program that the gateway starts`)
	}
	if tools, ok := t.values["tools"].(map[string]any); ok &&
		(len(tools) == 0 || len(tools) > maxHTTPTools) {
		t.fault("tools", "has %d tools: a provider has from 1 to %d", len(tools), maxHTTPTools)
	}
	p.MCP.checkEvents(t, p.Name)
	source := p.Source
	source.checkValues(t)
	if p.Source = nil; p.Kind == KindSource {
		source.URL, source.Headers = p.MCP.URL, p.MCP.Headers
		source.Stream = cmp.Or(source.Stream, p.Name)
		if source.URL != "" {
			source.Compare = cmp.Or(source.Compare, CompareOutput)
		}
		p.Source = source
	}
	if p.Kind != KindMCP {
		p.MCP = MCPUpstream{}
	}
	mode := SessionsEach
	if kinds[p.Kind].servesAll && (p.Source == nil || !p.Source.isOfOneSession()) {
		mode = SessionsAll
	}
	p.Sessions.Mode = cmp.Or(p.Sessions.Mode, mode)
	if !t.has("required") || !t.isGood("required") {
		p.Required = slices.Contains(p.Grants, "gates")
	}
	p.checkTogether(t)
}

// checkTogether adds faults for keys that exclude or need each other.
func (p *Provider) checkTogether(t *table) {
	if !t.isGood("kind") || p.Kind == "" {
		return
	}
	for _, f := range fieldsOf(reflect.TypeFor[Provider]()) {
		if t.has(f.key) && t.isGood(f.key) && f.kinds != nil && !slices.Contains(f.kinds, p.Kind) {
			t.fault(f.key, `belongs to a provider of kind %s; this one is of kind %q`,
				quoted(f.kinds), p.Kind)
		}
	}
	if check := kinds[p.Kind].check; check != nil {
		check(p, t)
	}
}

// readKey reads "each", "all", or a filter.
func (s *Sessions) readKey(t *table, key string) {
	const want = `"each", "all", or a filter such as { label = "review" }`
	switch value := t.values[key].(type) {
	case map[string]any:
		s.Mode = SessionsEach
		if t.table(key).read(s); len(value) == 0 {
			t.fault(key, "must be %s", want)
		}
	case string:
		t.readText(key, value, func(mode string) error {
			s.Mode = mode
			return oneOf(SessionsEach, SessionsAll)(mode)
		})
	default:
		t.mismatch(key, want, value)
	}
}

func isSessionsCWD(glob string) error {
	if !doublestar.ValidatePathPattern(glob) {
		return fmt.Errorf("%q is not a glob: a bracket or backslash has no end", glob)
	}
	if glob != "" && !strings.Contains("/*?[{", glob[:1]) {
		return fmt.Errorf(
			"%q matches no session's directory: begin with / or *, as in \"/home/me/work/**\"",
			glob)
	}
	return nil
}

func isWorkingDir(s string) error {
	if s == "" {
		return errors.New(`must be a directory; "." is where the file's tapgw.toml is used`)
	}
	return noNUL(s)
}

func isProviderEnv(name string) error {
	if name == "TAP_PROVIDER_TOKEN" || name == "TAP_GATEWAY_URL" {
		return errors.New("is set by the gateway")
	}
	return isEnv(name)
}

// maxToolName is how long a tool's name may be, in characters.
const maxToolName = 64

var toolPrefix = lazyregexp.New(`^[A-Za-z0-9_-]{0,32}$`)

func isOutside(s string) error {
	if !filepath.IsAbs(s) || !doublestar.ValidatePathPattern(s) {
		return fmt.Errorf(`%q is not a glob of absolute paths, such as "/tmp/build/**"`, s)
	}
	return nil
}

func noNUL(s string) error {
	if strings.ContainsRune(s, 0) {
		return errors.New("must not hold a NUL character")
	}
	return nil
}

// Variables returns the variables that the provider file gives to a program, with the values of the
// gateway's variables that they name, so that no secret has to stand in a file. The error names a
// variable that is not set.
func (p *Provider) Variables() (map[string]string, error) {
	env := p.Env
	expanded := make(map[string]string, len(env)+2)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value, missing := ExpandVariables(env[name])
		if missing != "" {
			return nil, fmt.Errorf(
				"env.%s needs the variable %s, which the gateway's environment does not have", name,
				missing,
			)
		}
		expanded[name] = value
	}
	return expanded, nil
}
