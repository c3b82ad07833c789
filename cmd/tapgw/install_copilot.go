package main

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/diff"
	"tapgw/internal/extension"
	"tapgw/internal/git"
	"tapgw/internal/mcpclients"
	"tapgw/internal/ownfile"
	"tapgw/internal/statedir"
	"tapgw/internal/visible"
)

func installCopilotCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "copilot",
		Usage: "make Copilot CLIs in terminals sessions of the gateway",
		Description: `It writes up to three things where the Copilot CLI looks for them:
  --hooks      hooks/tapgw.json: the CLI asks the gateway about its prompts and tool calls
  --mcp        an entry tapgw in mcp-config.json: the CLI gets the tools of the providers
  --extension  extensions/tapgw/extension.mjs: tools and prompts come at once, also to an idle
               terminal; the CLI must run with --experimental
Without these flags it writes the first two. The place is ~/.copilot, or COPILOT_HOME; with
--project it is .github and .mcp.json of the git repository (or of the working directory).

It shows what it writes; on a terminal it asks first. What another version of tapgw wrote is
brought up to date. A file that a person has changed stays as it is, and so does everything
else there. tapgw uninstall copilot gives back what was there before. docs/terminals.md says
what each way can do.

Examples:
  tapgw install copilot
  tapgw install copilot --extension
  tapgw install copilot --project --hooks --dry-run`,
		Flags:  append(installFlags(), copilotFlags()...),
		Action: func(c *ucli.Context) error { return changeCopilot(c, true) },
	}
}

func uninstallCopilotCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "copilot",
		Usage: "take away what tapgw install copilot wrote",
		Description: `It removes the files of tapgw install copilot, the directories that were made for them, and the
entry tapgw of the MCP servers. With flags it removes those parts alone. A file that a person
has changed stays.

Examples:
  tapgw uninstall copilot
  tapgw uninstall copilot --project --dry-run`,
		Flags:  append(installFlags(), copilotFlags()...),
		Action: func(c *ucli.Context) error { return changeCopilot(c, false) },
	}
}

// The parts of what tapgw install copilot writes.
const (
	partHooks     = "hooks"
	partMCP       = "mcp"
	partExtension = "extension"
)

func copilotFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: partHooks, Usage: "the hook file"},
		&ucli.BoolFlag{Name: partMCP, Usage: "the entry of the MCP servers"},
		&ucli.BoolFlag{Name: partExtension, Usage: "the extension"},
	}
}

// copilotChange is what becomes of one part, as JSON shows it.
type copilotChange struct {
	What    string `json:"what"` // hooks, mcp, extension
	Scope   string `json:"scope"`
	File    string `json:"file"`
	Change  string `json:"change"`  // none, added, updated, removed, kept
	Written bool   `json:"written"` // whether the change is made
	Diff    string `json:"diff,omitempty"`

	state string // as tapgw install status shows it
	diff  diff.Diff
	apply func() error
}

// copilotPlace is where the Copilot CLI looks: in the user's directory, or in a project's if project is not "".
type copilotPlace struct {
	project string
	root    string
	program string // our own, as the files name it
}

// newCopilotPlace returns the place for the user, or that of the project that a directory belongs to. The CLI looks in
// the root of a git repository, not in the directories below.
func newCopilotPlace(dir string) (p copilotPlace, err error) {
	if p.program, err = ownProgram(); err != nil {
		return p, err
	}
	if dir == "" {
		p.root, err = statedir.Home()
		return p, err
	}
	if tree, ok := git.Of(dir); ok {
		dir = tree.Root
	}
	p.project, p.root = dir, dir
	return p, nil
}

func (p copilotPlace) scope() string {
	if p.project == "" {
		return "user"
	}
	return "project"
}

// file is the file of a part, below the place's root.
func (p copilotPlace) file(part string) ownfile.File {
	path, f := "hooks/tapgw.json", ownfile.File{Text: hookFile(p.program), Form: ownfile.JSON}
	if part == partExtension {
		path, f.Text, f.Form = "extensions/tapgw/extension.mjs", string(extension.Source(p.program)), ownfile.JavaScript
	}
	if p.project != "" {
		path = ".github/" + path
	}
	f.Root, f.Path = p.root, filepath.Join(p.root, filepath.FromSlash(path))
	return f
}

