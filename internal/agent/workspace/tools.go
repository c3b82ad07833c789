package workspace

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	"tapgw/configs"
	"tapgw/internal/chans"
	"tapgw/internal/cli"
	"tapgw/tools"
	"tapgw/tools/builtin"
)

// Tools returns the drop-ins and the built-in tools, and the faults of drop-ins that are left out.
func (w *Workspace) Tools(ctx context.Context) ([]*tools.Tool, []tools.Fault) {
	dropins, faults := w.external.Load(ctx, w.Config().Tools.Dirs...)
	return withBuiltins(dropins), append(faults, w.missingDirs()...)
}

// missingDirs returns faults for tool directories that a config file names and that do not exist.
// The directory tools beside a config file may come later, and the directories of --tools exist.
func (w *Workspace) missingDirs() (faults []tools.Fault) {
	for _, dir := range w.Config().Tools.Dirs {
		beside := filepath.Base(dir) == "tools" &&
			slices.Contains(w.Files.ConfigDirs(w.Dir), filepath.Dir(dir))
		if info, err := os.Stat(dir); !beside && (err != nil || !info.IsDir()) {
			place := w.Files.Where("tools.dirs", "")
			faults = append(faults, tools.Fault{File: place.File, Line: place.Line,
				Reason: "tools: there is no directory " + dir})
		}
	}
	return faults
}

// WatchTools calls changed with the tools, at once and whenever the tools or their settings have
// changed, until ctx ends. It prints new faults. When the configuration has changed it calls
// configured first.
func (w *Workspace) WatchTools(
	ctx context.Context, configured func(), changed func([]*tools.Tool),
) {
	again := make(chan struct{}, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		w.follow(ctx, func(old, now configs.LSClient) {
			configured()
			if reflect.DeepEqual(old.Tools, now.Tools) && old.ToolTimeout == now.ToolTimeout &&
				old.LibraryDocs == now.LibraryDocs {
				return
			}
			chans.Wake(again)
		})
	})
	var printed []tools.Fault
	for ctx.Err() == nil {
		round, end := context.WithCancel(ctx)
		wg.Go(func() {
			select {
			case <-again:
			case <-round.Done():
			}
			end()
		})
		w.external.Watch(round, w.Config().Tools.Dirs,
			func(dropins []*tools.Tool, faults []tools.Fault) {
				faults = append(faults, w.missingDirs()...)
				for _, f := range faults {
					if !slices.Contains(printed, f) {
						w.NoteFaults([]tools.Fault{f})
					}
				}
				printed = faults
				changed(withBuiltins(dropins))
			})
		end()
	}
}

// withBuiltins adds drop-ins to the built-in tools. Those come first, because the language server
// takes so many tools and no more. A drop-in replaces the built-in tool of its name.
func withBuiltins(dropins []*tools.Tool) []*tools.Tool {
	all := builtin.All()
	for _, t := range dropins {
		if i := slices.IndexFunc(all, func(b *tools.Tool) bool {
			return b.Name == t.Name
		}); i >= 0 {
			all[i] = t
		} else {
			all = append(all, t)
		}
	}
	return all
}

// NoteFaults shows a person a line for each drop-in that is left out.
func (w *Workspace) NoteFaults(faults []tools.Fault) {
	for _, f := range faults {
		w.Note("lsclient: left out: %s", cli.OneLine(f.String()))
	}
}
