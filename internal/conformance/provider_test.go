package conformance

import (
	"cmp"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// faults are the faults of the broken provider, one for each rule, with the rule.
var faults = map[string]string{
	"never says hello":                     "connect.bind",
	"authenticates twice":                  "connect.auth",
	"sends another token":                  "connect.token",
	"hello before sessions":                "connect.hello-after",
	"hello to an empty list":               "connect.empty-list",
	"hello to another session":             "connect.session",
	"pushes before it is bound":            "connect.bound-first",
	"sends a refused token again":          "connect.refused",
	"repeats a refused hello":              "connect.hello-refused",
	"comes back with its version":          "connect.version",
	"sends to a wrong proof":               "proof.wrong",
	"sends without a proof":                "proof.missing",
	"sends its reconnect token to anyone":  "proof.reconnect",
	"never answers":                        "call.answered",
	"answers twice":                        "call.once",
	"answers what nobody asked":            "call.issued",
	"has every tool":                       "call.unknown-tool",
	"silent about unknown tools":           "call.unknown-tool",
	"silent about wrong arguments":         "call.wrong-args",
	"loses calls when it is busy":          "call.burst",
	"one call at once":                     "call.parallel",
	"progress of what has ended":           "progress.running",
	"silent about cancelled calls":         "cancel.answered",
	"forgets that it was cancelled":        "cancel.code",
	"cancels all":                          "cancel.others",
	"answers a late cancel":                "cancel.ended",
	"answers an unknown cancel":            "cancel.unknown",
	"a result without data":                "result.fields",
	"data and an error":                    "result.one",
	"a code of its own":                    "result.code",
	"a file outside":                       "result.file",
	"dies of unknown types":                "ignore.type",
	"dies of unknown fields":               "ignore.field",
	"dies of what is no JSON":              "ignore.json",
	"dies of binary frames":                "ignore.binary",
	"dies of wrong fields":                 "ignore.wrong",
	"dies of unknown codes":                "ignore.error",
	"dies of unknown events":               "ignore.event",
	"dies of unknown states":               "ignore.state",
	"dies of unknown answers":              "ignore.answer",
	"dies of questions":                    "question.told",
	"answers what is over":                 "question.waits",
	"a wrong answer":                       "question.fits",
	"small frames":                         "accept.large",
	"a silent gate":                        "gate.answered",
	"allows what it does not know":         "gate.unknown",
	"a decision that does not exist":       "gate.fields",
	"decides twice":                        "gate.once",
	"a silent transform":                   "transform.answered",
	"a transform without a text":           "transform.fields",
	"transforms twice":                     "transform.once",
	"dies of new sessions":                 "session.updated",
	"does not let its session end":         "session.end",
	"does not let one of all end":          "session.end-all",
	"stays unbound":                        "session.next",
	"gone after a cut":                     "reconnect.cut",
	"gone after 1001":                      "reconnect.restart",
	"takes its place back":                 "reconnect.taken-over",
	"no pause":                             "reconnect.pause",
	"sends an old reconnect token":         "reconnect.token",
	"gives up without its reconnect token": "reconnect.void",
	"another name when it comes back":      "reconnect.name",
	"answers on the next connection":       "reconnect.calls",
	"leaves without a word":                "stop.goodbye",
	"never ends":                           "stop.ends",
	"waits for its calls at the end":       "stop.calls",
	"talks after goodbye":                  "stop.silent",
	"a binary message":                     "frame.text",
	"a key twice":                          "frame.json",
	"a type of its own":                    "frame.type",
	"too long a message":                   "frame.size",
	"progress without a text":              "frame.fields",
	"an event that does not exist":         "hello.fields",
	"another version":                      "hello.version",
	"a tool's name":                        "tool.names",
	"a tool's schema":                      "tool.schemas",
	"a tool's description":                 "tool.fields",
	"a gate without an id":                 "hooks.fields",
	"a pattern that does not compile":      "hooks.patterns",
	"a level that does not exist":          "push.fields",
	"pushes into another session":          "push.target",
	"pushes too much":                      "push.rate",
	"one id for two requests":              "request.ids",
	"two updates at once":                  "update.one",
}

// The kit names the one rule that a provider breaks, and no other. Time is the bubble's, so no
// machine is too slow.
func TestPlantedFaults(t *testing.T) {
	planted := map[string]bool{}
	for fault, rule := range faults {
		planted[rule] = true
		if testing.Short() && !strings.HasPrefix(rule, "call.") {
			continue
		}
		t.Run(strings.ReplaceAll(fault, " ", "-"), func(t *testing.T) {
			t.Parallel()
			report := judgeBroken(t, fault)
			if got := notKept(report); !slices.Equal(got, []string{rule}) {
				t.Errorf("a provider that %q does not keep %v, want %s", fault, got, rule)
				for _, r := range report.Results {
					if r.Got != "" {
						t.Logf("%s\n%s", r.ID, r.Explanation())
					}
				}
			}
			for _, r := range report.Results {
				if r.Got != "" && (r.Outcome == Failed) != (r.Spec != "") {
					t.Errorf("%s is %s, want what its spec %q says", r.ID, r.Outcome, r.Spec)
				}
			}
		})
	}
	for _, rule := range ProviderRules() {
		if !planted[rule.ID] {
			t.Errorf("no provider breaks the rule %s, want one", rule.ID)
		}
	}
}

// notKept returns the rules that a provider broke, and the advice that it did not take.
func notKept(report *Report) (ids []string) {
	for _, r := range report.Results {
		if r.Outcome == Failed || r.Outcome == Advice {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// A provider that keeps every rule passes each: only the one about a binding that it does not have
// is skipped.
func TestFaultless(t *testing.T) {
	for _, r := range judgeBroken(t, "").Results {
		if r.Outcome != Passed && r.ID != "session.end-all" {
			t.Errorf("rule %s: %s: %s%s, want passed", r.ID, r.Outcome, r.Reason, r.Explanation())
		}
	}
}

// A provider that the kit did not start is judged too, except by rules about its process.
func TestURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broken{}
		k := brokenKit(t, b)
		k.start, k.opts.Command, k.opts.URL, k.opts.Token = nil, nil, "ws://127.0.0.1:9400", "ptk-1"
		var end Program
		k.opts.Waiting = func(url, token string) { end, _ = b.start(url, token) } // it never fails
		report, err := k.run(func(Result) {})
		if err != nil {
			t.Fatal(err)
		}
		end.Kill()
		var skipped []string
		for _, r := range report.Results {
			switch r.Outcome {
			case Failed, Advice:
				t.Errorf("rule %s: %s: %s, want passed", r.ID, r.Outcome, r.Explanation())
			case Skipped:
				skipped = append(skipped, r.ID)
			case Passed:
			}
		}
		want := []string{"connect.token", "connect.refused", "connect.version", "session.end-all",
			"reconnect.taken-over", "stop.goodbye", "stop.ends", "stop.calls", "stop.silent"}
		if !slices.Equal(skipped, want) {
			t.Errorf("skipped %v, want %v", skipped, want)
		}
	})
}

// A provider without a token pairs, with the code that a person types, and has a token from then
// on.
func TestPairs(t *testing.T) {
	for _, tt := range []struct {
		name, typed string
		failed      []string
	}{
		{name: "right"},
		{name: "wrong", typed: "none", failed: []string{"connect.bind"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &broken{code: make(chan string, 1)}
				k := brokenKit(t, b)
				k.start, k.opts.Command, k.opts.URL = nil, nil, "ws://127.0.0.1:9400"
				k.opts.Pairing = func(code string) { b.code <- cmp.Or(tt.typed, code) }
				var end Program
				k.opts.Waiting = func(url, _ string) { end, _ = b.start(url, "") } // it never fails
				report, err := k.run(func(Result) {})
				if err != nil {
					t.Fatal(err)
				}
				close(b.code)
				end.Kill()
				if got := notKept(report); !slices.Equal(got, tt.failed) {
					t.Errorf("a provider that pairs does not keep %v, want %v", got, tt.failed)
				}
			})
		})
	}
}

// judgeBroken judges the broken provider in a bubble.
func judgeBroken(t *testing.T, fault string) (report *Report) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		if report, err = brokenKit(t, &broken{fault: fault}).run(func(Result) {}); err != nil {
			t.Fatal(err)
		}
	})
	return report
}

// brokenKit makes a kit for a broken provider, which reaches it through pipes.
func brokenKit(t *testing.T, b *broken) *kit {
	return &kit{
		ctx: t.Context(), start: b.start, large: 2 << 20, // "small frames" reads 1 MiB
		opts: ProviderOptions{Command: []string{"broken"}, Tool: "echo",
			Args:     json.RawMessage(`{"text":"hi"}`),
			SlowTool: "slow"},
		listen: func(string) (net.Listener, error) {
			l := newPipes()
			b.dial = l.dial
			return l, nil
		},
	}
}
