package main

import (
	"testing"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// TestRulesMatchNothing: what is measured is rules that do not match.
func TestRulesMatchNothing(t *testing.T) {
	for name, list := range map[string][]protocol.Rule{"rules": rules(protocol.MaxHookRules),
		"stubborn": unskippableRules(protocol.MaxHookRules)} {
		if len(list) != protocol.MaxHookRules {
			t.Errorf("%s: %d rules, want %d", name, len(list), protocol.MaxHookRules)
		}
		for i := range list {
			list[i] = protocol.Rule{Match: list[i].Match, Action: protocol.ActionDeny}
		}
		if err := callDirectly(t.Context(), inProcess(t, &provider{name: name, rules: list}), 0); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
	}
}

func TestInTurn(t *testing.T) {
	wall, cpu, err := inTurn(t.Context(), options{rounds: 2}, gates(1), gates(4), 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	if len(wall.ratio) != 2 || len(cpu.ratio) != 2 {
		t.Errorf("%d and %d rounds, want 2", len(wall.ratio), len(cpu.ratio))
	}
	deny := &provider{name: "deny",
		rules: []protocol.Rule{{Match: protocol.Match{Tool: "t*"}, Action: protocol.ActionDeny}}}
	if _, _, err := inTurn(t.Context(), options{rounds: 1}, nil, []*provider{deny}, 0, 1); err == nil {
		t.Error("a call that is denied was measured, want an error")
	}
}

func TestStreamRate(t *testing.T) {
	if _, err := streamRate(t.Context(), 3, 1); err != nil {
		t.Error(err)
	}
}

// TestWorstPatternsAreTried: the gateway takes each, and no text is too long.
func TestWorstPatternsAreTried(t *testing.T) {
	l, err := newLocal(gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	p, err := l.join(&provider{name: "worst"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, match := range worstPatterns() {
		if err := p.setRules([]protocol.Rule{{Match: match, Action: protocol.ActionDeny}}); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
	}
	texts, err := worstTexts()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.setRules([]protocol.Rule{{Match: protocol.Match{Args: "nowhere"},
		Action: protocol.ActionDeny}}); err != nil {
		t.Fatal(err)
	}
	for i, args := range texts {
		if d := l.s.PreToolUse(t.Context(), "bash", args); d.Deny {
			t.Errorf(
				"text %d, of %d bytes: got a denial, %s; want that the rule is tried and doesn't match",
				i,
				len(args),
				d.Reason,
			)
		}
	}
}
