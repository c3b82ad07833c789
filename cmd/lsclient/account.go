package main

import (
	"os/exec"
	"runtime"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/langserver"
)

// withServer makes the action of a command that asks the server something.
func withServer(args int, do func(k *call, server *langserver.Client) error) ucli.ActionFunc {
	return action(args, shortTimeout, func(k *call) error { return k.server(do) })
}

func (k *call) server(do func(k *call, server *langserver.Client) error) error {
	server, err := k.startServer(k.ctx, langserver.Options{Open: openPage})
	if err != nil {
		return err
	}
	defer server.Close()
	return worded(do(k, server))
}

// openPage shows a web page where there is something to show it with.
func openPage(url string) {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	_ = exec.Command(program, url).Start() //nolint:gosec // the server's own page
}

func modelsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "models",
		Usage: "list the models that turns can use",
		Description: `Examples:
  lsclient models
  lsclient models --json | jq -r '.[].id'`,
		Action: withServer(0, func(k *call, server *langserver.Client) error {
			models, err := server.Models(k.ctx)
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
			}
			lines := []line{}
			t := &cli.Table{Columns: []string{"ID", "NAME", "VENDOR", "CONTEXT", "DEFAULT"}}
			for _, m := range models {
				lines = append(lines, line{m.ID, m.Name, m.Vendor, m.ID == standard, m.Preview, m.Limits.Context,
					m.Limits.Output})
				mark := ""
				if m.ID == standard {
					mark = "yes"
				}
				t.Row(m.ID, m.Name, m.Vendor, m.Limits.Context, mark)
			}
			if k.out.JSON {
				return k.out.Document(lines)
			}
			return k.out.Table(t, "no models")
		}),
	}
}

// What to do without a sign-in.
const (
	howToSignIn   = "lsclient login, or set GH_COPILOT_TOKEN"
	notAuthorized = "signed in to GitHub, but not to use Copilot: see https://github.com/settings/copilot, or sign in as somebody else: lsclient logout, then lsclient login"
)

func loginCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "login",
		Usage: "sign in to GitHub",
		Description: `Prints a code and the page to type it on, and waits until that is done. The sign-in
is the language server's to keep, and holds for editors that use it, too.

Examples:
  lsclient login`,
		Action: action(0, 0, func(k *call) error {
			return k.server(func(k *call, server *langserver.Client) error {
				user, err := server.Login(k.ctx, func(d langserver.Device) {
					k.tell(map[string]any{"type": "device", "code": d.Code, "url": d.URL,
						"expiresMs": d.Expires.Milliseconds()},
						"Type the code %s on %s (it is good for %v)", d.Code, d.URL, d.Expires)
				})
				if err != nil {
					return err
				}
				if k.out.JSON {
					return k.out.Line(map[string]any{"type": "done", "user": user})
				}
				return k.out.Printf("signed in as %s\n", user)
			})
		}),
	}
}

func logoutCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "logout",
		Usage: "sign out of GitHub, for editors, too",
		Description: `A token in the environment (GH_COPILOT_TOKEN) keeps you signed in.

Examples:
  lsclient logout`,
		Action: withServer(0, func(k *call, server *langserver.Client) error {
			if err := server.Logout(k.ctx); err != nil {
				return err
			}
			s, err := server.Status(k.ctx)
			if err != nil {
				return err
			}
			if s.OK {
				return cli.Failed("still signed in as %s: by a token in the environment (GH_COPILOT_TOKEN, GITHUB_COPILOT_TOKEN)", s.User)
			}
			if k.out.JSON {
				return k.out.Document(map[string]any{"signedIn": false})
			}
			return k.out.Printf("signed out\n")
		}),
	}
}

func statusCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "status",
		Usage: "show the language server and who is signed in",
		Description: `Exit code 5 when nobody is.

Examples:
  lsclient status
  lsclient status --json | jq -r .user`,
		Action: withServer(0, func(k *call, server *langserver.Client) error {
			s, err := server.Status(k.ctx)
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
			if k.out.JSON {
				err = k.out.Document(line)
			} else {
				who := "not signed in; sign in with: " + howToSignIn
				switch {
				case s.OK:
					who = "signed in as " + s.User
				case s.State == "NotAuthorized":
					who = notAuthorized
				}
				err = k.out.Printf("%s\nlanguage server %s, %s (%s)\n", who, info.Version, info.Path, info.Source)
			}
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
		Usage: "check what turns need here, and say what to do about it",
		Description: `Each line is ok, warn or fail; the line below it says what to do. Exit code 1 when
one is fail. The language server is started and ended again.

Examples:
  lsclient doctor
  lsclient doctor --json | jq '.[] | select(.status != "ok")'`,
		Action: action(0, 2*shortTimeout, func(k *call) error { return cli.Doctor(k.ctx, k.out, k.checks()) }),
	}
}
