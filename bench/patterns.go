package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// worstPatterns returns patterns that explode, or whose single steps are as long as possible, within 1 KiB each.
func worstPatterns() map[string]protocol.Match {
	x := strings.Repeat
	var classes, ranges strings.Builder
	for _, script := range slices.Sorted(maps.Keys(unicode.Scripts)) {
		if in := unicode.Scripts[script]; classes.Len() < 980 && !unicode.In('x', in) && !unicode.In('ж', in) &&
			!unicode.In('界', in) {
			fmt.Fprintf(&classes, `\p{%s}`, script)
		}
	}
	for r := rune(0x4e00); ranges.Len() < 980; r += 3 {
		ranges.WriteRune(r)
	}
	m := map[string]protocol.Match{
		"glob of stars":    {File: x("*x", 200) + "*y"},
		"glob of braces":   {File: x("{x,*}", 40) + "y"},
		"glob of parts":    {File: x("**/", 100) + "y"},
		"glob of brackets": {File: x("[x]*", 200) + "y"},
	}
	for name, expr := range map[string]string{
		"nested plus":          `(x+)+y`,
		"nested star":          `(x*)*y`,
		"alternatives alike":   `(x|xx)+y`,
		"words":                `^(\w+\s?)*$!`,
		"backreference":        `(.*)*\1y`,
		"look-ahead":           `(?=(x+))\1*y`,
		"look-behind":          `(?<=(x+)+z)x`,
		"lazy":                 `(?:x*?)*?y`,
		"four hundred stars":   x("x*", 400) + "y",
		"optional":             `(?:x?){200}x{200}y`,
		"nested counts":        `(?:(?:x{1,50}){1,50}){1,50}y`,
		"quadratic":            `.*y`,
		"any case":             `(?i)(x+)+y`,
		"long text":            "y" + x("x", 990) + `\d`,
		"long text, any case":  "(?i)y" + x("x", 990) + `\d`,
		"periodic":             x("xy", 490) + `\d`,
		"classes":              "[" + classes.String() + "]",
		"classes in a loop":    "[^" + classes.String() + "]+y",
		"characters":           "[" + ranges.String() + "]",
		"characters in a loop": "[^" + ranges.String() + "]+y",
	} {
		m[name] = protocol.Match{Args: expr}
	}
	return m
}

// worstTexts returns the arguments for them, up to 64 KiB each.
func worstTexts() ([]protocol.Raw, error) {
	const most = 64<<10 - len(`{"path":""}`)
	long := strings.Repeat("x", most)
	var list []protocol.Raw
	for _, text := range []string{
		long, long[:200], strings.Repeat("x/", most/2), strings.Repeat("ж", most/2), strings.Repeat("界", most/3),
		strings.Repeat(strings.Repeat("xy", 400)+"x", most/801), long[:most-991] + "y" + long[:990],
	} {
		args, err := json.Marshal(map[string]string{"path": text})
		if err != nil {
			return nil, err
		}
		list = append(list, args)
	}
	return list, nil
}

// patterns measures how long matching one rule can take. For each pattern and text it takes the best of nine,
// because on a busy machine the clock that stops a match is late.
func patterns(ctx context.Context, _ options, r *report) error {
	r.title("The worst patterns of 1 KiB on the worst texts of 64 KiB, CPU, the best of 9",
		"metric\t\ttapgw\tof target\tat most\t")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // the clock that stops them, and they
	texts, err := worstTexts()
	if err != nil {
		return err
	}
	l, err := newLocal(gateway.Options{})
	if err != nil {
		return err
	}
	defer l.close()
	p, err := l.join(&provider{name: "worst"}, 0)
	if err != nil {
		return err
	}
	var slowest time.Duration
	var which string
	all := worstPatterns()
	for name, match := range all {
		if err := p.setRules([]protocol.Rule{{Match: match, Action: protocol.ActionDeny}}); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, args := range texts {
			var took []time.Duration
			for range 9 {
				before := ownCPU()
				l.s.PreToolUse(ctx, "bash", args)
				took = append(took, ownCPU()-before)
			}
			if best := slices.Min(took); best > slowest {
				slowest, which = best, name
			}
		}
	}
	ms := micros(int64(slowest)) / 1e3
	r.row(fmt.Sprintf("slowest of %d: %s (10 ms)", len(all)*len(texts), which), "", fmt.Sprintf("%.1f ms", ms), ms/10,
		1, false)
	return nil
}
