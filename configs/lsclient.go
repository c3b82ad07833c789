package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/adrg/xdg"
)

// EnvLSConfig is the environment variable that names lsclient.toml where --config does not;
// [FindLSClient] reads it. The named file then counts alone.
const EnvLSConfig = "LSCLIENT_CONFIG"

// LSClient is the content of lsclient.toml, checked and with its defaults. An empty file means
// [DefaultLSClient]; configs/lsclient.toml documents each key.
type LSClient struct {
	Server string `toml:"server" is:"noNUL" base:"program" user:"set"` // the language server
	// "": the server's default
	Model     string  `toml:"model" is:"model?"`
	MaxRounds int     `toml:"max_rounds" default:"25" range:"1,500"`
	Tools     DropIns `toml:"tools"`
	// LibraryDocs is a directory that adds libraries, absolute; "": beside the user's file.
	LibraryDocs string               `toml:"library_docs" is:"noNUL" base:"file"`
	ToolTimeout time.Duration        `toml:"tool_timeout" default:"2m" range:"1s,24h"`
	Proxy       Proxy                `toml:"proxy" user:"set"`
	GitHub      GitHub               `toml:"github" user:"set"`
	Gateway     LSGateway            `toml:"gateway"`
	Kept        KeptConversations    `toml:"conversations" user:"set"`
	Allow       AllowList            `toml:"allow" user:"set"`
	MCP         map[string]MCPServer `toml:"mcp" names:"server"`
	LSP         map[string]LSPServer `toml:"lsp" names:"server"`
	Roles       map[string]Role      `toml:"roles" names:"role"` // empty: lsclient's own
}

// DropIns is the table [tools]: the directories of drop-in tools, and the settings of these tools.
// A list of directories instead of the table sets dirs.
type DropIns struct {
	Dirs    []string `toml:"dirs" is:"dir" base:"file"` // absolute
	Env     []string `toml:"env" is:"envPrefix"`        // a last * is any ending
	Replace []string `toml:"replace" is:"text"`         // tools that drop-ins replace
}

// Proxy is the table [proxy]: how the language server reaches GitHub. The zero URL leaves it to
// variables such as HTTPS_PROXY.
type Proxy struct {
	URL       string `toml:"url" is:"proxyURL?"` // "": the environment's
	StrictSSL bool   `toml:"strict_ssl" default:"true"`
	AuthEnv   string `toml:"auth_env" is:"keyEnv?"` // holds user:password
}

// GitHub is the table [github]: which GitHub the language server signs in to. Enterprise is the
// base URL of a GitHub Enterprise server, "" for github.com.
type GitHub struct {
	Enterprise string `toml:"enterprise" is:"enterpriseURL?"`
}

// LSGateway is the table [gateway]: whether conversations become sessions of a gateway, so that its
// providers give them tools and gates, and of which one.
type LSGateway struct {
	Use string `toml:"use" of:"auto,on,off" default:"auto"`
	URL string `toml:"url"` // "": the gateway that runs for this user
}

// Values of gateway.use: whether conversations become sessions of a gateway where one runs, always,
// or never. The default is auto.
const (
	GatewayAuto = "auto" // where one runs
	GatewayOn   = "on"   // or fail
	GatewayOff  = "off"
)

// KeptConversations is the table [conversations]: whether conversations are kept on disk, and how
// long. The limits count over all workspaces; 0 means no limit.
type KeptConversations struct {
	Save bool `toml:"save" default:"true"`
	Days int  `toml:"keep_days" default:"30" range:"0,36500"` // since the last turn
	Keep int  `toml:"keep" default:"200" range:"0,100000"`    // how many
}

// AllowList is the table [allow]: the commands, tools and paths that need no question to the user,
// beside those that never need one.
type AllowList struct {
	Terminal []string `toml:"terminal" is:"terminalRule"` // commands; see package shellrule
	Outside  []string `toml:"outside" is:"outside"`       // absolute globs
	Web      []string `toml:"web" is:"host"`              // hosts on private addresses
	MCP      []string `toml:"mcp" is:"text"`              // "server" or "server/tool"
	Tools    []string `toml:"tools" is:"text"`            // drop-ins
}

// Role is a table [roles.NAME]: the purpose of a worker of lsclient orchestrate, and how it works.
type Role struct {
	Description  string   `toml:"description" is:"text"` // for the model that plans
	Instructions string   `toml:"instructions"`          // for the worker; "" adds no text
	Model        string   `toml:"model" is:"model?"`     // "": the model of the other turns
	Tools        []string `toml:"tools" is:"text"`       // or their kinds; empty: all
}

// LSPServer is a table [lsp.NAME]: a language server that tools ask about code, with the ids of its
// languages by the endings of files, such as ".rs" to "rust". Command is a program on PATH or an
// absolute path, and its arguments.
type LSPServer struct {
	Command   []string          `toml:"command" first:"must be the name of a program" is:"noNUL"`
	Languages map[string]string `toml:"languages" names:"ending"`
}

// DefaultLSClient returns the configuration without a file: 25 rounds of tool calls, two minutes
// for each tool, a gateway where one runs, 200 conversations kept for 30 days. Each call returns a
// value of its own.
func DefaultLSClient() LSClient { return defaults[LSClient]() }

