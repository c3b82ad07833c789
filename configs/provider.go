package configs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/google/jsonschema-go/jsonschema"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/protocol"
)

// Kinds of providers, the key kind of a provider file: where the program or the tools come from that the gateway gives
// to sessions. Command and connect speak docs/protocol.md; the others run in the gateway.
const (
	KindCommand = "command" // a process that the gateway starts
	KindConnect = "connect" // a process that starts itself
	KindTools   = "tools"   // a directory of tools
	KindHTTP    = "http"    // an HTTP API
	KindMCP     = "mcp"     // an MCP server, which the gateway starts or reaches by URL
	KindSource  = "source"  // events: of a command, files, a URL, a webhook, or a schedule
	KindTap     = "tap"     // the gateway's own tap_* tools, which no file has
)

// Values of sessions besides a filter, which [Sessions] describes. The default is all for the kinds tools, http and
// mcp, whose connection to the gateway is in the gateway, and each for the others.
const (
	SessionsEach = "each" // one process for each session
	SessionsAll  = "all"  // one process for all sessions
)

// Provider is the content of a provider file, providers/NAME.toml: one provider, checked and with its defaults. Kind
// says which of the other fields have a meaning.
type Provider struct {
	Name     string // of the file
	Says     string // the name that the program uses in hello; "" for the file's name
	File     string
	Kind     string
	Command  []string
	CWD      string // relative to the gateway's working directory
	Env      map[string]string
	Dir      string     // of drop-in tools, relative as CWD is
	Permit   Permit     // of drop-in tools
	HTTP     []HTTPTool // by name
	MCP      MCPUpstream
	Source   *Source // nil for other kinds
	Sessions Sessions
	Grants   []string // transforms, gates, context, questions; never of a project's file
	Rules    ToolRules
	Enabled  bool
	// Required says that calls wait for the provider while it is away, and are then denied. A file of the user's with
	// faults has it too.
	Required bool

	// Project is the directory of the trusted project that has the file; its paths are
	// relative to it; "" for the user's own file. Digest is a hash of the content that the
	// user trusted.
	Project, Digest string
}

// ExpectedName is the name that the provider must use in hello: Says, or else that of its file (docs/protocol.md,
// "Names").
func (p *Provider) ExpectedName() string { return cmp.Or(p.Says, p.Name) }

// Sessions says for which sessions a provider is: Mode is [SessionsEach] or [SessionsAll],
// and each other field that is not empty must match.
type Sessions struct {
	Mode  string
	Label string // the label that sessions must have, "" for any
	CWD   string // a glob that their directory must match, "" for any
	Host  string // the kind of host that they must have, "" for any
	Below string // the project that their directory must be in, without links; "" for any
}

// Match reports whether the provider is for a session with this label, working directory and kind of host. It resolves
// the directory's symbolic links if Below is set; a wrong glob matches nothing.
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

// ToolRules limits a provider's tools, over what the provider itself says. Deny wins over Allow; both are for the names
// without Prefix.
type ToolRules struct {
	Allow, Deny []string      // globs of names; no Allow: all
	Prefix      string        // before each name
	Concurrency int           // calls at once; 0: as the provider says
	Timeout     time.Duration // of a call at most; 0: as the tool says
}

// Permit is what drop-in tools may do besides reading files in the session's directory. The zero value permits nothing
// more.
type Permit struct {
	Tools   []string // names of those that edit files, run programs or reach the network
	Outside []string // globs of absolute paths
}

// providerSuffix is how the names of provider files end.
const providerSuffix = ".toml"

var (
	providerName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	grants       = []string{"transforms", "gates", "context", "questions"}
)

// IsProviderName reports whether a provider file may have this name, without .toml.
func IsProviderName(s string) bool { return providerName.MatchString(s) }

// nameRule describes providerName.
const nameRule = "1 to 64 letters, digits, dots, dashes and underscores, beginning with a letter or digit"

// ParseProvider reads the text of a provider file of the user's own. The file's name without .toml is the provider's
// name. With faults, the Provider has only its name, kind and file, and what makes it required.
func ParseProvider(file string, data []byte) (Provider, Faults) {
	return parseProvider(file, data, false)
}

// ReadProvider is [ParseProvider] for a file that a user names. The error is that of a file that can't be read: it is
// not there, is a directory or a device, or is too large.
func ReadProvider(file string) (Provider, Faults, error) {
	data, err := readFile(file)
	if err != nil {
		return Provider{}, nil, err
	}
	p, faults := ParseProvider(file, data)
	return p, faults, nil
}

