package main

import (
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
)

// Commands about the user's account and the language server: models, login, logout, status and
// doctor.

// withServer makes the action of a command that sends a request to the server.
func withServer(args int, do func(c *command, server *langserver.Client) error) ucli.ActionFunc {
	return action(args, shortTimeout, func(c *command) error { return c.server(do) })
}

func (c *command) server(do func(c *command, server *langserver.Client) error) error {
	openPage := func(url string) { _ = cli.Browse(url) }
	server, err := c.workspace.StartServer(c.ctx, langserver.Options{Open: openPage})
	if err != nil {
		return err
	}
	defer server.Close()
	return workspace.ExitError(do(c, server))
}

func modelsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "models",
		Usage: "list the models that turns can use",
		Description: `Examples:
  lsclient models
  lsclient models --json | jq -r '.[].id'`,
		Action: withServer(0, func(c *command, server *langserver.Client) error {
			models, err := server.Models(c.ctx)
			if err != nil {
				return err
			}
			standard, _ := langserver.DefaultModel(models)
			type line struct {
				ID      string `json:"id"`
				Name    string `json:"name"`
				Vendor  string `json:"vendor"`
				Default bool   `json:"default"`
				Preview bool   `json:"preview"`
				Context int    `json:"contextTokens"`
				Output  int    `json:"outputTokens"`
				// Efforts are the values of --effort that the model takes.
				Efforts []string `json:"efforts"`
			}
			lines := []line{}
			t := &cli.Table{Columns: []string{"ID", "NAME", "VENDOR", "CONTEXT", "EFFORT",
				"DEFAULT"}}
			for _, m := range models {
				lines = append(lines, line{m.ID, m.Name, m.Vendor, m.ID == standard, m.Preview,
					m.Limits.Context, m.Limits.Output, append([]string{}, m.Efforts...)})
				mark := ""
				if m.ID == standard {
					mark = "yes"
				}
				t.Row(m.ID, m.Name, m.Vendor, m.Limits.Context, strings.Join(m.Efforts, ", "), mark)
			}
			return c.out.List(lines, t, "no models")
		}),
	}
}

func loginCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "login",
		Usage: "sign in to GitHub",
		Description: `Prints a code and a page to type it on, and waits until you have done that. The
language server keeps the sign-in, and editors on this machine share it.

Examples:
  lsclient login`,
		Action: action(0, 0, func(c *command) error {
			return c.server(func(c *command, server *langserver.Client) error {
				user, err := server.Login(c.ctx, func(d langserver.Device) {
					c.out.Report(map[string]any{"type": "device", "code": d.Code, "url": d.URL,
						"expiresMs": d.Expires.Milliseconds()},
						"Type the code %s on %s within %v", d.Code, d.URL, d.Expires)
				})
				if err != nil {
					return err
				}
				if c.out.JSON {
					return c.out.Line(map[string]any{"type": "done", "user": user})
				}
				return c.out.Printf("signed in as %s\n", user)
			})
		}),
	}
}

func logoutCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "logout",
		Usage: "sign out of GitHub, also for editors on this machine",
		Description: `A token in the environment (GH_COPILOT_TOKEN) keeps you signed in.

Examples:
  lsclient logout`,
		Action: withServer(0, func(c *command, server *langserver.Client) error {
			if err := server.Logout(c.ctx); err != nil {
				return err
			}
			s, err := server.Status(c.ctx)
			if err != nil {
				return err
			}
			if s.OK {
				return cli.Failed("still signed in as %s: unset the token in the environment "+
					"(GH_COPILOT_TOKEN or GITHUB_COPILOT_TOKEN)", s.User)
			}
			return c.out.Result(map[string]any{"signedIn": false}, "signed out\n")
		}),
	}
}

func statusCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "status",
		Usage: "show the language server and who is signed in",
		Description: `Exit code 5 if no user is signed in.

Examples:
  lsclient status
  lsclient status --json | jq -r .user`,
		Action: withServer(0, func(c *command, server *langserver.Client) error {
			s, err := server.Status(c.ctx)
			if err != nil {
				return err
			}
			info := server.Server()
			line := struct {
				SignedIn bool   `json:"signedIn"`
				User     string `json:"user"`
				State    string `json:"state"`
				Server   string `json:"server"`
				Version  string `json:"version"`
				Source   string `json:"source"`
			}{s.OK, s.User, s.State, info.Path, info.Version, info.Source}
			who := "not signed in; sign in with: " + workspace.HowToSignIn
			switch {
			case s.OK:
				who = "signed in as " + s.User
			case s.State == "NotAuthorized":
				who = workspace.NotAuthorized
			}
			err = c.out.Result(line, "%s\nlanguage server %s, %s (%s)\n", who, info.Version,
				info.Path, info.Source)
			if err == nil && !s.OK {
				return cli.Reported(cli.ExitRefused)
			}
			return err
		}),
	}
}

func doctorCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "doctor",
		Usage: "check what turns need on this machine",
		Description: `Each line is ok, warn or fail, and the line below it says what to do. Exit code 1 if
one is fail. doctor starts the language server and ends it again.

Examples:
  lsclient doctor
  lsclient doctor --json | jq '.[] | select(.status != "ok")'`,
		Action: action(0, 2*shortTimeout, func(c *command) error {
			return cli.Doctor(c.ctx, c.out, c.checks())
		}),
	}
}
