// Command lsclient is the client of the Copilot language server.
package main

import (
	"io"
	"os"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
)

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Run(newApp(), args, stdin, stdout, stderr)
}

// newApp has no commands of its own yet: what every binary of the project
// answers (help, version, completion) it answers.
func newApp() *ucli.App {
	return &ucli.App{
		Name:  "lsclient",
		Usage: "run agent turns on the Copilot language server",
		Description: `Examples:
  lsclient --version
  lsclient completion bash`,
	}
}
