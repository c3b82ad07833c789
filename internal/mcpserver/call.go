package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// This file offers a session's tools to MCP clients and runs their calls.

// source is who calls and pushes, in the session's timeline and streams.
const source = "mcp"

// errNoSession is the text of calls while there is no session.
const errNoSession = "there is no session; start one with: tapctl sessions start"

// tools are the tools that the server should offer: the providers', or those to search them, and
// the endpoint's own. Without a session the list is empty.
func (e *endpoint) tools(s *gateway.Session) (offers map[string]offer, renamed []string) {
	offers = map[string]offer{}
	if s == nil {
		return offers, nil
	}
	list := s.Tools()
	if e.terminal && e.h.terminals.HasLink(s.ID()) { // the model has them already
		list = nil
	}
	if int64(len(list)) <= e.threshold {
		for _, t := range list {
			offers[t.Name] = e.offer(t)
		}
	}
	return offers, e.addOwnTools(offers, e.threshold, len(list))
}

// offer is a provider's tool as MCP clients get it.
func (e *endpoint) offer(t adminapi.Tool) offer {
	t.Session, t.TimeoutMs = "", 0 // the same tool in another session is no change
	key, err := json.Marshal(t)
	if err != nil { // a provider's data is valid JSON
		key = []byte(t.Description)
	}
	results := newResultSchema(t.OutputSchema)
	isDirect := !bytes.Contains(t.Parameters, []byte("x-mcp-header"))
	return offer{key: string(key), results: results, isDirect: isDirect, add: func() {
		offered := &mcp.Tool{Name: t.Name, Title: t.Title, Description: t.Description,
			InputSchema: objectSchema(t.Parameters), Annotations: annotations(t.Annotations)}
		if results != nil {
			offered.OutputSchema = objectSchema(t.OutputSchema)
		}
		e.server.AddTool(offered,
			func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				answer, err := e.call(ctx, r, r.Params.Name, r.Params.Arguments)
				return results.check(answer), err
			})
	}}
}

// annotations are a tool's hints as MCP has them.
func annotations(a *adminapi.ToolAnnotations) *mcp.ToolAnnotations {
	if a == nil {
		return nil
	}
	given := func(hint *bool) bool { return hint != nil && *hint }
	return &mcp.ToolAnnotations{ReadOnlyHint: given(a.ReadOnlyHint),
		DestructiveHint: a.DestructiveHint, IdempotentHint: given(a.IdempotentHint),
		OpenWorldHint: a.OpenWorldHint}
}

// resultSchema holds results against a tool's output schema; nil holds them against nothing.
type resultSchema protocol.Schema

func newResultSchema(schema json.RawMessage) *resultSchema {
	if len(schema) == 0 {
		return nil
	}
	compiled, err := protocol.CompileSchema(protocol.Raw(schema))
	if err != nil { // the protocol refuses such a schema
		return nil
	}
	return (*resultSchema)(compiled)
}

// check returns a result that a client accepts of a tool with an output schema. A client refuses a
// structured result that does not fit or is missing, and its model would only read of that. So
// check marks such a result as an error, which a client hands on whole, with a text about the
// misfit.
func (s *resultSchema) check(r *mcp.CallToolResult) *mcp.CallToolResult {
	if s == nil || r == nil || r.IsError || r.InputRequests != nil {
		return r
	}
	fault := "it is not structured"
	if data, ok := r.StructuredContent.(json.RawMessage); ok {
		err := (*protocol.Schema)(s).Check(protocol.Raw(data))
		if err == nil || errors.Is(err, protocol.ErrTooCostly) {
			return r
		}
		fault = err.Error()
	}
	note := fmt.Sprintf(
		"%s: the tool ran, but its result does not fit its output schema: %s. The result:",
		protocol.CodeInternal, fault)
	return &mcp.CallToolResult{IsError: true,
		Content: slices.Concat([]mcp.Content{&mcp.TextContent{Text: note}},
			r.Content)}
}

// objectSchema is a tool's schema as MCP wants it: with the type object, which a call's arguments
// have anyway. A schema that says so is passed on byte for byte.
func objectSchema(schema json.RawMessage) any {
	var members map[string]json.RawMessage
	if json.Unmarshal(schema, &members) != nil || members == nil {
		return json.RawMessage(`{"type":"object"}`) // true: any arguments
	}
	if string(bytes.TrimSpace(members["type"])) == `"object"` {
		return schema
	}
	members["type"] = json.RawMessage(`"object"`)
	return members
}

