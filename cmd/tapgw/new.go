package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"
	"mvdan.cc/sh/v3/syntax"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/daemon"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
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
				&ucli.StringFlag{Name: "lang", Usage: "`go|node|python`: the language to write it in"},
				&ucli.StringFlag{Name: "dir", Usage: "the `DIR` to make; NAME in the current directory if not set"},
			},
			Action: newProvider,
		}},
	}
}

// newResult is what tapgw new shows as JSON.
type newResult struct {
	Name  string `json:"name"`
	Lang  string `json:"lang"`
	Dir   string `json:"dir"`
	File  string `json:"file"` // the provider file
	Tool  string `json:"tool"`
	Ready bool   `json:"ready"` // the program can start
	// Sessions is how many sessions of the gateway that runs have the tool.
	Sessions int `json:"sessions"`
	// Missing says what the program lacks, and Install is the command for it. Both are empty if Ready.
	Missing string `json:"missing,omitempty"`
	Install string `json:"install,omitempty"`
}

func newProvider(c *ucli.Context) error {
	p, err := newProject(c)
	if err != nil {
		return err
	}
	out := cli.Out(c)
	if err := p.write(); err != nil {
		return err
	}
	missing, err := p.prepare(c.Context, noteTo(out))
	if err == nil {
		err = p.writeProviderFile()
	}
	if err != nil {
		return errors.Join(err, p.remove())
	}
	r := newResult{Name: p.name, Lang: p.lang, Dir: p.dir, File: p.file, Tool: p.tool, Ready: missing == ""}
	next := "run: "
	if r.Ready {
		r.Sessions, next = awaitTool(c.Context, protocol.NormalName(p.name), p.tool)
	} else {
		r.Missing, r.Install = missing, p.installCommand()
		next += r.Install
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
	return out.Printf("%s\n", next)
}

// startLimit is how long tapgw new waits for the new provider in the sessions of a gateway.
const startLimit = 10 * time.Second

// awaitTool waits until each session of the gateway that runs has a provider's tool: another provider may have one of
// that name. It returns how many sessions have it, and what the user can do next.
func awaitTool(ctx context.Context, provider, tool string) (sessions int, next string) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	g, runs := stateDir().Running(ctx)
	if !runs {
		return 0, "start a gateway: tapgw ensure"
	}
	c, err := stateDir().Dial(g)
	if err != nil {
		return 0, "see what the gateway made of it: tapctl providers"
	}
	defer c.Close()
	all := 0
	err = daemon.Poll(ctx, func() bool {
		list, err := c.Sessions(ctx)
		all, sessions = len(list), 0
		for _, s := range list {
			tools, err := c.Tools(ctx, s.ID)
			if err == nil && slices.ContainsFunc(tools, func(t adminapi.Tool) bool {
				return t.Name == tool && t.Provider == provider
			}) {
				sessions++
			}
		}
		return err == nil && sessions == all
	})
	switch {
	case err != nil:
		return sessions, "not each session has it yet; see why: tapctl providers"
	case all == 0:
		return 0, "start a session: tapctl sessions start"
	}
	return sessions, fmt.Sprintf(`try it: tapctl tools call %s --args '{"name": "Ada"}'`, tool)
}

// newProject checks the arguments and finds out where the files go.
func newProject(c *ucli.Context) (*project, error) {
	if err := cli.MaxArgs(c, 1); err != nil {
		return nil, err
	}
	lang, err := cli.OneOf(c, "lang", "go", "node", "python")
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
		return nil, cli.Usage("new provider: %q is a word of the gateway's own in timelines; choose another NAME", name)
	}
	if dir == "" {
		dir = name
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(workdir, dir)
	}
	p := &project{
		language: languages[lang],
		lang:     lang,
		name:     name,
		tool:     toolOf(name),
		dir:      filepath.Clean(dir),
		file:     file,
	}
	return p, p.checkFree()
}

// installCommand is the command that installs what is missing and starts the provider anew.
func (p *project) installCommand() string {
	dir, err := syntax.Quote(p.dir, syntax.LangBash)
	if err != nil {
		dir = "DIR" // a NUL, which no directory has
	}
	return fmt.Sprintf("cd %s && %s && tapctl providers restart %s", dir, p.install, p.name)
}
