package install

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/daemon"
	"tapgw/internal/diff"
	"tapgw/internal/git"
	"tapgw/internal/mcpclients"
	"tapgw/internal/service"
	"tapgw/internal/statedir"
	"tapgw/internal/visible"
	"tapgw/skills"
)

// Uninstalling finds all that tapgw has installed, and removes it.

// removal is an installed part, and whether it is removed or kept, as JSON shows it.
type removal struct {
	What    string `json:"what"`  // hooks, mcp, extension, skills, service, projects
	For     string `json:"for"`   // the program that reads it
	Scope   string `json:"scope"` // user, project
	File    string `json:"file,omitempty"`
	Change  string `json:"change"`           // removed, kept
	Written bool   `json:"written"`          // whether the change is made
	Reason  string `json:"reason,omitempty"` // why it is kept
	Diff    string `json:"diff,omitempty"`   // of a file that other programs write, too

	diff  *diff.Diff
	apply func() error
}

// removals are all installed parts, each once.
type removals struct {
	Dialog

	list []*removal
	gone []string // projects of the list that do not exist any more
}

func newRemovals(d Dialog) *removals { return &removals{Dialog: d, list: []*removal{}} }

const changedByPerson = "a person has changed or written it; remove it by hand if nobody needs it"

func (u *removals) add(r removal) {
	if !slices.ContainsFunc(u.list, func(o *removal) bool {
		return o.File != "" && o.File == r.File
	}) {
		u.list = append(u.list, &r)
	}
}

// keep adds a place that stays.
func (u *removals) keep(what, program, scope, file, reason string) {
	u.add(removal{What: what, For: program, Scope: scope, File: file, Change: keptAsItIs,
		Reason: reason})
}

// everything adds the user's installations, then the projects' installations, and last the service:
// without its gateway, a terminal that still has the hooks would lose its session.
func (u *removals) everything(ctx context.Context) error {
	if err := u.project(""); err != nil {
		return err
	}
	if err := u.projects(u.project); err != nil {
		return err
	}
	u.service(ctx)
	return nil
}

func (u *removals) allMCP(context.Context) error {
	u.mcp("")
	return u.projects(func(dir string) error { u.mcp(dir); return nil })
}

// projects looks into the working directory, its repository, and the projects of the list.
func (u *removals) projects(look func(dir string) error) error {
	dir, err := u.Workdir()
	if err != nil {
		return err
	}
	l, err := readProjects()
	if err != nil {
		u.keep("projects", "tapgw", skills.User, "", err.Error())
	}
	dirs := append(slices.Clone(l.dirs), dir)
	if tree, ok := git.Of(dir); ok {
		dirs = append(dirs, tree.Root)
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			u.gone = append(u.gone, dir)
			u.Out.Notef("tapgw: %s is not there anymore, and is passed over", visible.Line(dir))
			continue
		}
		if err := look(dir); err != nil {
			return err
		}
	}
	return nil
}

// project adds the installations in a project, or the user's own if dir is "".
func (u *removals) project(dir string) error {
	if err := u.copilot(dir); err != nil {
		return err
	}
	u.mcp(dir)
	return u.skills(dir)
}

// copilot adds the files of tapgw install copilot. The entry of the MCP servers is left to the
// removal of all clients' entries.
func (u *removals) copilot(dir string) error {
	place, err := newCopilotPlace("")
	if err != nil {
		return err
	}
	if dir != "" { // a list has the root of the repository already
		place.project, place.root = dir, dir
	}
	for _, part := range []string{Extension, Hooks} {
		ch, err := place.uninstall(part)
		switch {
		case err != nil:
			u.keep(part, "copilot", place.scope(), place.file(part).Path, err.Error())
		case ch.Change == keptAsItIs:
			u.keep(part, "copilot", ch.Scope, ch.File, changedByPerson)
		case ch.Change != nothingChanges:
			u.add(removal{What: part, For: "copilot", Scope: ch.Scope, File: ch.File,
				Change: ch.Change, apply: ch.apply})
		}
	}
	return nil
}

func (u *removals) mcp(dir string) {
	scope := skills.User
	if dir != "" {
		scope = skills.Project
	}
	for _, name := range mcpclients.Names() {
		client, _ := mcpclients.Find(name)
		ch, err := client.Uninstall(dir)
		switch {
		case err != nil:
			u.keep("mcp", name, scope, "", err.Error())
		case ch.Kind != mcpclients.None:
			u.add(removal{What: "mcp", For: name, Scope: scope, File: ch.File, Change: ch.Kind,
				diff: new(ch.Diff()), apply: ch.Write})
		}
	}
}

func (u *removals) skills(dir string) error {
	folders, err := skills.Folders(dir)
	if err != nil {
		return err
	}
	for _, f := range folders {
		found, err := f.Look()
		if err != nil {
			u.keep("skills", f.For, f.Scope, f.Path, err.Error())
		}
		for _, s := range found {
			switch s.State {
			case skills.Installed, skills.Outdated:
				u.add(removal{What: "skills", For: f.For, Scope: f.Scope, File: s.File,
					Change: mcpclients.Removed, apply: s.Remove})
			case skills.Changed:
				u.keep("skills", f.For, f.Scope, s.File, changedByPerson)
			}
		}
	}
	return nil
}

