package mcpserver_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"tapgw/internal/gateway"
)

// A client's call has a span of the request, below the one that _meta names, and the call of the
// tool below that. They contain no message texts, and no name that a client invents.
func TestSpansOfCalls(t *testing.T) {
	const trace, above = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	eachEra(t, func(t *testing.T, version string) {
		out := tracetest.NewInMemoryExporter()
		w := newWorld(t, 60, func(o *gateway.Options) {
			o.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(out)).Tracer("test")
		})
		w.provide(w.session())
		c := w.connect(version, "/mcp", w.gateway.AdminToken())
		c.hasTools(with("echo", "shape", "fails", "hang")...)
		for _, tt := range []struct{ tool, traceparent, parent, name, class string }{
			{"echo", "00-" + trace + "-" + above + "-01", above, "tools/call echo", ""},
			{"fails", "00-" + trace + "-" + above + "-01", above, "tools/call fails", "tool_error"},
			{"echo", "00-" + strings.ToUpper(trace) + "-" + above + "-01", "0000000000000000",
				"tools/call echo", ""},
			{"canary", "", "0000000000000000", "tools/call", "-32602"},
		} {
			out.Reset()
			p := &mcp.CallToolParams{Name: tt.tool, Arguments: map[string]any{"text": "canary"},
				Meta: mcp.Meta{"traceparent": tt.traceparent,
					"tracestate": strings.Repeat("a=b,", 1<<16)}}
			_, _ = c.CallTool(t.Context(), p)
			spans := out.GetSpans()
			last := spans[len(spans)-1]
			if last.Name != tt.name || last.Parent.SpanID().String() != tt.parent {
				t.Errorf("%s: the last span is %s below %s, want %s below %s", tt.tool, last.Name,
					last.Parent.SpanID(), tt.name, tt.parent)
			}
			if tt.tool != "canary" &&
				(len(spans) != 2 || spans[0].Name != "execute_tool "+tt.tool ||
					spans[0].Parent.SpanID() != last.SpanContext.SpanID()) {
				t.Errorf("%s: the spans are %v, want the call of the tool below the request",
					tt.tool, spans)
			}
			class, isRight := "", false
			for _, kv := range last.Attributes {
				isRight = isRight || kv.Key == "mcp.protocol.version" &&
					kv.Value.AsString() == version
				if kv.Key == "error.type" {
					class = kv.Value.AsString()
				}
			}
			if class != tt.class || !isRight {
				t.Errorf(
					"%s: the attributes are %v, want error.type %q and %s",
					tt.tool,
					last.Attributes,
					tt.class,
					version,
				)
			}
			if all := fmt.Sprint(spans); strings.Contains(all, "canary") {
				t.Errorf("%s: the spans have what was said: %s", tt.tool, all)
			}
		}
		var metrics strings.Builder
		w.gateway.Metrics().Write(&metrics)
		want :=
			`mcp_server_operation_duration_seconds_count{gen_ai_tool_name="_OTHER",mcp_method_name="tools/call",`
		if text := metrics.String(); !strings.Contains(text, want) ||
			strings.Contains(text, "canary") {
			t.Errorf("the metrics are\n%s\nwant %s", text, want)
		}
		// A client of a revision that has sessions is counted when it has gone.
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		w.mcp.Close()
		metrics.Reset()
		w.gateway.Metrics().Write(&metrics)
		want = `mcp_server_session_duration_seconds_count{network_transport="tcp"} 1`
		if text := metrics.String(); strings.Contains(text,
			want) != (version == eras["handshake"]) {
			t.Errorf("after the end of a client of %s the metrics are\n%s", version, text)
		}
	})
}
