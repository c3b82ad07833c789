package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/conformance"
	"tapgw/internal/proc"
)

func conformanceCommand() *ucli.Command {
	return &ucli.Command{
		Name: "conformance", Usage: "judge a provider in any language, or a gateway, by the rules of the protocol",
		ArgsUsage: "-- CMD...",
		Description: `Starts a provider as a gateway would, plays the gateway for it, and names each rule of
docs/protocol.md that it breaks. No gateway need run. docs/conformance.md has the rules.

The kit calls the provider's tools, often and with wrong arguments too: name one that does
no harm with --tool. Rules that need a call that still runs are skipped without --slow-tool,
a tool that runs until it is cancelled.

With --url the kit listens there, at a port of this machine, and waits for a provider that
you start yourself, with that URL and the token of --token; without --token, the kit makes
one and prints it. Rules about the provider's process are then skipped.

With --gateway the kit judges the gateway that runs there, by its admin token. It is a
provider and a session host with sessions of its own, which it ends. Providers for all
sessions join these too: judge a gateway without any.

With --sdk, CMD is the sample program of an SDK: the kit runs CMD NAME for each scenario
that the SDKs of tapgw share.

Exit codes: 0 if no rule failed, 1 if one did, 2 wrong usage, 3 gateway not reachable.

Examples:
  tapctl conformance -- python3 hello.py
  tapctl conformance --junit report.xml --tool greet --args '{"name":"you"}' -- ./provider
  tapctl conformance --url ws://127.0.0.1:9555
  tapctl conformance --gateway ws://127.0.0.1:9400
  tapctl conformance --sdk -- python3 sample.py`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "junit", Usage: "also write the report to `FILE` as JUnit XML"},
			&ucli.StringFlag{Name: "gateway", Usage: "judge the gateway at `URL`, not a provider"},
			&ucli.BoolFlag{Name: "sdk", Usage: "play the scenarios of the SDKs with the sample program CMD"},
			&ucli.StringFlag{
				Name:  "tool",
				Usage: "call the tool `NAME` (default: one whose arguments the kit can make)",
			},
			&ucli.StringFlag{Name: "args", Usage: "its arguments, a `JSON` object", Value: "{}"},
			&ucli.StringFlag{Name: "slow-tool", Usage: "the tool `NAME` runs until it is cancelled"},
			&ucli.StringFlag{Name: "slow-args", Usage: "its arguments, a `JSON` object", Value: "{}"},
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
	if flags.IsSet("gateway") {
		return conformGateway(flags)
	}
	switch {
	case (o.URL == "") == (len(command) == 0):
		return cli.Usage(
			"conformance: needs a command behind --, --url or --gateway; for example tapctl conformance -- ./provider",
		)
	case flags.Bool("sdk") && o.URL != "":
		return cli.Usage("flag --sdk: needs the sample program behind --, not --url")
	case flags.Bool("sdk"):
		return judge(flags, func(ctx context.Context, each func(conformance.Result)) (*conformance.Report, error) {
			return conformance.SDK(ctx, command, each)
		})
	}
	var err error
	if o.Args, err = toolArgs(flags, "args"); err != nil {
		return err
	}
	if o.SlowArgs, err = toolArgs(flags, "slow-args"); err != nil {
		return err
	}
	out, known := cli.Out(flags), o.Token != ""
	o.Waiting = func(url, token string) {
		text := fmt.Sprintf("waiting for a provider: start it with TAP_GATEWAY_URL=%s", url)
		if !known {
			text += " TAP_PROVIDER_TOKEN=" + token
		}
		_, _ = fmt.Fprintln(out.Err, text)
	}
	if o.URL != "" {
		o.Pairing = func(code string) {
			_, _ = fmt.Fprintf(out.Err, "the provider asks for a pairing code: %s\n", code)
		}
	}
	return judge(flags, func(ctx context.Context, each func(conformance.Result)) (*conformance.Report, error) {
		return conformance.Provider(ctx, o, each)
	})
}

// conformGateway judges a gateway. Sessions and connections of the kit end also after --timeout or Ctrl-C.
func conformGateway(flags *ucli.Context) error {
	if flags.NArg() > 0 {
		return cli.Usage("flag --gateway: judges a gateway that runs; leave the command out")
	}
	for _, other := range []string{"url", "sdk", "tool", "args", "slow-tool", "slow-args"} {
		if flags.IsSet(other) {
			return cli.Usage("flag --gateway: judges a gateway; leave out --%s, which is for providers", other)
		}
	}
	gw, err := client.New(client.Options{URL: flags.String("gateway"), Token: flags.String("token"), Flag: "--gateway"})
	if err != nil {
		return err
	}
	defer gw.Close()
	return judge(flags, func(ctx context.Context, each func(conformance.Result)) (*conformance.Report, error) {
		o := conformance.GatewayOptions{URL: gw.URL(), Token: gw.Token(), Dial: gw.Dial}
		return conformance.Gateway(ctx, o, each)
	})
}

// toolArgs returns the JSON object that a flag has.
func toolArgs(flags *ucli.Context, name string) (json.RawMessage, error) {
	args := json.RawMessage(strings.TrimSpace(flags.String(name)))
	if !json.Valid(args) || args[0] != '{' {
		return nil, cli.Usage("flag --%s: must be a JSON object like {\"name\":\"you\"}, got %s", name,
			cli.Shorten(string(args), 60))
	}
	return args, nil
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
