package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/langserver"
)

// checks are doctor's. The server is started once for those that ask it.
func (k *call) checks() []cli.Check {
	type started struct {
		status langserver.SignIn
		models []langserver.Model
		info   langserver.ServerInfo
		mcp    []langserver.MCPState
		off    bool
	}
	probe := sync.OnceValues(func() (s started, err error) {
		server, err := k.startServer(k.ctx, langserver.Options{})
		if err != nil {
			return s, err
		}
		defer server.Close()
		s.info = server.Server()
		if s.status, err = server.Status(k.ctx); err != nil || !s.status.OK {
			return s, err
		}
		s.mcp, err = k.startedMCP(k.ctx, server)
		s.off = errors.Is(err, langserver.ErrMCPDisabled)
		s.models, err = server.Models(k.ctx)
		return s, err
	})
	return []cli.Check{
		{Name: "config", Run: func(context.Context) cli.Result {
			switch {
			case k.files.Untrusted != "":
				return cli.Warn(configs.TrustCommand(k.workspace), "%s is left out: %s", k.files.Untrusted,
					k.whyUntrusted())
			case k.files.Project != "":
				return cli.OK("%s", k.files.Project)
			case k.files.User != "":
				return cli.OK("%s", k.files.User)
			}
			return cli.OK("no file: the defaults apply")
		}},
		{Name: "tools", Run: func(ctx context.Context) cli.Result {
			all, faults := k.loadTools(ctx)
			if len(faults) > 0 {
				return cli.Warn("lsclient tools check names every fault", "%v", faults[0])
			}
			dirs := slices.DeleteFunc(slices.Clone(k.conf().Tools),
				func(dir string) bool { _, err := os.Stat(dir); return err != nil })
			return cli.OK("%d tools, %d directories", len(all), len(dirs))
		}},
		{Name: "language server", Run: func(context.Context) cli.Result {
			s, err := probe()
			if s.info.Version == "" && err != nil {
				return cli.Fail("make runtime, or npm install -g @github/copilot-language-server, or name one in "+langserver.EnvServer, "%v", err)
			}
			return cli.OK("%s, %s (%s)", s.info.Version, s.info.Path, s.info.Source)
		}},
		{Name: "sign-in", Run: func(context.Context) cli.Result {
			s, err := probe()
			switch {
			case s.status.OK:
				return cli.OK("%s", s.status.User)
			case err != nil && s.info.Version == "":
				return cli.Warn("", "not known: the language server does not start")
			case err != nil:
				return cli.Fail("check network and proxy", "%v", err)
			}
			if s.status.State == "NotAuthorized" {
				return cli.Fail("https://github.com/settings/copilot, or sign in as somebody else: lsclient logout, then lsclient login", "%s may not use Copilot", s.status.User)
			}
			return cli.Fail(howToSignIn, "nobody is signed in (%s)", s.status.State)
		}},
		{Name: "models", Run: func(context.Context) cli.Result {
			s, err := probe()
			name, ok := langserver.DefaultModel(s.models)
			switch {
			case ok:
				return cli.OK("%d, default %s", len(s.models), name)
			case !s.status.OK:
				return cli.Warn("", "not known before sign-in")
			case err != nil:
				return cli.Fail("check network and proxy", "%v", err)
			}
			return cli.Fail("ask who pays for Copilot to allow a model", "the server offers none")
		}},
		{Name: "MCP servers", Run: func(context.Context) cli.Result {
			s, _ := probe()
			if len(k.conf().MCP) == 0 {
				return cli.OK("none in the configuration")
			}
			if s.off {
				return cli.Warn("ask the organisation", "switched off by the organisation")
			}
			for _, m := range s.mcp {
				if m.Error != "" {
					return cli.Warn("try its command by hand", "%s: %s", m.Name, m.Error)
				}
			}
			return cli.OK("%d", len(s.mcp))
		}},
		{Name: "gateway", Run: func(ctx context.Context) cli.Result {
			var s adminapi.Status
			gw, err := client.New(k.gateway("", ""))
			if err == nil {
				defer gw.Close()
				s, err = gw.Status(ctx)
			}
			if e, ok := errors.AsType[*cli.Error](err); ok && e.Exit == cli.ExitUnreachable {
				return cli.OK("none runs; turns go without one")
			}
			if err != nil {
				return cli.Warn("", "%v", err)
			}
			return cli.OK("%s, version %s", s.URL, s.Version)
		}},
		{Name: "ripgrep", Run: func(context.Context) cli.Result {
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
