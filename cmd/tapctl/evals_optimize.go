package main

import (
	"fmt"
	"path/filepath"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/evals"
)

func optimizeEvals(c *command, o evals.Options, cases []configs.EvalCase) error {
	dir, err := inWorkdir(c.Context, c.Args().First())
	if err != nil {
		return err
	}
	variants, err := configs.EvalVariants(dir)
	if err != nil {
		return wrongFiles(c.out, filepath.Join(dir, configs.EvalVariantsDir), err)
	}
	ranking, cut := evals.Optimize(c.ctx, o, cases, variants)
	if ranking == nil {
		return cut
	}
	if err := printRanking(c.out, ranking); err != nil {
		return err
	}
	isWhole := true
	for _, r := range ranking.Results {
		isWhole = isWhole && r.State != evals.Broken && r.State != evals.Undecided
	}
	return evalsEnd(c.out, cut, isWhole)
}

var verdictInk = map[string]cli.Ink{evals.Better: cli.Green, evals.Worse: cli.Red,
	evals.Noise: cli.Dim}

func printRanking(out *cli.Output, r *evals.Ranking) error {
	t := &cli.Table{
		Columns: []string{"VARIANT", "VERDICT", "DIFFERENCE", "95 %", "PASSED", "BASE", "CALLS",
			"TOKENS", "TITLE"},
		Ink: func(verdict string) cli.Ink { return verdictInk[verdict] }, Inked: 1,
	}
	for _, v := range r.Variants {
		t.Row(v.Name, v.Verdict, points(v.Difference), points(v.Low)+" to "+points(v.High),
			fmt.Sprintf("%d/%d", v.Sums.Passed, v.Sums.Decided),
			fmt.Sprintf("%d/%d", v.Base.Passed, v.Base.Decided),
			change(v.Base.Calls, v.Sums.Calls, "%.1f"),
			change(v.Base.Tokens, v.Sums.Tokens, "%.0f"), v.Title)
	}
	return out.List(r, t, "no variant was run")
}

// points is a difference of rates, in points of a hundred.
func points(d float64) string { return fmt.Sprintf("%+.0f", 100*d) }

func change(from, to float64, format string) string {
	return fmt.Sprintf(format+" -> "+format, from, to)
}
