package main

import (
	"context"
	"io"
	"os"
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
	return answer(c.Context, event, c.App.Reader, cli.Out(c), func() (configs.Config, error) {
		config, _, err := loadConfig(c)
		return config, err
	})
}

// answerHookAtOnce answers the hook if the command line is the one in hook files: tapgw hook EVENT.
// Every tool call of a terminal waits for that, so it makes neither the other commands nor their
// flags. It handles no signals either: the CLI denies a call whose hook is killed.
func answerHookAtOnce(
	args []string, stdin io.Reader, stdout, stderr io.Writer,
) (code int, answered bool) {
	if len(args) != 3 || args[1] != "hook" || !slices.Contains(hook.Events, args[2]) {
		return 0, false
	}
	out := &cli.Output{W: stdout, Err: stderr}
	err := answer(context.Background(), args[2], stdin, out, func() (configs.Config, error) {
		dir, err := os.Getwd()
		if err != nil {
			return configs.Config{}, err
		}
		config, _, err := loadConfigOf(dir, "")
		return config, err
	})
	if err != nil {
		out.Notef("tapgw: %v (see tapgw hook --help)", err)
		return cli.AsError(err).Exit, true
	}
	return cli.ExitDone, true
}

func answer(
	ctx context.Context, event string, stdin io.Reader, out *cli.Output,
	settings func() (configs.Config, error),
) error {
	output, note := hook.Run(ctx, event, stdin, settings)
	if note != "" {
		out.Notef("tapgw hook %s: %s", event, note)
	}
	return hook.Print(out.W, event, output)
}
