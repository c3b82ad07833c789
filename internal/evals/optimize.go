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
	Noise  = "noise" // it has 0 in it
)

// Variant is how a variant did against the same cases without it. Difference is how much more of the runs passed.
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

// Ranking is what an optimization found: the best variant first. Error says why not all runs were made.
type Ranking struct {
	Variants []Variant `json:"variants"`
	Results  []Result  `json:"results"`
	Error    string    `json:"error,omitempty"`
}

// Optimize runs each case as it is and with each variant that changes it, in turns, and ranks the variants by how many
// more runs pass. A variant that changes no case is an error before the first run.
func Optimize(
	ctx context.Context, o Options, cases []configs.EvalCase, variants []configs.EvalVariant,
) (*Ranking, error) {
	var applied []map[string]*configs.EvalCase // of each variant, the cases that it changes
	changed := map[string]bool{}
	for _, v := range variants {
		of := map[string]*configs.EvalCase{}
		for _, c := range cases {
			if other, changes := v.Apply(c); changes {
				of[c.ID], changed[c.ID] = &other, true
			}
		}
		if len(of) == 0 {
			return nil, cli.Usage("%s: changes none of these cases: its tools and providers are not theirs",
				cli.OneLine(v.File))
		}
		applied = append(applied, of)
	}
	results, _, err := o.runAll(ctx, o.turns(cases, variants, applied, changed))
	r := &Ranking{Variants: []Variant{}, Results: slices.Concat([]Result{}, results)}
	for i := range variants {
		r.Variants = append(r.Variants, compare(&variants[i], cases, applied[i], results))
	}
	slices.SortStableFunc(r.Variants, func(a, b Variant) int {
		return cmp.Or(cmp.Compare(b.Difference, a.Difference), cmp.Compare(a.Sums.Tokens, b.Sums.Tokens))
	})
	if err != nil {
		r.Error = cli.AsError(err).Message
	}
	return r, err
}

// turns are the runs: round by round, and in each round the base and the variants one after the other, each time with
// another first, so that what changes meanwhile hits all alike.
func (o *Options) turns(cases []configs.EvalCase, variants []configs.EvalVariant,
	applied []map[string]*configs.EvalCase, changed map[string]bool) (jobs []job) {
	most := 0
	for i := range cases {
		most = max(most, cases[i].Repeat)
	}
	for run := range most {
		for i := range cases {
			c := &cases[i]
			if run >= c.Repeat || !changed[c.ID] {
				continue
			}
			round := []job{{c: c, run: run + 1}}
			for v := range variants {
				if other := applied[v][c.ID]; other != nil {
					round = append(round, job{other, variants[v].Name, run + 1})
				}
			}
			first := run % len(round)
			jobs = append(append(jobs, round[first:]...), round[:first]...)
		}
	}
	return jobs
}

// compare adds up the runs of a variant and those of the same cases without it.
func compare(v *configs.EvalVariant, cases []configs.EvalCase, applied map[string]*configs.EvalCase,
	results []Result) Variant {
	of := func(variant string, is func(id string) bool) (found []Result) {
		for _, r := range results {
			if r.Variant == variant && is(r.Case) {
				found = append(found, r)
			}
		}
		return found
	}
	all := func(id string) bool { return applied[id] != nil }
	found := Variant{Name: v.Name, Title: v.Title, Verdict: Noise, Sums: sum(of(v.Name, all)), Base: sum(of("", all))}
	found.Difference, found.Low, found.High = difference(found.Base, found.Sums)
	switch {
	case found.Low > 0:
		found.Verdict = Better
	case found.High < 0:
		found.Verdict = Worse
	}
	for _, c := range cases {
		if all(c.ID) {
			one := func(id string) bool { return id == c.ID }
			found.Cases = append(found.Cases, VariantCase{c.ID, sum(of(v.Name, one)), sum(of("", one))})
		}
	}
	return found
}
