package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// BenchmarkCall calls a tool of a provider of the session's gateway, and one of a gateway that is one NATS server away.
func BenchmarkCall(b *testing.B) {
	for _, where := range []string{"here", "elsewhere"} {
		b.Run(where, func(b *testing.B) {
			session := callable(b, where)
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				began := time.Now()
				if o := session.CallTool(b.Context(), gateway.Call{Name: "t"}); o.Failed() {
					b.Fatal(o.Error)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us-p50")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "us-p99")
		})
		b.Run(where+" 64 at a time", func(b *testing.B) {
			session := callable(b, where)
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if o := session.CallTool(b.Context(), gateway.Call{Name: "t"}); o.Failed() {
						b.Error(o.Error)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

// callable is a session with a tool that answers at once.
func callable(b *testing.B, where string) *gateway.Session {
	b.Helper()
	s := natsServer(b, nil)
	here, there := join(b, "a", s.ClientURL(), nil), join(b, "b", s.ClientURL(), nil)
	session := startSession(b, here, "work")
	until(b, "they reach each other", func() bool { return here.reaches("b") && there.reaches("a") })
	at := there
	if where == "here" {
		at = here
	}
	p := connectAnswering(b, at, func(*protocol.ToolCall) string { return "1" })
	awaitSession(b, p, session.ID())
	p.todo <- fmt.Sprintf(helloTool, "all")
	until(b, "the tool is there", func() bool { return len(session.Tools()) == 1 })
	return session
}
