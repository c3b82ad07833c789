package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
	"tapgw/internal/terminals"
	"tapgw/internal/visible"
)

const (
	// hookDeadline is what a hook may take in all. The CLI lets a call through when its own timeout for the hook is
	// over, which is 30 seconds. Gates have 5 seconds, required providers 10, and a gateway that has just started waits
	// 5 for others.
	hookDeadline = 25 * time.Second
	// maxHookInput is the longest text of a hook, with room for the request around it.
	maxHookInput = protocol.MaxMessage - 1<<10
	// maxDrained is how much of a longer text is read and thrown away, so that the CLI can write it.
	maxDrained = 256 << 20
	// maxAncestors is how far above this process its CLI may be.
	maxAncestors = 16
)

func hookCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "hook",
		Usage:     "answer a hook of a Copilot CLI",
		ArgsUsage: "EVENT",
		Description: `The hook files that tapgw install copilot writes run it. It reads the hook's JSON on
stdin, asks the gateway, and prints what the CLI is to do. EVENT is the CLI's name of
the event: ` + strings.Join(terminals.Events, ", ") + `.

It denies a tool call whenever it can't tell whether the gates allow it: when the
gateway does not answer within 25 seconds, or answers wrong. While no gateway runs,
terminals.without_gateway of tapgw.toml decides. Exit code 2 means that it could not
print its answer; the CLI takes that for a denial too.

Example:
  echo '{"sessionId":"s1","cwd":"/tmp","toolName":"bash","toolArgs":{}}' | tapgw hook preToolUse`,
		Action: hook,
	}
}

func hook(c *ucli.Context) error {
	event := c.Args().First()
	switch {
	case c.NArg() != 1:
		return cli.Usage("want one EVENT, such as %s", terminals.EventPreToolUse)
	case !slices.Contains(terminals.Events, event):
		return cli.Usage("event: %q is not one of %s", event, strings.Join(terminals.Events, ", "))
	}
	ctx, cancel := context.WithTimeout(c.Context, hookDeadline)
	defer cancel()
	answers := make(chan hookAnswer, 1)
	// Nothing interrupts a read of stdin, so this process ends without waiting for it.
	go func() { answers <- answerHook(ctx, c, event) }()
	var answer hookAnswer
	select {
	case answer = <-answers:
	case <-ctx.Done():
		answer.output = terminals.Denial(event, "tapgw: the gateway did not answer in time, so this is not allowed")
	}
	if answer.note != "" {
		cli.Out(c).Notef("tapgw hook %s: %s", event, answer.note)
	}
	return printHook(c.App.Writer, event, answer.output)
}

// hookAnswer is what the CLI reads, and a note for people on stderr, which may be empty.
type hookAnswer struct {
	output []byte
	note   string
}

// printHook prints an answer. After an error the exit code must be 2, the one that the CLI takes for a denial.
func printHook(w io.Writer, event string, output []byte) error {
	if f, ok := w.(*os.File); ok && terminals.Decides(event) && isNowhere(f) {
		return cli.Usage("stdout leads nowhere, so the CLI would not read a denial")
	}
	if _, err := w.Write(append(output, '\n')); err != nil {
		return cli.Usage("printing the answer: %v", err)
	}
	return nil
}

// isNowhere reports whether a file is /dev/null. The Go runtime opens it in place of a closed stdout.
func isNowhere(f *os.File) bool {
	null, err := os.Stat(os.DevNull)
	if err != nil {
		return false
	}
	info, err := f.Stat()
	return err != nil || os.SameFile(info, null)
}

// answerHook asks the gateway about a hook. Whatever fails is a denial at the events that decide about a tool call.
func answerHook(ctx context.Context, c *ucli.Context, event string) hookAnswer {
	output, err := askAboutHook(ctx, event, c.App.Reader)
	if err == nil {
		return hookAnswer{output: output}
	}
	if errors.Is(err, client.ErrNone) {
		return withoutGateway(c, event)
	}
	note := visible.Line(fmt.Sprintf("tapgw could not ask the gateway, so this is not allowed: %v", err))
	return hookAnswer{terminals.Denial(event, note), note}
}

func askAboutHook(ctx context.Context, event string, stdin io.Reader) ([]byte, error) {
	input, err := readHook(stdin)
	if err != nil {
		return nil, err
	}
	gw, err := client.New(client.Options{Flag: client.EnvURL})
	if err != nil {
		return nil, err
	}
	output, err := gw.TerminalHook(ctx, adminapi.TerminalHook{Event: event, PID: cliPID(), Input: input})
	if err != nil {
		return nil, err
	}
	return output, terminals.CheckOutput(event, output)
}

// readHook reads the text of a hook, which must be JSON.
func readHook(r io.Reader) (json.RawMessage, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxHookInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the hook: %w", err)
	case len(data) > maxHookInput:
		_, _ = io.CopyN(io.Discard, r, maxDrained)
		return nil, fmt.Errorf("the call is too long to ask about: more than %d bytes", maxHookInput)
	case !json.Valid(data):
		return nil, errors.New("the hook's text is not JSON")
	}
	return data, nil
}

// withoutGateway is the answer while no gateway runs. Only the user's own file counts: a project must not open what the
// user has closed.
func withoutGateway(c *ucli.Context, event string) hookAnswer {
	if !terminals.Decides(event) {
		return hookAnswer{output: terminals.Allowance(event)}
	}
	config, _, err := loadConfig(c)
	switch {
	case err != nil:
		return hookAnswer{output: terminals.Denial(event, visible.Line(fmt.Sprintf(
			"no gateway of tapgw runs, and its settings can't be read, so this is not allowed: %v", err)))}
	case config.Terminals.WithoutGateway == configs.TerminalsAllow:
		note := "no gateway runs, so no gate is asked (terminals.without_gateway)"
		return hookAnswer{terminals.Allowance(event), note}
	}
	return hookAnswer{output: terminals.Denial(event,
		`no gateway of tapgw runs, and terminals.without_gateway is "deny": start one with tapgw ensure`)}
}

// cliPID returns the process of the CLI that runs this hook: the one that the CLI names in the environment, if this
// process is below it, else the parent.
func cliPID() int {
	parent := os.Getppid()
	named, err := strconv.Atoi(cmp.Or(os.Getenv("COPILOT_LOADER_PID"), "0"))
	if err != nil || named <= 1 {
		return parent
	}
	for pid, ok, n := parent, true, 0; ok && n < maxAncestors; n++ {
		if pid == named {
			return named
		}
		pid, ok = proc.ParentOf(pid)
	}
	return parent
}
