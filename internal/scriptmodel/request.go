package scriptmodel

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
)

// Request is a model request as it came, and its parts that scripts need: model, messages and tools
// in the same form for each wire. Several goroutines may have it, so treat it as read only.
type Request struct {
	N        int         // counted from 1
	Path     string      // which wire, such as "/v1/chat/completions"
	Query    url.Values  // read only
	Header   http.Header // read only
	Body     []byte      // the bytes of the request; read only
	Model    string
	Stream   bool
	Messages []Message
	Tools    []Tool

	ctx     context.Context
	done    chan struct{}
	aborted atomic.Bool
}

// Message is one message of the conversation. Text joins the message's parts of text, Images has
// the addresses of its images. ToolCallID is the ID of the [ToolCall] whose result this is.
type Message struct {
	Role       string // system, user, assistant or tool
	Text       string
	Images     []string   // their URLs
	ToolCalls  []ToolCall // of an assistant
	ToolCallID string     // of a tool's result
}

// Tool is a tool that the request offers to the model. Parameters is the JSON Schema of its
// arguments as it came, nil if the request omits it. IsFreeform says that the tool takes a text in
// place of arguments, as OpenAI's custom tools.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage
	IsFreeform  bool
}

// ToolCall is a call that the model makes. In a [Reply], a call without an ID gets a new one, and a
// call without Args gets {}. In a [Message] it is a call of an earlier reply.
type ToolCall struct {
	ID         string
	Name       string
	Args       string // a JSON object, or the text of a freeform call
	IsFreeform bool   // on the OpenAI wires only
}

// Context returns a context that ends when the client closes the connection or the server closes. A
// script that waits must watch it.
func (r *Request) Context() context.Context { return r.ctx }

// Done is closed when the reply was written, or could not be written. After that the value of
// [Request.Aborted] is final.
func (r *Request) Done() <-chan struct{} { return r.done }

// Aborted reports whether the client closed the connection before it had the whole reply; a reply
// with Cut does not count. The value is final once [Request.Done] is closed.
func (r *Request) Aborted() bool { return r.aborted.Load() }

// ToolNames returns the names of the tools that the request offers, in the request's order; which
// may be an empty list.
func (r *Request) ToolNames() []string {
	names := make([]string, len(r.Tools))
	for i, t := range r.Tools {
		names[i] = t.Name
	}
	return names
}

// HasTool reports whether the request offers a tool of exactly that name.
func (r *Request) HasTool(name string) bool {
	for _, t := range r.Tools {
		if t.Name == name {
			return true
		}
	}
	return false
}

// System returns the text of all system messages, with an empty line between two of them; ""
// without such messages. On the wires that carry the system message beside the conversation it is
// that text.
func (r *Request) System() string {
	var parts []string
	for _, m := range r.Messages {
		if m.Role == "system" {
			parts = append(parts, m.Text)
		}
	}
	return strings.Join(parts, "\n\n")
}

// LastUser returns the text of the last message with the user's role, or "". A runtime adds such
// messages of its own; [Prompt] removes its tagged text.
func (r *Request) LastUser() string { return r.lastMessage("user").Text }

// LastResult returns the text of the last tool result in the conversation, or "". It may belong to
// an earlier turn.
func (r *Request) LastResult() string { return r.lastMessage("tool").Text }

func (r *Request) lastMessage(role string) Message {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == role {
			return m
		}
	}
	return Message{}
}

// wireRequest is a request on either OpenAI wire: a completions request has messages, a responses
// request has instructions and input.
type wireRequest struct {
	Model        string          `json:"model"`
	Stream       bool            `json:"stream"`
	Messages     []wireMessage   `json:"messages"`
	Instructions string          `json:"instructions"`
	Input        json.RawMessage `json:"input"`
	Tools        []wireTool      `json:"tools"`
}

