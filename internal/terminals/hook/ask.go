package hook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

const (
	// deadline bounds a hook's time. The CLI lets a call through when its own timeout for the hook
	// is over, which is 30 seconds. Gates have 5 seconds, required providers 10, and a gateway that
	// has just started waits 5 for others.
	deadline = 25 * time.Second
	// maxInput is the longest text of a hook, with room for the request around it.
	maxInput = protocol.MaxMessage - 1<<10
	// maxDrained is how much of a longer text is read and thrown away, so that the CLI can write
	// it.
	maxDrained = 256 << 20
	// maxAncestors is how far above this process its CLI may be.
	maxAncestors = 16
)

// Run answers a hook of the CLI: it reads the hook's text, asks the gateway, and returns the text
// for the CLI and a note for people, which may be "". It returns within 25 seconds, and does not
// wait for a read that hangs. While no gateway runs, the user's settings decide; settings reads
// them.
func Run(
	ctx context.Context, event string, stdin io.Reader, settings func() (configs.Config, error),
) (output []byte, note string) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	answers := make(chan result, 1)
	// A read of stdin can't be interrupted, so this process ends without waiting for it.
	go func() { answers <- ask(ctx, event, stdin, settings) }()
	select {
	case r := <-answers:
		return r.output, r.note
	case <-ctx.Done():
		return Denial(event, "tapgw: the gateway did not answer in time, so this is not allowed"),
			""
	}
}

// result is the text for the CLI, and a note for people on stderr, which may be empty.
type result struct {
	output []byte
	note   string
}

// Print prints an answer. After an error the exit code must be 2, the one that the CLI takes for a
// denial.
func Print(w io.Writer, event string, output []byte) error {
	if f, ok := w.(*os.File); ok && Decides(event) && isNowhere(f) {
		return cli.Usage("stdout leads nowhere, so the CLI would not read a denial")
	}
	if _, err := w.Write(append(output, '\n')); err != nil {
		return cli.Usage("printing the answer: %v", err)
	}
	return nil
}

// isNowhere reports whether a file is /dev/null. The Go runtime opens it in place of a closed
// stdout.
func isNowhere(f *os.File) bool {
	null, err := os.Stat(os.DevNull)
	if err != nil {
		return false
	}
	info, err := f.Stat()
	return err != nil || os.SameFile(info, null)
}

// ask asks the gateway about a hook. At the events that decide about a tool call, any failure is a
// denial.
func ask(
	ctx context.Context, event string, stdin io.Reader, settings func() (configs.Config, error),
) result {
	output, err := askGateway(ctx, event, stdin)
	if err == nil {
		return result{output: output}
	}
	if errors.Is(err, client.ErrNone) {
		return withoutGateway(event, settings)
	}
	note := visible.Line(fmt.Sprintf("tapgw could not ask the gateway, so this is not allowed: %v",
		err))
	return result{Denial(event, note), note}
}

func askGateway(ctx context.Context, event string, stdin io.Reader) ([]byte, error) {
	input, err := readInput(stdin)
	if err != nil {
		return nil, err
	}
	gw, err := client.New(client.Options{Flag: client.EnvURL, Once: true})
	if err != nil {
		return nil, err
	}
	output, err := gw.TerminalHook(ctx, adminapi.TerminalHook{Event: event, PID: cliProcess(),
		Input: input})
	if err != nil {
		return nil, err
	}
	return output, CheckOutput(event, output)
}

// readInput reads the text of a hook, which must be JSON.
func readInput(r io.Reader) (json.RawMessage, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the hook: %w", err)
	case len(data) > maxInput:
		_, _ = io.CopyN(io.Discard, r, maxDrained)
		return nil, fmt.Errorf("the call is too long to ask about: more than %d bytes", maxInput)
	case !json.Valid(data):
		return nil, errors.New("the hook's text is not JSON")
	}
	return data, nil
}

// withoutGateway is the answer while no gateway runs. Only the user's own file counts, so that a
// project can't allow calls that the user has forbidden.
func withoutGateway(event string, settings func() (configs.Config, error)) result {
	if !Decides(event) {
		return result{output: Allowance(event)}
	}
	config, err := settings()
	switch {
	case err != nil:
		return result{output: Denial(event, visible.Line(fmt.Sprintf(
			"no gateway of tapgw runs, and its settings can't be read, so this is not allowed: %v",
			err)))}
	case config.Terminals.WithoutGateway == configs.TerminalsAllow:
		note := "no gateway runs, so no gate is asked (terminals.without_gateway)"
		return result{Allowance(event), note}
	}
	return result{output: Denial(event,
		`no gateway of tapgw runs, and terminals.without_gateway is "deny": start one with tapgw ensure`)}
}

// cliProcess returns the process of the CLI that runs this hook: the process that the CLI names in
// the environment, if it is an ancestor of this process, else the parent.
func cliProcess() int {
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
