// Command bench measures the gateway in one run and prints ratios, because
// absolute figures of a shared machine mean little.
//
// The floor is a relay without logic that writes what it has read. Host,
// middle and provider are three processes in both cases, and host and provider
// are the same programs: they match frames by their id, whatever their shape.
// Floor and gateway take turns, round by round, and each ratio is the median
// of the rounds' ratios. What needs one process only is counted in the CPU time of
// this one.
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

// roles are what the driver starts this very program as.
var roles = map[string]func(ctx context.Context, args []string) error{
	"relay":    runRelay,
	"host":     runHost,
	"provider": runProvider,
	"embedded": runEmbedded,
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
