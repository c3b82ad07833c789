// Package configs reads the files that people write: tapgw.toml and the provider
// files beside it. It is strict: a key that it does not know, a value of another
// type and a value that makes no sense are faults, each with its file, line and
// column, and all of a file's faults are found at once. A file with a fault gives
// no configuration at all, so that a typing error never runs with a default.
package configs

import (
	"fmt"
	"os"
	"path/filepath"
)

// Fault is one thing that is wrong in a file.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1
	Column  int    `json:"column"` // in letters, from 1
	Message string `json:"message"`
}

// Error says file:line:column: what.
func (f Fault) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)
}

// Faults are all that is wrong, in the order of the files.
type Faults []Fault

// Error is the first fault, and how many more there are.
func (fs Faults) Error() string {
	switch len(fs) {
	case 0:
		return "no faults"
	case 1:
		return fs[0].Error()
	}
	return fmt.Sprintf("%s (and %d more: see tapgw config check)", fs[0].Error(), len(fs)-1)
}

// Config is tapgw.toml. [Default] is what an empty file means.
type Config struct {
	Listen   string   // host:port
	Insecure bool     // listen beyond loopback without TLS
	TLSCert  string   // PEM files; both or neither
	TLSKey   string   //
	Hosts    []string // names that a Host header may have besides loopback ones
	LogLevel string   // debug, info, warn or error
	API      API
	Copilot  Copilot
}

// API is the table [api].
type API struct {
	Auth string // AuthToken or AuthNone
}

// Values of api.auth.
const (
	AuthToken = "token"
	AuthNone  = "none"
)

// Copilot is the table [copilot].
type Copilot struct {
	CLI            string // runtime binary; "": found as documented
	ProviderURL    string // a model endpoint of the user's own; "": GitHub's
	ProviderKeyEnv string // the variable that holds its key
	Models         []string
	MaxRounds      int // tool rounds in a turn
	Permissions    Permissions
}

// Permissions is the table [copilot.permissions]: what a Copilot session may do,
// [Allow] or [Deny] by kind; reads may also be [CWD]: those inside the session's
// directory.
type Permissions struct {
	Shell, Write, Read, URL, MCP, CustomTool, Memory, Hook string
}

// Values of a permission.
const (
	Allow = "allow"
	Deny  = "deny"
	CWD   = "cwd"
)

// Default is the configuration without a file.
func Default() Config {
	return Config{
		Listen:   "127.0.0.1:9400",
		LogLevel: "info",
		API:      API{Auth: AuthToken},
		Copilot: Copilot{
			ProviderKeyEnv: "TAP_MODEL_KEY",
			MaxRounds:      200,
			Permissions: Permissions{
				Shell: Deny, Write: Deny, Read: CWD, URL: Deny,
				MCP: Deny, CustomTool: Allow, Memory: Deny, Hook: Deny,
			},
		},
	}
}

// Load reads one tapgw.toml, as [Files.Load] does.
func Load(path string) (Config, error) { return Files{User: path}.Load() }

// beside makes a path that a file in dir names usable from anywhere.
func beside(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return filepath.Join(dir, path)
}

// maxFile bounds a file: far more than anybody writes by hand.
const maxFile = 1 << 20

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the config file: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("reading the config file: %s is a directory, name a .toml file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("reading the config file: %s is larger than %d bytes", path, maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the config file: %w", err)
	}
	return data, nil
}

// Parse reads the text of a tapgw.toml. File names it in faults.
func Parse(file string, data []byte) (Config, Faults) {
	c := Default()
	if faults := c.parse(file, data, false); len(faults) > 0 {
		return Config{}, faults
	}
	return c, nil
}

// parse takes a file's keys over those that are there. A project's file can't say
// where the gateway listens, who gets in, what program is the runtime nor where
// its traffic goes; it may repeat the defaults.
func (c *Config) parse(file string, data []byte, project bool) Faults {
	doc, root := open(file, data)
	if root == nil {
		return doc.faults
	}
	before := *c
	if project {
		c.own(Default())
	}
	root.str("listen", &c.Listen, isAddress)
	root.boolean("insecure", &c.Insecure)
	root.str("tls_cert", &c.TLSCert, nil)
	root.str("tls_key", &c.TLSKey, nil)
	root.strs("hosts", &c.Hosts, isHost)
	root.str("log_level", &c.LogLevel, oneOf("debug", "info", "warn", "error"))
	api := root.table("api")
	api.str("auth", &c.API.Auth, oneOf(AuthToken, AuthNone))
	api.end()
	c.Copilot.parse(root.table("copilot"))
	if project {
		c.guard(root)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		have, miss := "tls_cert", "tls_key"
		if c.TLSCert == "" {
			have, miss = miss, have
		}
		root.fault(have, "needs %s beside it", miss)
	}
	if root.good("listen") {
		if err := CheckListen(*c); err != nil {
			root.fault("listen", "%w", err)
		}
	}
	root.end()
	if len(doc.faults) > 0 {
		return doc.sorted()
	}
	if project {
		c.own(before)
	}
	return nil
}

// own takes from another configuration what is the user's alone to set.
func (c *Config) own(from Config) {
	c.Listen, c.Insecure, c.TLSCert, c.TLSKey, c.Hosts, c.API = from.Listen, from.Insecure, from.TLSCert, from.TLSKey, from.Hosts, from.API
	c.Copilot.CLI, c.Copilot.ProviderURL, c.Copilot.ProviderKeyEnv = from.Copilot.CLI, from.Copilot.ProviderURL, from.Copilot.ProviderKeyEnv
}

// guard complains about each key of a project's file that is the user's alone to
// set.
func (c *Config) guard(root *table) {
	d := Default()
	for _, k := range []struct {
		key     string
		changed bool
	}{
		{"listen", c.Listen != d.Listen},
		{"insecure", c.Insecure != d.Insecure},
		{"tls_cert", c.TLSCert != d.TLSCert},
		{"tls_key", c.TLSKey != d.TLSKey},
		{"hosts", len(c.Hosts) > 0},
		{"api.auth", c.API != d.API},
		{"copilot.cli", c.Copilot.CLI != d.Copilot.CLI},
		{"copilot.provider_url", c.Copilot.ProviderURL != d.Copilot.ProviderURL},
		{"copilot.provider_key_env", c.Copilot.ProviderKeyEnv != d.Copilot.ProviderKeyEnv},
	} {
		if k.changed && root.good(k.key) {
			root.fault(k.key, "a project's file can't set it: write it into %s", filepath.Join(UserDir(), configFile))
		}
	}
}

func (c *Copilot) parse(t *table) {
	t.str("cli", &c.CLI, nil)
	t.str("provider_url", &c.ProviderURL, CheckProviderURL)
	t.str("provider_key_env", &c.ProviderKeyEnv, CheckKeyEnv)
	t.strs("models", &c.Models, isModel)
	t.integer("max_rounds", &c.MaxRounds, 1, 10_000)
	p := t.table("permissions")
	either := oneOf(Allow, Deny)
	for _, k := range []struct {
		key  string
		into *string
	}{
		{"shell", &c.Permissions.Shell}, {"write", &c.Permissions.Write}, {"url", &c.Permissions.URL},
		{"mcp", &c.Permissions.MCP}, {"custom-tool", &c.Permissions.CustomTool},
		{"memory", &c.Permissions.Memory}, {"hook", &c.Permissions.Hook},
	} {
		p.str(k.key, k.into, either)
	}
	p.str("read", &c.Permissions.Read, oneOf(CWD, Allow, Deny))
	p.end()
	t.end()
}
