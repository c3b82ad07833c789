package builtin

import (
	"context"
	"io"
	"time"

	"tapgw/tools"
	"tapgw/tools/internal/shell"
)

type runInTerminalIn struct {
	Command     string `json:"command" jsonschema:"The command line, for a POSIX sh."`
	Explanation string `json:"explanation" jsonschema:"One sentence for the user: what it does, and why."`
	Timeout     int    `json:"timeout,omitzero" jsonschema:"Seconds after which it is ended; 120 unless given, at most 600."`
}

var _ = add(&tools.Tool{
	Name: "run_in_terminal",
	Description: "Run a shell command in the workspace and get its output and exit code. Each " +
		"call is a shell of " +
		"its own that begins in the workspace's root: " +
		"neither cd nor variables last. There is no input to type into; programs that ask are to " +
		"be told beforehand " +
		"(-y). Background processes end with the command. " +
		"Long output is cut in the middle: filter it in the command.",
	Kind:    tools.Terminal,
	Timeout: maxTerminalTime + time.Minute, // the command's own limit ends first
}, runInTerminal)

func runInTerminal(ctx context.Context, env *access, in runInTerminalIn) (tools.Result, error) {
	var also io.Writer
	if env.Output != nil {
		also = &shell.Lines{OnLine: env.Output}
	}
	out, err := shell.Terminal(ctx, env.Root, in.Command,
		seconds(in.Timeout, 2*time.Minute, maxTerminalTime), also)
	return textResult(out), err
}

// maxTerminalTime is the longest time that a model may choose for a command.
const maxTerminalTime = 10 * time.Minute

// seconds converts a number of seconds that a model chose. It returns fallback if the model did not
// choose, and limit at most.
func seconds(n int, fallback, limit time.Duration) time.Duration {
	if n <= 0 {
		return fallback
	}
	return min(time.Duration(min(n, int(limit/time.Second)))*time.Second, limit)
}
