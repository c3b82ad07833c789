package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/client"
	"tapgw/providers"
	"tapgw/tools"
	"tapgw/tools/provide"
)

func provideCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "provide",
		Usage: "offer the tools to a gateway's sessions, until stopped",
		Description: `Each session has the tools in its own directory. Files that come, change and go in
the tool directories are tools that do so. Commands, and paths outside a session's
directory, need allow in lsclient.toml. A gateway that restarts is joined again.

Examples:
  lsclient provide
  lsclient provide --session 3f2a --tools ./my-tools`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "session",
				Usage: "serve this session only, by its `ID`, its beginning, or its label"},
			&ucli.StringFlag{Name: "name", Usage: "the provider's `NAME`", Value: provide.Name},
			&ucli.StringFlag{Name: "url", Usage: "the gateway's `URL` (default: $" + client.EnvURL +
				", else as found)"},
			&ucli.StringFlag{Name: "token",
				Usage: "the admin `TOKEN`, which other users of the machine can read here (default: $" +
					client.EnvToken + ", else from the gateway's file)"},
		},
		Action: action(0, 0, provideTools),
	}
}

func provideTools(k *call) error {
	find := k.gateway(k.String("url"), k.String("token"))
	gw, err := client.New(find)
	if err != nil {
		return err
	}
	defer gw.Close()
	session := providers.AllSessions
	if id := k.String("session"); id != "" || k.IsSet("session") {
		if session, err = gw.FindSession(k.ctx, id); err != nil {
			return err
		}
	} else if _, err := gw.Status(k.ctx); err != nil {
		return err
	}
	token := cmp.Or(k.String("token"), os.Getenv(client.EnvToken))
	file, err := client.TokenFile()
	if err != nil && token == "" {
		return err
	}
	level := slog.LevelWarn
	if k.out.Verbose {
		level = slog.LevelDebug
	}
	p := provide.New(provide.Options{
		Name: k.String("name"),
		Provider: providers.Options{
			URL: find.URL, Token: token, TokenFile: file, Session: session,
			Logger: slog.New(slog.NewTextHandler(k.App.ErrWriter, &slog.HandlerOptions{Level: level})),
			OnBound: func(_ context.Context, b providers.Binding) {
				k.tell(map[string]any{"type": "bound", "session": b.Session, "cwd": b.CWD}, "serving session %s in %s",
					b.Session, b.CWD)
			},
		},
	})
	configure := func() {
		p.Configure(allowed(k.conf()), tools.Env{Home: home(), Libraries: k.libraries(), Timeout: k.conf().ToolTimeout,
			Sources: k.sources(), Secrets: []string{configs.StateDir()}})
	}
	configure()
	watch := func(ctx context.Context, offer func([]*tools.Tool)) { k.watchTools(ctx, configure, offer) }
	err = p.RunWith(k.ctx, watch, func(list []*tools.Tool, err error) {
		if err != nil {
			k.out.Notef("lsclient: %v", err)
			return
		}
		k.tell(map[string]any{"type": "tools", "tools": len(list)}, "offering %d tools", len(list))
	})
	if errors.Is(k.Err(), context.Canceled) { // by a signal
		return nil
	}
	return err
}

// tell says what goes on: a line of JSON on stdout, or a line for people on
// stderr.
func (k *call) tell(line map[string]any, format string, args ...any) {
	if k.out.JSON {
		_ = k.out.Line(line)
		return
	}
	k.out.Notef(format, args...)
}
