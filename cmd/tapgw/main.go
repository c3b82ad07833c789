// Command tapgw is the gateway between agent sessions and the processes that
// give them tools and events.
package main

import (
	"os"

	"tapgw/internal/copilot"
)

func main() {
	if code, ran := copilot.ExecRuntime(os.Args); ran {
		os.Exit(code)
	}
	stdout := copilot.GuardStdout()
	if code, answered := answerHookAtOnce(os.Args, os.Stdin, stdout, os.Stderr); answered {
		os.Exit(code)
	}
	os.Exit(run(os.Args, os.Stdin, stdout, os.Stderr))
}
