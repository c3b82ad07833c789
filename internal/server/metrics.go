package server

import (
	"net/http"

	"github.com/VictoriaMetrics/metrics"
)

// metricsHandler serves the gateway's counters and those of its process in the text format of
// Prometheus.
func (s *Server) metricsHandler() http.Handler {
	stats := s.gateway.Stats()
	set := metrics.NewSet()
	gauge := func(name string, get func() int) {
		set.NewGauge("tapgw_"+name, func() float64 { return float64(get()) })
	}
	counter := func(name string, get func() uint64) {
		set.NewGauge("tapgw_"+name, func() float64 { return float64(get()) })
	}
	gauge("sessions", func() int { return len(s.gateway.Sessions()) })
	gauge("providers", func() int { return len(s.gateway.Providers()) })
	gauge("connections", func() int { used, _, _ := s.connections.usage(); return used })
	gauge("connections_limit", func() int { _, limit, _ := s.connections.usage(); return limit })
	counter("connections_refused_total", func() uint64 { _, _, refused := s.connections.usage(); return refused })
	counter("calls_total", stats.Calls.Load)
	counter("calls_failed_total", stats.FailedCalls.Load)
	counter("call_microseconds_total", stats.CallMicros.Load)
	counter("pushes_total", stats.Pushes.Load)
	counter("pushes_refused_total", stats.DroppedPushes.Load)
	counter("injects_paused_total", stats.PausedInjects.Load)
	counter("turns_total", stats.Turns.Load)
	counter("errors_sent_total", stats.Errors.Load)
	counter("late_messages_total", stats.Ignored.Load)
	counter("tool_refreshes_total", stats.Refreshes.Load)
	counter("slow_consumers_total", stats.SlowPeers.Load)
	counter("connections_total", stats.Connections.Load)
	counter("auth_failures_total", stats.AuthFailures.Load)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		set.WritePrometheus(w)
		s.gateway.Metrics().Write(w)
		metrics.WriteProcessMetrics(w)
		metrics.WriteFDMetrics(w)
	})
}
