package sources

import (
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// startSpan begins the place of a run in a trace, below a traceparent. The source's events until
// the next startSpan are below it.
func (s *source) startSpan(parent string) {
	s.span = s.o.Gateway.Spans().Start(parent, func() spans.Info {
		return spans.SourceRun(s.o.Provider.Name, s.config.Stream)
	})
}

// endSpan ends the place of a run, and reports the run.
func (s *source) endSpan(begun time.Time, err error) {
	if err != nil {
		s.span.Fail(spans.ErrorRun)
	}
	s.span.End()
	if s.o.Record == nil {
		return
	}
	r := adminapi.Record{TS: time.Now(), Kind: adminapi.RecordSource, Outcome: adminapi.OutcomeOK,
		// The names are those of the source's pushes.
		Provider:   protocol.NormalName(s.o.Provider.Name),
		Stream:     protocol.NormalName(s.config.Stream),
		DurationMs: float64(time.Since(begun).Microseconds()) / 1000}
	if s.o.Session != protocol.AllSessions {
		r.Session = s.o.Session
	}
	if err != nil {
		r.Outcome, r.Reason = adminapi.OutcomeFailed, err.Error()
	}
	r.Trace, r.Span, r.Parent = s.span.IDs()
	s.o.Record(r)
}
