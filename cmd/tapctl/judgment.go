package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"tapgw/internal/cli"
	"tapgw/internal/conformance"
	"tapgw/internal/terminal/status"
)

// judgment shows the progress of a run of a kit: the results, and on a terminal a line with the
// rule that is judged now. The run ends when stdout's reader has gone.
type judgment struct {
	out    *cli.Output
	rules  int          // of the kit
	judged int          // so far
	line   *status.Line // nil: no person looks at stderr
	cancel context.CancelCauseFunc
	pipes  chan os.Signal
}

// newJudgment begins a judgment of so many rules. Run the kit with the returned context. The caller
// ends the judgment with close.
func newJudgment(ctx context.Context, out *cli.Output, rules int) (*judgment, context.Context) {
	j := &judgment{out: out, rules: rules, pipes: make(chan os.Signal, 1)}
	ctx, j.cancel = context.WithCancelCause(ctx)
	// Without this, the first result after the pipe's reader has gone would kill tapctl, and leave
	// the judged program running.
	signal.Notify(j.pipes, syscall.SIGPIPE)
	if cli.Foreground(out.Err) && cli.Color(out.Err) {
		j.line = status.New(out.Err, out.W, true)
		out.Err = j.line.Writer(out.Err)
		if out.Terminal {
			out.W = j.line.Writer(out.W)
		}
		context.AfterFunc(ctx, j.line.Close) // a second Ctrl-C ends the program
	}
	return j, ctx
}

// begin shows the rule that is judged now.
func (j *judgment) begin(r conformance.Rule) {
	if j.line != nil {
		j.line.Working(fmt.Sprintf("judging %d of %d: %s", min(j.judged+1, j.rules), j.rules,
			r.Title))
	}
}

// end prints a result.
func (j *judgment) end(r conformance.Result) {
	j.judged++
	if j.out.JSON {
		return
	}
	if err := printResult(j.out, r); errors.Is(err, syscall.EPIPE) {
		j.cancel(cli.Reported(cli.ExitFailed)) // as any program does when its reader has gone
	} else if err != nil {
		j.cancel(err)
	}
}

// close clears the line.
func (j *judgment) close() {
	if j.line != nil {
		j.line.Close()
	}
	j.cancel(nil)
	signal.Stop(j.pipes)
}

// awaitProvider tells the person how to start the provider, and the code that it is to be paired
// with.
func (j *judgment) awaitProvider(o *conformance.ProviderOptions) {
	known := o.Token != ""
	o.Waiting = func(url, token string) {
		text := "waiting for a provider: start it with TAP_GATEWAY_URL=" + url
		if !known {
			text += " TAP_PROVIDER_TOKEN=" + token
		}
		_, _ = fmt.Fprintln(j.out.Err, text)
	}
	o.Pairing = func(code string) {
		_, _ = fmt.Fprintf(j.out.Err, "the provider asks for a pairing code: %s\n", code)
	}
}

var resultInk = map[conformance.Outcome]cli.Ink{
	conformance.Passed: cli.Green, conformance.Failed: cli.Red, conformance.Advice: cli.Yellow,
	conformance.Skipped: cli.Dim,
}

// printResult prints a result: a line, and for a broken rule three more. The outcome failed is
// printed as "broken", because a failed piece of advice is no failure.
func printResult(out *cli.Output, r conformance.Result) error {
	word, text := string(r.Outcome), r.Title
	if r.Outcome == conformance.Failed {
		word = "broken"
	}
	switch r.Outcome {
	case conformance.Failed, conformance.Advice:
		text += "\n         " + strings.ReplaceAll(strings.TrimSpace(r.Explanation()), "\n",
			"\n         ")
	case conformance.Skipped:
		text += ": " + cli.OneLine(r.Reason)
	case conformance.Passed:
	}
	gap := strings.Repeat(" ", 9-len(word))
	return out.Printf("%s%s%-24s %s\n", out.Paint(resultInk[r.Outcome], word), gap, r.ID, text)
}

// printSummary prints the number of rules with each outcome, and if a rule is broken, the judged
// program's stderr.
func printSummary(out *cli.Output, r *conformance.Report) error {
	if r.Failed > 0 && len(r.Stderr) > 0 {
		out.Notef("the last lines that it wrote to stderr:")
		for _, line := range r.Stderr {
			out.Notef("  %s", cli.Clean(line))
		}
	}
	return out.Printf("%d passed, %d broken, %d advice, %d skipped: %s\n", r.Passed, r.Failed,
		r.Advice, r.Skipped, cli.OneLine(r.Subject))
}
