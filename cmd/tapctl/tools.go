package main

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

func toolsCommand() *ucli.Command {
	listTools := toolResource.listCommand("list the providers' tools",
		"Examples:\n  tapctl tools list --json", toolsSessionFlag())
	listTools.BashComplete = completeSessionFlag()
	return &ucli.Command{
		Name:  "tools",
		Usage: "list the providers' tools, or call one",
		Description: "Examples:\n  tapctl tools\n  tapctl tools --session 3f2a --json\n" +
			"  tapctl tools call hello --args '{\"name\":\"you\"}'",
		Flags:        []ucli.Flag{toolsSessionFlag()},
		BashComplete: completeSessionFlag(),
		Action:       shortAction(0, toolResource.print),
		Subcommands: []*ucli.Command{
			listTools,
			{
				Name: "call", Usage: "call a tool as the session's model would", ArgsUsage: "NAME",
				Description: `The call goes through the same checks, gates and limits. It prints what the tool returned.
The exit code is 1 if the call failed. Ctrl-C cancels the call.

Examples:
  tapctl tools call hello --args '{"name":"you"}'
  echo '{"name":"you"}' | tapctl tools call hello --args - --json`,
				Flags: []ucli.Flag{
					sessionFlag(),
					&ucli.StringFlag{
						Name: "args", Usage: "the arguments as a `JSON` object, or - for stdin",
						Value: "{}",
					},
				},
				BashComplete: completing(suggestTools),
				Action:       longAction(1, callTool),
			},
		},
	}
}

func toolsSessionFlag() ucli.Flag {
	return &ucli.StringFlag{Name: "session", Aliases: []string{"s"},
		Usage: "only the tools of the session with this `ID` or label"}
}

// suggestTools completes the name of a tool, and sessions for --session.
func suggestTools(c *command, flag string) {
	if flag == "session" {
		c.suggestSessions()
	}
	if flag != "" || c.NArg() > 0 {
		return
	}
	id, err := c.findSession(c.String("session"))
	if err != nil {
		return
	}
	suggest(c, func(ctx context.Context) ([]adminapi.Tool, error) { return c.gw.Tools(ctx, id) },
		func(t adminapi.Tool) (word, about string) {
			return t.Name, cli.Shorten(t.Description, 80)
		})
}

var toolResource = resource[adminapi.Tool]{
	list: func(c *command) ([]adminapi.Tool, error) {
		id := ""
		if c.IsSet("session") {
			var err error
			if id, err = c.findSession(c.String("session")); err != nil {
				return nil, err
			}
		}
		return c.gw.Tools(c.ctx, id)
	},
	columns: []string{"NAME", "PROVIDER", "SESSION", "TIMEOUT", "DESCRIPTION"},
	row: func(t adminapi.Tool) []any {
		return []any{t.Name, t.Provider, t.Session, time.Duration(t.TimeoutMs) * time.Millisecond,
			cli.Shorten(t.Description, 60)}
	},
	empty: func(c *command) string {
		return "no tools; providers bring them, and connect to " + c.gw.URL()
	},
}

func callTool(c *command) error {
	name := c.Args().First()
	if name == "" {
		return cli.Usage("tools call: needs the name of a tool; tapctl tools lists them")
	}
	text, err := cli.Text(c.Context, c.String("args"))
	if err != nil {
		return err
	}
	args := json.RawMessage(bytes.TrimSpace([]byte(text)))
	if !json.Valid(args) || args[0] != '{' {
		return cli.Usage("flag --args: must be a JSON object like {\"name\":\"you\"}, got %s",
			cli.Shorten(text, 60))
	}
	id, err := c.findSession(c.String("session"))
	if err != nil {
		return err
	}
	// Ctrl-C cancels it at the provider, too
	r, err := c.gw.Call(c.ctx, id, name, adminapi.Call{Args: args})
	exit := cli.ExitFailed
	if err != nil {
		e := cli.AsError(err)
		if e.Exit != cli.ExitNotFound || e.Code != cli.CodeNotFound {
			return err
		}
		// A tool that does not exist is shown like a call that failed.
		r, exit = adminapi.CallResult{Error: e.Message + "; tapctl tools lists them",
			ErrorCode: e.Code}, e.Exit
	}
	if c.out.JSON {
		if err := c.out.Document(r); err != nil || r.ErrorCode == "" {
			return err
		}
		return cli.Reported(exit)
	}
	if r.ErrorCode != "" {
		return &cli.Error{Exit: exit, Code: r.ErrorCode, Message: r.ErrorCode + ": " + r.Error}
	}
	return c.out.Printf("%s\n", dataText(r.Data))
}

// dataText returns the data of a tool as text for people: a string unchanged, anything else as
// JSON.
func dataText(data json.RawMessage) string {
	var text string
	if json.Unmarshal(data, &text) == nil && len(data) > 0 && data[0] == '"' {
		return cli.Clean(text)
	}
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return cli.Clean(string(data))
	}
	return b.String()
}
