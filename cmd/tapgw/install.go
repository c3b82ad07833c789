package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/visible"
	"tapgw/skills"
)

func installCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "install",
		Usage: "write what agents read: skills, and what makes Copilot CLIs join the gateway",
		Description: `Examples:
  tapgw install skills
  tapgw install copilot
  tapgw install status`,
		Subcommands: []*ucli.Command{installSkillsCommand(), installCopilotCommand(), installStatusCommand()},
	}
}

// installFlags choose where something is installed.
func installFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "user", Usage: "for all projects of yours; the default"},
		&ucli.BoolFlag{Name: "project", Usage: "in the working directory"},
		&ucli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "show what would change, and change nothing"},
		&ucli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask, on a terminal either"},
	}
}

// installProject returns the project's directory, or "" to install for the user.
func installProject(c *ucli.Context) (string, error) {
	if err := cli.MaxArgs(c, 0); err != nil {
		return "", err
	}
	if !c.Bool("project") {
		return "", nil
	}
	if c.Bool("user") {
		return "", cli.Usage("flags --user and --project exclude each other")
	}
	return cli.Workdir(c)
}

// installRow is one place of what tapgw install writes, as tapgw install status shows it.
type installRow struct {
	What  string `json:"what"`  // skills, hooks, mcp, extension
	For   string `json:"for"`   // the agent that reads it
	Scope string `json:"scope"` // user, project
	State string `json:"state"` // absent, installed, partly, outdated, changed, unreadable
	Path  string `json:"path"`
}

func installStatusCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "status",
		Usage: "show what is installed, for you and in the working directory",
		Description: `A state is absent, installed, partly (some of it is absent), outdated (another version of
tapgw wrote it; install brings it up to date), changed (a person has changed or written some
of it, which tapgw leaves alone), or unreadable (the reason is on stderr).

Examples:
  tapgw install status
  tapgw install status --json`,
		Action: func(c *ucli.Context) error {
			if err := cli.MaxArgs(c, 0); err != nil {
				return err
			}
			rows, err := skillRows(c)
			if err != nil {
				return err
			}
			dir, err := cli.Workdir(c)
			if err != nil {
				return err
			}
			terminals, faults, err := copilotRows(dir)
			if err != nil {
				return err
			}
			for _, err := range faults {
				cli.Out(c).Notef("tapgw: %v", err)
			}
			rows = append(rows, terminals...)
			out := cli.Out(c)
			if out.JSON {
				return out.Document(rows)
			}
			t := cli.Table{Columns: []string{"WHAT", "FOR", "SCOPE", "STATE", "PATH"}}
			for _, r := range rows {
				t.Row(r.What, r.For, r.Scope, r.State, visible.Line(r.Path))
			}
			return out.Table(&t, "")
		},
	}
}

// skillRows returns the state of the skills in each folder.
func skillRows(c *ucli.Context) ([]installRow, error) {
	dir, err := cli.Workdir(c)
	if err != nil {
		return nil, err
	}
	var rows []installRow
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
			rows = append(rows, installRow{"skills", f.For, f.Scope, skills.Summary(found), f.Path})
		}
	}
	return rows, nil
}
