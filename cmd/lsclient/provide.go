package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/agent/consent"
	"tapgw/internal/client"
	"tapgw/internal/visible"
	"tapgw/providers"
	"tapgw/tools"
	"tapgw/tools/provide"
)

func provideCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "provide",
		Usage: "offer the tools to a gateway's sessions, until stopped",
		Description: `In each session the tools work in its directory. When a file of the tool directories
changes, so do the tools. Commands, and paths outside a session's directory, need allow
in lsclient.toml. After a restart of the gateway, provide connects again.

Examples:
  lsclient provide
  lsclient provide --session 3f2a --tools ./my-tools`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "session",
				Usage: "serve only this session: its `ID`, the beginning of that, or its label"},
			&ucli.StringFlag{Name: "name", Usage: "the provider's `NAME`", Value: provide.Name},
			&ucli.StringFlag{Name: "url", Usage: "the gateway's `URL` (default: $" + client.EnvURL +
				", else as found)"},
			&ucli.StringFlag{Name: "token",
				Usage: "the admin `TOKEN`; other users of this machine can read it in the " +
					"command line (default: $" +
					client.EnvToken + ", else from the gateway's file)"},
		},
		Action: action(0, 0, provideTools),
	}
}

func provideTools(c *command) error {
	find := c.workspace.Gateway(c.String("url"), c.String("token"))
	gw, err := client.New(find)
	if err != nil {
		return err
	}
	defer gw.Close()
	session := providers.AllSessions
	if id := c.String("session"); id != "" || c.IsSet("session") {
		if session, err = gw.FindSession(c.ctx, id); err != nil {
			return err
		}
	} else if _, err := gw.Status(c.ctx); err != nil {
		return err
	}
	token := cmp.Or(c.String("token"), os.Getenv(client.EnvToken))
	file, err := client.TokenFile()
	if err != nil && token == "" {
		return err
	}
	level := slog.LevelWarn
	if c.out.Verbose {
		level = slog.LevelDebug
	}
	p := provide.New(provide.Options{
		Name: c.String("name"),
		Provider: providers.Options{
			URL: find.URL, Token: token, TokenFile: file, Session: session,
			Logger: slog.New(slog.NewTextHandler(c.App.ErrWriter,
				&slog.HandlerOptions{Level: level})),
			OnBound: func(_ context.Context, b providers.Binding) {
				c.out.Report(map[string]any{"type": "bound", "session": b.Session, "cwd": b.CWD},
					"serving session %s in %s",
					b.Session, b.CWD)
			},
		},
	})
	configure := func() {
		allow := consent.Allowed(c.workspace.Config())
		allow.NoKind = true
		p.Configure(allow, *c.workspace.Env())
	}
	configure()
	watch := func(ctx context.Context, offer func([]*tools.Tool)) {
		c.workspace.WatchTools(ctx, configure, offer)
	}
	err = p.RunWith(c.ctx, watch, func(list []*tools.Tool, err error) {
		if err != nil {
			c.out.Notef("lsclient: %v", err)
			return
		}
		c.out.Report(map[string]any{"type": "tools", "tools": len(list)}, "offering %s",
			visible.Count(len(list), "tool"))
	})
	if errors.Is(c.Err(), context.Canceled) { // by a signal
		return nil
	}
	return err
}
