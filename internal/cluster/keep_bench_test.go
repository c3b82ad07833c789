package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// BenchmarkPush is the time from a push to the event in a session's stream: straight, kept for a
// session here, and kept for one elsewhere. Gateways and NATS server are one process.
func BenchmarkPush(b *testing.B) {
	for _, kind := range []string{"straight", "kept here", "kept elsewhere"} {
		b.Run(kind, func(b *testing.B) {
			s := natsServer(b, nil)
			here := startKeeping(b, "a", s.ClientURL(), Keep{Streams: []string{"builds"}})
			there := startKeeping(b, "b", s.ClientURL(), Keep{})
			m := here
			if kind == "kept elsewhere" {
				m = there
			}
			session, _ := m.session("s")
			m.hasPlace("a", "s")
			stream := "builds"
			if kind == "straight" {
				stream = "other"
			}
			var times []time.Duration
			for n := 0; b.Loop(); n++ {
				cursor := session.HistoryCursor()
				push := &protocol.Push{Stream: stream, Level: protocol.LevelKeep,
					Event: fmt.Sprint(n)}
				began := time.Now()
				if err := pushTo(b, here, session, m == here, fmt.Sprint("p", n/protocol.PushRate),
					push); err != nil {
					b.Fatal(err)
				}
				if err := session.WaitHistory(b.Context(), cursor); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(began))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-us")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func pushTo(
	b *testing.B, m *keeping, s *gateway.Session, isHere bool, provider string, push *protocol.Push,
) error {
	if isHere {
		_, err := s.Push(b.Context(), provider, push)
		return err
	}
	_, err := m.gateway.Broadcast(b.Context(), provider, push)
	return err
}
