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

// Fault is an error at a place of a file, with advice for the user. Line and Column are 1 where
// only the file is known.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1
	Column  int    `json:"column"` // in characters, from 1
	Message string `json:"message"`
}

// Error returns file:line:column: message, in one line. Control characters in the file's name are
// made visible.
func (f Fault) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", visible.Line(f.File), f.Line, f.Column, f.Message)
}

// Faults are all faults of the files that were read, in the order of the files. The functions that
// return them as an error return at least one.
type Faults []Fault

// Error returns the first fault, and how many more there are; the command `tapgw config check`
// lists all.
func (fs Faults) Error() string {
	switch len(fs) {
	case 0:
		return "no faults"
	case 1:
		return fs[0].Error()
	}
	return fmt.Sprintf("%s (and %d more: see tapgw config check)", fs[0].Error(), len(fs)-1)
}

// Config is the content of tapgw.toml, checked and with its defaults. An empty file means
// [Default]; configs/tapgw.toml documents each key.
type Config struct {
	Listen string `toml:"listen" is:"address" default:"127.0.0.1:9400" user:"changed"`
	// allow a Listen beyond loopback without TLS
	Insecure bool     `toml:"insecure" user:"changed"`
	TLSCert  string   `toml:"tls_cert" base:"file" user:"changed"` // PEM files; both or neither
	TLSKey   string   `toml:"tls_key" base:"file" user:"changed"`
	Hosts    []string `toml:"hosts" is:"host" user:"changed"` // beside the names of loopback
	LogLevel string   `toml:"log_level" of:"debug,info,warn,error" default:"info" user:"changed"`
	// MaxConnections is how many providers may be connected at once.
	MaxConnections int `toml:"max_connections" default:"50" range:"1,10000" user:"changed"`
	// MCPToolThreshold is how many tools of providers a session may have until MCP clients search
	// them instead of getting them all; 0: they always search.
	MCPToolThreshold int `toml:"mcp_tool_threshold" default:"60" range:"0,10000" user:"changed"`
	// CopilotToolThreshold is how many tools of providers a Copilot session may have before its
	// model searches them instead of getting them all; -1: no limit.
	CopilotToolThreshold int `toml:"copilot_tool_threshold" default:"-1" range:"-1,10000" user:"changed"`
	// InjectQuiet is the time without injects after which a provider may inject again
	// without a prompt of the user.
	InjectQuiet time.Duration `toml:"inject_quiet" default:"10m" range:"1s,168h" user:"changed"`
	API         API           `toml:"api"`
	Records     Records       `toml:"records"`
	Tap         Tap           `toml:"tap"`
	Webhooks    Webhooks      `toml:"webhooks"`
	Terminals   Terminals     `toml:"terminals"`
	Cluster     Cluster       `toml:"cluster" user:"set"`
	Copilot     Copilot       `toml:"copilot"`
	Hooks       []Hook        `toml:"hooks" user:"set"` // in the order of the file
}

// API is the table [api]. Its key auth says whether a caller of the session API (docs/admin-api.md)
// must show a token, AuthToken or AuthNone. The admin API needs its token in any case.
type API struct {
	Auth string `toml:"auth" of:"token,none" default:"token" user:"changed"`
}

// Records is the table [records]. It says whether the gateway keeps records of calls, sessions and
// pushes, and for how long. MaxBytes counts all record files together.
type Records struct {
	Enabled  bool          `toml:"enabled" default:"true" user:"changed"`
	MaxAge   time.Duration `toml:"max_age" default:"720h" range:"1h,87600h" user:"changed"`
	MaxBytes int           `toml:"max_bytes" default:"268435456" range:"1048576,1099511627776" user:"changed"`
}

// Tap is the table [tap]: whether sessions have the tools of the provider "tap" (docs/tap.md).
type Tap struct {
	Tools bool `toml:"tools" default:"true" user:"changed"`
}

// Webhooks is the table [webhooks]. Listen is a second address, host:port, that serves only
// /hooks/NAME; "" opens no such address. It may be beyond loopback under the same conditions as the
// gateway's address.
type Webhooks struct {
	Listen string `toml:"listen" is:"address?" user:"changed"`
}

