package otlp

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFromEnv(t *testing.T) {
	for _, tt := range []struct {
		name  string
		env   map[string]string
		url   string
		fault string
	}{
		{name: "nothing", env: nil},
		{name: "a base", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318/"},
			url: "http://h:4318/v1/traces"},
		{name: "for traces", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h",
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://t/x"}, url: "https://t/x"},
		{name: "asked for", env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"},
			url: "http://localhost:4318/v1/traces"},
		{name: "not wanted", env: map[string]string{"OTEL_TRACES_EXPORTER": "none",
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h"}},
		{name: "off", env: map[string]string{"OTEL_SDK_DISABLED": "True",
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h"}},
		{name: "another exporter", env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"},
			fault: "OTEL_TRACES_EXPORTER"},
		{name: "grpc", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4317",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, fault: `"grpc" is not supported`},
		{name: "protobuf", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, url: "http://h/v1/traces"},
		{name: "no URL", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "h:4318"},
			fault: "must be an http or https URL"},
		{name: "time", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h",
			"OTEL_EXPORTER_OTLP_TIMEOUT": "1s"}, fault: "OTEL_EXPORTER_OTLP_TIMEOUT"},
		{name: "headers", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h",
			"OTEL_EXPORTER_OTLP_HEADERS": "secret"}, fault: "must be name=value pairs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := FromEnv(func(name string) string { return tt.env[name] })
			if s.URL != tt.url || (err == nil) != (tt.fault == "") ||
				err != nil && (!strings.Contains(err.Error(), tt.fault) ||
					strings.Contains(err.Error(), "secret")) {
				t.Errorf("gives %+v, %v", s, err)
			}
		})
	}
}

func TestHeaders(t *testing.T) {
	s, err := FromEnv(func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h",
			"OTEL_EXPORTER_OTLP_HEADERS": "a=1, b = x%20y ,"}[name]
	})
	if err != nil || !maps.Equal(s.Headers, map[string]string{"a": "1", "b": "x y"}) {
		t.Errorf("headers %v, %v, want no error and %v", s.Headers, err,
			map[string]string{"a": "1", "b": "x y"})
	}
}

// Content is for those who ask for it, in one word.
func TestContent(t *testing.T) {
	for value, want := range map[string]bool{"": false, "false": false, "1": false, "true": true,
		"True": true} {
		s, err := FromEnv(func(name string) string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h",
				"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": value}[name]
		})
		if err != nil || s.Content != want {
			t.Errorf("with %q: content %t, %v, want %t and no error", value, s.Content, err, want)
		}
	}
}

