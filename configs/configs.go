// Package configs reads the files that people write: tapgw.toml, lsclient.toml and provider
// files. It is strict: an unknown key, a value of a wrong type and a value that makes no
// sense are faults, each with its file, line and column. It finds all faults of a file at
// once. A file with a fault gives no configuration at all, so that a typing error never runs
// with a default.
package configs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"time"

	"tapgw/internal/visible"
)

// Fault is an error at a place of a file, with what to do about it. Line and Column are 1 where only the file is known.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1
	Column  int    `json:"column"` // in characters, from 1
	Message string `json:"message"`
}

// Error returns file:line:column: message, in one line. Control characters in the file's name are made visible.
func (f Fault) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", visible.Line(f.File), f.Line, f.Column, f.Message)
}

// Faults are all faults of the files that were read, in the order of the files. The functions that return them as an
// error return at least one.
type Faults []Fault

// Error returns the first fault, and how many more there are; the command `tapgw config check` lists all.
func (fs Faults) Error() string {
	switch len(fs) {
	case 0:
		return "no faults"
	case 1:
		return fs[0].Error()
	}
	return fmt.Sprintf("%s (and %d more: see tapgw config check)", fs[0].Error(), len(fs)-1)
}

// Config is the content of tapgw.toml, checked and with its defaults. An empty file means [Default]; configs/tapgw.toml
// documents each key.
type Config struct {
	Listen   string   // host:port
	Insecure bool     // allow a Listen beyond loopback without TLS
	TLSCert  string   // paths of PEM files; both are set or none
	TLSKey   string   //
	Hosts    []string // names that a Host header may have besides those of loopback
	LogLevel string   // debug, info, warn or error
	// MaxConnections is how many providers may be connected at once, from 1 to 10,000.
	MaxConnections int
	// MCPToolThreshold is how many tools of providers a session may have until MCP clients search
	// them instead of getting them all, from 0 to 10,000; 0: they always search.
	MCPToolThreshold int
	// CopilotToolThreshold is how many tools of providers a Copilot session may have until its model
	// searches them instead, from 0 to 10,000; -1: it gets them all.
	CopilotToolThreshold int
	// InjectQuiet is the time without injects after which a provider may inject again
	// without a prompt of the user.
	InjectQuiet time.Duration
	API         API
	Records     Records
	Tap         Tap
	Webhooks    Webhooks
	Terminals   Terminals
	Cluster     Cluster
	Copilot     Copilot
	Hooks       []Hook // in the order of the file
}

// API is the table [api]: what a caller of the session API (docs/session-api.md) must show. The admin API needs its
// token in any case.
type API struct {
	Auth string // AuthToken or AuthNone
}

// Records is the table [records]: whether the gateway writes down what happens, and how long it keeps that.
type Records struct {
	Enabled  bool
	MaxAge   time.Duration // an hour to ten years
	MaxBytes int           // of all record files, from 1 MiB on
}

// Tap is the table [tap]: whether sessions have the tools of the provider "tap" (docs/tap.md).
type Tap struct{ Tools bool }

// Webhooks is the table [webhooks].
type Webhooks struct {
	// Listen is an address that serves /hooks/NAME and nothing else, host:port; "" for none. It is beyond loopback
	// under the same conditions as that of the gateway.
	Listen string
}

// Terminals is the table [terminals], for the Copilot CLIs of people (docs/terminals.md).
type Terminals struct {
	// WithoutGateway is what happens to a terminal's tool calls while no gateway runs that could ask the gates:
	// TerminalsAllow or TerminalsDeny.
	WithoutGateway string
}

// Values of terminals.without_gateway.
const (
	TerminalsAllow = "allow"
	TerminalsDeny  = "deny"
)

// Values of api.auth: callers of the session API show a token, which is the default, or nothing. The latter is for
// loopback addresses only; [CheckListen] refuses it elsewhere.
const (
	AuthToken = "token"
	AuthNone  = "none"
)

// Copilot is the table [copilot]: the runtime that sessions use, its bounds, and the settings of sessions. The fields
// of the embedded Profile are keys of the same table.
type Copilot struct {
	CLI            string // path or name of the runtime; "" to search for it
	ProviderURL    string // a model endpoint of the user's own; "" for GitHub's
	ProviderKeyEnv string // the variable that holds its key
	Models         []string
	MaxRounds      int // tool rounds in a turn
	MaxTurnTime    time.Duration
	AskUser        bool          // the model and MCP servers may ask a person
	AnswerTimeout  time.Duration // an unanswered question is refused after it
	GitHubHost     string        // "" for github.com
	Permissions    Permissions

	Profile                     // of sessions that name no profile
	Profiles map[string]Profile // by name, each with the values that it inherits from Profile
}

