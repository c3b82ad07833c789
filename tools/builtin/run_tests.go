package builtin

import (
	"context"
	"fmt"
	"time"

	"tapgw/tools"
	"tapgw/tools/internal/shell"
	"tapgw/tools/internal/testlog"
)

type runTestsIn struct {
	Command     string `json:"command" jsonschema:"The command line that runs the tests, for a POSIX sh."`
	Explanation string `json:"explanation,omitzero" jsonschema:"One sentence for the user: which tests, and why."`
	Timeout     int    `json:"timeout,omitzero" jsonschema:"Seconds after which it is ended; 300 unless given, at most 1800."`
}

var _ = add(&tools.Tool{
	Name: "run_tests",
	Description: "Run tests with a shell command in the workspace's root, such as `go test " +
		"./...`, `pytest -q` or " +
		"`npm test`. " +
		"The answer begins with the tests that failed, where the runner is a known one, then " +
		"comes the output and " +
		"the exit code.",
	Kind:    tools.Terminal,
	Timeout: maxTestTime + time.Minute,
}, runTests)

func runTests(ctx context.Context, env *access, in runTestsIn) (tools.Result, error) {
	var log testlog.Log
	lines := shell.Lines{OnLine: func(line string) {
		log.Add(line)
		if env.Output != nil {
			env.Output(line)
		}
	}}
	out, err := shell.Terminal(ctx, env.Root, in.Command,
		seconds(in.Timeout, 5*time.Minute, maxTestTime), &lines)
	lines.End()
	summary := log.String()
	switch {
	case err != nil && summary != "":
		return tools.Result{}, fmt.Errorf("%w\n%s", err, summary)
	case err != nil:
		return tools.Result{}, err
	case summary != "":
		out = summary + "\n" + out
	}
	return textResult(out), nil
}

// maxTestTime is the longest time that a model may choose for a test run.
const maxTestTime = 30 * time.Minute
