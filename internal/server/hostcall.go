package server

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// Tool calls and events of session hosts.

// toolCallParams are the params of `tool/call`.
type toolCallParams struct {
	sessionID string
	callID    string // "" for a call that can't be cancelled
	timeoutMs int64  // 0: the tool's own
	call      gateway.Call
}

// parseToolCall reads the params member by member: decoding into a struct would copy the
// args, which pass through as the bytes that came.
func parseToolCall(params protocol.Raw) (p toolCallParams, fault *rpcError) {
	if params.Kind() != '{' {
		return p, invalidParams("tool/call: params: must be an object")
	}
	setFault := func(format string, args ...any) {
		if fault == nil {
			fault = invalidParams(format, args...)
		}
	}
	text := func(name string, v protocol.Raw) string {
		s, ok := protocol.Text(v)
		if !ok && v.Kind() != 'n' {
			setFault("tool/call.%s: must be a string", name)
		}
		return s
	}
	_ = protocol.Object(params, func(name string, v protocol.Raw) error {
		switch name {
		case "sessionId":
			p.sessionID = text(name, v)
		case "name":
			p.call.Name = text(name, v)
		case "callId":
			p.callID = text(name, v)
		case "traceparent":
			p.call.Traceparent = text(name, v)
		case "args":
			if v.Kind() != 'n' {
				p.call.Args = v
			}
		case "timeoutMs":
			if v.Kind() == 'n' {
				return nil
			}
			if json.Unmarshal(v, &p.timeoutMs, protocol.WholeNumbers) != nil || p.timeoutMs < 1 {
				setFault("tool/call.timeoutMs: must be a whole number of milliseconds, at least 1")
			}
		}
		return nil
	})
	switch {
	case fault != nil:
	case p.sessionID == "":
		setFault("tool/call.sessionId: is required")
	case p.call.Name == "":
		setFault("tool/call.name: is required")
	}
	return p, fault
}

// toolCall answers `tool/call`, the hot path. The reading goroutine of the host sends the call
// to its provider, and that of the provider sends the result to the host, so that neither
// waits for another goroutine to be scheduled.
func (c *hostConn) toolCall(f rpcFrame) {
	p, fault := parseToolCall(f.params)
	var s *gateway.Session
	if fault == nil {
		s, fault = c.session("tool/call.sessionId", p.sessionID)
	}
	if fault == nil && c.isRunning(p.callID) {
		fault = invalidParams("tool/call.callId: a call with the id %.100q is running", p.callID)
	}
	if fault != nil {
		c.rpc.reply(f.id, nil, fault)
		return
	}
	p.call.Batch = c.rpc.batch
	p.call.Timeout = time.Duration(min(p.timeoutMs,
		protocol.MaxToolTimeout.Milliseconds())) * time.Millisecond
	if p.callID == "" {
		s.BeginCall(p.call, func(o gateway.Outcome) { c.replyOutcome(f.id, o) })
		return
	}
	c.beginCancellable(p.callID, func(done func()) *gateway.Pending {
		return s.BeginCall(p.call, func(o gateway.Outcome) {
			done()
			c.replyOutcome(f.id, o)
		})
	})
}

// beginCancellable begins a call that `tool/cancel` may name, and forgets it when done is
// called. The call may end before begin returns.
func (c *hostConn) beginCancellable(callID string, begin func(done func()) *gateway.Pending) {
	c.mu.Lock()
	c.calls[callID] = nil // reserves the id until begin has returned
	c.mu.Unlock()
	pending := begin(func() {
		c.mu.Lock()
		delete(c.calls, callID)
		c.mu.Unlock()
	})
	c.mu.Lock()
	if _, running := c.calls[callID]; running {
		c.calls[callID] = pending
	}
	c.mu.Unlock()
}

// isRunning reports whether a call with this callId has not ended. It is false for "".
func (c *hostConn) isRunning(callID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.calls[callID]
	return ok
}

// replyOutcome answers a `tool/call` without encoding the data again. An error of a call is part
// of the result, not a JSON-RPC error.
func (c *hostConn) replyOutcome(id protocol.Raw, o gateway.Outcome) {
	if id == nil {
		return
	}
	c.rpc.enqueue(func(dst []byte) []byte {
		dst = append(dst, `{"jsonrpc":"2.0","id":`...)
		dst = append(dst, id...)
		dst = append(dst, `,"result":{`...)
		switch {
		case o.Failed():
			dst = append(dst, `"error":`...)
			dst = protocol.AppendText(dst, o.Error)
			dst = append(dst, `,"errorCode":`...)
			dst = protocol.AppendText(dst, string(o.ErrorCode))
			if o.Retryable {
				dst = append(dst, `,"retryable":true`...)
			}
		case o.File != nil:
			dst = append(dst, `"data":`...)
			dst = append(dst, fileData(o.File)...)
		default:
			dst = append(dst, `"data":`...)
			dst = append(dst, outcomeData(o)...)
			if content := contentParts(o); content != nil {
				dst = append(dst, `,"content":`...)
				dst = append(dst, content...)
			}
		}
		return append(dst, `}}`...)
	})
	o.Batch.Add(c.rpc.wire)
}

