package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/adrg/xdg"
)

// EnvLSConfig is the environment variable that names lsclient.toml where --config does not; [FindLSClient] reads it.
// The named file then counts alone.
const EnvLSConfig = "LSCLIENT_CONFIG"

// LSClient is the content of lsclient.toml, checked and with its defaults. An empty file means [DefaultLSClient];
// configs/lsclient.toml documents each key.
type LSClient struct {
	Server      string // language server's binary; "": found as documented
	Model       string // "": the server's default
	MaxRounds   int    // rounds of tool calls in a turn
	Tools       DropIns
	LibraryDocs string // directory that adds libraries, absolute; "": beside the user's file
	ToolTimeout time.Duration
	Proxy       Proxy
	GitHub      GitHub
	Gateway     LSGateway
	Kept        KeptConversations
	Allow       AllowList
	MCP         map[string]MCPServer // by name
	LSP         map[string]LSPServer // by name
	Roles       map[string]Role      // by name; empty: lsclient's own
}

// DropIns is the table [tools]: where drop-in tools are, and what they get. A list of directories instead of the table
// stands for its dirs.
type DropIns struct {
	Dirs    []string // absolute
	Env     []string // environment variables that drop-ins get besides the usual ones; a last * is any ending
	Replace []string // tools, built in or the language server's, whose places drop-ins of their names take
}

// Proxy is the table [proxy]: how the language server reaches GitHub. The zero URL leaves it to variables such as
// HTTPS_PROXY.
type Proxy struct {
	URL       string // "": the environment's
	StrictSSL bool
	AuthEnv   string // the variable that holds user:password; "": none
}

// GitHub is the table [github]: which GitHub the language server signs in to, github.com or a company's own server.
type GitHub struct {
	Enterprise string // base URL of a GitHub Enterprise server; "": github.com
}

// LSGateway is the table [gateway]: whether conversations become sessions of a gateway, so that its providers give them
// tools and gates, and of which one.
type LSGateway struct {
	Use string // GatewayAuto, GatewayOn or GatewayOff
	URL string // "": the one that runs for this user
}

// Values of gateway.use: whether conversations become sessions of a gateway where one runs, always, or never. The
// default is auto.
const (
	GatewayAuto = "auto" // where one runs
	GatewayOn   = "on"   // or fail
	GatewayOff  = "off"
)

// KeptConversations is the table [conversations]: whether conversations are kept on disk, and how long. The limits
// count over all workspaces; 0 means no limit.
type KeptConversations struct {
	Save bool
	Days int // since the last turn
	Keep int // how many
}

// AllowList is the table [allow]: what runs without a question to the user, besides what never needs one.
type AllowList struct {
	Terminal []string // commands, with * in and behind their words; see package shellrule
	Outside  []string // globs of files outside the workspace, absolute
	Web      []string // hosts on private addresses that fetch_web_page may reach
	MCP      []string // "server" or "server/tool"
	Tools    []string // drop-in tools of the kinds edit, terminal and web, and those without a kind
}

// Role is a table [roles.NAME]: what a worker of lsclient orchestrate is for, and how it works.
type Role struct {
	Description  string   // for the model that plans
	Instructions string   // for the worker; "": none
	Model        string   // "": that of the other turns
	Tools        []string // names of tools, or of their kinds; empty: all
}

// LSPServer is a table [lsp.NAME]: a language server that tools ask about code, with the ids of its languages by the
// endings of files.
type LSPServer struct {
	Command   []string          // a program on PATH or an absolute path, and its arguments
	Languages map[string]string // such as ".rs" to "rust"
}

// DefaultLSClient returns the configuration without a file: 25 rounds of tool calls, two minutes for each tool, a
// gateway where one runs, 200 conversations kept for 30 days. Each call returns a value of its own.
func DefaultLSClient() LSClient {
	return LSClient{
		MaxRounds: 25, ToolTimeout: 2 * time.Minute,
		Proxy:   Proxy{StrictSSL: true},
		Gateway: LSGateway{Use: GatewayAuto},
		Kept:    KeptConversations{Save: true, Days: 30, Keep: 200},
	}
}

