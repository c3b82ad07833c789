package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// This file answers calls of providers' tools over HTTP. The SDK decodes the parts of such a
// request up to 12 times, each time into 32 KiB of new memory. A request with anything unusual goes
// to the SDK, which answers or refuses it. So the rules about wrong requests are the SDK's alone.

const (
	progressToken = "progressToken" // in _meta
	// maxBrackets bounds the depth of a request, far below that of the SDK.
	maxBrackets = 1000
)

// message is a request or a notification about a call.
type message struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Method  string         `json:"method"`
	Params  struct {
		Name      string                    `json:"name"`
		Arguments jsontext.Value            `json:"arguments"`
		Meta      map[string]jsontext.Value `json:"_meta"`

		RequestID jsontext.Value `json:"requestId"` // of a call that is cancelled
		Reason    string         `json:"reason"`
	} `json:"params"`
}

// readMessage reads a message about a call. It returns nil for any other body. Either way the body
// can be read again.
func readMessage(r *http.Request) *message {
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), 256<<10)) + bytes.MinRead)
	rest := r.Body
	_, err := body.ReadFrom(io.LimitReader(rest, MaxBody+1))
	data := body.Bytes()
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), rest), rest}
	m := new(message)
	if err != nil || len(data) > MaxBody ||
		bytes.Count(data, []byte("{"))+bytes.Count(data, []byte("[")) > maxBrackets ||
		jsonv2.Unmarshal(data, m, jsonv2.RejectUnknownMembers(true)) != nil || m.Version != "2.0" {
		return nil
	}
	return m
}

// isID reports whether a value is a usual id or token: a text or a whole number.
func isID(v jsontext.Value) bool {
	_, err := strconv.ParseInt(string(v), 10, 53)
	return err == nil || v.Kind() == '"'
}

// takesEvents reports whether a request says all that streamable HTTP wants of a POST, in its usual
// form.
func takesEvents(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	takesJSON, takesEvents := false, false
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept"), ","), ",") {
		part = strings.TrimSpace(part)
		takesJSON = takesJSON || part == "application/json"
		takesEvents = takesEvents || part == "text/event-stream"
	}
	return err == nil && kind == "application/json" && takesJSON && takesEvents &&
		h.Values("Last-Event-ID") == nil
}

// isModern reports whether a call of a revision without a handshake says all that the revision
// wants, and its client can't ask its user.
func (m *message) isModern(h http.Header) bool {
	version, _ := protocol.Text(m.Params.Meta[mcp.MetaKeyProtocolVersion])
	if version != firstModern || h.Get("MCP-Protocol-Version") != version ||
		h.Get("Mcp-Method") != m.Method || h.Get("Mcp-Name") != m.Params.Name {
		return false
	}
	var capabilities *mcp.ClientCapabilities
	err := jsonv2.Unmarshal(m.Params.Meta[mcp.MetaKeyClientCapabilities], &capabilities)
	if info, isNamed := m.Params.Meta[mcp.MetaKeyClientInfo]; isNamed && err == nil {
		var client *mcp.Implementation
		if err = jsonv2.Unmarshal(info, &client); client == nil {
			return false
		}
	}
	return err == nil && capabilities != nil && capabilities.Elicitation == nil
}

// isOf reports whether a message fits the handshake of its client, and the client can't ask its
// user.
func (m *message) isOf(client *mcp.ServerSession, h http.Header) bool {
	p := client.InitializeParams()
	_, isModern := m.Params.Meta[mcp.MetaKeyProtocolVersion]
	return p != nil && p.ProtocolVersion == h.Get("MCP-Protocol-Version") && !isModern &&
		!canElicit(client)
}

// serveCall answers a call of a provider's tool, or cancels one. It returns false if the SDK should
// answer the request. client is nil for revisions without a handshake.
func (e *endpoint) serveCall(w http.ResponseWriter, r *http.Request, client *mcp.ServerSession,
) bool {
	if e.h.gateway.Spans().Exports() || !takesEvents(r.Header) { // traced makes the spans
		return false
	}
	m := readMessage(r)
	if m == nil {
		return false
	}
	token, hasToken := m.Params.Meta[progressToken]
	switch {
	case client == nil && !m.isModern(r.Header), client != nil && !m.isOf(client, r.Header):
		return false
	case client != nil && m.Method == methodCancelled && m.ID == nil:
		isOurs := e.visits.cancel(client.ID(), string(m.Params.RequestID))
		if isOurs {
			w.WriteHeader(http.StatusAccepted)
		}
		return isOurs
	case m.Method != methodCall, !isID(m.ID), hasToken && !isID(token):
		return false
	}
	out := &eventStream{w: w}
	answer, ok := e.runCall(r.Context(), m, client, out)
	if !ok {
		return false
	}
	out.write(e.encodeAnswer(m.ID, answer, client == nil), true)
	return true
}

