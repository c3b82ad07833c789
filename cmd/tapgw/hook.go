package main

import (
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/terminals/hook"
)

func hookCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "hook",
		Usage:     "answer a hook of a Copilot CLI",
		ArgsUsage: "EVENT",
		Description: `The hook files that tapgw install copilot writes run it. It reads the hook's JSON on
stdin, asks the gateway, and prints what the CLI is to do. EVENT is the CLI's name of
the event: ` + strings.Join(hook.Events, ", ") + `.

It denies a tool call whenever it can't tell whether the gates allow it: when the
gateway does not answer within 25 seconds, or answers wrong. While no gateway runs,
terminals.without_gateway of tapgw.toml decides. Exit code 2 means that it could not
print its answer; the CLI takes that for a denial too.

Example:
  echo '{"sessionId":"s1","cwd":"/tmp","toolName":"bash","toolArgs":{}}' | tapgw hook preToolUse`,
		Action: answerHook,
	}
}

func answerHook(c *ucli.Context) error {
	event := c.Args().First()
	switch {
	case c.NArg() != 1:
		return cli.Usage("want one EVENT, such as %s", hook.EventPreToolUse)
	case !slices.Contains(hook.Events, event):
		return cli.Usage("event: %q is not one of %s", event, strings.Join(hook.Events, ", "))
	}
	output, note := hook.Run(c.Context, event, c.App.Reader, func() (configs.Config, error) {
		config, _, err := loadConfig(c)
		return config, err
	})
	if note != "" {
		cli.Out(c).Notef("tapgw hook %s: %s", event, note)
	}
	return hook.Print(c.App.Writer, event, output)
}