// LSFiles are the files that make up lsclient's configuration and the directories of drop-in tools that lie beside
// them. [FindLSClient] finds them; the zero value means none.
type LSFiles struct {
	User      string   // the user's own file, or the one that was named; "" for none
	Project   string   // the trusted project's, whose keys come over the user's; "" for none
	Untrusted string   // a project's file or tool directory that is left out; "" for none
	Why       error    // it has changed since it was trusted; nil: it never was
	ToolDirs  []string // whether they exist or not

	isNamed bool   // a flag or variable names User, which counts alone
	project string // the trusted project that the workspace is in; "" for none
}

// Where a project keeps its own files.
var projectDirs = []string{".tapgw", "configs"}

const (
	lsFile  = "lsclient.toml"
	userDir = "tapgw"
	toolDir = "tools"
)

// UserDir is the directory of the user's own config files, tapgw below XDG_CONFIG_HOME or what the system has for it.
// It need not exist.
func UserDir() string { return filepath.Join(xdg.ConfigHome, userDir) }

// FindLSClient finds lsclient's files for a workspace. If named (of a flag) or
// LSCLIENT_CONFIG names a file, it counts alone, with the directory tools beside it. Else the
// user's own file counts and, over it, that of the trusted project that the workspace is in.
func FindLSClient(workspace, named string) (LSFiles, error) {
	where := "--config"
	if named == "" {
		named, where = os.Getenv(EnvLSConfig), EnvLSConfig
	}
	if named != "" {
		// Seen from here, not from the workspace: it is trusted.
		named, err := filepath.Abs(named)
		if err != nil {
			return LSFiles{}, fmt.Errorf("%s: %w", where, err)
		}
		if _, err := os.Stat(named); err != nil { //nolint:gosec // the user names the file
			return LSFiles{User: named}, fmt.Errorf("%s: %s: %w", where, named, errors.Unwrap(err))
		}
		return LSFiles{User: named, isNamed: true, ToolDirs: []string{filepath.Join(filepath.Dir(named), toolDir)}}, nil
	}
	f := LSFiles{User: lsUserFile()}
	project := workspace
	p, trusted, err := trustedAbove(workspace)
	if err != nil {
		return LSFiles{}, err
	}
	if trusted {
		project, f.project = p.Dir, p.Dir
	}
	f.Project = projectFile(project, lsFile, f.changes)
	leave := func(path string, why error) {
		if f.Untrusted == "" {
			f.Untrusted, f.Why = path, why
		}
	}
	if f.Project != "" && !trusted {
		leave(f.Project, nil)
		f.Project = ""
	} else if f.Project != "" {
		if err := Unchanged(p.Dir, f.Project); err != nil {
			leave(f.Project, err)
			f.Project = ""
		}
	}
	for _, dir := range projectDirs {
		tools := filepath.Join(project, dir, toolDir)
		switch {
		case trusted: // External asks [LSFiles.CheckTools] of each
			f.ToolDirs = append(f.ToolDirs, tools)
		case exists(tools):
			leave(tools, nil)
		}
	}
	f.ToolDirs = append(f.ToolDirs, filepath.Join(UserDir(), toolDir))
	return f, nil
}

