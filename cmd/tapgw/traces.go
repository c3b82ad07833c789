package main

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

// traces are where this gateway's spans go.
type traces struct {
	tracer  trace.Tracer // nil: nobody wants any
	environ []string     // for the Copilot runtime, whose spans stand between ours
	stop    func(context.Context) error
}

// tracesTime is how long the last spans may take at the end.
const tracesTime = time.Second

// startTraces sends spans where the OTEL_ variables say.
func startTraces(log *slog.Logger) traces {
	s, err := otlp.FromEnv(os.Getenv)
	if err != nil {
		log.Warn("there are no traces", "error", err)
	}
	t := traces{environ: s.Environ()}
	if t.tracer, t.stop = otlp.Start(s, cli.Version()); t.tracer == nil {
		return t
	}
	log.Info("traces are sent", "url", s.URL)
	// The Copilot SDK hands a context's span on by these.
	otel.SetTextMapPropagator(propagation.TraceContext{})
	seldom := rate.NewLimiter(rate.Every(time.Minute), 1)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if seldom.Allow() {
			log.Warn("traces", "error", err)
		}
	}))
	return t
}

// close sends the spans that are left.
func (t traces) close() {
	ctx, cancel := context.WithTimeout(context.Background(), tracesTime)
	defer cancel()
	if err := t.stop(ctx); err != nil {
		otel.Handle(err)
	}
}