// runCall runs a call and writes its progress. ok is false if the SDK should have the call.
func (e *endpoint) runCall(ctx context.Context, m *message, client *mcp.ServerSession,
	out *eventStream) (answer *mcp.CallToolResult, ok bool) {
	results, isUsual := e.providerTool(m.Params.Name)
	if !isUsual {
		return nil, false
	}
	if client != nil { // it cancels with a message: the end of its request does not count
		var end func()
		if ctx, end = e.visits.beginCall(ctx, client.ID(), string(m.ID)); end == nil {
			return nil, false
		}
		defer end()
	}
	begun := time.Now()
	parent, _ := protocol.Text(m.Params.Meta["traceparent"])
	c := gateway.Call{Name: m.Params.Name, Args: protocol.Raw(m.Params.Arguments),
		Traceparent: spans.Checked(parent)}
	var report func(n int, text string)
	if token, ok := m.Params.Meta[progressToken]; ok {
		report = func(n int, text string) { out.progress(token, n, text) }
	}
	answer = results.check(e.run(ctx, c, report))
	l := spans.Labels{Method: m.Method, Tool: m.Params.Name, Transport: transport.Transport()}
	if answer.IsError {
		l.Error = spans.ErrorTool
	}
	e.h.gateway.Metrics().Count(spans.MCPServer, l, time.Since(begun))
	return answer, true
}

// providerTool returns the schema of the results of a provider's tool. isUsual is false for other
// tools, and for those whose calls have headers that the SDK checks.
func (e *endpoint) providerTool(name string) (results *resultSchema, isUsual bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.offered[name]
	return o.results, o.isDirect
}

// eventStream is the answer to one request, as events. It is used by one goroutine at a time.
type eventStream struct {
	w       http.ResponseWriter
	isBegun bool
}

// progress writes a message about the progress of the call.
func (s *eventStream) progress(token jsontext.Value, n int, text string) {
	event := newEvent(0)
	event = append(event, `"method":"notifications/progress","params":{"progressToken":`...)
	event = append(event, token...)
	event = strconv.AppendInt(append(event, `,"progress":`...), int64(n), 10)
	event = protocol.AppendText(append(event, `,"message":`...), text)
	s.write(append(event, '}'), false)
}

// newEvent returns the beginning of an event with a message, with room for more bytes.
func newEvent(more int) []byte {
	return append(make([]byte, 0, more+512), "event: message\ndata: {\"jsonrpc\":\"2.0\","...)
}

// write ends the message in an event and writes it.
func (s *eventStream) write(event []byte, isLast bool) {
	event = append(event, "}\n\n"...)
	if !s.isBegun {
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache, no-transform")
		h.Set("Connection", "keep-alive")
		if isLast { // the answer then goes in one piece
			h.Set("Content-Length", strconv.Itoa(len(event)))
		}
		s.isBegun = true
	}
	_, _ = s.w.Write(event)
	_ = http.NewResponseController(s.w).Flush()
}

// encodeAnswer returns an event with the result of a call.
func (e *endpoint) encodeAnswer(id jsontext.Value, r *mcp.CallToolResult, isModern bool) []byte {
	size := 0
	for _, content := range r.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			size += len(text.Text) + len(text.Text)/8 // with escapes
		}
	}
	dst := append(append(newEvent(size), `"id":`...), id...)
	dst = append(dst, `,"result":{"content":[`...)
	for i, content := range r.Content {
		if i > 0 {
			dst = append(dst, ',')
		}
		if text, ok := content.(*mcp.TextContent); ok { // the usual one
			dst = protocol.AppendText(append(dst, `{"type":"text","text":`...), text.Text)
			dst = append(dst, '}')
			continue
		}
		dst = appendJSON(dst, content)
	}
	dst = append(dst, ']')
	if r.StructuredContent != nil {
		dst = appendJSON(append(dst, `,"structuredContent":`...), r.StructuredContent)
	}
	if r.IsError {
		dst = append(dst, `,"isError":true`...)
	}
	if isModern {
		dst = append(dst, `,"resultType":"complete","_meta":{"`+mcp.MetaKeyServerInfo+`":`...)
		dst = append(appendJSON(dst, e.info), '}')
	}
	return append(dst, '}')
}

// appendJSON appends a value that is known to have JSON, without line feeds.
func appendJSON(dst []byte, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		data = []byte("null")
	}
	return append(dst, data...)
}
