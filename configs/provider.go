package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Kinds of providers.
const (
	KindCommand = "command" // a process that the gateway starts
	KindConnect = "connect" // a process that starts itself
	KindTools   = "tools"   // a directory of tools
	KindHTTP    = "http"    // an HTTP API
	KindMCP     = "mcp"     // an MCP server
)

// Values of sessions besides a filter.
const (
	SessionsEach = "each" // one process for each session
	SessionsAll  = "all"  // one process for all sessions
)

// Provider is a file providers/NAME.toml: one provider.
type Provider struct {
	Name     string // of the file
	File     string
	Kind     string
	Command  []string
	CWD      string
	Env      map[string]string
	Sessions Sessions
	Grants   []string // transforms, gates, context
	Enabled  bool
}

// Sessions says which sessions a provider is for: [SessionsEach], [SessionsAll],
// or each that a filter takes.
type Sessions struct {
	Mode  string
	Label string // the label that sessions must have, "" for any
	CWD   string // a glob that their directory must match, "" for any
}

// ProvidersBeside is the directory of the provider files that belong to a
// tapgw.toml.
func ProvidersBeside(config string) string {
	return filepath.Join(filepath.Dir(config), "providers")
}

// providerSuffix is how the names of provider files end.
const providerSuffix = ".toml"

// LoadProviders reads the provider files in a directory, by name. A file with a
// fault gives faults and no provider; a directory that is missing has no files.
func LoadProviders(dir string) ([]Provider, Faults, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the provider files: %w", err)
	}
	var providers []Provider
	var faults Faults
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), providerSuffix) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		p, err := LoadProvider(filepath.Join(dir, e.Name()))
		if fs, ok := errors.AsType[Faults](err); ok {
			faults = append(faults, fs...)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		providers = append(providers, p)
	}
	return providers, faults, nil
}

// LoadProvider reads a provider file. The error is [Faults] where it was read.
func LoadProvider(file string) (Provider, error) {
	data, err := readFile(file)
	if err != nil {
		return Provider{}, err
	}
	p, faults := ParseProvider(file, data)
	if len(faults) > 0 {
		return Provider{}, faults
	}
	return p, nil
}

var (
	providerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	grants       = []string{"transforms", "gates", "context"}
)

// ParseProvider reads the text of a provider file, which names the provider.
func ParseProvider(file string, data []byte) (Provider, Faults) {
	p := Provider{
		Name:     strings.TrimSuffix(filepath.Base(file), providerSuffix),
		File:     file,
		CWD:      ".",
		Sessions: Sessions{Mode: SessionsEach},
		Enabled:  true,
	}
	doc, t := open(file, data)
	if t == nil {
		return Provider{}, doc.faults
	}
	if !providerName.MatchString(p.Name) {
		doc.at(0, fmt.Sprintf("the file's name %q is the provider's: 1 to 64 letters, digits, dots, dashes and underscores, beginning with a letter or digit", p.Name))
	}
	t.str("kind", &p.Kind, oneOf(KindCommand, KindConnect, KindTools, KindHTTP, KindMCP))
	if _, ok := t.values["kind"]; !ok {
		doc.at(0, `kind: is missing: write kind = "command" for a program that the gateway starts`)
	}
	t.list("command", &p.Command, func(before []string, s string) error {
		if s == "" && len(before) == 0 {
			return errors.New("must be the name of a program")
		}
		return noNUL(s)
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
	t.sessions(&p.Sessions)
	t.strs("grants", &p.Grants, oneOf(grants...))
	t.boolean("enabled", &p.Enabled)
	t.end()
	p.together(t)
	if len(doc.faults) > 0 {
		return Provider{}, doc.sorted()
	}
	return p, nil
}

// together checks keys against each other.
func (p *Provider) together(t *table) {
	_, has := t.values["command"]
	switch {
	case !t.good("kind") || !t.good("command"):
	case p.Kind == KindCommand && len(p.Command) == 0:
		t.fault("kind", `"command" needs command = ["program", "argument"]`)
	case has && slices.Contains([]string{KindConnect, KindTools, KindHTTP}, p.Kind):
		t.fault("command", `belongs to kind = "command" and "mcp"; a provider of kind %q is not started by a command`, p.Kind)
	}
}

// sessions reads "each", "all", or a filter.
func (t *table) sessions(into *Sessions) {
	const key = "sessions"
	switch t.values[key].(type) {
	case map[string]any:
		f := Sessions{Mode: SessionsEach}
		sub := t.table(key)
		sub.str("label", &f.Label, nil)
		sub.str("cwd", &f.CWD, func(glob string) error {
			if _, err := path.Match(glob, ""); err != nil {
				return fmt.Errorf("%q is not a glob: a bracket or backslash has no end", glob)
			}
			return nil
		})
		if len(sub.values) == 0 {
			t.fault(key, `must be "each", "all", or a filter such as { label = "review" }`)
		}
		sub.end()
		*into = f
	case string, nil:
		t.str(key, &into.Mode, oneOf(SessionsEach, SessionsAll))
	default:
		v, _ := t.take(key)
		t.mismatch(key, `"each", "all", or a filter such as { label = "review" }`, v)
	}
}

func noNUL(s string) error {
	if strings.ContainsRune(s, 0) {
		return errors.New("must not hold a NUL character")
	}
	return nil
}