// Terminals is the table [terminals], for the Copilot CLIs of people (docs/terminals.md).
// WithoutGateway decides a terminal's tool calls while no gateway runs that could ask the gates:
// TerminalsAllow or TerminalsDeny.
type Terminals struct {
	WithoutGateway string `toml:"without_gateway" of:"allow,deny" default:"allow" user:"changed"`
}

// Values of terminals.without_gateway.
const (
	TerminalsAllow = "allow"
	TerminalsDeny  = "deny"
)

// Values of api.auth. By default, callers of the session API show a token. AuthNone, which needs no
// token, is for loopback addresses only; [CheckListen] refuses it elsewhere.
const (
	AuthToken = "token"
	AuthNone  = "none"
)

// Copilot is the table [copilot]: the runtime that sessions use, its bounds, and the settings of
// sessions. The fields of the embedded Profile are keys of the same table.
type Copilot struct {
	// CLI is the path or name of the runtime; "" to search for it.
	CLI string `toml:"cli" base:"program" user:"changed"`
	// ProviderURL is a model endpoint of the user's own, "" for GitHub's. The variable
	// ProviderKeyEnv holds its key.
	ProviderURL    string        `toml:"provider_url" is:"baseURL" user:"changed"`
	ProviderKeyEnv string        `toml:"provider_key_env" is:"keyEnv" default:"TAP_MODEL_KEY" user:"changed"`
	Models         []string      `toml:"models" is:"model"`
	MaxRounds      int           `toml:"max_rounds" default:"200" range:"1,10000"`
	MaxTurnTime    time.Duration `toml:"max_turn_time" default:"2h" range:"1s,168h"`
	// AskUser is whether the model and MCP servers may ask a person. AnswerTimeout limits the time
	// for an answer.
	AskUser       bool          `toml:"ask_user" default:"true"`
	AnswerTimeout time.Duration `toml:"answer_timeout" default:"5m" range:"1s,24h"`
	GitHubHost    string        `toml:"github_host" is:"host?" user:"changed"` // "" for github.com

	Profile // of sessions that name no profile
	// Profiles has, by name, each profile with the values that it inherits from Profile.
	Profiles    map[string]Profile `toml:"profile" names:"profile"`
	Permissions Permissions        `toml:"permissions"`
}

// Default returns the configuration without a file: loopback port 9400 and a token for the API.
// Each call returns a value of its own, which the caller may change.
func Default() Config { return defaults[Config]() }

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
	// The user names the file.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec
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
		return nil,
			fmt.Errorf("reading the config file: %s is no file but a device, a pipe or a socket",
				path)
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

// Parse reads the text of a tapgw.toml; file is its name in faults, and paths become absolute,
// relative to its directory. It reads no other file; see [Files.Load]. With faults, the Config is
// zero.
func Parse(file string, data []byte) (Config, Faults) {
	c := Default()
	if faults := c.parse(file, data, false, &[]layer{}); len(faults) > 0 {
		return Config{}, faults
	}
	return c, nil
}

// parse puts a file's keys over those of c. A project's file can't set the gateway's log, its
// addresses, who may connect, the runtime's program, and the destinations of its traffic; it may
// repeat the defaults.
func (c *Config) parse(file string, data []byte, project bool, found *[]layer) Faults {
	doc, root := open(file, data)
	if root == nil {
		return doc.faults
	}
	before := *c
	if project {
		copyUserKeys(c, Default())
	}
	root.read(c)
	if project {
		root.rejectUserKeys("", reflect.ValueOf(*c), reflect.ValueOf(Default()), configFile)
		for _, l := range layers(root) {
			for _, f := range fieldsOf(reflect.TypeFor[Profile]()) {
				if f.tag.Get("user") != "" && l.table.has(f.key) {
					l.table.faultOfUser(f.key, configFile)
				}
			}
		}
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
		copyUserKeys(c, before)
	}
	*found = append(*found, layers(root)...)
	return c.Copilot.resolve(root, *found)
}