// Default returns the configuration without a file: loopback port 9400 and a token for the API. Each call returns a
// value of its own, which the caller may change.
func Default() Config {
	return Config{
		Listen:         "127.0.0.1:9400",
		LogLevel:       "info",
		MaxConnections: 50,

		MCPToolThreshold:     60,
		CopilotToolThreshold: -1,

		InjectQuiet: 10 * time.Minute,
		API:         API{Auth: AuthToken},
		Cluster:     Cluster{Keep: ClusterKeep{MaxAge: 24 * time.Hour, MaxEvents: 1000, MaxBytes: 64 << 20}},
		Records:     Records{Enabled: true, MaxAge: 30 * 24 * time.Hour, MaxBytes: 256 << 20},
		Tap:         Tap{Tools: true},
		Terminals:   Terminals{WithoutGateway: TerminalsAllow},
		Copilot: Copilot{
			ProviderKeyEnv: "TAP_MODEL_KEY",
			MaxRounds:      200,
			MaxTurnTime:    2 * time.Hour,
			AskUser:        true,
			AnswerTimeout:  5 * time.Minute,
			Profile:        DefaultProfile(),
			Permissions:    Permissions{}.WithDefaults(),
		},
	}
}

// resolvePath makes a path absolute that a file in dir names.
func resolvePath(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return filepath.Join(dir, path)
}

// maxFile is the size in bytes up to which a file is read.
const maxFile = 1 << 20

// readFile reads a regular file. It refuses pipes and devices, which could block.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("reading the config file: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the config file: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("reading the config file: %s is a directory, name a file", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("reading the config file: %s is no file but a device, a pipe or a socket", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the config file: %w", err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("reading the config file: %s is larger than %d bytes", path, maxFile)
	}
	return data, nil
}

// Parse reads the text of a tapgw.toml; file is its name in faults. It resolves no paths and
// reads no other file; see [Files.Load]. With faults, the Config is zero.
func Parse(file string, data []byte) (Config, Faults) {
	c := Default()
	if faults := c.parse(file, data, false, &[]layer{}); len(faults) > 0 {
		return Config{}, faults
	}
	return c, nil
}

// parse puts a file's keys over those of c. A project's file can't set what the gateway logs,
// where it listens, who may connect, which program the runtime is, and where its traffic
// goes; it may repeat the defaults.
func (c *Config) parse(file string, data []byte, project bool, found *[]layer) Faults {
	doc, root := open(file, data)
	if root == nil {
		return doc.faults
	}
	before := *c
	if project {
		c.copyUserKeys(Default())
	}
	c.read(root)
	if project {
		c.rejectUserKeys(root)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		have, miss := "tls_cert", "tls_key"
		if c.TLSCert == "" {
			have, miss = miss, have
		}
		root.fault(have, "needs %s beside it", miss)
	}
	if root.isGood("listen") {
		if err := CheckListen(*c); err != nil {
			root.fault("listen", "%w", err)
		}
	}
	if root.isGood("webhooks.listen") {
		if err := checkWebhooks(*c); err != nil {
			root.fault("webhooks.listen", "%w", err)
		}
	}
	if len(doc.faults) > 0 {
		return doc.sorted()
	}
	if project {
		c.copyUserKeys(before)
	}
	*found = append(*found, layers(root)...)
	return c.Copilot.resolve(root, *found)
}

func (c *Config) read(root *table) {
	root.str("listen", &c.Listen, isAddress)
	root.boolean("insecure", &c.Insecure)
	root.str("tls_cert", &c.TLSCert, nil)
	root.str("tls_key", &c.TLSKey, nil)
	root.strs("hosts", &c.Hosts, isHost)
	root.str("log_level", &c.LogLevel, oneOf("debug", "info", "warn", "error"))
	root.integer("max_connections", &c.MaxConnections, 1, 10_000)
	root.integer("mcp_tool_threshold", &c.MCPToolThreshold, 0, 10_000)
	root.integer("copilot_tool_threshold", &c.CopilotToolThreshold, -1, 10_000)
	root.duration("inject_quiet", &c.InjectQuiet, time.Second, 7*24*time.Hour)
	api := root.table("api")
	api.str("auth", &c.API.Auth, oneOf(AuthToken, AuthNone))
	api.rejectUnknown()
	records := root.table("records")
	records.boolean("enabled", &c.Records.Enabled)
	records.duration("max_age", &c.Records.MaxAge, time.Hour, 10*365*24*time.Hour)
	records.integer("max_bytes", &c.Records.MaxBytes, 1<<20, 1<<40)
	records.rejectUnknown()
	tap := root.table("tap")
	tap.boolean("tools", &c.Tap.Tools)
	tap.rejectUnknown()
	webhooks := root.table("webhooks")
	webhooks.str("listen", &c.Webhooks.Listen, isAddressOrNone)
	webhooks.rejectUnknown()
	terminals := root.table("terminals")
	terminals.str("without_gateway", &c.Terminals.WithoutGateway, oneOf(TerminalsAllow, TerminalsDeny))
	terminals.rejectUnknown()
	c.Cluster.read(root.table("cluster"))
	c.Copilot.parse(root.table("copilot"))
	readHooks(root, &c.Hooks)
	root.rejectUnknown()
}

