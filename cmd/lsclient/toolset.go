package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/adrg/xdg"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/tools"
)

// namedDirs are the directories of --tools.
func (k *call) namedDirs() ([]string, error) {
	var dirs []string
	for _, dir := range k.StringSlice("tools") {
		// Seen from here, not from -w: the directory is the caller's, and trusted.
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

// loadTools are the drop-ins and the built-in tools.
func (k *call) loadTools(ctx context.Context) ([]*tools.Tool, []tools.Fault) {
	dropins, faults := k.external.Load(ctx, k.config.Tools...)
	return together(dropins), faults
}

// watchTools tells of the tools, at once and whenever they change, until ctx
// ends. Faults are named as they come up.
func (k *call) watchTools(ctx context.Context, changed func([]*tools.Tool)) {
	var told []tools.Fault
	k.external.Watch(ctx, k.config.Tools, func(dropins []*tools.Tool, faults []tools.Fault) {
		for _, f := range faults {
			if !slices.Contains(told, f) {
				k.tellFaults([]tools.Fault{f})
			}
		}
		told = faults
		changed(together(dropins))
	})
}

// together adds the built-in tools to drop-ins. A drop-in can have the name of
// one that the language server does not rely on, and takes its place.
func together(dropins []*tools.Tool) []*tools.Tool {
	all := slices.Clone(dropins)
	for _, t := range tools.All() {
		if find(dropins, t.Name) == nil {
			all = append(all, t)
		}
	}
	return all
}

func find(list []*tools.Tool, name string) *tools.Tool {
	for _, t := range list {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// tellFaults names drop-ins that are left out.
func (k *call) tellFaults(faults []tools.Fault) {
	for _, f := range faults {
		k.out.Notef("lsclient: tool left out: %v", f)
	}
}

// env is what tools get in this workspace.
func (k *call) env(p *policy) *tools.Env {
	return &tools.Env{
		Root: k.workspace, Home: home(), Libraries: k.libraries(), Timeout: k.config.ToolTimeout,
		Outside: p.outside, Private: p.private,
	}
}

// home is where tools keep the user's notes.
func home() string { return filepath.Join(xdg.DataHome, "tapgw") }

// libraries is the directory of the user's own library documentation.
func (k *call) libraries() string {
	if k.config.LibraryDocs != "" {
		return k.config.LibraryDocs
	}
	return filepath.Join(configs.UserDir(), "library_docs")
}
