package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/evals"
	"tapgw/internal/proc"
)

func evalsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "evals",
		Usage: "run cases in sessions, and measure how often they pass",
		Description: "Examples:\n  tapctl evals run evals --repeat 10\n  tapctl evals optimize " +
			"evals --repeat 30",
		Subcommands: []*ucli.Command{evalsRunCommand(), evalsOptimizeCommand()},
	}
}

func evalsRunCommand() *ucli.Command {
	return &ucli.Command{
		Name: "run", Usage: "run the cases of a directory, and judge what the sessions did",
		ArgsUsage: "DIR",
		Description: `Each run has a session and a workspace of its own, which end with it, also at Ctrl-C. A case
is a file NAME.toml: docs/evals.md describes it. A case may name programs to run, or have a
session run what its prompt says, so look at cases of others first. Permissions that a
session asks for are denied without --allow.

A local session has no model: only prompts "call:NAME {json}" do something there, and what
a model has to judge needs --no-judge.

Exit codes: 0 all cases passed, 1 one did not, 2 wrong usage or a wrong case, 3 gateway not
reachable, 4 there is no DIR.

Examples:
  tapctl evals run evals --dry-run
  tapctl evals run evals --case weather --repeat 20 --concurrency 4
  tapctl evals run evals --host local --no-judge
  tapctl evals run evals --model gpt-5-mini --judge-model gpt-5 --artifacts out --json`,
		Flags: append([]ucli.Flag{
			&ucli.BoolFlag{Name: "dry-run",
				Usage: "check the cases and list them; it needs no gateway"},
			&ucli.StringFlag{Name: "junit", Usage: "also write the report to `FILE` as JUnit XML"},
		}, evalsFlags()...),
		BashComplete: completeEvalCase(),
		Action:       func(flags *ucli.Context) error { return evalsAction(flags, runEvals) },
	}
}

func evalsOptimizeCommand() *ucli.Command {
	return &ucli.Command{
		Name: "optimize", Usage: "measure which changes of descriptions and prompts help",
		ArgsUsage: "DIR",
		Description: `The files in DIR/variants change descriptions of tools, contexts of providers, or prompts;
docs/evals.md describes them. Each case is run with each variant that changes something in
it, and as it is, in turns. The variants are ranked by how many more runs pass, with the
95 % interval of the difference: one around 0 is noise. Nothing is written into DIR.

Exit codes: 0 all runs were made, 1 some were not, 2 wrong usage or a wrong file, 3 gateway
not reachable, 4 there is no DIR, or none for variants in it.

Examples:
  tapctl evals optimize evals --repeat 30 --concurrency 4
  tapctl evals optimize evals --case weather --json | jq '.variants[0]'`,
		Flags:        evalsFlags(),
		BashComplete: completeEvalCase(),
		Action:       func(flags *ucli.Context) error { return evalsAction(flags, optimizeEvals) },
	}
}

func evalsFlags() []ucli.Flag {
	return append([]ucli.Flag{
		&ucli.StringSliceFlag{Name: "case", Usage: "only the case `ID` (repeatable)"},
		&ucli.IntFlag{Name: "repeat",
			Usage: "run each case `N` times (default: what the cases say)"},
		&ucli.IntFlag{Name: "concurrency", Usage: "`N` runs at the same time", Value: 2},
		&ucli.StringFlag{Name: "host", Usage: "`local|copilot`: what runs the sessions",
			Value: "copilot"},
		&ucli.StringFlag{Name: "judge-model",
			Usage: "the `MODEL` that judges (default: that of the sessions)"},
		&ucli.BoolFlag{Name: "no-judge", Usage: "leave out what a model has to judge"},
		&ucli.BoolFlag{Name: "allow",
			Usage: "allow what the sessions ask permission for, on this machine"},
		&ucli.StringFlag{Name: "artifacts", Usage: "write a transcript of each run into `DIR`"},
	}, settingsFlags()...)
}

// completeEvalCase completes the value of --case from the directory that is named.
func completeEvalCase() ucli.BashCompleteFunc {
	return func(flags *ucli.Context) {
		if cli.Completing(flags) != "case" || flags.NArg() == 0 {
			return
		}
		cases, _ := configs.EvalCases(flags.Args().First())
		for _, c := range cases {
			cli.Candidate(flags, c.ID, c.Title)
		}
	}
}