// call calls a tool of a provider. A client that can ask its user may get questions instead of the
// result.
func (e *endpoint) call(ctx context.Context, r *mcp.CallToolRequest, name string,
	args json.RawMessage,
) (*mcp.CallToolResult, error) {
	if elicitsForms(r.Params.Meta) {
		return e.callOrAsk(ctx, r, func(ctx context.Context, held *heldCall) *mcp.CallToolResult {
			return e.execute(ctx, r, name, args, held)
		})
	}
	return e.execute(ctx, r, name, args, nil), nil
}

// execute calls a tool of a provider, by the session's rules, and waits for its result. When ctx
// ends, the call is cancelled. The client of a held call gets its questions and its progress
// through held, which is nil for other calls.
func (e *endpoint) execute(ctx context.Context, r *mcp.CallToolRequest, name string,
	args json.RawMessage, held *heldCall) *mcp.CallToolResult {
	c := gateway.Call{Name: name, Args: protocol.Raw(args), Traceparent: traceparent(r)}
	report := func(n int, message string) { progress(ctx, r, n, message) }
	switch {
	case held != nil:
		c.Asked, report = held.asked, held.waiter.progress
	case canElicit(r.Session):
		a := &asker{ctx: ctx, s: e.session(), client: r.Session,
			asking: map[string]context.CancelFunc{}}
		defer a.close()
		c.Asked = a.asked
	case r.Params.GetProgressToken() == nil:
		report = nil
	}
	return e.run(ctx, c, report)
}

// run runs a call and tells report of its progress, unless that is nil.
func (e *endpoint) run(ctx context.Context, c gateway.Call, report func(n int, message string),
) *mcp.CallToolResult {
	s := e.session()
	if s == nil {
		return failed(protocol.CodeInvalidSession, errNoSession)
	}
	if c.Source = source; string(c.Args) == "null" {
		c.Args = nil // as some clients write no arguments
	}
	if c.Args.Kind() == '{' {
		// A provider's SDK drops a message with such arguments, and the call would never be
		// answered.
		if err := protocol.Object(c.Args, func(string, protocol.Raw) error {
			return nil
		}); err != nil {
			return failed(protocol.CodeInvalidArguments,
				fmt.Sprintf("arguments of %s: %v", c.Name, err))
		}
	}
	if report == nil {
		return result(s.Execute(ctx, c))
	}
	messages := make(chan string, 64)
	c.Progress = func(message string) {
		select {
		case messages <- message:
		default: // the client reads more slowly than the provider reports
		}
	}
	outcome := make(chan gateway.Outcome, 1)
	go func() { outcome <- s.Execute(ctx, c) }()
	return result(await(outcome, messages, report))
}

// await waits for a call's outcome. Until then it reports the provider's messages, and repeats the
// last one after each silence of progressEvery, because clients give silent calls up.
func await(
	outcome <-chan gateway.Outcome, messages <-chan string, report func(n int, message string),
) gateway.Outcome {
	silence := time.NewTimer(progressEvery)
	defer silence.Stop()
	last := "still running"
	for n := 1; ; n++ {
		select {
		case last = <-messages:
		case <-silence.C:
		case o := <-outcome:
			for ; len(messages) > 0; n++ { // they came before the outcome
				report(n, <-messages)
			}
			return o
		}
		report(n, last)
		silence.Reset(progressEvery)
	}
}

// progress tells the client that its request goes on, if it asked to be told.
func progress(ctx context.Context, r *mcp.CallToolRequest, n int, message string) {
	if token := r.Params.GetProgressToken(); token != nil {
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: float64(n), Message: message})
	}
}

// traceparent is the W3C trace context of a request, or "".
func traceparent(r *mcp.CallToolRequest) string {
	text, _ := r.Params.Meta["traceparent"].(string)
	return spans.Checked(text)
}

// result is an outcome as an MCP result. It always has a text, the structure of a JSON object
// beside it, and the context of rules and gates at the end.
func result(o gateway.Outcome) *mcp.CallToolResult {
	r := outcomeResult(o)
	if o.Context != "" {
		r.Content = append(r.Content, &mcp.TextContent{Text: o.Context})
	}
	return r
}

