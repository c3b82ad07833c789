package evals

import (
	"cmp"
	"context"
	"slices"

	"tapgw/configs"
	"tapgw/internal/cli"
)

// Verdicts on a variant.
const (
	Better = "better" // the interval of the difference is above 0
	Worse  = "worse"
	Noise  = "noise" // the interval contains 0
)

// Variant is how a variant did against the same cases without it. Difference is how much more of
// the runs passed.
type Variant struct {
	Name       string        `json:"name"`
	Title      string        `json:"title"`
	Verdict    string        `json:"verdict"`
	Difference float64       `json:"difference"`
	Low        float64       `json:"low"` // the 95 % interval of Difference
	High       float64       `json:"high"`
	Sums       Sums          `json:"runs"`
	Base       Sums          `json:"base"` // of the same cases without it
	Cases      []VariantCase `json:"cases"`
}

// VariantCase is a case of a [Variant].
type VariantCase struct {
	ID   string `json:"id"`
	Sums Sums   `json:"runs"`
	Base Sums   `json:"base"`
}

// Ranking is the result of an optimization: the best variant first. Error says why not all runs
// were made.
type Ranking struct {
	Variants []Variant `json:"variants"`
	Results  []Result  `json:"results"`
	Error    string    `json:"error,omitempty"`
}

// Optimize runs each case without and with each variant that changes it, in turns, and ranks the
// variants by how many more runs pass. A variant that changes no case is an error before the first
// run.
func Optimize(
	ctx context.Context, o Options, cases []configs.EvalCase, variants []configs.EvalVariant,
) (*Ranking, error) {
	round := tries(cases, variants)
	for _, v := range variants {
		if !slices.ContainsFunc(round, func(j job) bool { return j.variant == v.Name }) {
			return nil,
				cli.Usage("%s: changes none of these cases: its tools and providers are not theirs",
					cli.OneLine(v.File))
		}
	}
	results, _, err := o.runAll(ctx, rounds(round))
	r := &Ranking{Variants: []Variant{}, Results: slices.Concat([]Result{}, results)}
	for _, v := range variants {
		r.Variants = append(r.Variants, compare(v, round, results))
	}
	slices.SortStableFunc(r.Variants, func(a, b Variant) int {
		return cmp.Or(cmp.Compare(b.Difference, a.Difference),
			cmp.Compare(a.Sums.Tokens, b.Sums.Tokens))
	})
	if err != nil {
		r.Error = cli.AsError(err).Message
	}
	return r, err
}

// tries returns the cases that a variant changes: each one unchanged, and with each variant that
// changes it.
func tries(cases []configs.EvalCase, variants []configs.EvalVariant) (all []job) {
	for i := range cases {
		of := []job{{c: &cases[i]}}
		for _, v := range variants {
			if changed, ok := v.Apply(cases[i]); ok {
				of = append(of, job{c: &changed, variant: v.Name})
			}
		}
		if len(of) > 1 {
			all = append(all, of...)
		}
	}
	return all
}

// compare adds up the runs of a variant and the runs of the same cases without it.
func compare(v configs.EvalVariant, round []job, results []Result) Variant {
	of := Variant{Name: v.Name, Title: v.Title, Verdict: Noise}
	var with, without []Result
	for _, j := range round {
		if j.variant == v.Name {
			a, b := runsOf(results, j.c.ID, v.Name), runsOf(results, j.c.ID, "")
			of.Cases = append(of.Cases, VariantCase{j.c.ID, sum(a), sum(b)})
			with, without = append(with, a...), append(without, b...)
		}
	}
	of.Sums, of.Base = sum(with), sum(without)
	of.Difference, of.Low, of.High = difference(of.Base, of.Sums)
	switch {
	case of.Low > 0:
		of.Verdict = Better
	case of.High < 0:
		of.Verdict = Worse
	}
	return of
}
