package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/conformance"
	"tapgw/internal/proc"
)

func conformanceCommand() *ucli.Command {
	return &ucli.Command{
		Name: "conformance", Usage: "judge a provider in any language by the rules of the protocol",
		ArgsUsage: "-- CMD...",
		Description: `Starts a provider as a gateway would, plays the gateway for it, and names each rule of
docs/protocol.md that it does not keep: broken if a specification demands it, else advice.
No gateway need run. docs/conformance.md has the rules.

The kit calls the provider's tools, often and with wrong arguments too: name one that does
no harm with --tool. Rules that need a call that still runs are skipped without --slow-tool,
a tool that runs until it is cancelled.

With --url the kit listens there, at a port of this machine, and waits for a provider that
you start yourself, with that URL and the token of --token; without --token, the kit makes
one and prints it. Rules about the provider's process are then skipped.

With --sdk, CMD is the sample program of an SDK: the kit runs CMD NAME for each scenario
that the SDKs of tapgw share.

Exit codes: 0 if no rule is broken, 1 if one is, 2 wrong usage.

Examples:
  tapctl conformance -- python3 hello.py
  tapctl conformance --junit report.xml --tool greet --args '{"name":"you"}' -- ./provider
  tapctl conformance --url ws://127.0.0.1:9555
  tapctl conformance --sdk -- python3 sample.py`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "junit", Usage: "also write the report to `FILE` as JUnit XML"},
			&ucli.BoolFlag{Name: "sdk",
				Usage: "play the scenarios of the SDKs with the sample program CMD"},
			&ucli.StringFlag{
				Name:  "tool",
				Usage: "call the tool `NAME` (default: one whose arguments the kit can make)",
			},
			&ucli.StringFlag{Name: "args", Usage: "its arguments, a `JSON` object", Value: "{}"},
			&ucli.StringFlag{Name: "slow-tool",
				Usage: "the tool `NAME` runs until it is cancelled"},
			&ucli.StringFlag{Name: "slow-args", Usage: "its arguments, a `JSON` object",
				Value: "{}"},
		},
		Action: conform,
	}
}

func conform(flags *ucli.Context) error {
	command := flags.Args().Slice()
	o := conformance.ProviderOptions{
		Command: command, URL: flags.String("url"), Token: flags.String("token"),
		Tool: flags.String("tool"), SlowTool: flags.String("slow-tool"),
	}
	if o.URL != "" {
		if _, err := conformance.ListenAddress(o.URL); err != nil {
			return cli.Usage("flag --url: %v", err)
		}
	}
	switch {
	case (o.URL == "") == (len(command) == 0):
		return cli.Usage("conformance: needs a command behind --, or --url; for example " +
			"tapctl conformance -- ./provider")
	case flags.Bool("sdk") && o.URL != "":
		return cli.Usage("flag --sdk: needs the sample program behind --, not --url")
	case flags.Bool("sdk"):
		for _, other := range []string{"tool", "args", "slow-tool", "slow-args"} {
			if flags.IsSet(other) {
				return cli.Usage("flag --sdk: the scenarios name the tools; leave out --%s", other)
			}
		}
		all, err := conformance.Scenarios()
		if err != nil {
			return err
		}
		return judge(flags, len(all), func(ctx context.Context, j *judgment) (*conformance.Report,
			error) {
			return conformance.SDK(ctx, command, j.begin, j.end)
		})
	}
	var err error
	if o.Args, err = toolArgs(flags, "args"); err != nil {
		return err
	}
	if o.SlowArgs, err = toolArgs(flags, "slow-args"); err != nil {
		return err
	}
	return judge(flags, len(conformance.ProviderRules()),
		func(ctx context.Context, j *judgment) (*conformance.Report, error) {
			if o.URL != "" {
				j.awaitProvider(&o)
			}
			o.Begin = j.begin
			return conformance.Provider(ctx, o, j.end)
		})
}

// toolArgs returns the JSON object that a flag has.
func toolArgs(flags *ucli.Context, name string) (json.RawMessage, error) {
	args := json.RawMessage(strings.TrimSpace(flags.String(name)))
	if !json.Valid(args) || args[0] != '{' {
		return nil, cli.Usage("flag --%s: must be a JSON object like {\"name\":\"you\"}, got %s",
			name, cli.Shorten(string(args), 60))
	}
	return args, nil
}

// kit runs one of the kits, and tells the judgment of each rule.
type kit func(ctx context.Context, j *judgment) (*conformance.Report, error)

// judge runs a kit and reports its results: each one as it comes, or with --json all of them at the
// end. The exit code is 1 if a rule is broken.
func judge(flags *ucli.Context, rules int, run kit) error {
	ctx, cancel, err := cli.Limited(flags, 0)
	if err != nil {
		return err
	}
	defer cancel()
	out, file := cli.Out(flags), flags.String("junit")
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return cli.Usage("flag --junit: there is no directory %s", filepath.Dir(file))
	}
	j, ctx := newJudgment(ctx, out, rules)
	report, cut := run(ctx, j)
	j.close()
	if file != "" && report != nil {
		text, err := report.JUnit(cut)
		if err == nil {
			err = proc.WritePrivate(file, text)
		}
		if err != nil {
			return errors.Join(cut, err)
		}
	}
	if cut != nil {
		return cut
	}
	err = out.Show(report, func() error { return printSummary(out, report) })
	return cli.FailedIf(report.Failed > 0, err)
}