// evalsAction reads the cases before it looks for a gateway.
func evalsAction(
	flags *ucli.Context, do func(*command, evals.Options, []configs.EvalCase) error,
) error {
	if err := cli.MaxArgs(flags, 1); err != nil {
		return err
	}
	if flags.Args().First() == "" {
		return cli.Usage("DIR is missing: the directory with the cases")
	}
	dir, err := inWorkdir(flags, flags.Args().First())
	if err != nil {
		return err
	}
	cases, err := readCases(flags, dir)
	if err != nil {
		return err
	}
	if flags.Bool("dry-run") {
		return listCases(cli.Out(flags), cases)
	}
	return longAction(1, func(c *command) error {
		o, err := c.evalsOptions(cases)
		if err != nil {
			return err
		}
		return do(c, o, cases)
	})(flags)
}

// inWorkdir returns a path that the user gave, relative to the directory of -w; without -w it
// returns the path unchanged.
func inWorkdir(flags *ucli.Context, path string) (string, error) {
	if path == "" || flags.String("workdir") == "" || filepath.IsAbs(path) {
		return path, nil
	}
	dir, err := cli.Workdir(flags)
	return filepath.Join(dir, path), err
}

// readCases reads the cases of a directory that --case names, else all, with the number of runs
// that --repeat says.
func readCases(flags *ucli.Context, dir string) ([]configs.EvalCase, error) {
	cases, err := configs.EvalCases(dir)
	if err != nil {
		return nil, wrongFiles(cli.Out(flags), dir, err)
	}
	if repeat := flags.Int("repeat"); flags.IsSet("repeat") {
		if repeat < 1 || repeat > 1000 {
			return nil, cli.Usage("flag --repeat: must be from 1 to 1000")
		}
		for i := range cases {
			cases[i].Repeat = repeat
		}
	}
	names := flags.StringSlice("case")
	if len(names) == 0 {
		return cases, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(cases, func(c configs.EvalCase) bool { return c.ID == name }) {
			var ids []string
			for _, c := range cases {
				ids = append(ids, c.ID)
			}
			return nil, cli.Usage(
				"flag --case: there is no case %s, but %s",
				cli.OneLine(name),
				strings.Join(ids, ", "),
			)
		}
	}
	return slices.DeleteFunc(cases, func(c configs.EvalCase) bool {
		return !slices.Contains(names, c.ID)
	}), nil
}

// wrongFiles shows all faults of the files of a directory, and returns an error with exit code 2,
// or 4 if the directory is not there.
func wrongFiles(out *cli.Output, dir string, err error) error {
	if _, missing := os.Stat(dir); errors.Is(missing, fs.ErrNotExist) {
		return cli.NotFound("there is no directory %s", dir)
	}
	if faults, ok := errors.AsType[configs.Faults](err); ok {
		for _, f := range faults[1:] {
			out.Notef("%s", f.Error())
		}
		err = faults[0]
	}
	return &cli.Error{Exit: cli.ExitUsage, Code: cli.CodeUsage, Message: err.Error()}
}

func listCases(out *cli.Output, cases []configs.EvalCase) error {
	type listed struct {
		ID       string `json:"id"`
		Title    string `json:"title"`
		Category string `json:"category,omitempty"`
		Repeat   int    `json:"repeat"`
		Judge    bool   `json:"judge"`
		File     string `json:"file"`
	}
	t := &cli.Table{Columns: []string{"CASE", "CATEGORY", "RUNS", "JUDGE", "TITLE"}}
	var all []listed
	for _, c := range cases {
		judge := ""
		if c.NeedsJudge() {
			judge = "yes"
		}
		t.Row(c.ID, c.Category, c.Repeat, judge, c.Title)
		all = append(all, listed{c.ID, c.Title, c.Category, c.Repeat, c.NeedsJudge(), c.File})
	}
	return out.List(all, t, "no cases")
}

// evalsOptions reads the flags.
func (c *command) evalsOptions(cases []configs.EvalCase) (evals.Options, error) {
	o := evals.Options{Gateway: c.gw, JudgeModel: c.String("judge-model"),
		NoJudge: c.Bool("no-judge"), Allow: c.Bool("allow"), Concurrency: c.Int("concurrency")}
	var err error
	if o.Host, err = cli.OneOf(c.Context, "host", "local", "copilot"); err != nil {
		return o, err
	}
	if o.Settings, err = c.modelSettings(); err != nil {
		return o, err
	}
	if o.Concurrency < 1 || o.Concurrency > 100 {
		return o, cli.Usage("flag --concurrency: must be from 1 to 100")
	}
	if needs := slices.IndexFunc(cases, func(c configs.EvalCase) bool {
		return c.NeedsJudge()
	}); needs >= 0 &&
		o.Host == "local" && !o.NoJudge {
		return o,
			cli.Usage(
				"flag --host: a local session has no model that could judge the case %s; "+
					"add --no-judge",
				cases[needs].ID)
	}
	if dir := c.String("artifacts"); dir != "" {
		if dir, err = inWorkdir(c.Context, dir); err == nil {
			o.Artifacts, err = filepath.Abs(dir)
		}
		if err == nil {
			err = os.MkdirAll(o.Artifacts, 0o700)
		}
		if err != nil {
			return o, cli.Usage("flag --artifacts: making the directory: %v", err)
		}
	}
	o.Ended = c.showRun
	return o, c.nameAbandoned()
}

