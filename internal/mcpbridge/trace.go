package mcpbridge

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/spans"
	"tapgw/providers"
)

// Classes of errors of requests that the server did not answer.
const (
	errorCancelled    = "cancelled"
	errorTimeout      = "timeout"
	errorDisconnected = "disconnected"
)

// traced is the SDK's middleware for requests to the server. A call's requests are part of its
// trace, and carry it in _meta.
func (u *upstream) traced(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		call, isOfCall := providers.CallFrom(ctx)
		request := u.request(method, req.GetParams())
		if !isOfCall || request == nil {
			return next(ctx, method, req)
		}
		begun := time.Now()
		traceparent := call.Traceparent
		var span spans.Span
		if u.b.o.Spans.Exports() {
			span = u.b.o.Spans.Start(traceparent, func() spans.Info {
				return spans.MCPRequest(request, false, "")
			})
			traceparent = span.Traceparent
		}
		if params := req.GetParams(); traceparent != "" {
			meta := maps.Clone(params.GetMeta())
			if meta == nil {
				meta = map[string]any{}
			}
			meta["traceparent"] = traceparent
			params.SetMeta(meta)
		}
		result, err := next(ctx, method, req)
		class := failure(ctx, &span, result, err)
		span.End()
		if u.b.o.Metrics != nil {
			l := spans.Labels{Method: method, Tool: request.Tool, Transport: request.Transport(),
				Error: class}
			u.b.o.Metrics.Count(spans.MCPClient, l, time.Since(begun))
		}
		return result, err
	}
}

// countSession counts a session with the server that has ended, of a revision that has sessions.
func (u *upstream) countSession(took time.Duration) {
	if u.b.o.Metrics == nil || u.session.InitializeResult().ProtocolVersion > handshakeVersion {
		return
	}
	m := spans.MCP{IsRemote: u.b.o.Provider.MCP.URL != ""}
	u.b.o.Metrics.Count(spans.MCPClientSession, spans.Labels{Transport: m.Transport()}, took)
}

// request describes a request of a call; nil for other requests.
func (u *upstream) request(method string, params mcp.Params) *spans.MCP {
	m := &spans.MCP{Method: method}
	switch p := params.(type) {
	case *mcp.CallToolParams:
		m.Tool = p.Name
	case *mcp.GetPromptParams, *mcp.ReadResourceParams:
	default:
		return nil
	}
	if u.session != nil {
		m.Version, m.Session = u.session.InitializeResult().ProtocolVersion, u.session.ID()
	}
	if at, err := url.Parse(u.b.o.Provider.MCP.URL); err == nil && at.Host != "" {
		m.IsHTTP, m.IsRemote, m.Host = true, true, at.Hostname()
		m.Port, _ = strconv.Atoi(at.Port())
	}
	return m
}

// failure notes why a request failed, and returns the class of the error; "" for success.
func failure(ctx context.Context, span *spans.Span, result mcp.Result, err error) (class string) {
	if answer, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return span.FailRPC(answer.Code)
	}
	r, isCall := result.(*mcp.CallToolResult)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		class = errorTimeout
	case ctx.Err() != nil:
		class = errorCancelled
	case err != nil:
		class = errorDisconnected
	case isCall && r != nil && r.IsError:
		class = spans.ErrorTool
	}
	span.Fail(class)
	return class
}
