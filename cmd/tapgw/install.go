package main

import (
	"context"
	"errors"
	"os"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/install"
	"tapgw/internal/visible"
)

func installCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "install",
		Usage: "write what agents read: skills, and what makes Copilot CLIs join the gateway",
		Description: `Examples:
  tapgw install skills
  tapgw install copilot
  tapgw install status`,
		Subcommands: []*ucli.Command{installSkillsCommand(), installCopilotCommand(),
			installStatusCommand()},
	}
}

// installFlags choose where something is installed.
func installFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "user", Usage: "for all projects of yours; the default"},
		&ucli.BoolFlag{Name: "project", Usage: "in the working directory"},
		&ucli.BoolFlag{Name: "dry-run", Aliases: []string{"n"},
			Usage: "show what would change, and change nothing"},
		&ucli.BoolFlag{Name: "yes", Aliases: []string{"y"},
			Usage: "do not ask, on a terminal either"},
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
			dir, err := cli.Workdir(c)
			if err != nil {
				return err
			}
			rows, faults, err := install.Status(dir)
			if err != nil {
				return err
			}
			out := cli.Out(c)
			for _, err := range faults {
				out.Notef("tapgw: %v", err)
			}
			t := &cli.Table{Columns: []string{"WHAT", "FOR", "SCOPE", "STATE", "PATH"}}
			for _, r := range rows {
				t.Row(r.What, r.For, r.Scope, r.State, visible.Line(r.Path))
			}
			return out.List(rows, t, "")
		},
	}
}

// inProject installs or uninstalls something where the flags say.
func inProject(
	c *ucli.Context, do func(d install.Dialog, ctx context.Context, project string) error,
) error {
	project, err := installProject(c)
	if err != nil {
		return err
	}
	return do(dialog(c), c.Context, project)
}

func changeCopilot(c *ucli.Context, isInstall bool) error {
	var parts []string
	for _, part := range []string{install.Hooks, install.MCP, install.Extension} {
		if c.Bool(part) {
			parts = append(parts, part)
		}
	}
	return inProject(c, func(d install.Dialog, ctx context.Context, project string) error {
		return d.Copilot(ctx, project, isInstall, parts...)
	})
}

// dialog is how the command shows its changes and asks. It asks on a terminal.
func dialog(c *ucli.Context) install.Dialog {
	d := install.Dialog{
		Out: cli.Out(c), DryRun: c.Bool("dry-run"), Yes: c.Bool("yes"),
		Workdir: func() (string, error) { return cli.Workdir(c) },
	}
	in, ok := c.App.Reader.(*os.File)
	if ok && cli.Terminal(in) && cli.Terminal(c.App.ErrWriter) && !d.Out.JSON {
		d.Ask = func(ctx context.Context, question string) error {
			return confirm(ctx, c, question)
		}
	}
	return d
}

// confirm asks a question on the terminal. An answer other than yes is an error.
func confirm(ctx context.Context, c *ucli.Context, question string) error {
	if isYes, err := cli.Confirm(ctx, c.App.Reader, c.App.ErrWriter, question); !isYes {
		return errors.Join(cli.Failed("nothing was written"), err)
	}
	return nil
}
