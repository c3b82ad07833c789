package main

import (
	"fmt"
	"testing"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// inProcess is a session with one provider, both in this process.
func inProcess(tb testing.TB, guests ...*provider) *gateway.Session {
	tb.Helper()
	l, err := newLocal(gateway.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.close)
	for _, p := range append([]*provider{{name: "tool", tools: 1}}, guests...) {
		if _, err := l.join(p, 0); err != nil {
			tb.Fatal(err)
		}
	}
	return l.s
}

func TestCallDirectly(t *testing.T) {
	s := inProcess(t)
	if err := callDirectly(t.Context(), s, 0); err != nil {
		t.Error(err)
	}
	if err := callDirectly(t.Context(), s, 1); err == nil {
		t.Error("the call of a tool that nobody has: no error, want one")
	}
}

// BenchmarkCallTool is the routing core: schema checked, the result's frame
// read from JSON, no socket.
func BenchmarkCallTool(b *testing.B) {
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			s := inProcess(b)
			ctx := b.Context()
			b.ReportAllocs()
			l := load(workers, max(b.N, 1), 1, func(k int) error { return callDirectly(ctx, s, k) })
			if l.Error != "" {
				b.Fatalf("calling the tool: got %s, want no error", l.Error)
			}
			b.ReportMetric(perSecond(l), "calls/s")
		})
	}
}

// BenchmarkRules is what fifty rules that do not match cost a call.
func BenchmarkRules(b *testing.B) {
	for name, guests := range map[string][]*provider{"none": nil,
		"50": {{name: "rules", rules: rules(protocol.MaxHookRules)}}} {
		b.Run(name, func(b *testing.B) {
			s := inProcess(b, guests...)
			b.ReportAllocs()
			for b.Loop() {
				if err := callDirectly(b.Context(), s, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
