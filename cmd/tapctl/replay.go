package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/conformance"
	"tapgw/internal/recording"
)

// tapctl replay, which plays a recording to a provider or a gateway and compares the results.

func replayCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "replay",
		Usage:     "replay a recording against a provider, or as one against a gateway",
		ArgsUsage: "FILE -- CMD...",
		Description: `Starts the provider, sends it what the gateway of the recording sent, and compares what
it answers: which messages differ, which are missing, and which nobody expected. An answer
is awaited before the messages that followed it. Ids that the provider makes up are mapped;
placeholders such as <token-1> match any text. With - as FILE it reads stdin.

With --gateway it is the provider instead: it connects to a gateway that runs, in a local
session of its own that it ends, sends what the provider of the recording sent, makes the
tool calls that it got, and compares what the gateway answers.

Exit codes: 0 all messages are as recorded, 1 they are not.

Examples:
  tapctl replay bug.jsonl -- python3 hello.py
  tapctl replay bug.jsonl --speed 1 --ignore /data/time -- ./provider
  tapctl replay bug.jsonl --gateway ws://127.0.0.1:9400
  tapctl replay bug.jsonl --json -- node provider.mjs | jq -c '.findings[]'`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "gateway",
				Usage: "replay it against the gateway at `URL`, not a provider"},
			&ucli.StringFlag{Name: "provider",
				Usage: "replay the part of the provider `NAME` (default: the only one)"},
			&ucli.StringFlag{
				Name:  "speed",
				Value: "max",
				Usage: "`1|10|max`: as fast as it was, that many times, or as the answers come",
			},
			&ucli.DurationFlag{
				Name:  "wait",
				Value: 5 * time.Second,
				Usage: "wait `TIME` for a message that does not come",
			},
			&ucli.StringSliceFlag{Name: "ignore",
				Usage: "the value at `POINTER`, a JSON pointer into a message, may differ (may " +
					"be repeated)"},
		},
		Action: replay,
	}
}

func replay(flags *ucli.Context) error {
	file := flags.Args().First()
	if file == "" {
		return cli.Usage("FILE is missing: tapctl replay FILE -- CMD...; tapctl record writes one")
	}
	command := flags.Args().Tail()
	if flags.IsSet("gateway") == (len(command) > 0) {
		return cli.Usage(
			"name a provider or a gateway: tapctl replay %s -- CMD..., or --gateway URL",
			cli.OneLine(file),
		)
	}
	out := cli.Out(flags)
	o, err := replayOptions(flags, file, out)
	if err != nil {
		return err
	}
	ctx, cancel, err := cli.Limited(flags, 0)
	if err != nil {
		return err
	}
	defer cancel()
	var report *conformance.ReplayReport
	if flags.IsSet("gateway") {
		report, err = replayAgainstGateway(ctx, flags, o)
	} else {
		report, err = conformance.ReplayProvider(ctx, o, command)
	}
	if err != nil {
		return err
	}
	err = out.Show(report, func() error { return printFindings(out, report) })
	return cli.FailedIf(len(report.Findings) > 0, err)
}

// replayAgainstGateway starts a session for the replay, and ends it also after --timeout or Ctrl-C.
func replayAgainstGateway(
	ctx context.Context, flags *ucli.Context, o conformance.ReplayOptions,
) (*conformance.ReplayReport, error) {
	gw, err := client.New(client.Options{URL: flags.String("gateway"), Token: flags.String("token"),
		Flag: "--gateway"})
	if err != nil {
		return nil, err
	}
	defer gw.Close()
	dir, err := cli.Workdir(flags)
	if err != nil {
		return nil, err
	}
	id, err := gw.Start(ctx, adminapi.StartRequest{Host: "local", Label: "replay", CWD: dir})
	if err != nil {
		return nil, err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shortTimeout)
		defer cancel()
		_ = gw.Stop(ending, id) // the gateway may be gone
	}()
	return conformance.ReplayGateway(ctx, o, conformance.ReplayTarget{
		URL: gw.URL(), Token: gw.Token(), Session: id, Dial: gw.Dial,
		Call: func(ctx context.Context, tool string, args json.RawMessage) {
			_, _ = gw.Call(ctx, id, tool, adminapi.Call{Args: args}) // the replay sees how it ends
		},
	})
}

