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
	gauge := func(name string, get func() uint64) {
		set.NewGauge("tapgw_"+name, func() float64 { return float64(get()) })
	}
	gauge("sessions", func() uint64 { return uint64(len(s.gateway.Sessions())) })
	gauge("providers", func() uint64 { return uint64(len(s.gateway.Providers())) })
	usage := s.connections.usage
	gauge("connections", func() uint64 { used, _, _ := usage(); return uint64(used) })
	gauge("connections_limit", func() uint64 { _, limit, _ := usage(); return uint64(limit) })
	gauge("connections_refused_total", func() uint64 { _, _, refused := usage(); return refused })
	gauge("calls_total", stats.Calls.Load)
	gauge("calls_failed_total", stats.FailedCalls.Load)
	gauge("call_microseconds_total", stats.CallMicros.Load)
	gauge("pushes_total", stats.Pushes.Load)
	gauge("pushes_refused_total", stats.DroppedPushes.Load)
	gauge("injects_paused_total", stats.PausedInjects.Load)
	gauge("turns_total", stats.Turns.Load)
	gauge("errors_sent_total", stats.Errors.Load)
	gauge("late_messages_total", stats.Ignored.Load)
	gauge("tool_refreshes_total", stats.Refreshes.Load)
	gauge("slow_consumers_total", stats.SlowPeers.Load)
	gauge("connections_total", stats.Connections.Load)
	gauge("auth_failures_total", stats.AuthFailures.Load)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		set.WritePrometheus(w)
		s.gateway.Metrics().Write(w)
		metrics.WriteProcessMetrics(w)
		metrics.WriteFDMetrics(w)
	})
}
