// Package workspace is the directory in which lsclient works, with the configuration, the tools,
// the MCP servers, and the language server that belong to it.
package workspace

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/adrg/xdg"

	"tapgw/configs"
	"tapgw/internal/checkpoint"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/protect"
	"tapgw/tools"
	"tapgw/tools/builtin"
)

// Options choose the directory, and have the command line's additions to its configuration.
type Options struct {
	Dir         string   // absolute
	ConfigFile  string   // --config; "": the user's and the project's files count
	ToolDirs    []string // --tools
	MCPServers  []string // --mcp: files, or their content
	Proxy       *string  // --proxy; nil: as the configuration says
	NoSSLVerify bool
	Plan        bool // only read: there are no MCP servers, because their tools may do anything

	Note func(format string, args ...any) // shows a person a line
	Log  io.Writer                        // of the server and the tools; nil: no log
}

// Workspace is a directory with its present configuration. It may be used by several goroutines.
type Workspace struct {
	Options
	Files configs.LSFiles // the files that were found at the beginning

	mcp      map[string]configs.MCPServer // of --mcp, by name
	config   atomic.Pointer[configs.LSClient]
	external *tools.External
}

// Open reads the configuration of a directory, and notes project files that are left out. Its
// errors have exit codes. The caller ends with [Workspace.Close].
func Open(o Options) (_ *Workspace, err error) {
	w := &Workspace{Options: o}
	if w.ToolDirs, err = absoluteDirs(o.ToolDirs); err != nil {
		return nil, err
	}
	if w.mcp, err = parseMCP(o.MCPServers); err != nil {
		return nil, err
	}
	config, files, err := w.readConfig()
	if _, faulty := errors.AsType[configs.Faults](err); faulty {
		return nil, cli.Failed("%v", err)
	}
	if err != nil {
		return nil, err
	}
	w.Files = files
	w.config.Store(&config)
	w.external = &tools.External{Beside: builtin.All,
		Check: func(dir string) error {
			if slices.Contains(w.ToolDirs, dir) {
				return nil // the caller named it
			}
			return files.CheckTools(dir)
		},
		Allow:   func() []string { return w.Config().Tools.Env },
		Replace: func() []string { return w.Config().Tools.Replace },
	}
	if o.Log != nil {
		w.external.Log = func(file, line string) {
			o.Note("%s: %s", filepath.Base(file), cli.Clean(line))
		}
	}
	if files.Untrusted != "" {
		o.Note("lsclient: %s is left out: %s", cli.OneLine(files.Untrusted),
			cli.OneLine(w.WhyUntrusted()))
	}
	return w, nil
}

// Close ends the programs of the tools.
func (w *Workspace) Close() {
	w.external.Close()
	builtin.Close()
}

// Config returns the present configuration.
func (w *Workspace) Config() configs.LSClient { return *w.config.Load() }

// WhyUntrusted returns why the project's files are left out.
func (w *Workspace) WhyUntrusted() string {
	if w.Files.Why != nil {
		return w.Files.Why.Error()
	}
	return "this directory is not trusted yet; trust it with: " + configs.TrustCommand(w.Dir)
}

// Env returns the environment of tools in the workspace, without a policy to ask about their calls.
func (w *Workspace) Env() *tools.Env {
	config := w.Config()
	libraries := config.LibraryDocs
	if libraries == "" {
		libraries = filepath.Join(configs.UserDir(), "library_docs")
	}
	var servers []tools.LanguageServer
	for _, name := range slices.Sorted(maps.Keys(config.LSP)) {
		servers = append(servers,
			tools.LanguageServer{Name: name, Command: config.LSP[name].Command,
				Languages: config.LSP[name].Languages})
	}
	return &tools.Env{
		Root: w.Dir, Home: filepath.Join(xdg.DataHome, "tapgw"), Libraries: libraries,
		Timeout: config.ToolTimeout, Sources: w.Sources(), LanguageServers: servers,
		Secrets: []string{configs.StateDir(), StateDir()}, Log: w.logger(),
	}
}

// Sources returns the directories whose files start programs: the directories of drop-in tools, and
// the user's config and Copilot files.
func (w *Workspace) Sources() []string {
	return slices.Concat(w.Config().Tools.Dirs, []string{configs.UserDir(), configs.Home()})
}

// Gateway returns the options to reach the gateway: the one that the arguments, the environment or
// the configuration name, else the one that runs for this user.
func (w *Workspace) Gateway(url, token string) client.Options {
	if url == "" && os.Getenv(client.EnvURL) == "" {
		url = w.Config().Gateway.URL
	}
	return client.Options{URL: url, Token: token}
}

