package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	"github.com/adrg/xdg"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/tools"
)

// readFlagDirs returns the directories of --tools as absolute paths.
func (c *command) readFlagDirs() ([]string, error) {
	var dirs []string
	for _, dir := range c.StringSlice("tools") {
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

// checkTools returns why the tools of a directory may not run. Those of --tools always may.
func (c *command) checkTools(dir string) error {
	if slices.Contains(c.flagDirs, dir) {
		return nil
	}
	return c.files.CheckTools(dir)
}

// whyUntrusted returns why a project's files are left out.
func (c *command) whyUntrusted() string {
	if c.files.Why != nil {
		return c.files.Why.Error()
	}
	return "this directory is not trusted yet; trust it with: " + configs.TrustCommand(c.workspace)
}

// loadTools returns the drop-ins and the built-in tools, and the faults of drop-ins that are left out.
func (c *command) loadTools(ctx context.Context) ([]*tools.Tool, []tools.Fault) {
	dropins, faults := c.external.Load(ctx, c.conf().Tools.Dirs...)
	return withBuiltins(dropins), append(faults, c.missingDirs()...)
}

// missingDirs returns faults for tool directories that a config file names and that do not exist. The directory
// tools beside a config file may come later, and those of --tools exist.
func (c *command) missingDirs() (faults []tools.Fault) {
	for _, dir := range c.conf().Tools.Dirs {
		beside := filepath.Base(dir) == "tools" && slices.Contains(c.files.ConfigDirs(c.workspace), filepath.Dir(dir))
		if info, err := os.Stat(dir); !beside && (err != nil || !info.IsDir()) {
			place := c.files.Where("tools.dirs", "")
			faults = append(faults, tools.Fault{File: place.File, Line: place.Line,
				Reason: "tools: there is no directory " + dir})
		}
	}
	return faults
}

// watchTools calls changed with the tools, at once and whenever the tools or their settings have changed, until ctx
// ends. It prints new faults. When the configuration has changed it calls configured first.
func (c *command) watchTools(ctx context.Context, configured func(), changed func([]*tools.Tool)) {
	again := make(chan struct{}, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		c.follow(ctx, func(old, now configs.LSClient) {
			configured()
			if reflect.DeepEqual(old.Tools, now.Tools) && old.ToolTimeout == now.ToolTimeout &&
				old.LibraryDocs == now.LibraryDocs {
				return
			}
			select {
			case again <- struct{}{}:
			default: // a reload is due already
			}
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
		c.external.Watch(round, c.conf().Tools.Dirs, func(dropins []*tools.Tool, faults []tools.Fault) {
			faults = append(faults, c.missingDirs()...)
			for _, f := range faults {
				if !slices.Contains(printed, f) {
					c.printFaults([]tools.Fault{f})
				}
			}
			printed = faults
			changed(withBuiltins(dropins))
		})
		end()
	}
}

// withBuiltins adds drop-ins to the built-in tools. Those come first, because the language server takes so many tools
// and no more. A drop-in replaces the built-in tool of its name.
func withBuiltins(dropins []*tools.Tool) []*tools.Tool {
	all := tools.All()
	for _, t := range dropins {
		if i := slices.IndexFunc(all, func(b *tools.Tool) bool { return b.Name == t.Name }); i >= 0 {
			all[i] = t
		} else {
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

// printFaults prints a line for each drop-in that is left out.
func (c *command) printFaults(faults []tools.Fault) {
	for _, f := range faults {
		c.out.Notef("lsclient: left out: %s", cli.OneLine(f.String()))
	}
}

// languageServers returns the language servers of the configuration.
func (c *command) languageServers() (all []tools.LanguageServer) {
	config := c.conf().LSP
	for _, name := range slices.Sorted(maps.Keys(config)) {
		all = append(
			all,
			tools.LanguageServer{Name: name, Command: config[name].Command, Languages: config[name].Languages},
		)
	}
	return all
}

// env returns the environment of tools in this workspace.
func (c *command) env(p *policy) *tools.Env {
	var output func(line string)
	if c.display != nil {
		output = c.display.Live
	}
	return &tools.Env{
		Output: output,
		Root:   c.workspace, Home: home(), Libraries: c.libraries(), Timeout: c.conf().ToolTimeout,
		Outside: p.outside, Private: p.private, Protected: p.protected, Sources: c.sources(),
		LanguageServers: c.languageServers(),
		Secrets:         []string{configs.StateDir(), stateDir()}, Log: c.logger(),
	}
}

// sources returns the directories whose files start programs: those of drop-in tools, and the user's config and
// Copilot files.
func (c *command) sources() []string {
	return slices.Concat(c.conf().Tools.Dirs, []string{configs.UserDir(), configs.Home()})
}

// home is the directory for the notes of the tool memory.
func home() string { return filepath.Join(xdg.DataHome, "tapgw") }

// libraries returns the directory of the user's library documentation.
func (c *command) libraries() string {
	if c.conf().LibraryDocs != "" {
		return c.conf().LibraryDocs
	}
	return filepath.Join(configs.UserDir(), "library_docs")
}
