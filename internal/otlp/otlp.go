// Package otlp sends spans to an OpenTelemetry collector over HTTP, as JSON (OTLP
// 1.x), configured by the standard OTEL_ variables. Without them it does nothing.
//
// The exporter of the OpenTelemetry project brings gRPC and protocol buffers
// along, more than the rest of the gateway weighs, for the same requests.
package otlp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	defaultEndpoint = "http://localhost:4318"
	tracesPath      = "/v1/traces"
	defaultTimeout  = 10 * time.Second
	scope           = "tapgw"
)

// Settings are what the OTEL_ variables say. The zero value is that nobody wants
// traces.
type Settings struct {
	URL     string // of the collector's traces; "" for no traces
	Headers map[string]string
	Timeout time.Duration // of a request
}

// FromEnv reads the variables; get is os.Getenv. The error names the variable that
// makes no sense.
func FromEnv(get func(string) string) (Settings, error) {
	one := func(of string) string {
		return cmp.Or(get("OTEL_EXPORTER_OTLP_TRACES_"+of), get("OTEL_EXPORTER_OTLP_"+of))
	}
	exporter, base, traces := get("OTEL_TRACES_EXPORTER"), get("OTEL_EXPORTER_OTLP_ENDPOINT"), get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	switch {
	case strings.EqualFold(get("OTEL_SDK_DISABLED"), "true"), exporter == "none", exporter == "" && base == "" && traces == "":
		return Settings{}, nil
	case exporter != "" && exporter != "otlp":
		return Settings{}, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is not supported: otlp or none", exporter)
	}
	if p := one("PROTOCOL"); p != "" && !strings.HasPrefix(p, "http/") {
		return Settings{}, fmt.Errorf("the OTLP protocol %q is not supported: set OTEL_EXPORTER_OTLP_PROTOCOL=http/json and the collector's HTTP port, 4318 mostly", p)
	}
	s := Settings{URL: traces, Timeout: defaultTimeout, Headers: map[string]string{}}
	if s.URL == "" {
		s.URL = strings.TrimSuffix(cmp.Or(base, defaultEndpoint), "/") + tracesPath
	}
	if u, err := url.Parse(s.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Settings{}, errors.New("OTEL_EXPORTER_OTLP_ENDPOINT must be an http or https URL, such as " + defaultEndpoint)
	}
	if text := one("TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms <= 0 {
			return Settings{}, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT: %q is not a number of milliseconds", text)
		}
		s.Timeout = time.Duration(ms) * time.Millisecond
	}
	for pair := range strings.SplitSeq(one("HEADERS"), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil { // the value may be a secret
			return Settings{}, errors.New("OTEL_EXPORTER_OTLP_HEADERS must be name=value pairs with commas between")
		}
		s.Headers[strings.TrimSpace(name)] = value
	}
	return s, nil
}

// Environ are the OTEL_ variables of our environment, for a child whose spans are
// to go the same way.
func (s Settings) Environ() []string {
	if s.URL == "" {
		return nil
	}
	var env []string
	for _, pair := range os.Environ() {
		if strings.HasPrefix(pair, "OTEL_") && !strings.HasPrefix(pair, "OTEL_SERVICE_NAME=") {
			env = append(env, pair)
		}
	}
	if base, ok := strings.CutSuffix(s.URL, tracesPath); ok && os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		env = append(env, "OTEL_EXPORTER_OTLP_ENDPOINT="+base)
	}
	return env
}

// Start returns what makes spans and sends them in batches, nil where nobody wants
// them. Stop sends those that are left, and ends it. Failures go to the handler
// that [otel.SetErrorHandler] took.
func Start(s Settings, version string) (tracer trace.Tracer, stop func(context.Context) error) {
	if s.URL == "" {
		return nil, func(context.Context) error { return nil }
	}
	of, err := resource.New(context.Background(), resource.WithFromEnv(), resource.WithTelemetrySDK(), resource.WithProcessPID())
	if err != nil || of == nil {
		of = resource.Empty()
	}
	if name, ok := of.Set().Value("service.name"); !ok || name.AsString() == "" {
		of = named(of)
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(newExporter(s)), sdktrace.WithResource(of))
	return p.Tracer(scope, trace.WithInstrumentationVersion(version)), p.Shutdown
}

// Check sends a collector no spans at all, to see whether it takes them.
func Check(ctx context.Context, s Settings) error {
	e := newExporter(s)
	defer e.client.CloseIdleConnections()
	return e.send(ctx, request{ResourceSpans: []resourceSpans{}})
}

// exporter sends spans. It implements [sdktrace.SpanExporter].
type exporter struct {
	settings Settings
	client   *http.Client
}

func newExporter(s Settings) *exporter {
	return &exporter{settings: s, client: &http.Client{
		Timeout:       s.Timeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // headers may be secret
	}}
}

// ExportSpans implements [sdktrace.SpanExporter].
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	return e.send(ctx, requestOf(spans))
}

func (e *exporter) send(ctx context.Context, body request) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding spans: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.settings.URL, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("sending spans: %w", err)
	}
	for name, value := range e.settings.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/json")
	w, err := e.client.Do(r)
	if err != nil {
		return fmt.Errorf("sending spans: %w", err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(w.Body, 1<<20)) // so that the connection goes on
	_ = w.Body.Close()
	if w.StatusCode < 200 || w.StatusCode > 299 {
		return fmt.Errorf("sending spans to %s: it answered with %s", e.settings.URL, w.Status)
	}
	return nil
}

// Shutdown implements [sdktrace.SpanExporter].
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}