func outcomeResult(o gateway.Outcome) *mcp.CallToolResult {
	switch {
	case o.Failed():
		return failed(o.ErrorCode, o.Error)
	case o.File != nil:
		return &mcp.CallToolResult{Content: fileContent(o.File)}
	case o.Content != nil:
		return partsResult(o)
	case o.Data.Kind() != '{':
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: o.Text()}}}
	}
	if content := imageContent(o.Data); content != nil {
		return &mcp.CallToolResult{Content: content}
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: o.Text()}},
		StructuredContent: json.RawMessage(o.Data),
	}
}

// partsResult is a result of several parts, with the data beside them as its structure.
func partsResult(o gateway.Outcome) *mcp.CallToolResult {
	r := &mcp.CallToolResult{Content: []mcp.Content{}}
	for _, p := range o.Content {
		var content mcp.Content
		switch {
		case p.Type == protocol.PartText:
			content = &mcp.TextContent{Text: p.Text}
		case p.Type == protocol.PartImage:
			content = &mcp.ImageContent{Data: p.Data, MIMEType: p.MimeType}
		case p.Type == protocol.PartAudio:
			content = &mcp.AudioContent{Data: p.Data, MIMEType: p.MimeType}
		case p.Text != "":
			content = &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{
				URI: p.URI, MIMEType: p.MimeType, Text: p.Text}}
		case p.Data != nil:
			content = &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{
				URI: p.URI, MIMEType: p.MimeType, Blob: p.Data}}
		default:
			content = &mcp.ResourceLink{URI: p.URI, MIMEType: p.MimeType,
				Name: cmp.Or(p.Name, p.URI), Description: p.Description}
		}
		r.Content = append(r.Content, content)
	}
	if o.Data.Kind() == '{' {
		r.StructuredContent = json.RawMessage(o.Data)
	}
	return r
}

// failed is the result of a call that failed.
func failed(code protocol.Code, text string) *mcp.CallToolResult {
	o := gateway.Outcome{ErrorCode: code, Error: text}
	return &mcp.CallToolResult{IsError: true,
		Content: []mcp.Content{&mcp.TextContent{Text: o.Text()}}}
}

// fileContent is a provider's file: text as a text, images and sounds as such, and the rest as a
// resource.
func fileContent(f *gateway.File) []mcp.Content {
	kind, _, _ := strings.Cut(f.MimeType, "/")
	if text, ok := f.Text(); ok {
		return []mcp.Content{&mcp.TextContent{Text: text}}
	}
	switch kind {
	case "image":
		return []mcp.Content{&mcp.ImageContent{Data: f.Content, MIMEType: f.MimeType}}
	case "audio":
		return []mcp.Content{&mcp.AudioContent{Data: f.Content, MIMEType: f.MimeType}}
	}
	return []mcp.Content{&mcp.TextContent{Text: f.String()},
		&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{
			URI: "tapgw://file/" + url.PathEscape(f.Name), MIMEType: f.MimeType, Blob: f.Content}}}
}

// imageContent is the content of an object whose member image is a data: URL, with the other
// members as text, as Copilot sessions get it. It is nil for other objects.
func imageContent(data protocol.Raw) []mcp.Content {
	if !bytes.Contains(data, []byte(`"data:image/`)) { // most objects
		return nil
	}
	var members map[string]json.RawMessage
	var image string
	if json.Unmarshal(data, &members) != nil || json.Unmarshal(members["image"], &image) != nil {
		return nil
	}
	head, body, _ := strings.Cut(image, ",")
	mimeType, isBase64 := strings.CutSuffix(strings.TrimPrefix(head, "data:"), ";base64")
	bits, err := base64.StdEncoding.DecodeString(body)
	if !isBase64 || err != nil || !strings.HasPrefix(mimeType, "image/") {
		return nil
	}
	delete(members, "image")
	text := fmt.Sprintf("An image (%s, %d bytes).", mimeType, len(bits))
	if len(members) > 0 {
		if rest, err := json.Marshal(members); err == nil {
			text = string(rest)
		}
	}
	return []mcp.Content{&mcp.TextContent{Text: text},
		&mcp.ImageContent{Data: bits, MIMEType: mimeType}}
}
