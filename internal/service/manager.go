package service

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"tapgw/internal/cli"
	"tapgw/internal/proc"
)

// manager is a program that runs a user's services: systemd or launchd.
type manager interface {
	name() string
	// file is the path of the file that tells the manager which program to run.
	file() string
	// define returns the content of that file.
	define(p Program) ([]byte, error)
	// parse reverses define.
	parse(definition []byte) (Program, error)
	// state asks the manager for the service's state. If there is no manager, its error has advice.
	state(ctx context.Context) (State, error)
	// apply makes the manager use a new or changed file: from the next login on, and
	// with start also now.
	apply(ctx context.Context, before State, start bool) error
	// disable stops the service, now and for later logins; its file may be removed then.
	disable(ctx context.Context, before State) error
	// reload makes the manager notice that the file is gone.
	reload(ctx context.Context) error
	// start starts the service, which must not run.
	start(ctx context.Context) error
	log(last int, follow bool) Log
	hints() []string
	restartCommand() string
}

// otherwise ends the errors of a system without a service manager.
const otherwise = "; else start tapgw serve by what starts your programs, or tapgw ensure " +
	"when it is needed"

// mark is in the first lines of each file that this package writes. It never replaces or
// removes a file without it.
const mark = "Written by tapgw service install, which replaces it."

// runManager runs the manager's program and returns its output. Its error has the program's stderr,
// or else its stdout.
func runManager(ctx context.Context, name string, args ...string) (string, error) {
	var stdout, stderr proc.Head
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		why := strings.TrimSpace(stderr.String())
		if why == "" {
			why = strings.TrimSpace(stdout.String())
		}
		if why != "" {
			why = ": " + why
		}
		return "", fmt.Errorf("%s %s: %w%s", name, strings.Join(args, " "), err, why)
	}
	return stdout.String(), nil
}

// checkWord refuses text that a service's file can't hold.
func checkWord(s string) error {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return cli.Failed(
			"service install: %q has a control character, which a service cannot be given", s)
	}
	return nil
}