func (u *removals) service(ctx context.Context) {
	s, err := service.New()
	if err != nil {
		return // a system without a service manager has no service
	}
	switch is, err := s.Installed(); {
	case err != nil:
		u.keep("service", s.Manager(), skills.User, s.File(), err.Error())
	case is:
		u.add(removal{What: "service", For: s.Manager(), Scope: skills.User, File: s.File(),
			Change: service.Removed,
			apply: func() error {
				ctx, cancel := context.WithTimeout(ctx, service.Timeout)
				defer cancel()
				_, err := s.Uninstall(ctx)
				return err
			}})
	}
}

// Uninstall removes all that tapgw installed: for the user, in the working directory, and in the
// projects where something was installed.
func (d Dialog) Uninstall(ctx context.Context) error {
	return d.uninstall(ctx, (*removals).everything)
}

// UninstallClients takes the gateway out of the config files of all MCP clients.
func (d Dialog) UninstallClients(ctx context.Context) error {
	return d.uninstall(ctx, (*removals).allMCP)
}

// UninstallService stops the service and removes its file.
func (d Dialog) UninstallService(ctx context.Context) error {
	return d.uninstall(ctx, func(u *removals, ctx context.Context) error {
		u.service(ctx)
		return nil
	})
}

// uninstall shows the installations that find adds, and removes them unless the user says no.
func (d Dialog) uninstall(ctx context.Context, find func(*removals, context.Context) error) error {
	u := newRemovals(d)
	if err := find(u, ctx); err != nil {
		return err
	}
	out, dryRun := d.Out, d.DryRun
	removes := slices.ContainsFunc(u.list, func(r *removal) bool { return r.apply != nil })
	if removes && !dryRun && !d.Yes && d.Ask == nil {
		return cli.Usage(
			"uninstall: there is no terminal to ask on: give --yes to remove everything that " +
				"--dry-run shows")
	}
	if err := u.show(out); err != nil {
		return err
	}
	if removes && !dryRun {
		if err := d.confirm(ctx, "Remove it?"); err != nil {
			return err
		}
		u.remove()
		u.noteGateway(ctx)
	}
	if !dryRun {
		if err := u.forget(); err != nil {
			u.keep("projects", "tapgw", skills.User, "", err.Error())
		}
	}
	if removes && dryRun {
		out.Notef("tapgw: nothing was changed, because of --dry-run")
	}
	return u.report(out)
}

// show prints the list, and the differences in files that other programs write too.
func (u *removals) show(out *cli.Output) error {
	for _, r := range u.list {
		if r.diff == nil {
			continue
		}
		r.Diff = r.diff.String()
		if !out.JSON {
			if err := printDiff(out, r.diff); err != nil {
				return err
			}
		}
	}
	if out.JSON {
		return nil
	}
	t := cli.Table{Columns: []string{"CHANGE", "WHAT", "FOR", "SCOPE", "FILE"}}
	for _, r := range u.list {
		t.Row(r.Change, r.What, r.For, r.Scope, visible.Line(r.File))
	}
	return out.Table(&t, "nothing of tapgw is installed")
}

// remove removes all that are not kept. An installation whose removal fails is kept, with the
// reason.
func (u *removals) remove() {
	for _, r := range u.list {
		if r.apply == nil {
			continue
		}
		if err := r.apply(); err != nil {
			r.Change, r.Reason = keptAsItIs, err.Error()
			continue
		}
		r.Written = true
	}
}

// noteGateway says that a gateway runs on that is not the service's.
func (u *removals) noteGateway(ctx context.Context) {
	dir := daemon.Dir(configs.StateDir())
	if _, err := os.Stat(filepath.Join(string(dir), statedir.InfoFile)); err != nil {
		return // no gateway runs, and Running would create the lock's file
	}
	if g, runs := dir.Running(ctx); runs {
		u.Out.Notef("tapgw: the gateway at %s runs on: tapgw stop ends it", g.URL)
	}
}

// forget removes the projects without any part of tapgw from the list.
func (u *removals) forget() error {
	if slices.ContainsFunc(u.list, func(r *removal) bool { return r.What == "projects" }) {
		return nil // it can't be read, which the list says
	}
	return changeProjects(func(dirs []string) ([]string, error) {
		return slices.DeleteFunc(dirs, func(dir string) bool {
			remaining := newRemovals(u.Dialog)
			return slices.Contains(u.gone, dir) || remaining.project(dir) == nil &&
				len(remaining.list) == 0
		}), nil
	})
}

// report prints the result. The command fails if anything is kept.
func (u *removals) report(out *cli.Output) error {
	if out.JSON {
		if err := out.Document(u.list); err != nil {
			return err
		}
	}
	var err error
	for _, r := range u.list {
		if r.Change != keptAsItIs {
			continue
		}
		err = cli.Reported(cli.ExitFailed)
		if r.File == "" { // the reason names it
			out.Notef("tapgw: kept: %s", visible.Line(r.Reason))
		} else {
			out.Notef("tapgw: kept %s: %s", visible.Line(r.File), visible.Line(r.Reason))
		}
	}
	return err
}
