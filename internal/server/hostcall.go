package server

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// toolCall is the hot path: the call goes to the provider from the host's
// reader, and its result to the host from the provider's, so that neither waits
// for a goroutine to be scheduled.
func (c *hostConn) toolCall(f rpcFrame) {
	var sessionID, callID string
	var call gateway.Call
	var timeoutMs int64
	fault := func() *rpcError {
		if f.params.Kind() != '{' {
			return invalidParams("tool/call: params: must be an object")
		}
		bad := (*rpcError)(nil)
		str := func(name string, v protocol.Raw) string {
			s, ok := protocol.Text(v)
			if !ok && v.Kind() != 'n' && bad == nil {
				bad = invalidParams("tool/call.%s: must be a string", name)
			}
			return s
		}
		_ = protocol.Object(f.params, func(name string, v protocol.Raw) error {
			switch name {
			case "sessionId":
				sessionID = str(name, v)
			case "name":
				call.Name = str(name, v)
			case "callId":
				callID = str(name, v)
			case "traceparent":
				call.Traceparent = str(name, v)
			case "args":
				if v.Kind() != 'n' {
					call.Args = v
				}
			case "timeoutMs":
				if v.Kind() != 'n' && (json.Unmarshal(v, &timeoutMs, protocol.WholeNumbers) != nil || timeoutMs < 1) && bad == nil {
					bad = invalidParams("tool/call.timeoutMs: must be a whole number of milliseconds, at least 1")
				}
			}
			return nil
		})
		switch {
		case bad != nil:
			return bad
		case sessionID == "":
			return invalidParams("tool/call.sessionId: is required")
		case call.Name == "":
			return invalidParams("tool/call.name: is required")
		}
		return nil
	}()
	var s *gateway.Session
	if fault == nil {
		s, fault = c.session("tool/call.sessionId", sessionID)
	}
	if fault != nil {
		c.rpc.reply(f.id, nil, fault)
		return
	}
	if c.isRunning(callID) {
		c.rpc.reply(f.id, nil, invalidParams("tool/call.callId: a call with the id %.100q is running", callID))
		return
	}
	call.Timeout = time.Duration(min(timeoutMs, protocol.MaxToolTimeout.Milliseconds())) * time.Millisecond
	if callID == "" {
		s.BeginCall(call, func(o gateway.Outcome) { c.replyOutcome(f.id, o) })
		return
	}
	c.beginCancellable(callID, func(done func()) *gateway.Pending {
		return s.BeginCall(call, func(o gateway.Outcome) {
			done()
			c.replyOutcome(f.id, o)
		})
	})
}

// cancellable begins a call that tool/cancel may name. The call may end before
// begin returns; then there is nothing to remember.
func (c *hostConn) beginCancellable(callID string, begin func(done func()) *gateway.Pending) {
	c.mu.Lock()
	c.calls[callID] = nil // reserves the name until it is known
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

// running reports whether a call of that name has not ended; "" names none.
func (c *hostConn) isRunning(callID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.calls[callID]
	return ok
}

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
		case len(o.Data) > 0:
			dst = append(dst, `"data":`...)
			dst = append(dst, o.Data...)
		default:
			dst = append(dst, `"data":null`...)
		}
		return append(dst, `}}`...)
	})
	c.rpc.Flush()
}

// fileData is a result that was a file, as JSON: text for a text type, else its
// bytes.
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

func (c *hostConn) toolCancel(f rpcFrame) {
	var p struct {
		CallID string `json:"callId"`
		Reason string `json:"reason"`
	}
	if decodeParams(f.method, f.params, &p) != nil {
		return // nobody waits for an answer to a notification
	}
	c.mu.Lock()
	pending := c.calls[p.CallID]
	c.mu.Unlock()
	if pending == nil {
		return // it has ended, or never was
	}
	if p.Reason == "" {
		p.Reason = protocol.ReasonInterrupted
	}
	pending.Cancel(p.Reason)
}

// event takes what the session did, as the four events of v2.
func (c *hostConn) event(f rpcFrame) *rpcError {
	var p struct {
		SessionID string       `json:"sessionId"`
		Event     string       `json:"event"`
		Data      protocol.Raw `json:"data"`
	}
	if fault := decodeParams(f.method, f.params, &p); fault != nil {
		return fault
	}
	s, fault := c.session("session/event.sessionId", p.SessionID)
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
			s.Event(gateway.Event{Callback: gateway.OnEndMessage, ID: id, Content: d.Content, Forwarded: p.Event, Data: p.Data})
		}
	case protocol.EventToolComplete:
		return c.toolComplete(s, p.Data)
	default:
		return invalidParams("session/event.event: %q is not one of the four events", p.Event)
	}
	return nil
}

func (c *hostConn) toolComplete(s *gateway.Session, data protocol.Raw) *rpcError {
	var d struct {
		Tool     string       `json:"tool"`
		Provider string       `json:"provider"`
		Args     protocol.Raw `json:"args"`
		Result   struct {
			Type   string `json:"type"`
			Output string `json:"output"`
		} `json:"result"`
	}
	if fault := decodeParams("session/event.data", data, &d); fault != nil {
		return fault
	}
	id := uuid.NewString()
	s.Event(gateway.Event{Callback: gateway.OnStartToolExecution, ID: id, Tool: d.Tool, Args: string(d.Args)})
	end := gateway.Event{Callback: gateway.OnEndToolExecution, ID: id, Tool: d.Tool, Provider: d.Provider, Forwarded: protocol.EventToolComplete, Data: data}
	if d.Result.Type == "failure" {
		end.Error = &gateway.ToolError{Message: d.Result.Output}
	} else {
		end.Result = &gateway.ToolOutput{Content: d.Result.Output}
	}
	s.Event(end)
	return nil
}