// Names of the gateway's own providers. One that a file names would keep goals from their sessions; tap.toml may take
// the place of the tap_* tools, but what has no tools can't.
const (
	goalsName = "goals"
	tapName   = "tap"
)

func defaultProvider() Provider {
	return Provider{CWD: ".", Sessions: Sessions{Mode: SessionsEach}, Enabled: true}
}

func parseProvider(file string, data []byte, project bool) (Provider, Faults) {
	p := defaultProvider()
	p.Name, p.File = strings.TrimSuffix(filepath.Base(file), providerSuffix), file
	doc, t := open(file, data)
	if t == nil {
		return Provider{}, doc.faults
	}
	if !providerName.MatchString(p.Name) {
		doc.at(0, fmt.Sprintf("the file's name %q is the provider's: %s", p.Name, nameRule))
	}
	p.read(t)
	switch name := protocol.NormalName(p.ExpectedName()); {
	case name == goalsName || name == tapName && p.Kind == KindSource:
		doc.at(0, fmt.Sprintf("the name %s is that of the gateway's own provider; choose another", name))
	case name == tapName && p.Name != tapName:
		doc.at(0, "the name tap is that of the gateway's own provider: only a file tap.toml takes its place")
	}
	p.checkTogether(t)
	if project && len(p.Grants) > 0 {
		t.fault("grants",
			"a project's file can't set it: write the file into %s", filepath.Join(UserDir(), providerDirName))
	}
	if p.Source != nil && p.Source.Prompt != "" && !project {
		// The user wrote the prompt, so it counts as a prompt of the user, and the guard against loops is max_runs.
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

// closes reports whether a file with faults makes its provider required, so that calls are denied without it. A key
// with a fault counts as the strictest value.
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

func (p *Provider) read(t *table) {
	t.str("kind", &p.Kind, isProviderKind)
	if t.isMissing("kind") {
		t.doc.at(0, `kind: is missing: write kind = "command" for a program that the gateway starts`)
	}
	t.list("command", &p.Command, func(before []string, s string) error {
		if s == "" && len(before) == 0 {
			return errors.New("must be the name of a program")
		}
		return noNUL(s)
	})
	t.str("name", &p.Says, func(s string) error {
		if s != "" && !providerName.MatchString(s) {
			return fmt.Errorf("%q is not a provider's name: %s", s, nameRule)
		}
		return nil
	})
	t.str("cwd", &p.CWD, func(s string) error {
		if s == "" {
			return errors.New(`must be a directory; "." is where the file's tapgw.toml is used`)
		}
		return noNUL(s)
	})
	t.strings("env", &p.Env, func(name string) error {
		switch {
		case !envName.MatchString(name):
			return errors.New("is not the name of an environment variable")
		case name == "TAP_PROVIDER_TOKEN" || name == "TAP_GATEWAY_URL":
			return errors.New("is set by the gateway")
		}
		return nil
	})
	t.str("dir", &p.Dir, isPath)
	permit := t.table("permit")
	permit.strs("tools", &p.Permit.Tools, notEmpty)
	permit.strs("outside", &p.Permit.Outside, isOutside)
	permit.rejectUnknown()
	p.HTTP = t.httpTools("tools")
	p.MCP.read(t, p.Name)
	var source Source
	if source.read(t); p.Kind == KindSource {
		source.URL, source.Headers = p.MCP.URL, p.MCP.Headers
		source.Stream = cmp.Or(source.Stream, p.Name)
		if source.URL != "" {
			source.Compare = cmp.Or(source.Compare, CompareOutput)
		}
		p.Source = &source
	}
	if p.Kind != KindMCP {
		p.MCP = MCPUpstream{}
	}
	if p.Kind == KindTools || p.Kind == KindHTTP || p.Kind == KindMCP ||
		p.Source != nil && !p.Source.isOfOneSession() {
		p.Sessions.Mode = SessionsAll // the gateway speaks for them: one of them does for all
	}
	t.sessions(&p.Sessions)
	t.strs("grants", &p.Grants, oneOf(grants...))
	p.Required = slices.Contains(p.Grants, "gates")
	t.boolean("required", &p.Required)
	t.strs("allow", &p.Rules.Allow, isToolGlob)
	t.strs("deny", &p.Rules.Deny, isToolGlob)
	t.str("prefix", &p.Rules.Prefix, func(s string) error {
		if !toolPrefix.MatchString(s) {
			return fmt.Errorf(
				"%q is not the beginning of a tool's name: at most 32 letters, digits, dashes and underscores",
				s,
			)
		}
		return nil
	})
	t.integer("concurrency", &p.Rules.Concurrency, 0, 1000)
	t.duration("timeout", &p.Rules.Timeout, 0, time.Hour)
	t.boolean("enabled", &p.Enabled)
	t.rejectUnknown()
}

var isProviderKind = oneOf(KindCommand, KindConnect, KindTools, KindHTTP, KindMCP, KindSource)

var (
	ofSource  = []string{KindSource}
	withTools = []string{KindCommand, KindConnect, KindTools, KindHTTP, KindMCP}
)

// keyKinds has the kinds of providers that a key is for. Other keys are for all kinds.
var keyKinds = map[string][]string{
	"name":      {KindCommand, KindConnect},
	"command":   {KindCommand, KindMCP},
	"cwd":       {KindCommand, KindMCP, KindSource},
	"env":       {KindCommand, KindMCP, KindSource},
	"dir":       {KindTools},
	"permit":    {KindTools},
	"tools":     {KindHTTP},
	"url":       {KindMCP, KindSource},
	"headers":   {KindMCP, KindSource},
	"oauth":     {KindMCP},
	"resources": {KindMCP},
	"prompts":   {KindMCP},
	"events":    {KindMCP},

	"run": ofSource, "prompt": ofSource, "files": ofSource, "webhook": ofSource, "secret_env": ofSource,
	"every": ofSource, "cron": ofSource, "zone": ofSource, "at": ofSource, "idle": ofSource, "missed": ofSource,
	"max_runs": ofSource, "compare": ofSource, "stderr": ofSource, "stream": ofSource, "level": ofSource,
	"text": ofSource, "filter": ofSource,

	"allow": withTools, "deny": withTools, "prefix": withTools, "concurrency": withTools, "grants": withTools,
	"required": withTools,
}

// checkTogether adds faults for keys that exclude or need each other.
func (p *Provider) checkTogether(t *table) {
	if !t.isGood("kind") || p.Kind == "" {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(keyKinds)) {
		if _, has := t.values[key]; has && t.isGood(key) && !slices.Contains(keyKinds[key], p.Kind) {
			t.fault(key, `belongs to a provider of kind %s; this one is of kind %q`, quoted(keyKinds[key]), p.Kind)
		}
	}
	needs := func(key, example string) {
		if _, has := t.values[key]; !has {
			t.fault("kind", "%q needs %s", p.Kind, example)
		}
	}
	switch p.Kind {
	case KindCommand:
		needs("command", `command = ["program", "argument"]`)
		if t.isGood("command") && t.isGood("kind") && len(p.Command) == 0 {
			t.fault("kind", `"command" needs command = ["program", "argument"]`)
		}
	case KindMCP:
		p.checkMCP(t)
	case KindSource:
		p.checkSource(t)
	case KindTools:
		needs("dir", `dir = "directory"`)
	case KindHTTP:
		needs("tools", "a table [tools.NAME] for each tool")
		for _, tool := range p.HTTP {
			if name := p.Rules.Prefix + tool.Name; t.isGood("prefix") && len(name) > maxToolName {
				t.fault("prefix",
					"makes %q longer than the %d characters that a tool's name may have", name, maxToolName)
			}
		}
	}
}

// sessions reads "each", "all", or a filter.
func (t *table) sessions(into *Sessions) {
	const key = "sessions"
	switch t.values[key].(type) {
	case map[string]any:
		f := Sessions{Mode: SessionsEach}
		sub := t.table(key)
		f.read(sub)
		if len(sub.values) == 0 {
			t.fault(key, `must be "each", "all", or a filter such as { label = "review" }`)
		}
		*into = f
	case string, nil:
		t.str(key, &into.Mode, oneOf(SessionsEach, SessionsAll))
		t.describe(key, func() *jsonschema.Schema {
			filter := shapeOf((&Sessions{}).read)
			filter.MinProperties = new(1)
			word := t.shape.Properties[key]
			word.Default = nil
			return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{word, filter}}
		})
	default:
		v, _ := t.lookup(key)
		t.mismatch(key, `"each", "all", or a filter such as { label = "review" }`, v)
	}
}

// read reads a filter.
func (s *Sessions) read(t *table) {
	t.str("label", &s.Label, nil)
	t.str("cwd", &s.CWD, func(glob string) error {
		if !doublestar.ValidatePathPattern(glob) {
			return fmt.Errorf("%q is not a glob: a bracket or backslash has no end", glob)
		}
		if glob != "" && !strings.Contains("/*?[{", glob[:1]) {
			return fmt.Errorf("%q matches no session's directory: begin with / or *, as in \"/home/me/work/**\"", glob)
		}
		return nil
	})
	t.str("host", &s.Host, notEmpty)
	t.rejectUnknown()
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
