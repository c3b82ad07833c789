package main

import (
	"context"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/conformance"
	"tapgw/internal/proc"
)

func conformanceCommand() *ucli.Command {
	return &ucli.Command{
		Name: "conformance", Usage: "judge a provider, in any language, by the rules of the protocol",
		ArgsUsage: "-- CMD...",
		Description: `Starts a provider as a gateway would, plays the gateway for it, and names each rule of
docs/protocol.md that it breaks. It calls the provider's tools: name one that does no
harm with --tool.

Examples:
  tapctl conformance -- python3 hello.py
  tapctl conformance --junit report.xml --tool greet --args '{"name":"you"}' -- ./provider`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "junit", Usage: "also write the report to `FILE` as JUnit XML"},
		},
		Action: func(flags *ucli.Context) error { return judge(flags, nil) },
	}
}

// kit runs one of the kits. It calls each with every result as soon as the result is known.
type kit func(ctx context.Context, each func(conformance.Result)) (*conformance.Report, error)

// judge runs a kit and reports what it finds: each result as it comes, or with --json all of them at the end. The exit
// code is 1 if a rule failed.
func judge(flags *ucli.Context, run kit) error {
	ctx, out := flags.Context, cli.Out(flags)
	if timeout := flags.Duration("timeout"); flags.IsSet("timeout") {
		if timeout <= 0 {
			return cli.Usage("flag --timeout: must be more than 0")
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	report, err := run(ctx, func(r conformance.Result) {
		if !out.JSON {
			_ = printResult(out, r)
		}
	})
	if err != nil {
		return err
	}
	if file := flags.String("junit"); file != "" {
		text, err := report.JUnit()
		if err != nil {
			return err
		}
		if err := proc.WritePrivate(file, text); err != nil {
			return err
		}
	}
	if out.JSON {
		err = out.Document(report)
	} else {
		err = printSummary(out, report)
	}
	if err != nil || report.Failed == 0 {
		return err
	}
	return cli.Reported(cli.ExitFailed)
}

var resultInk = map[conformance.Outcome]cli.Ink{
	conformance.Passed: cli.Green, conformance.Failed: cli.Red, conformance.Skipped: cli.Yellow,
}

// printResult prints a result: a line, and for a failed rule three more.
func printResult(out *cli.Output, r conformance.Result) error {
	text := r.Title
	if r.Outcome == conformance.Skipped {
		text += ": " + cli.OneLine(r.Reason)
	}
	if r.Outcome == conformance.Failed {
		text += "\n         " + strings.ReplaceAll(strings.TrimSpace(r.Explanation()), "\n", "\n         ")
	}
	word := out.Paint(resultInk[r.Outcome], string(r.Outcome)) + strings.Repeat(" ", 9-len(r.Outcome))
	return out.Printf("%s%-24s %s\n", word, r.ID, text)
}

// printSummary prints how many rules have which outcome, and if one failed, what the judged program wrote to stderr.
func printSummary(out *cli.Output, r *conformance.Report) error {
	if r.Failed > 0 && len(r.Stderr) > 0 {
		out.Notef("the last lines that it wrote to stderr:")
		for _, line := range r.Stderr {
			out.Notef("  %s", cli.Clean(line))
		}
	}
	return out.Printf("%d passed, %d failed, %d skipped: %s\n", r.Passed, r.Failed, r.Skipped, cli.OneLine(r.Subject))
}
