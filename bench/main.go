// Command bench measures the gateway and prints ratios, because absolute figures of a shared machine say little.
//
// The floor is a relay without logic that forwards each frame. In both cases host, middle and provider are three
// processes, with the same programs as host and provider: they match frames by id, whatever their shape. Floor and
// gateway are measured in turn, and each ratio is the median of the rounds' ratios. Measurements in one process
// count its CPU time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// roles are the parts that this program plays when the driver starts it with their name.
var roles = map[string]func(ctx context.Context, args []string) error{
	"relay":    runRelay,
	"host":     runHost,
	"provider": runProvider,
	"embedded": runEmbedded,
	"mcptool":  runMCPServer,
	"tap":      runTap,
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := dispatch(ctx, args); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if role, ok := roles[args[0]]; ok {
			return role(ctx, args[1:])
		}
	}
	return drive(ctx, args)
}
