package assembly

import (
	"context"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"tapgw/internal/cli"
	"tapgw/internal/otlp"
)

// traces exports this gateway's spans.
type traces struct {
	tracer  trace.Tracer // nil when traces are off
	content bool         // spans may have the texts of prompts, calls and results
	environ []string     // for the Copilot runtime, whose spans are children and parents of ours
	stop    func(context.Context) error
}

// tracesTimeout bounds the export of the last spans at the end.
const tracesTimeout = time.Second

// startTraces starts the export of spans if OTEL_ variables turn it on.
func startTraces(log *slog.Logger) traces {
	s, err := otlp.FromEnv(os.Getenv)
	if err != nil {
		log.Warn("traces are off because of a wrong variable", "error", err)
	}
	t := traces{content: s.Content, environ: s.Environ()}
	if t.tracer, t.stop = otlp.Start(s, cli.Version()); t.tracer == nil {
		return t
	}
	log.Info("traces are sent", "url", s.URL, "content", s.Content)
	// The Copilot SDK passes the span of a context on with the global propagator.
	otel.SetTextMapPropagator(propagation.TraceContext{})
	logLimit := rate.NewLimiter(rate.Every(time.Minute), 1)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if logLimit.Allow() {
			log.Warn("traces", "error", err)
		}
	}))
	return t
}

// close sends the remaining spans.
func (t traces) close() {
	ctx, cancel := context.WithTimeout(context.Background(), tracesTimeout)
	defer cancel()
	if err := t.stop(ctx); err != nil {
		otel.Handle(err)
	}
}