func TestEnviron(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://h/v1/traces")
	t.Setenv("OTEL_SERVICE_NAME", "mine")
	env := Settings{URL: "http://h/v1/traces"}.Environ()
	if !slices.Contains(env, "OTEL_EXPORTER_OTLP_ENDPOINT=http://h") ||
		!slices.Contains(env, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://h/v1/traces") ||
		slices.Contains(env, "OTEL_SERVICE_NAME=mine") {
		t.Errorf("a child gets %v, want the endpoint and not OTEL_SERVICE_NAME", env)
	}
	if env := (Settings{}).Environ(); env != nil {
		t.Errorf("a child gets %v although nobody wants traces", env)
	}
}

func TestNobodyWantsTraces(t *testing.T) {
	tracer, stop := Start(Settings{}, "v")
	if tracer != nil || stop(t.Context()) != nil {
		t.Error("there is a tracer without an endpoint, want none")
	}
}

func TestExport(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	bodies := make(chan []byte, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost && r.Header.Get("Content-Type") == "application/json" &&
			r.Header.Get("Authorization") == "Bearer x" {
			bodies <- body
		}
	}))
	defer srv.Close()
	tracer, stop := Start(
		Settings{URL: srv.URL, Headers: map[string]string{"Authorization": "Bearer x"},
			Timeout: defaultTimeout},
		"1.2",
	)
	_, elsewhere := tracer.Start(t.Context(), "elsewhere") // never sent
	ctx, parent := tracer.Start(t.Context(), "above",
		trace.WithLinks(trace.Link{SpanContext: elsewhere.SpanContext()}))
	_, span := tracer.Start(ctx, "below", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(
			attribute.String("s", "<&>"),
			attribute.Bool("b", true),
			attribute.Int64("i", 1<<60),
			attribute.Float64("f", 0.5),
			attribute.StringSlice("l", []string{"x", "y"}),
		))
	span.SetStatus(codes.Error, "broke")
	span.End()
	parent.End()
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got request
	if err := json.Unmarshal(<-bodies, &got); err != nil {
		t.Fatal(err)
	}
	rs := got.ResourceSpans[0]
	of := map[string]string{}
	for _, kv := range rs.Resource.Attributes {
		if kv.Value.String != nil {
			of[kv.Key] = *kv.Value.String
		}
	}
	if of["service.name"] != serviceName || of["deployment.environment"] != "test" {
		t.Errorf(`the resource is %v, want %v and "test"`, of, serviceName)
	}
	ss := rs.ScopeSpans[0]
	if ss.Scope.Name != serviceName || ss.Scope.Version != "1.2" || len(ss.Spans) != 2 {
		t.Fatalf(`sent %+v, want Name %v, Version "1.2" and 2 of them`, ss, serviceName)
	}
	below, above := ss.Spans[0], ss.Spans[1]
	if below.ParentSpanID != above.SpanID || below.TraceID != above.TraceID ||
		above.ParentSpanID != "" || len(below.TraceID) != 32 || len(below.SpanID) != 16 {
		t.Errorf("the spans are linked as %+v, %+v, want the first below the second", below, above)
	}
	at := elsewhere.SpanContext()
	want := []link{{TraceID: at.TraceID().String(), SpanID: at.SpanID().String(), Flags: 1}}
	if len(below.Links) != 0 || !slices.EqualFunc(above.Links, want, func(a, b link) bool {
		return a.TraceID == b.TraceID && a.SpanID == b.SpanID && a.Flags&1 == b.Flags
	}) {
		t.Errorf("the links are %v and %v, want none and %v", below.Links, above.Links, want)
	}
	if below.Kind != 3 || above.Kind != 1 || below.Status.Code != 2 ||
		below.Status.Message != "broke" || above.Status.Code != 0 || below.Start == "" ||
		below.End < below.Start {
		t.Errorf("sent %+v, %+v, want kinds 3 and 1, of which the first failed", below, above)
	}
	wantAttrs :=
		`[{"key":"s","value":{"stringValue":"<&>"}},{"key":"b","value":{"boolValue":true}},{"key":"i","value":{"intValue":"1152921504606846976"}},{"key":"f","value":{"doubleValue":0.5}},{"key":"l","value":{"arrayValue":{"values":[{"stringValue":"x"},{"stringValue":"y"}]}}}]`
	attrs, err := json.Marshal(below.Attributes)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(attrs))
	if diff := cmp.Diff(wantAttrs, text); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

// A collector that refuses, redirects or is gone costs spans and nothing else.
func TestExportFails(t *testing.T) {
	failed := make(chan error, 10)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { failed <- err }))
	mux := http.NewServeMux()
	mux.HandleFunc("/no", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/taken", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/taken", func(http.ResponseWriter, *http.Request) {
		t.Error("headers went to another path, want no redirect followed")
	})
	srv := httptest.NewServer(mux)
	for path, says := range map[string]string{"/no": "401", "/away": "307"} {
		tracer, stop := Start(
			Settings{
				URL:     srv.URL + path,
				Headers: map[string]string{"Authorization": "secret"},
				Timeout: defaultTimeout,
			},
			"v",
		)
		_, span := tracer.Start(t.Context(), "s")
		span.End()
		err := stop(context.Background())
		if err == nil {
			err = <-failed
		}
		if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf(`%s fails with %v, want %q in it and no "secret" in it`, path, err, says)
		}
	}
	srv.Close()
	tracer, stop := Start(Settings{URL: srv.URL, Timeout: defaultTimeout}, "v")
	_, span := tracer.Start(t.Context(), "s")
	span.End()
	if err := stop(context.Background()); err == nil {
		if err = <-failed; err == nil {
			t.Error("exporting to a collector that is gone: no error, want one")
		}
	}
}