// install returns what installing a part changes.
func (p copilotPlace) install(part string) (*copilotChange, error) {
	if part == partMCP {
		return p.mcp(func(c mcpclients.Client) (*mcpclients.Change, error) {
			s, err := stdioServer(p.program, "--ensure")
			if err != nil {
				return nil, err
			}
			return c.Install(s, p.project)
		})
	}
	return p.own(part, map[string]string{ownfile.Absent: mcpclients.Added, ownfile.Outdated: mcpclients.Updated},
		ownfile.Found.WriteDiff, ownfile.Found.Write)
}

// uninstall returns what removing a part changes.
func (p copilotPlace) uninstall(part string) (*copilotChange, error) {
	if part == partMCP {
		return p.mcp(func(c mcpclients.Client) (*mcpclients.Change, error) { return c.Uninstall(p.project) })
	}
	return p.own(part, map[string]string{ownfile.Installed: mcpclients.Removed, ownfile.Outdated: mcpclients.Removed},
		ownfile.Found.RemoveDiff, ownfile.Found.Remove)
}

// mcp returns what an edit of the file with the MCP servers changes.
func (p copilotPlace) mcp(edit func(mcpclients.Client) (*mcpclients.Change, error)) (*copilotChange, error) {
	client, _ := mcpclients.Find("copilot")
	ch, err := edit(client)
	if err != nil {
		return nil, err
	}
	c := &copilotChange{What: partMCP, Scope: p.scope(), File: ch.File, Change: ch.Kind}
	if ch.Kind != mcpclients.None {
		c.diff, c.apply = ch.Diff(), ch.Write
	}
	c.state = map[string]string{mcpclients.None: ownfile.Installed, mcpclients.Added: ownfile.Absent}[ch.Kind]
	c.state = cmp.Or(c.state, ownfile.Outdated)
	return c, nil
}

// own returns what becomes of a file of tapgw's own: changes has the change of each state that has one.
func (p copilotPlace) own(
	part string, changes map[string]string, show func(ownfile.Found) diff.Diff, apply func(ownfile.Found) error,
) (*copilotChange, error) {
	found, err := p.file(part).Look()
	if err != nil {
		return nil, err
	}
	c := &copilotChange{What: part, Scope: p.scope(), File: found.File.Path, Change: nothingChanges, state: found.State}
	if what, ok := changes[found.State]; ok {
		c.Change, c.diff, c.apply = what, show(found), func() error { return apply(found) }
	} else if found.State == ownfile.Changed {
		c.Change = keptAsItIs
	}
	return c, nil
}

