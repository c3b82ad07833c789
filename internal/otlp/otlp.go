// Package otlp sends spans to an OpenTelemetry collector over HTTP, as JSON (OTLP 1.x). The
// standard OTEL_ variables configure it (docs/traces.md). Without them it sends no spans.
//
// The exporter of the OpenTelemetry project would do the same, but it brings gRPC and protocol
// buffers along, which are larger than the rest of the gateway.
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
	serviceName     = "tapgw"
)

// Settings are the settings in the OTEL_ variables. The zero value exports no traces.
type Settings struct {
	URL     string // of the collector's traces endpoint; "" for no traces
	Headers map[string]string
	Timeout time.Duration // of one request
	Content bool          // spans may have the texts of calls: arguments and results
}

// FromEnv reads the variables with getenv, usually os.Getenv. The error names the variable that has
// a wrong value, and never the value of a header, which may be a secret.
func FromEnv(getenv func(string) string) (Settings, error) {
	signalVar := func(suffix string) string {
		return cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_"+suffix),
			getenv("OTEL_EXPORTER_OTLP_"+suffix))
	}
	exporter := getenv("OTEL_TRACES_EXPORTER")
	base, traces := getenv("OTEL_EXPORTER_OTLP_ENDPOINT"),
		getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	switch {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"),
		exporter == "none", exporter == "" && base == "" && traces == "":
		return Settings{}, nil
	case exporter != "" && exporter != "otlp":
		return Settings{}, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is not supported: otlp or none",
			exporter)
	}
	if p := signalVar("PROTOCOL"); p != "" && !strings.HasPrefix(p, "http/") {
		return Settings{}, fmt.Errorf("the OTLP protocol %q is not supported: "+
			"set OTEL_EXPORTER_OTLP_PROTOCOL=http/json and the collector's HTTP port, 4318 mostly",
			p)
	}
	s := Settings{URL: traces, Timeout: defaultTimeout, Headers: map[string]string{},
		Content: strings.EqualFold(getenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"),
			"true")}
	if s.URL == "" {
		s.URL = strings.TrimSuffix(cmp.Or(base, defaultEndpoint), "/") + tracesPath
	}
	if u, err := url.Parse(s.URL); err != nil || u.Host == "" || u.Scheme != "http" &&
		u.Scheme != "https" {
		return Settings{}, errors.New("OTEL_EXPORTER_OTLP_ENDPOINT must be an http or https URL, " +
			"such as " + defaultEndpoint)
	}
	if text := signalVar("TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms <= 0 {
			return Settings{},
				fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT: %q is not a number of milliseconds", text)
		}
		s.Timeout = time.Duration(ms) * time.Millisecond
	}
	for pair := range strings.SplitSeq(signalVar("HEADERS"), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil { // the value may be a secret
			return Settings{},
				errors.New(
					"OTEL_EXPORTER_OTLP_HEADERS must be name=value pairs with commas between")
		}
		s.Headers[strings.TrimSpace(name)] = value
	}
	return s, nil
}

// Environ returns this process's OTEL_ variables as NAME=value, for a child process that sends its
// spans to the same collector. OTEL_SERVICE_NAME is left out: the child has its own name.
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
	if base, ok := strings.CutSuffix(s.URL, tracesPath); ok &&
		os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		env = append(env, "OTEL_EXPORTER_OTLP_ENDPOINT="+base)
	}
	return env
}

// Start returns a tracer that sends its spans in batches, and a function that sends the rest and
// stops. Without a URL the tracer is nil and stop has no effect. Errors of sending go to the
// handler that [otel.SetErrorHandler] took.
func Start(s Settings, version string) (tracer trace.Tracer, stop func(context.Context) error) {
	if s.URL == "" {
		return nil, func(context.Context) error { return nil }
	}
	res, err := resource.New(context.Background(),
		resource.WithFromEnv(), resource.WithTelemetrySDK(), resource.WithProcessPID())
	if err != nil || res == nil {
		res = resource.Empty()
	}
	if name, ok := res.Set().Value("service.name"); !ok || name.AsString() == "" {
		res = withDefaultName(res)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(newExporter(s)),
		sdktrace.WithResource(res))
	return provider.Tracer(serviceName, trace.WithInstrumentationVersion(version)),
		provider.Shutdown
}

// Check sends an empty request to a collector and returns an error unless it answers with 2xx.
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
		Timeout: s.Timeout,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1,
			IdleConnTimeout: time.Minute},
		// A redirect is not followed: the headers may be secret.
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
}

// ExportSpans implements [sdktrace.SpanExporter]: one request for all spans.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	return e.send(ctx, newRequest(spans))
}

func (e *exporter) send(ctx context.Context, body request) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding spans: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.settings.URL,
		bytes.NewReader(data))
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
	_, _ = io.Copy(io.Discard, io.LimitReader(w.Body, 1<<20)) // keeps the connection
	_ = w.Body.Close()
	if w.StatusCode < 200 || w.StatusCode > 299 {
		return fmt.Errorf("sending spans to %s: it answered with %s", e.settings.URL, w.Status)
	}
	return nil
}

// Shutdown implements [sdktrace.SpanExporter]. All spans have been sent before.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}
