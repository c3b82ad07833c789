package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"tapgw/configs"
	"tapgw/internal/cli"
)

// conf is what the config files say now.
func (k *call) conf() configs.LSClient { return *k.config.Load() }

// readConfig finds the config files and reads them, with the directories of --tools
// first.
func (k *call) readConfig() (c configs.LSClient, files configs.LSFiles, err error) {
	files, err = configs.FindLSClient(k.workspace, k.String("config"))
	if err != nil {
		return c, files, cli.Usage("%v", err)
	}
	if c, err = files.Load(); err != nil {
		return c, files, err
	}
	c.Tools = slices.Concat(k.named, c.Tools)
	return c, files, nil
}

// live reports whether a key is applied while lsclient runs: the others count when
// the language server starts.
func live(key string) bool {
	return slices.Contains([]string{"model", "tools", "library_docs", "tool_timeout"}, key) ||
		strings.HasPrefix(key, "allow.")
}

// follow reads the config files again when they change, until ctx ends, and calls
// changed after that. A file that can't be used is named on stderr, with its line,
// and what it said before goes on.
func (k *call) follow(ctx context.Context, changed func(old, now configs.LSClient)) {
	started := k.conf()
	f := configs.Follower[configs.LSClient]{
		Current: started,
		Load: func() (configs.LSClient, configs.Faults, error) {
			c, files, err := k.readConfig()
			if err != nil {
				if _, ok := errors.AsType[configs.Faults](err); !ok {
					err = configs.Faults{files.Where("", err.Error())}
				}
				return c, nil, err
			}
			var notes configs.Faults
			if files.Why != nil {
				notes = append(notes, configs.Fault{File: files.Untrusted, Line: 1, Column: 1, Message: "left out: " +
					files.Why.Error()})
			}
			for _, key := range configs.Changed(started, c) {
				if !live(key) {
					notes = append(notes, files.Where(key, key+": has changed; start lsclient again to apply it"))
				}
			}
			return c, notes, nil
		},
		Report: func(f configs.Fault, isNote bool) {
			goesOn := "; what it said before goes on"
			if isNote {
				goesOn = ""
			}
			k.out.Notef("lsclient: %s%s", cli.OneLine(f.Error()), goesOn)
		},
		Apply: func(old, now configs.LSClient) {
			keys := slices.DeleteFunc(configs.Changed(old, now), func(key string) bool { return !live(key) })
			if len(keys) > 0 {
				k.out.Notef("lsclient: settings applied: %s", strings.Join(keys, ", "))
			}
			k.config.Store(&now)
			changed(old, now)
		},
	}
	f.Follow(ctx, func() []string { return k.files.ConfigDirs(k.workspace) }, k.files.IsConfigFile)
}
