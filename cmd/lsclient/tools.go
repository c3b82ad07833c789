package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/visible"
	"tapgw/providers"
	"tapgw/tools"
	"tapgw/tools/provide"
)

// The commands lsclient tools, which list, check and call the tools without a model.

func toolsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "tools",
		Usage: "list the tools",
		Description: `Built-in tools, and drop-ins of the tool directories: --tools, [tools] dirs in
lsclient.toml, and the directory tools beside each config file.

Examples:
  lsclient tools
  lsclient tools check --tools ./my-tools
  lsclient tools call read_file --args '{"filePath":"go.mod"}'`,
		Action: action(0, 0, listTools),
		Subcommands: []*ucli.Command{
			{
				Name: "list", Usage: "list the tools",
				Description: `Examples:
  lsclient tools list --json | jq -r '.[].name'`,
				Action: action(0, 0, listTools),
			},
			{
				Name: "call", Usage: "call a tool, without a server", ArgsUsage: "NAME",
				Description: `Prints the tool's result; exit code 1 if it fails. Commands and paths outside the
workspace are allowed as for an agent: by allow in lsclient.toml, --yes or --ask.

Examples:
  lsclient tools call list_dir --args '{"path":"."}'
  echo '{"command":"go version","explanation":""}' | lsclient tools call run_in_terminal --yes --args -`,
				Flags: append([]ucli.Flag{
					&ucli.StringFlag{Name: "args",
						Usage: "its arguments, a `JSON` object; - reads them from stdin",
						Value: "{}"},
				}, policyFlags()...),
				BashComplete: completeTool,
				Action:       action(1, 0, callTool),
			},
			{
				Name: "check", Usage: "name every fault in the tool directories",
				Description: `Each fault is a line "FILE:LINE: FAULT". Exit code 1 if there is one.

Examples:
  lsclient tools check --tools ./my-tools`,
				Action: action(0, 0, checkTools),
			},
		},
	}
}

func completeTool(uc *ucli.Context) {
	c, err := newCommand(uc)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
	defer cancel()
	all, _ := c.workspace.Tools(ctx)
	for _, t := range all {
		cli.Candidate(uc, t.Name, cli.Shorten(t.Description, 80))
	}
}

// toolLine is a tool as --json prints it.
type toolLine struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Kind        string          `json:"kind"`
	Source      string          `json:"source"`
	TimeoutMs   int64           `json:"timeoutMs"`
}

func listTools(c *command) error {
	all, faults := c.workspace.Tools(c.ctx)
	c.workspace.NoteFaults(faults)
	lines := []toolLine{}
	table := &cli.Table{Columns: []string{"NAME", "KIND", "SOURCE", "DESCRIPTION"}}
	for _, t := range all {
		timeout := t.Timeout
		if timeout == 0 {
			timeout = c.workspace.Config().ToolTimeout
		}
		source := t.Source
		if source == "" {
			source = "built in"
		}
		lines = append(lines, toolLine{t.Name, t.Description, t.Parameters, t.Kind.String(),
			t.Source, timeout.Milliseconds()})
		table.Row(t.Name, t.Kind, source, cli.Shorten(t.Description, 60))
	}
	return c.out.List(lines, table, "no tools")
}

// faultLine is a fault as --json prints it.
type faultLine struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

func checkTools(c *command) error {
	all, faults := c.workspace.Tools(c.ctx)
	lines := []faultLine{}
	for _, f := range faults {
		lines = append(lines, faultLine{f.File, f.Line, f.Reason})
	}
	err := c.out.Show(lines, func() error {
		dropins := 0
		for _, t := range all {
			if t.Source != "" {
				dropins++
			}
		}
		for _, f := range faults {
			if err := c.out.Printf("%s\n", cli.OneLine(f.String())); err != nil {
				return err
			}
		}
		c.out.Notef("%s without a fault, %s", visible.Count(dropins, "drop-in tool"),
			visible.Count(len(faults), "fault"))
		return nil
	})
	return cli.FailedIf(len(faults) > 0, err)
}

func callTool(c *command) error {
	name := c.Args().First()
	if name == "" {
		return cli.Usage("tools call: needs the name of a tool; lsclient tools lists them")
	}
	text, err := cli.Text(c.Context, c.String("args"))
	if err != nil {
		return err
	}
	args := json.RawMessage(bytes.TrimSpace([]byte(text)))
	if !json.Valid(args) || args[0] != '{' {
		return cli.Usage("flag --args: must be a JSON object like {\"path\":\".\"}, got %q",
			cli.Shorten(text, 60))
	}
	policy, err := c.policy()
	if err != nil {
		return err
	}
	policy.NoKind = true // a person has chosen the tool
	all, faults := c.workspace.Tools(c.ctx)
	at := slices.IndexFunc(all, func(t *tools.Tool) bool { return t.Name == name })
	if at < 0 {
		c.workspace.NoteFaults(faults)
		return cli.NotFound("there is no tool %q; lsclient tools lists them", name)
	}
	t, env := all[at], c.workspace.Env()
	policy.Guard(env)
	begin := time.Now()
	answer, err := func() (any, error) {
		if err := policy.Tool(c.ctx, t, args); err != nil {
			return nil, err
		}
		r, err := t.Call(c.ctx, env, args)
		if err != nil {
			return nil, err
		}
		return provide.ResultData(r)
	}()
	return c.printCall(answer, err, time.Since(begin))
}

// printCall prints how a call ended, in the form of tapctl tools call.
func (c *command) printCall(answer any, err error, took time.Duration) error {
	var e *cli.Error
	if err != nil {
		coded, exit := provide.CodedError(err), cli.ExitFailed
		switch coded.Code {
		case providers.CodeUnauthorized:
			exit = cli.ExitRefused
		case providers.CodeTimeout:
			exit = cli.ExitTimedOut
		}
		e = &cli.Error{Exit: exit, Code: string(coded.Code), Message: coded.Message, Err: err}
	}
	if c.out.JSON {
		line := map[string]any{"durationMs": took.Milliseconds()}
		if e != nil {
			line["error"], line["errorCode"] = e.Message, e.Code
		} else {
			line["data"] = answer
		}
		if err := c.out.Document(line); err != nil || e == nil {
			return err
		}
		return cli.Reported(e.Exit)
	}
	if e != nil {
		return e
	}
	if text, ok := answer.(string); ok {
		return c.out.Printf("%s\n", cli.Clean(text))
	}
	return c.out.Document(answer)
}