// LSFiles are the files that make up lsclient's configuration, and the directories of drop-in tools
// beside them. [FindLSClient] finds them. The zero value has no files.
type LSFiles struct {
	User      string   // the user's own file, or the named one; may be ""
	Project   string   // the trusted project's, whose keys come over the user's; may be ""
	Untrusted string   // a project's file or tool directory that is left out; "" if all count
	Why       error    // the content has changed since; nil: it was never trusted
	ToolDirs  []string // whether they exist or not

	isNamed bool   // a flag or variable names User, which counts alone
	project string // the trusted project that the workspace is in; "" outside one
}

// Where a project keeps its own files.
var projectDirs = []string{".tapgw", "configs"}

const (
	lsFile  = "lsclient.toml"
	userDir = "tapgw"
	toolDir = "tools"
)

// UserDir is the directory of the user's own config files: tapgw below XDG_CONFIG_HOME or the
// system's default for it. It need not exist.
func UserDir() string { return filepath.Join(xdg.ConfigHome, userDir) }

// FindLSClient finds lsclient's files for a workspace. If named (of a flag) or LSCLIENT_CONFIG
// names a file, only that file counts, with the directory tools beside it. Else the user's own file
// counts and, over it, the file of the trusted project that the workspace is in.
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
		return LSFiles{User: named, isNamed: true,
			ToolDirs: []string{filepath.Join(filepath.Dir(named), toolDir)}}, nil
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

// CheckTools returns an error when the tools of a directory may not run, because the directory is
// in a project and its content differs from the content that the user trusted. The path decides on
// the project, even if it is a symbolic link that leads out of the project.
func (f LSFiles) CheckTools(dir string) error {
	if rel, err := filepath.Rel(f.project, dir); f.project != "" && err == nil &&
		filepath.IsLocal(rel) {
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

// changes reports whether a project's lsclient.toml would change a setting, or has a fault. A
// default changes a setting where the user's file has another value.
func (f LSFiles) changes(file string, data []byte) bool {
	if changesLSClient(file, data) {
		return true
	}
	c, err := LSFiles{User: f.User}.Load()
	with := c
	return err == nil && (len(with.parseProject(file, data)) > 0 || !isEqual(with, c))
}

// parseProject is parse for a project's file. A file with defaults only, such as the sample, may
// have keys that only the user can set; they are ignored.
func (c *LSClient) parseProject(file string, data []byte) Faults {
	before := *c
	faults := c.parse(file, data, changesLSClient(file, data))
	copyUserKeys(c, before)
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

// Load reads the user's file and puts the project's keys over it; files that went away or changed
// since they were found do not count. Tools.Dirs also has the tool directories of f. The error is a
// [Faults] if the files could be read.
func (f LSFiles) Load() (LSClient, error) {
	c := DefaultLSClient()
	for _, file := range []string{f.User, f.Project} {
		if file == "" {
			continue
		}
		data, err := readFile(file)
		if file == f.Project {
			if data, err = readTrusted(f.project, file); err != nil {
				continue // the file has changed since it was found
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // the file was removed since it was found
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

// ParseLSClient reads the text of an lsclient.toml; file is its name in faults, and paths become
// absolute, relative to its directory. Keys that are left out have their defaults. With faults, the
// LSClient is zero.
func ParseLSClient(file string, data []byte) (LSClient, Faults) {
	c := DefaultLSClient()
	if faults := c.parse(file, data, false); len(faults) > 0 {
		return LSClient{}, faults
	}
	return c, nil
}

// parse puts a file's keys over those of c. A project's file can't set which program starts and
// where its traffic goes.
func (c *LSClient) parse(file string, data []byte, project bool) Faults {
	doc, root := open(file, data)
	if root == nil {
		return doc.faults
	}
	root.read(c)
	if project {
		root.rejectUserKeys("", reflect.ValueOf(*c), reflect.ValueOf(DefaultLSClient()), lsFile)
	}
	return doc.sorted()
}

// readKey reads the table, or the list that stands for its dirs.
func (d *DropIns) readKey(t *table, key string) {
	isList := t.isList(key)
	for path := range t.doc.keys {
		// The parser takes both and keeps one.
		if rest, ok := strings.CutPrefix(path, key+"."); ok &&
			strings.HasPrefix(rest, `"[`) != isList {
			t.fault(key, "is both a list and a table: write the list as tools.dirs")
			return
		}
	}
	if isList {
		dirs := fieldsOf(reflect.TypeFor[DropIns]())[0]
		dirs.key = key
		t.readList(&dirs, &d.Dirs, t.values[key])
	} else if sub := t.table(key); sub != nil {
		sub.read(d)
	}
}

func (r *Role) check(t *table) {
	if r.Description == "" && t.isGood("description") {
		t.faultHere("needs a description, by which the plan chooses it")
	}
}

func (s *LSPServer) check(t *table) {
	if t.isGood("command") && t.isGood("languages") &&
		(len(s.Command) == 0 || len(s.Languages) == 0) {
		t.faultHere("needs command and languages")
	}
}