// copyUserKeys copies the keys that only the user may set.
func (c *Config) copyUserKeys(from Config) {
	c.LogLevel, c.InjectQuiet = from.LogLevel, from.InjectQuiet
	c.Listen, c.Insecure, c.TLSCert, c.TLSKey = from.Listen, from.Insecure, from.TLSCert, from.TLSKey
	c.Hosts, c.API, c.Records = from.Hosts, from.API, from.Records
	c.Tap, c.Webhooks, c.Terminals, c.Cluster = from.Tap, from.Webhooks, from.Terminals, from.Cluster
	c.MaxConnections, c.MCPToolThreshold = from.MaxConnections, from.MCPToolThreshold
	c.CopilotToolThreshold = from.CopilotToolThreshold
	c.Copilot.CLI = from.Copilot.CLI
	c.Copilot.ProviderURL, c.Copilot.ProviderKeyEnv = from.Copilot.ProviderURL, from.Copilot.ProviderKeyEnv
	c.Copilot.GitHubHost, c.Hooks = from.Copilot.GitHubHost, from.Hooks
	c.Copilot.Profile.copyUserKeys(from.Copilot.Profile)
}

// rejectUserKeys adds a fault for each key of a project's file that only the user may set.
func (c *Config) rejectUserKeys(root *table) {
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
		{"max_connections", c.MaxConnections != d.MaxConnections},
		{"mcp_tool_threshold", c.MCPToolThreshold != d.MCPToolThreshold},
		{"copilot_tool_threshold", c.CopilotToolThreshold != d.CopilotToolThreshold},
		{"log_level", c.LogLevel != d.LogLevel},
		{"inject_quiet", c.InjectQuiet != d.InjectQuiet},
		{"api.auth", c.API != d.API},
		{"records.enabled", c.Records.Enabled != d.Records.Enabled},
		{"records.max_age", c.Records.MaxAge != d.Records.MaxAge},
		{"records.max_bytes", c.Records.MaxBytes != d.Records.MaxBytes},
		{"tap.tools", c.Tap != d.Tap},
		{"webhooks.listen", c.Webhooks != d.Webhooks},
		{"terminals.without_gateway", c.Terminals != d.Terminals},
		{"cluster", root.has("cluster")},
		{"hooks", root.has("hooks")},
		{"copilot.cli", c.Copilot.CLI != d.Copilot.CLI},
		{"copilot.provider_url", c.Copilot.ProviderURL != d.Copilot.ProviderURL},
		{"copilot.provider_key_env", c.Copilot.ProviderKeyEnv != d.Copilot.ProviderKeyEnv},
		{"copilot.github_host", c.Copilot.GitHubHost != ""},
		{"copilot.github_token_env", c.Copilot.GitHubTokenEnv != ""},
		{"copilot.config_dir", c.Copilot.ConfigDir != ""},
		{"copilot.provider", !reflect.DeepEqual(c.Copilot.Provider, d.Copilot.Provider)},
	} {
		if k.changed && root.isGood(k.key) {
			root.fault(k.key, "a project's file can't set it: write it into %s", filepath.Join(UserDir(), configFile))
		}
	}
	for _, l := range layers(root) {
		for _, key := range userKeys {
			if l.table.has(key) {
				l.table.fault(key,
					"a project's file can't set it: write it into %s", filepath.Join(UserDir(), configFile))
			}
		}
	}
}

func (c *Copilot) parse(t *table) {
	t.str("cli", &c.CLI, nil)
	t.str("provider_url", &c.ProviderURL, CheckProviderURL)
	t.str("provider_key_env", &c.ProviderKeyEnv, CheckKeyEnv)
	t.strs("models", &c.Models, isModel)
	t.integer("max_rounds", &c.MaxRounds, 1, 10_000)
	t.duration("max_turn_time", &c.MaxTurnTime, time.Second, 7*24*time.Hour)
	t.boolean("ask_user", &c.AskUser)
	t.duration("answer_timeout", &c.AnswerTimeout, time.Second, 24*time.Hour)
	t.str("github_host", &c.GitHubHost, isHostOrNone)
	c.Profile.read(t)
	t.table("profile").eachTable(func(name string, sub *table) {
		if !providerName.MatchString(name) {
			t.fault("profile."+name, "is not a profile's name: 1 to 64 letters, digits, dots, dashes and underscores")
		}
		p := c.Profile
		p.read(sub)
		sub.rejectUnknown()
	})
	c.Permissions.read(t.table("permissions"))
	t.rejectUnknown()
}
