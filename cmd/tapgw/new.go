package main

import (
	"path/filepath"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/gateway"
	"tapgw/internal/scaffold"
	"tapgw/internal/visible"
)

func newCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "new",
		Usage: "write a provider of your own, which runs at once",
		Description: `Examples:
  tapgw new provider weather --lang python`,
		Subcommands: []*ucli.Command{{
			Name:      "provider",
			Usage:     "write a provider's program, its test and its provider file",
			ArgsUsage: "NAME",
			Description: `It makes a directory with a program that has one tool, greet_NAME, its test, and a copy of
the SDK. If something is missing that the program needs, it installs that with go, npm or
pip. Then it writes the provider file NAME.toml beside the config in use, so that a gateway
that runs starts the program at once, and waits until its sessions have the tool. It never
overwrites a file. When the installation fails, the files stay, and it prints the command
to run later.

Examples:
  tapgw new provider weather --lang python
  tapgw new provider weather --lang go --dir ~/src/weather
  tapgw new provider weather --lang node --json`,
			Flags: []ucli.Flag{
				&ucli.StringFlag{Name: "lang",
					Usage: "`go|node|python`: the language to write it in"},
				&ucli.StringFlag{Name: "dir",
					Usage: "the `DIR` to make; NAME in the current directory if not set"},
			},
			Action: newProvider,
		}},
	}
}

func newProvider(c *ucli.Context) error {
	p, err := newProject(c)
	if err != nil {
		return err
	}
	out := cli.Out(c)
	r, err := p.Make(c.Context, stateDir(), noteTo(out))
	if err != nil {
		return err
	}
	if out.JSON {
		return out.Document(r)
	}
	if err := out.Printf("%s: the program, its test and the SDK\n%s: the provider file\n",
		visible.Line(r.Dir), visible.Line(r.File)); err != nil {
		return err
	}
	if !r.Ready {
		out.Notef("tapgw: %s can't start yet: %s", r.Name, cli.OneLine(r.Missing))
	}
	return out.Printf("%s\n", r.Next)
}

// newProject checks the arguments and finds out where the files go.
func newProject(c *ucli.Context) (*scaffold.Project, error) {
	if err := cli.MaxArgs(c, 1); err != nil {
		return nil, err
	}
	lang, err := cli.OneOf(c, "lang", scaffold.Languages...)
	switch {
	case err != nil:
		return nil, err
	case c.NArg() == 0:
		return nil, cli.Usage("new provider: a NAME is missing, for example weather")
	case lang == "":
		return nil, cli.Usage("new provider: --lang is missing: go, node or python")
	}
	workdir, err := cli.Workdir(c)
	if err != nil {
		return nil, err
	}
	files, err := configs.Find(workdir, c.String("config"))
	if err != nil {
		return nil, err
	}
	name, dir := c.Args().First(), c.String("dir")
	file, err := files.UserProvider(name)
	if err != nil {
		return nil, cli.Usage("new provider: %v", err)
	}
	if gateway.IsGatewayName(name) {
		return nil,
			cli.Usage(
				"new provider: %q is a word of the gateway's own in timelines; choose another NAME",
				name)
	}
	if dir == "" {
		dir = name
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(workdir, dir)
	}
	return scaffold.New(lang, name, dir, file)
}
