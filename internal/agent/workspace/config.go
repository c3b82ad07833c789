package workspace

import (
	"context"
	"errors"
	"slices"
	"strings"

	"tapgw/configs"
	"tapgw/internal/cli"
)

// readConfig finds and reads the config files. The directories of --tools come first in Tools.Dirs.
func (w *Workspace) readConfig() (config configs.LSClient, files configs.LSFiles, err error) {
	files, err = configs.FindLSClient(w.Dir, w.options.Config)
	if err != nil {
		return config, files, cli.Usage("%v", err)
	}
	if config, err = files.Load(); err != nil {
		return config, files, err
	}
	config.Tools.Dirs = slices.Concat(w.toolDirs, config.Tools.Dirs)
	return config, files, nil
}

// isLive reports whether a changed key is applied while lsclient runs. The other keys are applied when the language
// server starts.
func isLive(key string) bool {
	return slices.Contains([]string{"model", "library_docs", "tool_timeout"}, key) ||
		slices.ContainsFunc([]string{"allow.", "tools.", "conversations.", "roles."},
			func(table string) bool { return strings.HasPrefix(key, table) })
}

// follow reloads the config files when they change, until ctx ends, and calls changed afterwards. It reports a
// wrong file on stderr, with its line, and keeps its earlier settings.
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
				notes = append(notes, configs.Fault{File: files.Untrusted, Line: 1, Column: 1, Message: "left out: " +
					files.Why.Error()})
			}
			for _, key := range configs.Changed(started, config) {
				if !isLive(key) {
					notes = append(notes, files.Where(key, key+": has changed; restart lsclient to apply it"))
				}
			}
			return config, notes, nil
		},
		Report: func(f configs.Fault, isNote bool) {
			kept := "; its earlier settings stay in force"
			if isNote {
				kept = ""
			}
			w.options.Note("lsclient: %s%s", cli.OneLine(f.Error()), kept)
		},
		Apply: func(old, now configs.LSClient) {
			keys := slices.DeleteFunc(configs.Changed(old, now), func(key string) bool { return !isLive(key) })
			if len(keys) > 0 {
				w.options.Note("lsclient: settings applied: %s", strings.Join(keys, ", "))
			}
			w.config.Store(&now)
			changed(old, now)
		},
	}
	f.Follow(ctx, func() []string { return w.Files.ConfigDirs(w.Dir) }, w.Files.IsConfigFile)
}
