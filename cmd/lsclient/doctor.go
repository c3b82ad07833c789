package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/agent"
	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/langserver"
	"tapgw/internal/visible"
)

// checks returns the checks of doctor.
func (c *command) checks() []cli.Check {
	return slices.Concat(c.localChecks(), c.serverChecks(), c.otherChecks())
}

func (c *command) localChecks() []cli.Check {
	return []cli.Check{
		{Name: "config", Run: func(context.Context) cli.Result {
			switch files := c.workspace.Files; {
			case files.Untrusted != "":
				return cli.Warn(configs.TrustCommand(c.workspace.Dir), "%s is left out: %s",
					files.Untrusted, c.workspace.WhyUntrusted())
			case files.Project != "":
				return cli.OK("%s", files.Project)
			case files.User != "":
				return cli.OK("%s", files.User)
			}
			return cli.OK("no file: the defaults apply")
		}},
		{Name: "tools", Run: func(ctx context.Context) cli.Result {
			all, faults := c.workspace.Tools(ctx)
			if len(faults) > 0 {
				return cli.Warn("lsclient tools check lists all faults", "%v", faults[0])
			}
			dirs := slices.DeleteFunc(slices.Clone(c.workspace.Config().Tools.Dirs),
				func(dir string) bool { _, err := os.Stat(dir); return err != nil })
			directories := "1 directory"
			if len(dirs) != 1 {
				directories = fmt.Sprintf("%d directories", len(dirs))
			}
			return cli.OK("%s, %s", visible.Count(len(all), "tool"), directories)
		}},
		{Name: "instructions", Run: c.instructionsResult},
	}
}

// instructionsResult says which files of instructions were read and which were not.
func (c *command) instructionsResult(context.Context) cli.Result {
	read, leftOut, err := agent.InstructionFiles(c.workspace.Dir)
	if err != nil {
		return cli.Fail("", "%v", err)
	}
	detail := "read: " + strings.Join(read, ", ")
	if len(read) == 0 {
		detail = "no file"
	}
	if len(leftOut) > 0 {
		return cli.Warn("", "%s; left out: %s", detail, strings.Join(leftOut, "; left out: "))
	}
	return cli.OK("%s", detail)
}

// serverState is the part of the language server's state that doctor shows.
type serverState struct {
	status langserver.SignIn
	models []langserver.Model
	info   langserver.ServerInfo
	mcp    []langserver.MCPState
	off    bool
}

// serverChecks returns the checks of the language server. They share one start of it.
func (c *command) serverChecks() []cli.Check {
	probe := sync.OnceValues(func() (s serverState, err error) {
		server, err := c.workspace.StartServer(c.ctx, langserver.Options{})
		if err != nil {
			return s, err
		}
		defer server.Close()
		s.info = server.Server()
		if s.status, err = server.Status(c.ctx); err != nil || !s.status.OK {
			return s, err
		}
		s.mcp, err = c.workspace.MCPStates(c.ctx, server)
		s.off = errors.Is(err, langserver.ErrMCPDisabled)
		s.models, err = server.Models(c.ctx)
		return s, err
	})
	return []cli.Check{
		{Name: "language server", Run: func(context.Context) cli.Result {
			s, err := probe()
			if s.info.Version == "" && err != nil {
				cure :=
					"make runtime, or npm install -g @github/copilot-language-server, " +
						"or name one in " +
						langserver.EnvServer
				return cli.Fail(cure, "%v", err)
			}
			return cli.OK("%s, %s (%s)", s.info.Version, s.info.Path, s.info.Source)
		}},
		{Name: "sign-in", Run: func(context.Context) cli.Result { return signInResult(probe()) }},
		{Name: "models", Run: func(context.Context) cli.Result {
			s, err := probe()
			name, ok := langserver.DefaultModel(s.models)
			switch {
			case ok:
				return cli.OK("%d, default %s", len(s.models), name)
			case !s.status.OK:
				return cli.Warn("", "unknown before sign-in")
			case err != nil:
				return cli.Fail("check network and proxy", "%v", err)
			}
			return cli.Fail("ask the administrator of your Copilot plan to enable a model",
				"the server offers no model")
		}},
		{Name: "MCP servers", Run: func(context.Context) cli.Result { return c.mcpResult(probe) }},
	}
}

func signInResult(s serverState, err error) cli.Result {
	switch {
	case s.status.OK:
		return cli.OK("%s", s.status.User)
	case err != nil && s.info.Version == "":
		return cli.Warn("", "unknown, because the language server does not start")
	case err != nil:
		return cli.Fail("check network and proxy", "%v", err)
	}
	if s.status.State == "NotAuthorized" {
		return cli.Fail(workspace.OtherAccount, "%s may not use Copilot", s.status.User)
	}
	return cli.Fail(workspace.HowToSignIn, "no user is signed in (%s)", s.status.State)
}

func (c *command) mcpResult(probe func() (serverState, error)) cli.Result {
	s, _ := probe()
	if len(c.workspace.MCP()) == 0 {
		return cli.OK("none in the configuration")
	}
	if s.off {
		return cli.Warn("ask your organisation to allow them", "switched off by your organisation")
	}
	for _, m := range s.mcp {
		if m.Error != "" {
			return cli.Warn("run its command by hand to see why", "%s: %s", m.Name, m.Error)
		}
	}
	return cli.OK("%d", len(s.mcp))
}

func (c *command) otherChecks() []cli.Check {
	return []cli.Check{
		{Name: "gateway", Run: func(ctx context.Context) cli.Result {
			var s adminapi.Status
			gw, err := client.New(c.workspace.Gateway("", ""))
			if err == nil {
				defer gw.Close()
				s, err = gw.Status(ctx)
			}
			if e, ok := errors.AsType[*cli.Error](err); ok && e.Exit == cli.ExitUnreachable {
				return cli.OK("none runs; turns do without one")
			}
			if err != nil {
				return cli.Warn("", "%v", err)
			}
			return cli.OK("%s, version %s", s.URL, s.Version)
		}},
		{Name: "ripgrep", Run: func(context.Context) cli.Result {
			if broken := langserver.BrokenRipgrep(); len(broken) > 0 {
				return cli.Warn("remove it: an editor's server then unpacks it again",
					"%s is not whole, and editors' searches fail with it; lsclient does not use it",
					broken[0])
			}
			path, err := exec.LookPath("rg")
			if err != nil {
				return cli.Warn("install ripgrep", "not found: searches are slower")
			}
			return cli.OK("%s", path)
		}},
		{Name: "python", Run: func(context.Context) cli.Result {
			path, err := exec.LookPath("python3")
			if err != nil {
				return cli.Warn("install Python 3", "not found: Python tools can't be used")
			}
			return cli.OK("%s", path)
		}},
	}
}