// outcomeData returns the data of a call's outcome, or else its parts as a text.
func outcomeData(o gateway.Outcome) []byte {
	switch {
	case len(o.Data) > 0:
		return o.Data
	case o.Content != nil:
		return protocol.AppendText(nil, o.Text())
	}
	return []byte("null")
}

// contentParts encodes the parts of a result; nil for a result without parts. The paths of files
// are the provider's.
func contentParts(o gateway.Outcome) []byte {
	if o.Content == nil {
		return nil
	}
	b, err := json.Marshal(o.Content)
	if err != nil {
		return nil
	}
	return b
}

// fileData encodes the file that is a call's result: a string for text, otherwise an object
// with the bytes in base64.
func fileData(f *gateway.File) []byte {
	var data any
	if text, ok := f.Text(); ok {
		data = text
	} else {
		data = struct {
			MimeType string `json:"mimeType"`
			Size     int    `json:"size"`
			Base64   []byte `json:"base64"`
		}{f.MimeType, len(f.Content), f.Content}
	}
	b, err := json.Marshal(data)
	if err != nil {
		return []byte("null")
	}
	return b
}

// toolCancel handles `tool/cancel`, a notification. Unknown ids and wrong params are ignored.
func (c *hostConn) toolCancel(f rpcFrame) {
	var p protocol.HostToolCancel
	if decodeParams(f.method, f.params, &p) != nil {
		return
	}
	c.mu.Lock()
	pending := c.calls[p.CallID]
	c.mu.Unlock()
	if pending == nil {
		return
	}
	if p.Reason == "" {
		p.Reason = protocol.ReasonInterrupted
	}
	pending.Cancel(p.Reason)
}

// event answers `session/event`: it adds one of the four events of docs/protocol.md,
// "Subscriptions", to the session.
func (c *hostConn) event(f rpcFrame) *rpcError {
	var p protocol.HostEvent[protocol.Raw]
	s, fault := c.decode(f, &p, "sessionId", &p.SessionID)
	if fault != nil {
		return fault
	}
	switch p.Event {
	case protocol.EventUserMessage, protocol.EventAssistantMessage, protocol.EventAssistantIntent:
		var d struct {
			Content string `json:"content"`
			Intent  string `json:"intent"`
		}
		if fault := decodeParams("session/event.data", p.Data, &d); fault != nil {
			return fault
		}
		switch p.Event {
		case protocol.EventUserMessage:
			s.Event(gateway.Event{UserMessage: d.Content, Forwarded: p.Event, Data: p.Data})
		case protocol.EventAssistantIntent:
			s.Event(gateway.Event{Intent: d.Intent, Forwarded: p.Event, Data: p.Data})
		case protocol.EventAssistantMessage:
			id := uuid.NewString()
			s.Event(gateway.Event{Callback: gateway.OnStartMessage, ID: id})
			s.Event(gateway.Event{
				Callback: gateway.OnEndMessage, ID: id, Content: d.Content, Forwarded: p.Event,
				Data: p.Data,
			})
		}
	case protocol.EventToolComplete:
		return addToolEvents(s, p.Data)
	default:
		return invalidParams("session/event.event: %q is not one of the four events", p.Event)
	}
	return nil
}

// addToolEvents adds the start and the end of a tool that the session ran itself.
func addToolEvents(s *gateway.Session, data protocol.Raw) *rpcError {
	var d struct {
		Tool     string       `json:"tool"`
		Provider string       `json:"provider"`
		Args     protocol.Raw `json:"args"`
		Result   struct {
			Type     string `json:"type"`
			Output   string `json:"output"`
			ExitCode *int   `json:"exitCode"`
		} `json:"result"`
		DurationMs float64 `json:"durationMs"`
	}
	if fault := decodeParams("session/event.data", data, &d); fault != nil {
		return fault
	}
	id := uuid.NewString()
	s.Event(gateway.Event{Callback: gateway.OnStartToolExecution, ID: id, Tool: d.Tool,
		Args: string(d.Args)})
	end := gateway.Event{
		Callback: gateway.OnEndToolExecution, ID: id, Tool: d.Tool, Provider: d.Provider,
		Forwarded: protocol.EventToolComplete, Data: data, ExitCode: d.Result.ExitCode,
		Duration: gateway.ToolTime(d.DurationMs),
	}
	if d.Result.Type == "failure" {
		end.Error = &adminapi.ToolError{Message: d.Result.Output}
	} else {
		end.Result = &adminapi.ToolOutput{Content: d.Result.Output}
	}
	s.Event(end)
	return nil
}
