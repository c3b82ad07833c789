package mcpbridge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// nowhere is a recorder that keeps nothing.
type nowhere struct{}

func (nowhere) Record(adminapi.Record)          {}
func (nowhere) Pushed(string) []adminapi.Record { return nil }

const given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// tracedServer is a server that reports the trace in its calls' _meta.
func tracedServer(told *[]string) *mcp.Server {
	s := toolServer()
	s.AddTool(&mcp.Tool{Name: "code", InputSchema: anyObject},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: -32099, Message: "canary"}
		})
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/call" || method == "prompts/get" || method == "resources/read" {
				text, _ := req.GetParams().GetMeta()["traceparent"].(string)
				*told = append(*told, text)
			}
			return next(ctx, method, req)
		}
	})
	return s
}

// attributes are those of a span as text, by name.
func attributes(s tracetest.SpanStub) map[string]string {
	list := map[string]string{}
	for _, kv := range s.Attributes {
		list[string(kv.Key)] = kv.Value.String()
	}
	return list
}

// A call has a span of the request that it makes, below its own, and the server gets that span in
// _meta. Texts of a server, a model or a person are in no span.
func TestSpansOfRequests(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			out := tracetest.NewInMemoryExporter()
			r := newRig(t, func(o *gateway.Options) {
				o.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(out)).Tracer("test")
			})
			s, h := r.session("s1", t.TempDir())
			var told []string
			p := serveHTTP(t, tracedServer(&told), era)
			p.MCP.Prompts = true
			b := r.bridge(p)
			h.until(t, "code", func(names []string, _ []gateway.Tool) bool {
				return slices.Contains(names, "code")
			})
			for _, tt := range []struct{ tool, args, name, class string }{
				{"echo", `{"a":"canary"}`, "tools/call echo", ""},
				{"fail", `{"a":"canary"}`, "tools/call fail", "tool_error"},
				{"code", `{}`, "tools/call code", "-32099"},
				{"srv_get_prompt", `{"name":"greet","arguments":{"who":"canary"}}`, "prompts/get",
					""},
			} {
				out.Reset()
				told = nil
				s.CallTool(t.Context(), gateway.Call{Name: tt.tool, Args: protocol.Raw(tt.args),
					Traceparent: given})
				spans := out.GetSpans()
				if len(spans) != 2 || spans[0].Name != tt.name {
					t.Fatalf("%s: the spans are %v, want %s and the call", tt.tool, spans, tt.name)
				}
				request, call := spans[0], spans[1]
				id := request.SpanContext.SpanID().String()
				if len(told) != 1 || !strings.Contains(told[0], id) ||
					request.Parent.SpanID() != call.SpanContext.SpanID() {
					t.Errorf(
						"%s: the server was told %q, below %v; want %s below the call",
						tt.tool,
						told,
						request.Parent,
						id,
					)
				}
				got := attributes(request)
				if got["error.type"] != tt.class || got["mcp.protocol.version"] != era ||
					got["network.transport"] != "tcp" ||
					got["server.address"] != "127.0.0.1" ||
					got["mcp.method.name"] == "" ||
					(got["mcp.session.id"] != "") != (era == handshakeVersion) {
					t.Errorf("%s: the attributes are %v, want error.type %q", tt.tool, got,
						tt.class)
				}
				if all := fmt.Sprint(spans); strings.Contains(all, "canary") {
					t.Errorf("%s: the spans have what was said: %s", tt.tool, all)
				}
			}
			var metrics strings.Builder
			r.g.Metrics().Write(&metrics)
			want :=
				`mcp_client_operation_duration_seconds_count{gen_ai_tool_name="fail",mcp_method_name="tools/call",` +
					`network_transport="tcp",error_type="tool_error"} 1`
			if !strings.Contains(metrics.String(), want) {
				t.Errorf("the metrics are\n%s\nwant %s", metrics.String(), want)
			}
			b.stop()
			b.done <- <-b.done
			metrics.Reset()
			r.g.Metrics().Write(&metrics)
			want = `mcp_client_session_duration_seconds_count{network_transport="tcp"} 1`
			if strings.Contains(metrics.String(), want) != (era == handshakeVersion) {
				t.Errorf("after the end of a bridge of %s the metrics are\n%s", era,
					metrics.String())
			}
		})
	}
}

// Without an exporter the server gets the span of the call; without records too it gets the
// caller's.
func TestTraceWithoutSpans(t *testing.T) {
	for name, recorder := range map[string]gateway.Recorder{"records": nowhere{}, "nothing": nil} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *gateway.Options) { o.Recorder = recorder })
			s, h := r.session("s1", t.TempDir())
			var told []string
			r.bridge(serveHTTP(t, tracedServer(&told), eras[0]))
			h.until(t, "code", func(names []string, _ []gateway.Tool) bool {
				return slices.Contains(names, "code")
			})
			s.CallTool(t.Context(), gateway.Call{Name: "sum", Traceparent: given})
			if len(told) != 1 || !strings.HasPrefix(told[0], given[:36]) ||
				(told[0] == given) != (recorder == nil) {
				t.Errorf("the server was told %q, want the trace of %s", told, given)
			}
		})
	}
}
