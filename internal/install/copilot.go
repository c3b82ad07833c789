package install

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"tapgw/internal/cli"
	"tapgw/internal/diff"
	"tapgw/internal/extension"
	"tapgw/internal/git"
	"tapgw/internal/mcpclients"
	"tapgw/internal/ownfile"
	"tapgw/internal/statedir"
	"tapgw/internal/visible"
)

// The parts that make Copilot CLIs join the gateway: the extension, the hooks and the MCP entry.

// The parts that [Dialog.Copilot] installs.
const (
	Hooks     = "hooks"
	MCP       = "mcp"
	Extension = "extension"
)

// copilotChange is the change of one part, as JSON shows it.
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

// copilotPlace is where the Copilot CLI looks: in the user's directory, or in a project's if
// project is not "".
type copilotPlace struct {
	project string
	root    string
	program string // our own, as the files name it
}

// newCopilotPlace returns the user's place, or the place of the project that a directory belongs
// to. The CLI looks in the root of a git repository, not in the directories below.
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
	if part == Extension {
		path, f.Text, f.Form = "extensions/tapgw/extension.mjs",
			string(extension.Source(p.program)), ownfile.JavaScript
	}
	if p.project != "" {
		path = ".github/" + path
	}
	f.Root, f.Path = p.root, filepath.Join(p.root, filepath.FromSlash(path))
	return f
}

// install returns the change that installing a part makes.
func (p copilotPlace) install(part string) (*copilotChange, error) {
	if part == MCP {
		return p.mcp(func(c mcpclients.Client) (*mcpclients.Change, error) {
			s, err := stdioServer(p.program, "--ensure")
			if err != nil {
				return nil, err
			}
			return c.Install(s, p.project)
		})
	}
	return p.own(part, map[string]string{ownfile.Absent: mcpclients.Added,
		ownfile.Outdated: mcpclients.Updated},
		ownfile.Found.WriteDiff, ownfile.Found.Write)
}

// uninstall returns the change that removing a part makes.
func (p copilotPlace) uninstall(part string) (*copilotChange, error) {
	if part == MCP {
		return p.mcp(func(c mcpclients.Client) (*mcpclients.Change, error) {
			return c.Uninstall(p.project)
		})
	}
	return p.own(part, map[string]string{ownfile.Installed: mcpclients.Removed,
		ownfile.Outdated: mcpclients.Removed},
		ownfile.Found.RemoveDiff, ownfile.Found.Remove)
}

// mcp returns the change that an edit of the file with the MCP servers makes.
func (p copilotPlace) mcp(
	edit func(mcpclients.Client) (*mcpclients.Change, error),
) (*copilotChange, error) {
	client, _ := mcpclients.Find("copilot")
	ch, err := edit(client)
	if err != nil {
		return nil, err
	}
	c := &copilotChange{What: MCP, Scope: p.scope(), File: ch.File, Change: ch.Kind}
	if ch.Kind != mcpclients.None {
		c.diff, c.apply = ch.Diff(), ch.Write
	}
	c.state = map[string]string{mcpclients.None: ownfile.Installed,
		mcpclients.Added: ownfile.Absent}[ch.Kind]
	c.state = cmp.Or(c.state, ownfile.Outdated)
	return c, nil
}

// own returns the change of a file of tapgw's own. changes has the name of the change by the file's
// state; states without a change are missing.
func (p copilotPlace) own(
	part string, changes map[string]string, show func(ownfile.Found) diff.Diff,
	apply func(ownfile.Found) error,
) (*copilotChange, error) {
	found, err := p.file(part).Look()
	if err != nil {
		return nil, err
	}
	c := &copilotChange{What: part, Scope: p.scope(), File: found.File.Path, Change: nothingChanges,
		state: found.State}
	if what, ok := changes[found.State]; ok {
		c.Change, c.diff, c.apply = what, show(found), func() error { return apply(found) }
	} else if found.State == ownfile.Changed {
		c.Change = keptAsItIs
	}
	return c, nil
}

// Copilot installs or uninstalls the parts that make Copilot CLIs join the gateway: for the user,
// or in a project if project is not "". Without parts it uses the default parts. It installs all
// parts or no part. It uninstalls every part that can be removed.
func (d Dialog) Copilot(ctx context.Context, project string, install bool, parts ...string) error {
	place, err := newCopilotPlace(project)
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
	for _, part := range defaultParts(parts, install) {
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
	err = d.applyCopilot(ctx, list)
	if err = errors.Join(err, d.noteProject(place.project)); err != nil {
		return err
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	if install {
		d.noteCopilot(place, list)
	}
	out := d.Out
	if out.JSON {
		return out.Document(list)
	}
	for _, ch := range list {
		if ch.Change == nothingChanges {
			if err := out.Printf("%-9s  nothing changes in %s\n", ch.What,
				visible.Line(ch.File)); err != nil {
				return err
			}
		}
	}
	return nil
}

// defaultParts returns the parts that are named, or else the default parts.
func defaultParts(named []string, install bool) []string {
	switch {
	case len(named) > 0:
		return named
	case install:
		return []string{Hooks, MCP}
	}
	return []string{Extension, MCP, Hooks} // a directory that was made for the first one goes last
}

// applyCopilot shows the changes and makes them, unless the user says no.
func (d Dialog) applyCopilot(ctx context.Context, list []*copilotChange) error {
	out := d.Out
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
	if changing > 0 && !d.DryRun {
		if err := d.confirm(ctx, "Write it?"); err != nil {
			return err
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
		if err := out.Printf("%-9s  %s %s\n", ch.What, ch.Change,
			visible.Line(ch.File)); err != nil {
			return err
		}
	}
	if kept {
		out.Notef("tapgw: what a person has changed or written is kept; " +
			"move such a file away, and run the command again")
	}
	return nil
}

// checkProgram refuses a program that other programs could not run later. command is the command
// that installs it, for the error.
func checkProgram(command, program string) error {
	switch {
	case strings.Contains(program, string(filepath.Separator)+"go-build"):
		return cli.Failed("%s: go run deletes %s when it ends; "+
			"build a program that stays: go install ./cmd/...", command, program)
	case !utf8.ValidString(program) || strings.ContainsFunc(program, unicode.IsControl):
		return cli.Failed(
			"%s: the path of tapgw, %q, has characters that a config file can't have; "+
				"move tapgw elsewhere", command, program)
	}
	return nil
}

// CopilotStatus returns the state of each part, for the user and in the project of a directory. The
// faults say which parts are unreadable.
func CopilotStatus(dir string) (rows []Row, faults []error, err error) {
	for _, dir := range []string{"", dir} {
		place, err := newCopilotPlace(dir)
		if err != nil {
			return nil, nil, err
		}
		for _, part := range []string{Hooks, MCP, Extension} {
			ch, err := place.install(part)
			if err != nil {
				faults = append(faults, err)
				ch = &copilotChange{state: stateUnreadable}
			}
			rows = append(rows, Row{part, "copilot", place.scope(), ch.state, ch.File})
		}
	}
	return rows, faults, nil
}
