package evals

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/providers"
)

func TestAnswers(t *testing.T) {
	c := parse(t, `[[provider]]
name = "p"
[[provider.tool]]
name = "t"
description = "d"
[[provider.tool.answer]]
args = '"city":"Oslo"'
text = "rain"
[[provider.tool.answer]]
args = '"city":"Oslo"'
text = "more rain"
[[provider.tool.answer]]
args = '"city":"Rome"'
error = "no such city"
code = "NOT_FOUND"
[[provider.tool.answer]]
args = '"slow":true'
text = "late"
delay = "1h"
`)
	synctest.Test(t, func(t *testing.T) {
		a := newAnswers(c.Providers[0].Tools[0].Answers)
		for _, tt := range []struct{ args, want string }{
			{`{ "city" : "Oslo" }`, "rain"}, {`{"city":"Oslo"}`, "more rain"},
			{`{"city":"Oslo"}`, "more rain"},
			{`{"city":"Rome"}`, "NOT_FOUND: no such city"},
			{`{"city":"Nome"}`, "NOT_FOUND: no answer of the case fits these arguments"},
			{`{"slow":true}`, "late"},
		} {
			got, err := a.call(t.Context(), []byte(tt.args))
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("%s: got %v, want %s", tt.args, got, tt.want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.call(ctx, []byte(`{"slow":true}`)); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("a call that is cut short: got %v, want the end of its time", err)
		}
		if _, err := a.call(t.Context(), []byte(`{"city":"Rome"}`)); err == nil {
			t.Error("an answer that is an error: got none")
		} else if e, ok := errors.AsType[*providers.Error](err); !ok ||
			e.Code != providers.CodeNotFound {
			t.Errorf("got %v, want the code NOT_FOUND", err)
		}
	})
}

// The state of a case follows from its runs, and runs that decide nothing never make it pass.
func TestCaseState(t *testing.T) {
	for _, tt := range []struct {
		runs    string // the first letters of the runs' states
		minRate float64
		want    string
	}{
		{"ppp", 1, Passed}, {"ppf", 1, Failed}, {"ppf", 0.6, Passed}, {"pff", 0.6, Failed},
		{"ppu", 1, Undecided},
		{"fu", 1, Failed}, {"ppe", 1, Broken}, {"pue", 1, Broken}, {"u", 1, Undecided},
		{"e", 1, Broken}, {"", 1, Broken},
	} {
		c := Case{MinRate: tt.minRate}
		for _, letter := range tt.runs {
			state := map[rune]string{'p': Passed, 'f': Failed, 'u': Undecided, 'e': Broken}[letter]
			c.Results = append(c.Results, Result{State: state})
		}
		c.Sums = sum(c.Results)
		if got := c.state(); got != tt.want {
			t.Errorf("runs %q of which %v must pass: got %s, want %s", tt.runs, tt.minRate, got,
				tt.want)
		}
	}
}

// Each round has the cases that a variant changes: as they are, and with each variant of these.
func TestRounds(t *testing.T) {
	with := func(name string) []configs.EvalProvider { return []configs.EvalProvider{{Name: name}} }
	cases := []configs.EvalCase{
		{ID: "a", Repeat: 3, Providers: with("p")},
		{ID: "b", Repeat: 1, Providers: with("q")},
		{ID: "untouched", Repeat: 1, Providers: with("r")},
	}
	variants := []configs.EvalVariant{
		{Name: "v", Contexts: map[string]string{"p": "x", "q": "x"}},
		{Name: "w", Contexts: map[string]string{"p": "y"}},
	}
	var got []string
	for _, j := range rounds(tries(cases, variants)) {
		got = append(got, fmt.Sprintf("%s%s%d", j.c.ID, j.variant, j.run))
	}
	want := "a1 av1 aw1 b1 bv1 a2 av2 aw2 a3 av3 aw3"
	if strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A ranking needs a variant that changes something, before anything runs.
func TestOptimizeWithoutChange(t *testing.T) {
	variants := []configs.EvalVariant{{Name: "v", File: "v.toml",
		Tools: map[string]string{"none": "x"}}}
	_, err := Optimize(t.Context(), Options{}, []configs.EvalCase{{ID: "a", Repeat: 1}}, variants)
	if e := cli.AsError(err); e.Exit != cli.ExitUsage ||
		!strings.Contains(e.Message, "v.toml: changes none") {
		t.Errorf("got %v, want a usage error that names the file", err)
	}
}