func replayOptions(
	flags *ucli.Context, file string, out *cli.Output,
) (o conformance.ReplayOptions, err error) {
	o.Provider, o.Patience, o.Ignore = flags.String("provider"), flags.Duration("wait"),
		flags.StringSlice("ignore")
	o.Home, _ = os.UserHomeDir()
	if o.Patience <= 0 {
		return o, cli.Usage("flag --wait: must be more than 0")
	}
	for _, pointer := range o.Ignore {
		if !strings.HasPrefix(pointer, "/") {
			return o, cli.Usage("flag --ignore: %q is no JSON pointer such as /data/time", pointer)
		}
	}
	if speed := flags.String("speed"); speed != "max" {
		if o.Speed, err = strconv.ParseFloat(speed, 64); err != nil || !(o.Speed > 0) {
			return o, cli.Usage("flag --speed: %q is neither max nor a number above 0", speed)
		}
	}
	o.Recording, err = readRecording(flags, file)
	if err != nil {
		return o, err
	}
	for _, fault := range o.Recording.Faults {
		out.Notef("%s:%d: left out, as it is no line of a recording: %s", cli.OneLine(file),
			fault.Line, cli.OneLine(fault.Message))
	}
	if o.Provider, err = conformance.ReplayedProvider(o.Recording, o.Provider); err != nil {
		return o, cli.Usage("%v", err)
	}
	return o, nil
}

func readRecording(flags *ucli.Context, file string) (*recording.File, error) {
	in := flags.App.Reader
	if file != "-" {
		f, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, cli.NotFound("replay: there is no file %s", file)
		}
		if err != nil {
			return nil, fmt.Errorf("opening the recording: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	read, err := recording.Read(in)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", cli.OneLine(file), err)
	}
	return read, nil
}

var findingInk = map[string]cli.Ink{
	conformance.FindingDiffers: cli.Red, conformance.FindingMissing: cli.Red,
	conformance.FindingUnexpected: cli.Yellow,
}

func printFindings(out *cli.Output, r *conformance.ReplayReport) error {
	counts := map[string]int{}
	for _, f := range r.Findings {
		counts[f.Kind]++
		where := ""
		if f.Line > 0 {
			where = fmt.Sprintf("line %d: ", f.Line)
		}
		lines := []string{out.Paint(findingInk[f.Kind], f.Kind) + "  " + where +
			cli.OneLine(f.Type)}
		if f.Kind == conformance.FindingUnexpected {
			lines[0] += "  " + shortJSON(f.Replayed)
		}
		for _, d := range f.Differences {
			lines = append(lines, fmt.Sprintf("  %s: recorded %s, now %s", cli.OneLine(d.Path),
				shortJSON(d.Recorded), shortJSON(d.Replayed)))
		}
		if err := out.Printf("%s\n", strings.Join(lines, "\n")); err != nil {
			return err
		}
	}
	if len(r.Findings) > 0 && len(r.Output) > 0 {
		out.Notef("the last lines that it printed:")
		for _, line := range r.Output {
			out.Notef("  %s", cli.Clean(line))
		}
	}
	if r.Gap > 0 {
		out.Notef("the recording lacks %d lines, so some findings may not be faults", r.Gap)
	}
	if r.Skipped > 0 {
		out.Notef(
			"%d lines were left out: they depend on others, or are not whole in the recording",
			r.Skipped)
	}
	return out.Printf("%d sent, %d as recorded, %d differ, %d missing, %d unexpected: %s\n", r.Sent,
		r.Equal, counts[conformance.FindingDiffers], counts[conformance.FindingMissing],
		counts[conformance.FindingUnexpected], cli.OneLine(r.Subject))
}

func shortJSON(text json.RawMessage) string {
	if text == nil {
		return "nothing"
	}
	return cli.Shorten(cli.OneLine(string(text)), 200)
}