// nameAbandoned names the sessions of earlier runs that are left because their tapctl was killed.
func (c *command) nameAbandoned() error {
	ctx, cancel := context.WithTimeout(c.ctx, shortTimeout)
	defer cancel()
	sessions, err := c.gw.Sessions(ctx)
	if err != nil {
		return err
	}
	for _, s := range evals.Abandoned(sessions) {
		c.out.Notef(
			"a session of an earlier run that was killed is left: tapctl sessions stop %s; "+
				"then remove %s",
			s.ID, cli.OneLine(s.CWD))
	}
	return nil
}

var evalInk = map[string]cli.Ink{evals.Passed: cli.Green, evals.Failed: cli.Red,
	evals.Broken: cli.Red, evals.Undecided: cli.Yellow}

// showRun shows on stderr that a run has ended.
func (c *command) showRun(r evals.Result) {
	name := r.Case
	if r.Variant != "" {
		name += ", " + r.Variant
	}
	line := fmt.Sprintf("%s run %d: %s (%s)", name, r.Run, r.State, milliseconds(r.DurationMs))
	if why := r.Why(); why != "" {
		line += ": " + cli.Shorten(cli.OneLine(why), 200)
	}
	c.out.Notef("%s", line)
}

func milliseconds(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(10 * time.Millisecond).String()
}

func runEvals(c *command, o evals.Options, cases []configs.EvalCase) error {
	file, err := inWorkdir(c.Context, c.String("junit"))
	if err != nil {
		return err
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return cli.Usage("flag --junit: there is no directory %s", cli.OneLine(filepath.Dir(file)))
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return cli.Usage("flag --junit: %s is a directory", cli.OneLine(file))
	}
	report, cut := evals.Run(c.ctx, o, cases)
	if file != "" {
		text, err := report.JUnit()
		if err == nil {
			err = proc.WritePrivate(file, text)
		}
		if err != nil { // the runs were made, so they are reported
			err = fmt.Errorf("writing the JUnit report: %w", err)
			report.Error = cmp.Or(report.Error, err.Error())
			cut = errors.Join(cut, err)
		}
	}
	if err := printEvals(c.out, report); err != nil {
		return err
	}
	return evalsEnd(c.out, cut, report.State == evals.Passed)
}

// evalsEnd returns the error that the command ends with. A report of --json has it already.
func evalsEnd(out *cli.Output, cut error, isGood bool) error {
	switch {
	case cut != nil && out.JSON:
		return cli.Reported(cli.AsError(cut).Exit)
	case cut != nil:
		return cut
	case !isGood:
		return cli.Reported(cli.ExitFailed)
	}
	return nil
}

func printEvals(out *cli.Output, r *evals.Report) error {
	t := &cli.Table{
		Columns: []string{"CASE", "STATE", "PASSED", "RATE", "95 %", "TIME", "CALLS", "TOKENS",
			"WHY"},
		Ink: func(state string) cli.Ink { return evalInk[state] }, Inked: 1,
	}
	for _, c := range r.Cases {
		why := ""
		for _, run := range c.Results {
			if run.State != evals.Passed {
				why = run.Why()
				break
			}
		}
		t.Row(c.ID, c.State, fmt.Sprintf("%d/%d", c.Passed, c.Decided), percent(c.Rate),
			percent(c.Low)+"-"+percent(c.High), milliseconds(c.DurationMs),
			fmt.Sprintf("%.1f", c.Calls), fmt.Sprintf("%.0f", c.Tokens),
			cli.Shorten(cli.OneLine(why), 120))
	}
	if err := out.List(r, t, "no case was run"); err != nil {
		return err
	}
	for _, c := range r.Cases {
		for _, wrong := range c.Judge {
			out.Notef("the judge is wrong about an example of %s: %s", c.ID, cli.OneLine(wrong))
		}
	}
	return nil
}

func percent(rate float64) string { return fmt.Sprintf("%.0f %%", 100*rate) }