// changeCopilot installs or uninstalls the parts that the flags name. Nothing is installed if one of the parts can't
// be. What can be removed is removed.
func changeCopilot(c *ucli.Context, install bool) error {
	dir, err := installProject(c)
	if err != nil {
		return err
	}
	place, err := newCopilotPlace(dir)
	if err != nil {
		return err
	}
	if install {
		if err := checkProgram("install copilot", place.program); err != nil {
			return err
		}
	}
	var list []*copilotChange
	var faults []error
	for _, part := range copilotParts(c, install) {
		plan := place.uninstall
		if install {
			plan = place.install
		}
		ch, err := plan(part)
		if err != nil && install {
			return err
		}
		if err != nil {
			faults = append(faults, err)
			continue
		}
		list = append(list, ch)
	}
	err = applyCopilot(c, list)
	if err = errors.Join(err, noteProject(c, place.project)); err != nil {
		return err
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	if install {
		noteCopilot(c, place, list)
	}
	out := cli.Out(c)
	if out.JSON {
		return out.Document(list)
	}
	for _, ch := range list {
		if ch.Change == nothingChanges {
			if err := out.Printf("%-9s  nothing changes in %s\n", ch.What, visible.Line(ch.File)); err != nil {
				return err
			}
		}
	}
	return nil
}

// copilotParts are the parts that the flags name, or else those that are meant without flags.
func copilotParts(c *ucli.Context, install bool) (parts []string) {
	all := []string{partHooks, partMCP, partExtension}
	for _, part := range all {
		if c.Bool(part) {
			parts = append(parts, part)
		}
	}
	switch {
	case len(parts) > 0:
		return parts
	case install:
		return []string{partHooks, partMCP}
	}
	return []string{partExtension, partMCP, partHooks} // a directory that was made for the first one goes last
}

// applyCopilot shows the changes and makes them, unless the user says no.
func applyCopilot(c *ucli.Context, list []*copilotChange) error {
	out := cli.Out(c)
	changing, kept := 0, false
	for _, ch := range list {
		switch ch.Change {
		case nothingChanges:
			continue
		case keptAsItIs:
			kept = true
		default:
			changing++
			ch.Diff = ch.diff.String()
			if !out.JSON {
				if err := printDiff(out, &ch.diff); err != nil {
					return err
				}
			}
		}
	}
	if changing > 0 && !c.Bool("dry-run") {
		if !c.Bool("yes") && canAsk(c) {
			if err := confirm(c.Context, c, "Write it?"); err != nil {
				return err
			}
		}
		for _, ch := range list {
			if ch.apply == nil {
				continue
			}
			if err := ch.apply(); err != nil {
				return err
			}
			ch.Written = true
		}
	}
	for _, ch := range list {
		if ch.Change == nothingChanges || out.JSON || ch.Change != keptAsItIs && !ch.Written {
			continue
		}
		if err := out.Printf("%-9s  %s %s\n", ch.What, ch.Change, visible.Line(ch.File)); err != nil {
			return err
		}
	}
	if kept {
		out.Notef("tapgw: what a person has changed or written is kept; " +
			"move such a file away, and run the command again")
	}
	return nil
}

// checkProgram refuses a program that others could not run later. The command is the one that asks.
func checkProgram(command, program string) error {
	switch {
	case strings.Contains(program, string(filepath.Separator)+"go-build"):
		return cli.Failed("%s: go run deletes %s when it ends; "+
			"build a program that stays: go install ./cmd/...", command, program)
	case !utf8.ValidString(program) || strings.ContainsFunc(program, unicode.IsControl):
		return cli.Failed("%s: the path of tapgw, %q, has characters that a config file can't have; "+
			"move tapgw elsewhere", command, program)
	}
	return nil
}

// copilotRows returns the state of each part, for the user and in the project of a directory. The faults say which
// parts are unreadable.
func copilotRows(dir string) (rows []installRow, faults []error, err error) {
	for _, dir := range []string{"", dir} {
		place, err := newCopilotPlace(dir)
		if err != nil {
			return nil, nil, err
		}
		for _, part := range []string{partHooks, partMCP, partExtension} {
			ch, err := place.install(part)
			if err != nil {
				faults = append(faults, err)
				ch = &copilotChange{state: stateUnreadable}
			}
			rows = append(rows, installRow{part, "copilot", place.scope(), ch.state, ch.File})
		}
	}
	return rows, faults, nil
}

// checkTerminals looks at what tapgw install copilot wrote.
func (d *doctor) checkTerminals(context.Context) cli.Result {
	rows, faults, err := copilotRows(d.files.Workdir)
	if err != nil {
		return cli.Fail("set HOME or "+statedir.EnvHome, "%v", err)
	}
	if len(faults) > 0 {
		return cli.Warn("correct the file, or move it away", "%v", errors.Join(faults...))
	}
	var installed []string
	hooks := map[string]string{} // by scope
	for _, r := range rows {
		switch r.State {
		case ownfile.Absent:
			continue
		case ownfile.Outdated:
			return cli.Warn("run tapgw install copilot --"+r.Scope+" --"+r.What, "%s is of another version", r.Path)
		}
		installed = append(installed, r.What+" ("+r.Scope+")")
		if r.What == partHooks {
			hooks[r.Scope] = r.Path
		}
	}
	place, err := newCopilotPlace(d.files.Workdir)
	if err != nil {
		return cli.Fail("set HOME or "+statedir.EnvHome, "%v", err)
	}
	switch off := disablesHooks(place.root); {
	case len(installed) == 0:
		return cli.OK("not installed; tapgw install copilot makes Copilot CLIs sessions")
	case len(hooks) > 1:
		return cli.Warn("run tapgw uninstall copilot --hooks --user, or --project", "each hook runs twice: %s and %s",
			hooks["user"], hooks["project"])
	case len(hooks) > 0 && len(off) > 0:
		return cli.Warn("remove disableAllHooks from it if gates must hold here",
			"%s turns the CLI's hooks off in this project", off[0])
	}
	return cli.OK("%s", strings.Join(installed, ", "))
}
