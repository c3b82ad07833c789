package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// words replace WORD in the rules: five rules of each shape.
var words = []string{"push", "publish", "deploy", "release", "secret"}

// rules returns rules as people write them, up to the fifty that a provider may have. None matches a call of the
// bench's tool. Half of them are about other tools or providers; the patterns of the other half are tried. WORD
// stands for one of the words.
func rules(n int) []protocol.Rule {
	shapes := []protocol.Match{
		{Tool: "bash", Args: `git\s+WORD\b`},
		{Tool: "mcp_*_WORD*"},
		{Tool: "edit", File: "WORD/**"},
		{Tool: "*WORD*", Args: "force"},
		{Provider: "WORD", Args: ".*"},
		{Args: "git WORD"},
		{Tool: "t*", Args: `"command":"(?:sudo|doas)\s+\w*WORD`},
		{Args: `\bWORD(?!\s+--dry-run)`},
		{Args: `(?=.*\bgit\b).*WORD.*--force(?!-with-lease)`},
		{Tool: "t*", File: "WORD/**/*.{sql,env}"},
	}
	actions := []protocol.Rule{
		{Action: protocol.ActionGate, GateID: "bench"},
		{Action: protocol.ActionDeny, Reason: "not here"},
		{Action: protocol.ActionContext, Content: "mind the bench"},
	}
	list := make([]protocol.Rule, n)
	for i := range list {
		r, m := actions[i%len(actions)], shapes[i%len(shapes)]
		for _, field := range []*string{&m.Tool, &m.Args, &m.File, &m.Provider} {
			*field = strings.ReplaceAll(*field, "WORD", words[i/len(shapes)%len(words)])
		}
		r.Match = m
		list[i] = r
	}
	return list
}

// unskippableRules returns rules whose patterns run on each text, because no quick check excludes them.
func unskippableRules(n int) []protocol.Rule {
	list := make([]protocol.Rule, n)
	for i := range list {
		list[i] = protocol.Rule{Match: protocol.Match{Args: `"(?:p|c)\w+":"(?!internal/)`}, Action: protocol.ActionDeny}
	}
	return list
}

// rulesAndGates measures the cost of rules for a call that they do not match, and of gates for a call that they allow.
func rulesAndGates(ctx context.Context, o options, r *report) error {
	r.title(fmt.Sprintf("Rules and gates, %d rounds in turn, medians", o.rounds),
		"metric\twithout\twith\tratio\ttarget\t")
	all := []*provider{{name: "rules", rules: rules(protocol.MaxHookRules)}}
	_, cpu, err := inTurn(ctx, o, nil, all, 0, 2000)
	if err != nil {
		return err
	}
	cpu.row(r, "50 rules that do not match: CPU of a call in process, us", "%.1f", 1.3, false)
	if err := rulesOverTheWire(ctx, o, r); err != nil {
		return err
	}
	_, cpu, err = inTurn(ctx, o, nil, []*provider{{name: "rules", rules: unskippableRules(protocol.MaxHookRules)}}, 0,
		500)
	if err != nil {
		return err
	}
	cpu.inform(r, "50 rules that only the engine can tell from a match: the same in process, us", "%.1f")

	r.title(fmt.Sprintf("Gates asked at once, in process, %d rounds in turn, medians", o.rounds),
		"metric\t1 gate\t4 gates\tratio\ttarget\t")
	wall, _, err := inTurn(ctx, o, gates(1), gates(4), 5*time.Millisecond, 10)
	if err != nil {
		return err
	}
	wall.row(r, "each provider thinks for 5 ms: a call, us", "%.0f", 1.1, false)
	wall, _, err = inTurn(ctx, o, gates(1), gates(4), 0, 500)
	if err != nil {
		return err
	}
	wall.inform(r, "each answers at once: a call, us", "%.1f")
	return nil
}

// gates returns providers with one gate each.
func gates(n int) []*provider {
	list := make([]*provider, n)
	for i := range list {
		list[i] = &provider{name: fmt.Sprintf("gate%d", i),
			rules: []protocol.Rule{{Match: protocol.Match{Tool: "t*"}, Action: protocol.ActionGate, GateID: "bench"}}}
	}
	return list
}

// inTurn measures sequential calls in two sessions in turn, on one processor. The results are microseconds per call.
func inTurn(ctx context.Context, o options, without, with []*provider, delay time.Duration, calls int) (wall,
	cpu series, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var both [2]*local
	for i, guests := range [][]*provider{without, with} {
		l, err := newLocal(gateway.Options{})
		if err != nil {
			return wall, cpu, err
		}
		defer l.close()
		for _, p := range append([]*provider{{name: "tool", tools: 1}}, guests...) {
			if _, err := l.join(p, delay); err != nil {
				return wall, cpu, err
			}
		}
		both[i] = l
	}
	for round := range o.rounds + 1 {
		var took, ran [2]float64
		for turn := range both {
			i := (turn + round) % 2
			before := ownCPU()
			l := load(1, calls, 1, func(k int) error { return callDirectly(ctx, both[i].s, k) })
			if l.Error != "" {
				return wall, cpu, fmt.Errorf("calling with hook rules: %s", l.Error)
			}
			took[i], ran[i] = micros(l.Wall)/float64(calls), micros(int64(ownCPU()-before))/float64(calls)
		}
		if round > 0 { // the first warms up
			wall.add(took[0], took[1])
			cpu.add(ran[0], ran[1])
		}
	}
	return wall, cpu, nil
}

// rulesOverTheWire measures the same with real gateways: host, gateway and providers are three processes.
func rulesOverTheWire(ctx context.Context, o options, r *report) error {
	var both [2]*system
	for i := range both {
		m, err := startGateway(ctx, o.binary, nil)
		if err != nil {
			return err
		}
		e := endpoints{providers: 1, tools: 1, noHooks: true}
		if i == 1 {
			e.rules = protocol.MaxHookRules
		}
		if both[i], err = join(ctx, o.self, nil, m, e); err != nil {
			return err
		}
		defer both[i].stop()
		if _, err := both[i].sample(8, 2000); err != nil { // warm
			return err
		}
	}
	var p50, cpu series
	for round := range o.rounds {
		var got [2]sample
		for turn := range both {
			i := (turn + round) % 2
			var err error
			if got[i], err = both[i].sample(1, o.calls); err != nil {
				return err
			}
		}
		p50.add(micros(got[0].P50), micros(got[1].P50))
		cpu.add(micros(int64(got[0].cpu)), micros(int64(got[1].cpu)))
	}
	p50.row(r, "50 rules that do not match: round trip over the wire, p50 us", "%.0f", 1.3, false)
	cpu.inform(r, "50 rules that do not match: CPU of the gateway over the wire, us a call", "%.1f")
	return nil
}
