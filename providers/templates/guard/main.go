// Guard is a provider that stops git push while a file says that CI is red.
package main

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"tapgw/providers"
)

func main() {
	file := flag.String("file", ".ci-status", "the `file` that says red while CI is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *file, nil)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, file string, o *providers.Options) error {
	p := providers.New("guard", o)
	push := providers.Match{Tool: "shell", Args: `\bgit\b.*\bpush\b`}
	if _, err := p.Gate(ctx, push, func(context.Context, providers.GateCall) (providers.Decision,
		error) {
		return decide(file)
	}); err != nil {
		return err
	}
	return p.Run(ctx)
}

// decide reads the file again for each push. A file that cannot be read stops the
// push too; without a file every push is allowed.
func decide(file string) (providers.Decision, error) {
	status, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return providers.Decision{}, err
	}
	if strings.TrimSpace(string(status)) == "red" {
		return providers.Deny("CI is red. Make it green before you push."), nil
	}
	return providers.Allow(), nil
}
