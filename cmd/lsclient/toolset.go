package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"

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

// checkTools says why the tools of a directory may not be run. Those of --tools are
// the caller's.
func (k *call) checkTools(dir string) error {
	if slices.Contains(k.named, dir) {
		return nil
	}
	return k.files.CheckTools(dir)
}

// whyUntrusted says why a project's files are left out.
func (k *call) whyUntrusted() string {
	if k.files.Why != nil {
		return k.files.Why.Error()
	}
	return "this directory is not trusted yet; trust it with: " + configs.TrustCommand(k.workspace)
}

// loadTools are the drop-ins and the built-in tools.
func (k *call) loadTools(ctx context.Context) ([]*tools.Tool, []tools.Fault) {
	dropins, faults := k.external.Load(ctx, k.conf().Tools...)
	return together(dropins), append(faults, k.missing()...)
}

// missing are the tool directories that a config file names and that are not
// there. One beside a config file, or of a flag, may come later.
func (k *call) missing() (faults []tools.Fault) {
	for _, dir := range k.conf().Tools {
		beside := filepath.Base(dir) == "tools" && slices.Contains(k.files.ConfigDirs(k.workspace), filepath.Dir(dir))
		if info, err := os.Stat(dir); !beside && (err != nil || !info.IsDir()) {
			place := k.files.Where("tools", "")
			faults = append(faults, tools.Fault{File: place.File, Line: place.Line,
				Reason: "tools: there is no directory " + dir})
		}
	}
	return faults
}

// watchTools follows the configuration and tells of the tools, at once and whenever
// they or what the configuration says of them have changed, until ctx ends. Faults
// are named as they come up. configured is called when the configuration has
// changed, before that.
func (k *call) watchTools(ctx context.Context, configured func(), changed func([]*tools.Tool)) {
	again := make(chan struct{}, 1)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() {
		k.follow(ctx, func(old, now configs.LSClient) {
			configured()
			if slices.Equal(old.Tools, now.Tools) && old.ToolTimeout == now.ToolTimeout &&
				old.LibraryDocs == now.LibraryDocs {
				return
			}
			select {
			case again <- struct{}{}:
			default: // it knows already
			}
		})
	})
	var told []tools.Fault
	for ctx.Err() == nil {
		round, end := context.WithCancel(ctx)
		beside.Go(func() {
			select {
			case <-again:
			case <-round.Done():
			}
			end()
		})
		k.external.Watch(round, k.conf().Tools, func(dropins []*tools.Tool, faults []tools.Fault) {
			faults = append(faults, k.missing()...)
			for _, f := range faults {
				if !slices.Contains(told, f) {
					k.tellFaults([]tools.Fault{f})
				}
			}
			told = faults
			changed(together(dropins))
		})
		end()
	}
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
		k.out.Notef("lsclient: left out: %s", cli.OneLine(f.String()))
	}
}

// env is what tools get in this workspace.
func (k *call) env(p *policy) *tools.Env {
	return &tools.Env{
		Root: k.workspace, Home: home(), Libraries: k.libraries(), Timeout: k.conf().ToolTimeout,
		Outside: p.outside, Private: p.private, Protected: p.protected, Sources: k.sources(),
		Secrets: []string{configs.StateDir()},
	}
}

// sources are the directories whose files start programs: those of drop-in tools,
// and the user's own config and Copilot files.
func (k *call) sources() []string {
	return slices.Concat(k.conf().Tools, []string{configs.UserDir(), configs.Home()})
}

// home is where tools keep the user's notes.
func home() string { return filepath.Join(xdg.DataHome, "tapgw") }

// libraries is the directory of the user's own library documentation.
func (k *call) libraries() string {
	if k.conf().LibraryDocs != "" {
		return k.conf().LibraryDocs
	}
	return filepath.Join(configs.UserDir(), "library_docs")
}