// CheckTools returns an error when the tools of a directory may not run: the directory is in
// a project, and its content is not what the user trusted. The path decides on the project: a
// symbolic link out of it changes nothing.
func (f LSFiles) CheckTools(dir string) error {
	if rel, err := filepath.Rel(f.project, dir); f.project != "" && err == nil && filepath.IsLocal(rel) {
		return Unchanged(f.project, dir)
	}
	p, trusted, err := nearestTrusted(dir)
	if err == nil && !trusted {
		p, trusted, err = trustedAbove(dir)
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && !trusted {
		return nil // the user's, or named by them
	}
	if err != nil {
		return err
	}
	return Unchanged(p.Dir, dir)
}

// changesLSClient reports whether an lsclient.toml changes a default or has a fault.
func changesLSClient(file string, data []byte) bool {
	c, faults := ParseLSClient(file, data)
	return len(faults) > 0 || !isEqual(c, DefaultLSClient())
}

// changes reports whether a project's lsclient.toml would change a setting, or has a fault. A default changes a
// setting where the user's file has another value.
func (f LSFiles) changes(file string, data []byte) bool {
	if changesLSClient(file, data) {
		return true
	}
	c, err := LSFiles{User: f.User}.Load()
	with := c
	return err == nil && (len(with.parseProject(file, data)) > 0 || !isEqual(with, c))
}

// parseProject is parse for a project's file. A file with defaults only, such as the sample, may have keys that only
// the user can set; they are ignored.
func (c *LSClient) parseProject(file string, data []byte) Faults {
	before := *c
	faults := c.parse(file, data, changesLSClient(file, data))
	c.Server, c.Proxy, c.GitHub, c.Allow, c.Kept =
		before.Server, before.Proxy, before.GitHub, before.Allow, before.Kept
	return faults
}

// lsUserFile returns the path of the user's lsclient.toml, "" if there is no such file.
func lsUserFile() string {
	if file := filepath.Join(UserDir(), lsFile); exists(file) {
		return file
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Load reads the user's file and puts the project's keys over it; files that went away or changed since they were found
// do not count. Tools.Dirs also has the tool directories of f. The error is a [Faults] if the files could be read.
func (f LSFiles) Load() (LSClient, error) {
	c := DefaultLSClient()
	for _, file := range []string{f.User, f.Project} {
		if file == "" {
			continue
		}
		data, err := readFile(file)
		if file == f.Project {
			if data, err = readTrusted(f.project, file); err != nil {
				continue // it has changed since it was found
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went away since it was found
		}
		if err != nil {
			return LSClient{}, err
		}
		parse := func(file string, data []byte) Faults { return c.parse(file, data, false) }
		if file == f.Project {
			parse = c.parseProject
		}
		if faults := parse(file, data); len(faults) > 0 {
			return LSClient{}, faults
		}
	}
	c.Tools.Dirs = slices.Concat(c.Tools.Dirs, f.ToolDirs)
	return c, nil
}

// ParseLSClient reads the text of an lsclient.toml; file is its name in faults, and paths become absolute, relative to
// its directory. Keys that are left out have their defaults. With faults, the LSClient is zero.
func ParseLSClient(file string, data []byte) (LSClient, Faults) {
	c := DefaultLSClient()
	if faults := c.parse(file, data, false); len(faults) > 0 {
		return LSClient{}, faults
	}
	return c, nil
}

// parse puts a file's keys over those of c. A project's file can't set which program starts
// and where its traffic goes.
func (c *LSClient) parse(file string, data []byte, project bool) Faults {
	doc, root := open(file, data)
	if root == nil {
		return doc.faults
	}
	dir := filepath.Dir(file)
	c.read(root)
	if project {
		for _, key := range []string{"server", "proxy", "github", "allow", "conversations"} {
			if _, set := root.values[key]; set {
				root.fault(key, "a project's file can't set it: write it into %s", filepath.Join(UserDir(), lsFile))
			}
		}
	}
	if len(doc.faults) > 0 {
		return doc.sorted()
	}
	for i, t := range c.Tools.Dirs {
		c.Tools.Dirs[i] = resolvePath(dir, t)
	}
	if c.LibraryDocs != "" {
		c.LibraryDocs = resolvePath(dir, c.LibraryDocs)
	}
	if strings.ContainsAny(c.Server, `/\`) {
		c.Server = resolvePath(dir, c.Server)
	}
	return nil
}

func (c *LSClient) read(root *table) {
	root.str("server", &c.Server, noNUL)
	root.str("model", &c.Model, isModelOrNone)
	root.integer("max_rounds", &c.MaxRounds, 1, 500)
	c.Tools.read(root)
	root.str("library_docs", &c.LibraryDocs, noNUL)
	root.duration("tool_timeout", &c.ToolTimeout, time.Second, 24*time.Hour)
	p := root.table("proxy")
	p.str("url", &c.Proxy.URL, isProxyURL)
	p.boolean("strict_ssl", &c.Proxy.StrictSSL)
	p.str("auth_env", &c.Proxy.AuthEnv, func(s string) error {
		if s == "" {
			return nil
		}
		return CheckKeyEnv(s)
	})
	p.rejectUnknown()
	g := root.table("github")
	g.str("enterprise", &c.GitHub.Enterprise, isEnterpriseURL)
	g.rejectUnknown()
	gw := root.table("gateway")
	gw.str("use", &c.Gateway.Use, oneOf(GatewayAuto, GatewayOn, GatewayOff))
	gw.str("url", &c.Gateway.URL, nil)
	gw.rejectUnknown()
	k := root.table("conversations")
	k.boolean("save", &c.Kept.Save)
	k.integer("keep_days", &c.Kept.Days, 0, 36500)
	k.integer("keep", &c.Kept.Keep, 0, 100_000)
	k.rejectUnknown()
	a := root.table("allow")
	a.strs("terminal", &c.Allow.Terminal, isTerminalRule)
	a.strs("outside", &c.Allow.Outside, isOutside)
	a.strs("web", &c.Allow.Web, isHost)
	a.strs("mcp", &c.Allow.MCP, notEmpty)
	a.strs("tools", &c.Allow.Tools, notEmpty)
	a.rejectUnknown()
	c.parseMCP(root.table("mcp"))
	c.parseLSP(root.table("lsp"))
	c.readRoles(root.table("roles"))
	root.rejectUnknown()
}

func (d *DropIns) read(root *table) {
	isList := root.isList("tools")
	for path := range root.doc.keys {
		// The parser takes both and keeps one.
		if rest, ok := strings.CutPrefix(path, "tools."); ok && strings.HasPrefix(rest, `"[`) != isList {
			root.lookup("tools")
			root.fault("tools", "is both a list and a table: write the list as tools.dirs")
			return
		}
	}
	if isList {
		root.strs("tools", &d.Dirs, isPath)
		return
	}
	t := root.table("tools")
	t.strs("dirs", &d.Dirs, isPath)
	t.strs("env", &d.Env, isEnvOrPrefix)
	t.strs("replace", &d.Replace, notEmpty)
	t.rejectUnknown()
	t.alsoList("dirs")
}

func (c *LSClient) parseMCP(t *table) {
	if t == nil {
		return
	}
	if len(c.MCP) > 0 && t.shape != nil {
		t.shape.Default = literal(c.MCP)
	}
	servers := maps.Clone(c.MCP)
	if servers == nil {
		servers = map[string]MCPServer{}
	}
	t.eachTable(func(name string, sub *table) {
		if !providerName.MatchString(name) {
			t.fault(name, "is not a server's name: 1 to 64 letters, digits, dots, dashes and underscores")
		}
		var s MCPServer
		sub.list("command", &s.Command, isArgument)
		sub.strings("env", &s.Env, func(name string) error {
			if !envName.MatchString(name) {
				return errors.New("is not the name of an environment variable")
			}
			return nil
		})
		sub.str("cwd", &s.Dir, noNUL)
		sub.str("url", &s.URL, isHTTP)
		sub.rejectUnknown()
		if sub.isGood("command") && sub.isGood("url") && (len(s.Command) == 0) == (s.URL == "") {
			t.fault(name, "needs either command or url")
		}
		servers[name] = s
	})
	c.MCP = servers
}

func (c *LSClient) readRoles(t *table) {
	if t == nil {
		return
	}
	if len(c.Roles) > 0 && t.shape != nil {
		t.shape.Default = literal(c.Roles)
	}
	roles := maps.Clone(c.Roles)
	if roles == nil {
		roles = map[string]Role{}
	}
	t.eachTable(func(name string, sub *table) {
		if !providerName.MatchString(name) {
			t.fault(name, "is not a role's name: 1 to 64 letters, digits, dots, dashes and underscores")
		}
		var r Role
		sub.str("description", &r.Description, notEmpty)
		sub.str("instructions", &r.Instructions, nil)
		sub.str("model", &r.Model, isModelOrNone)
		sub.strs("tools", &r.Tools, notEmpty)
		sub.rejectUnknown()
		if r.Description == "" && sub.isGood("description") {
			t.fault(name, "needs a description, by which the plan chooses it")
		}
		roles[name] = r
	})
	c.Roles = roles
}

func (c *LSClient) parseLSP(t *table) {
	if t == nil {
		return
	}
	servers := maps.Clone(c.LSP)
	if servers == nil {
		servers = map[string]LSPServer{}
	}
	if len(servers) > 0 && t.shape != nil {
		t.shape.Default = literal(servers)
	}
	t.eachTable(func(name string, sub *table) {
		if !providerName.MatchString(name) {
			t.fault(name, "is not a server's name: 1 to 64 letters, digits, dots, dashes and underscores")
		}
		var s LSPServer
		sub.list("command", &s.Command, isArgument)
		sub.strings("languages", &s.Languages, func(ending string) error {
			if !strings.HasPrefix(ending, ".") || len(ending) < 2 {
				return errors.New(`is not the ending of files, such as ".rs"`)
			}
			return nil
		})
		sub.rejectUnknown()
		if sub.isGood("command") && sub.isGood("languages") && (len(s.Command) == 0 || len(s.Languages) == 0) {
			t.fault(name, "needs command and languages")
		}
		servers[name] = s
	})
	c.LSP = servers
}