// logger returns the log of the server and the tools; nil without one.
func (w *Workspace) logger() *slog.Logger {
	if w.Log == nil {
		return nil
	}
	return slog.New(slog.NewTextHandler(w.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// StateDir is the directory of lsclient's own data.
func StateDir() string { return filepath.Join(xdg.StateHome, "tapgw") }

// CheckpointsDir is the directory with the data that undo needs, of all workspaces.
func CheckpointsDir() string { return filepath.Join(StateDir(), "checkpoints") }

// Checkpoints returns the workspace's data that undo needs.
func (w *Workspace) Checkpoints() *checkpoint.Workspace {
	root := w.Dir
	if resolved, err := protect.Resolve(root); err == nil {
		root = resolved
	}
	return checkpoint.In(CheckpointsDir(), root)
}

// absoluteDirs returns the directories of --tools as absolute paths.
func absoluteDirs(names []string) (dirs []string, err error) {
	for _, dir := range names {
		// Relative to the caller's directory and not to -w: the caller names and so trusts it.
		dir, err := filepath.Abs(dir)
		if err != nil {
			return nil, cli.Usage("flag --tools: %v", err)
		}
		info, err := os.Stat(dir)
		switch {
		case err != nil:
			return nil, cli.Usage("flag --tools: %s: no such directory", dir)
		case !info.IsDir():
			return nil, cli.Usage("flag --tools: %s: is not a directory", dir)
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// parseMCP returns the MCP servers of --mcp. The caller names and so trusts them.
func parseMCP(values []string) (map[string]configs.MCPServer, error) {
	servers := map[string]configs.MCPServer{}
	for _, value := range values {
		text, from := []byte(value), ""
		if !strings.HasPrefix(strings.TrimSpace(value), "{") {
			var err error
			if text, err = os.ReadFile(value); err != nil {
				return nil, cli.Usage("flag --mcp: %v", err)
			}
			from = value + ": "
		}
		more, err := configs.ParseMCP(text)
		if err != nil {
			return nil, cli.Usage("flag --mcp: %s%v", from, err)
		}
		maps.Copy(servers, more)
	}
	return servers, nil
}

// readConfig finds and reads the config files. The directories of --tools come first in Tools.Dirs.
func (w *Workspace) readConfig() (config configs.LSClient, files configs.LSFiles, err error) {
	files, err = configs.FindLSClient(w.Dir, w.ConfigFile)
	if err != nil {
		return config, files, cli.Usage("%v", err)
	}
	if config, err = files.Load(); err != nil {
		return config, files, err
	}
	config.Tools.Dirs = slices.Concat(w.ToolDirs, config.Tools.Dirs)
	return config, files, nil
}

// isLive reports whether a changed key is applied while lsclient runs. The other keys are applied
// when the language server starts.
func isLive(key string) bool {
	return slices.Contains([]string{"model", "library_docs", "tool_timeout"}, key) ||
		slices.ContainsFunc([]string{"allow.", "tools.", "conversations.", "roles."},
			func(table string) bool { return strings.HasPrefix(key, table) })
}

// follow reloads the config files when they change, until ctx ends, and calls changed afterwards.
// It reports a wrong file on stderr, with its line, and keeps its earlier settings.
func (w *Workspace) follow(ctx context.Context, changed func(old, now configs.LSClient)) {
	started := w.Config()
	f := configs.Follower[configs.LSClient]{
		Current: started,
		Load: func() (configs.LSClient, configs.Faults, error) {
			config, files, err := w.readConfig()
			if err != nil {
				if _, ok := errors.AsType[configs.Faults](err); !ok {
					err = configs.Faults{files.Where("", err.Error())}
				}
				return config, nil, err
			}
			var notes configs.Faults
			if files.Why != nil {
				notes = append(notes, configs.Fault{File: files.Untrusted, Line: 1, Column: 1,
					Message: "left out: " +
						files.Why.Error()})
			}
			for _, key := range configs.Changed(started, config) {
				if !isLive(key) {
					notes = append(notes,
						files.Where(key, key+": has changed; restart lsclient to apply it"))
				}
			}
			return config, notes, nil
		},
		Report: func(f configs.Fault, isNote bool) {
			kept := "; its earlier settings stay in force"
			if isNote {
				kept = ""
			}
			w.Note("lsclient: %s%s", cli.OneLine(f.Error()), kept)
		},
		Apply: func(old, now configs.LSClient) {
			keys := slices.DeleteFunc(configs.Changed(old, now), func(key string) bool {
				return !isLive(key)
			})
			if len(keys) > 0 {
				w.Note("lsclient: settings applied: %s", strings.Join(keys, ", "))
			}
			w.config.Store(&now)
			changed(old, now)
		},
	}
	f.Follow(ctx, func() []string { return w.Files.ConfigDirs(w.Dir) }, w.Files.IsConfigFile)
}
