package mcpserver

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/spans"
)

// traced is the SDK's middleware that makes a span of a client's call, below that of the client.
// The spans of the tool's call are below it.
func (e *endpoint) traced(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		r, isCall := req.(*mcp.CallToolRequest)
		if !isCall || r.Params == nil {
			return next(ctx, method, req)
		}
		begun := time.Now()
		name := e.knownTool(r.Params.Name)
		var span spans.Span
		if maker := e.h.gateway.Spans(); maker.Exports() {
			span = maker.Start(traceparent(r), func() spans.Info { return describe(r, name) })
			meta := maps.Clone(r.Params.Meta)
			if meta == nil {
				meta = mcp.Meta{}
			}
			meta["traceparent"] = span.Traceparent
			r.Params.Meta = meta
		}
		result, err := next(ctx, method, req)
		l := spans.Labels{Method: method, Tool: name, Transport: transport.Transport()}
		if l.Tool == "" {
			l.Tool = spans.Other
		}
		answer, isRPC := errors.AsType[*jsonrpc.Error](err)
		of, isResult := result.(*mcp.CallToolResult)
		switch {
		case isRPC:
			l.Error = span.FailRPC(answer.Code)
		case err != nil:
			l.Error = span.FailRPC(jsonrpc.CodeInternalError)
		case isResult && of != nil && of.IsError:
			l.Error = spans.ErrorTool
			span.Fail(l.Error)
		}
		span.End()
		e.h.gateway.Metrics().Count(spans.MCPServer, l, time.Since(begun))
		return result, err
	}
}

// countVisit counts how long a client of a handshake revision stays.
func (e *endpoint) countVisit(_ context.Context, r *mcp.InitializedRequest) {
	begun, client := time.Now(), r.Session
	e.h.mu.Lock()
	defer e.h.mu.Unlock()
	if e.h.isClosed {
		return
	}
	e.h.running.Go(func() {
		defer context.AfterFunc(e.ctx, func() { _ = client.Close() })()
		_ = client.Wait()
		l := spans.Labels{Transport: transport.Transport()}
		e.h.gateway.Metrics().Count(spans.MCPServerSession, l, time.Since(begun))
	})
}

// transport says that all requests come over the network: streamable HTTP, or the WebSocket of
// tapgw mcp.
var transport = spans.MCP{IsRemote: true}

// knownTool is a tool's name if the endpoint offers it, else "": clients may write any name.
func (e *endpoint) knownTool(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.offered[name]; !ok {
		return ""
	}
	return name
}

func describe(r *mcp.CallToolRequest, name string) spans.Info {
	m := spans.MCP{Method: spans.MCPCall, Tool: name, IsRemote: true, Session: r.Session.ID()}
	m.Version, _ = r.Params.Meta[mcp.MetaKeyProtocolVersion].(string)
	if p := r.Session.InitializeParams(); p != nil && m.Version == "" {
		m.Version = p.ProtocolVersion
	}
	link := ""
	if r.Extra != nil && r.Extra.Header != nil {
		m.IsHTTP, link = true, spans.FromHeader(r.Extra.Header)
	}
	return spans.MCPRequest(&m, true, link)
}
