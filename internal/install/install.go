// Package install writes the files that other programs read to use tapgw, and removes them again:
// skills, the parts that make Copilot CLIs join the gateway, and the gateway's entry in the config
// files of MCP clients. A [Dialog] shows each change first.
package install

import (
	"context"
	"strings"

	"tapgw/internal/cli"
	"tapgw/internal/diff"
	"tapgw/internal/visible"
	"tapgw/skills"
)

// Row is one place that tapgw install writes to, as tapgw install status shows it.
type Row struct {
	What  string `json:"what"`  // skills, hooks, mcp, extension
	For   string `json:"for"`   // the agent that reads it
	Scope string `json:"scope"` // user, project
	State string `json:"state"` // absent, installed, partly, outdated, changed, unreadable
	Path  string `json:"path"`
}

// Status returns the state of each place where something can be installed, for the user and in the
// project of a directory. The faults say which are unreadable.
func Status(dir string) (rows []Row, faults []error, err error) {
	if rows, err = skillRows(dir); err != nil {
		return nil, nil, err
	}
	terminals, faults, err := CopilotStatus(dir)
	return append(rows, terminals...), faults, err
}

// skillRows returns the state of the skills in each folder.
func skillRows(dir string) ([]Row, error) {
	var rows []Row
	for _, project := range []string{"", dir} {
		folders, err := skills.Folders(project)
		if err != nil {
			return nil, err
		}
		for _, f := range folders {
			found, err := f.Look()
			if err != nil {
				return nil, err
			}
			rows = append(rows, Row{"skills", f.For, f.Scope, skills.Summary(found), f.Path})
		}
	}
	return rows, nil
}

// Dialog shows the changes of an installation to the user, and asks before it makes them.
type Dialog struct {
	Out     *cli.Output
	DryRun  bool // show the changes without making them
	Yes     bool // do not ask
	Workdir func() (string, error)
	// Ask returns an error unless the user answers yes. It is nil if the user can't be asked.
	Ask func(ctx context.Context, question string) error
}

// confirm asks the question if the user can be asked, and has not said yes before.
func (d Dialog) confirm(ctx context.Context, question string) error {
	if d.Yes || d.Ask == nil {
		return nil
	}
	return d.Ask(ctx, question)
}

// printDiff prints a diff with its colours.
func printDiff(out *cli.Output, d *diff.Diff) error {
	var b strings.Builder
	for line := range strings.Lines(d.String()) {
		line = visible.Line(strings.TrimRight(line, "\r\n"))
		ink := cli.Plain
		switch {
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"):
			ink = cli.Bold
		case strings.HasPrefix(line, "+"):
			ink = cli.Green
		case strings.HasPrefix(line, "-"):
			ink = cli.Red
		case strings.HasPrefix(line, "@@"):
			ink = cli.Blue
		}
		b.WriteString(out.Paint(ink, line) + "\n")
	}
	return out.Printf("%s", b.String())
}