type wireMessage struct {
	Type       string          `json:"type"` // responses only
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCalls  []wireToolCall  `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
	// function_call and function_call_output of the responses wire.
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	// custom_tool_call of the responses wire.
	Input string `json:"input"`
}

type wireToolCall struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
	Custom *struct {
		Name  string `json:"name"`
		Input string `json:"input"`
	} `json:"custom"`
}

func (c wireToolCall) toolCall() ToolCall {
	if c.Custom != nil {
		return ToolCall{ID: c.ID, Name: c.Custom.Name, Args: c.Custom.Input, IsFreeform: true}
	}
	return ToolCall{ID: c.ID, Name: c.Function.Name, Args: c.Function.Arguments}
}

type wireTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Function    *struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
	Custom *struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	} `json:"custom"`
}

func newRequest(hr *http.Request, body []byte) (*Request, error) {
	r := &Request{
		Path:   hr.URL.Path,
		Query:  hr.URL.Query(),
		Header: hr.Header.Clone(),
		Body:   body,
		ctx:    hr.Context(),
		done:   make(chan struct{}),
	}
	if strings.HasSuffix(r.Path, "/messages") {
		return r, r.readMessages()
	}
	if strings.HasPrefix(r.Path, "/v1beta/") {
		return r, r.readGemini()
	}
	var in wireRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	r.Model, r.Stream = in.Model, in.Stream
	if in.Instructions != "" {
		r.Messages = append(r.Messages, Message{Role: "system", Text: in.Instructions})
	}
	items, err := inputItems(in)
	if err != nil {
		return nil, err
	}
	for _, m := range items {
		r.Messages = append(r.Messages, m.message())
	}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, t.tool())
	}
	return r, nil
}

// inputItems returns the conversation of either wire. The responses wire also allows a plain string
// as input.
func inputItems(in wireRequest) ([]wireMessage, error) {
	if len(in.Input) == 0 {
		return in.Messages, nil
	}
	if in.Input[0] == '"' {
		return []wireMessage{{Role: "user", Content: in.Input}}, nil
	}
	var items []wireMessage
	if err := json.Unmarshal(in.Input, &items); err != nil {
		return nil, fmt.Errorf("reading input: %w", err)
	}
	return items, nil
}

func (m wireMessage) message() Message {
	switch m.Type {
	case "function_call":
		return Message{Role: "assistant",
			ToolCalls: []ToolCall{{ID: m.CallID, Name: m.Name, Args: m.Arguments}}}
	case "custom_tool_call":
		call := ToolCall{ID: m.CallID, Name: m.Name, Args: m.Input, IsFreeform: true}
		return Message{Role: "assistant", ToolCalls: []ToolCall{call}}
	case "function_call_output", "custom_tool_call_output":
		return Message{Role: "tool", Text: contentText(m.Output), ToolCallID: m.CallID}
	}
	out := Message{Role: m.Role, Text: contentText(m.Content), ToolCallID: m.ToolCallID}
	out.Images = contentImages(m.Content)
	if out.Role == "developer" {
		out.Role = "system"
	}
	for _, c := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, c.toolCall())
	}
	return out
}

// contentImages returns the URLs of a message's images: of image_url parts, whose URL is a string
// or in an object.
func contentImages(raw json.RawMessage) (urls []string) {
	var parts []struct {
		ImageURL json.RawMessage `json:"image_url"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return nil
	}
	for _, p := range parts {
		var url string
		var image struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(p.ImageURL, &url) != nil && json.Unmarshal(p.ImageURL, &image) == nil {
			url = image.URL
		}
		if url != "" {
			urls = append(urls, url)
		}
	}
	return urls
}

// contentText returns the text of a message's content, which is a string or a list of parts, some
// with text.
func contentText(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

func (t wireTool) tool() Tool {
	if f := t.Function; f != nil {
		return Tool{Name: f.Name, Description: f.Description, Parameters: f.Parameters}
	}
	if c := t.Custom; c != nil {
		return Tool{Name: c.Name, Description: c.Description, IsFreeform: true}
	}
	name := t.Name
	if name == "" { // the endpoint's own tools have only a type
		name = t.Type
	}
	return Tool{Name: name, Description: t.Description, Parameters: t.Parameters,
		IsFreeform: t.Type == "custom"}
}
