package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tapgw/internal/protocol"
)

// JSON-RPC 2.0 as session hosts speak it (docs/protocol.md, "Session hosts"): one object in each
// text frame of a WebSocket. It shares no code with internal/jsonrpc, which is the language
// servers' JSON-RPC: Content-Length frames on two pipes, cancellation by `$/cancelRequest`, and
// sourcegraph/jsonrpc2 to match requests with answers. That library decodes each message and
// encodes it again, and answers from goroutines of its own. Here a tool call passes through twice;
// its args and its result must stay the bytes that came, and the goroutine that reads one side
// writes the other (docs/adr/0013-inline-writes.md). Both could share only a few error codes.

// Codes of JSON-RPC errors. protocol.HostCodeNoSession and its neighbour are the gateway's own.
const (
	rpcParseError     = -32700
	rpcInvalidRequest = -32600
	rpcNoMethod       = -32601
	rpcInvalidParams  = -32602
	rpcInternal       = -32603
)

// anyText lets a string hold half a surrogate pair, as JavaScript's strings may: one in a tool's
// schema or in a prompt must not fail the message.
var anyText = json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true),
	jsontext.PreserveRawStrings(true))

// rpcError is the error of a JSON-RPC response, with one of the codes above.
type rpcError struct {
	Code    int
	Message string
}

func invalidParams(format string, args ...any) *rpcError {
	return &rpcError{rpcInvalidParams, fmt.Sprintf(format, args...)}
}

// rpcFrame is one frame: a request, a notification or a response. Its parts are the bytes that
// came.
type rpcFrame struct {
	id        protocol.Raw // nil for a notification
	method    string       // "" for a response
	params    protocol.Raw
	result    protocol.Raw
	errorBody protocol.Raw
}

// parseFrame reads a frame. With an error the frame still has the id, if that could be read.
func parseFrame(data []byte) (f rpcFrame, fault *rpcError) {
	var method, badID protocol.Raw
	err := protocol.Object(data, func(name string, v protocol.Raw) error {
		switch name {
		case "id":
			// A host's error response may have a null id.
			if k := v.Kind(); k != '"' && k != '0' && k != 'n' {
				badID = v
				return nil
			}
			f.id = v
		case "method":
			method = v
		case "params":
			f.params = v
		case "result":
			f.result = v
		case "error":
			f.errorBody = v
		}
		return nil
	})
	if err != nil {
		return f, &rpcError{rpcParseError, err.Error()}
	}
	wrong := func(message string) *rpcError { return &rpcError{rpcInvalidRequest, message} }
	if badID != nil || (method != nil && f.id.Kind() == 'n') {
		return f, wrong("id: must be a string or a number")
	}
	if method != nil {
		var ok bool
		if f.method, ok = protocol.Text(method); !ok || f.method == "" {
			return f, wrong("method: must be a string")
		}
	} else if f.result == nil && f.errorBody == nil {
		return f, wrong("method: is required")
	}
	return f, nil
}

// decodeParams decodes params into v; no params are {}. The error has the code rpcInvalidParams
// and names the field, below method.
func decodeParams(method string, params protocol.Raw, v any) *rpcError {
	if params == nil {
		params = protocol.Raw("{}")
	}
	if params.Kind() != '{' {
		return invalidParams("%s: params: must be an object", method)
	}
	if err := json.Unmarshal(params, v, anyText, protocol.WholeNumbers); err != nil {
		return invalidParams("%s", protocol.Explain(method, err))
	}
	return nil
}

// rpcConn sends frames to one host and matches its responses with the gateway's own requests.
type rpcConn struct {
	*wire

	mu      sync.Mutex // guards the fields below
	next    uint64
	pending map[uint64]chan rpcFrame
	closed  bool
}

var errHostGone = errors.New("the host is not connected")

// call sends a request and waits for its response, whose result it ignores. The error is
// errHostGone when the connection ends, wraps ctx's, or has the host's code and message.
func (c *rpcConn) call(ctx context.Context, method string, params any) error {
	body, err := json.Marshal(params, anyText)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", method, err)
	}
	answer := make(chan rpcFrame, 1)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errHostGone
	}
	c.next++
	id := c.next
	c.pending[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
	}()
	c.enqueue(func(dst []byte) []byte {
		dst = append(dst, `{"jsonrpc":"2.0","id":`...)
		dst = strconv.AppendUint(dst, id, 10)
		return appendRequest(dst, method, body)
	})
	c.Flush()
	select {
	case f, ok := <-answer:
		switch {
		case !ok:
			return errHostGone
		case f.errorBody != nil:
			var e struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
			}
			_ = json.Unmarshal(f.errorBody, &e)
			return fmt.Errorf("%s: the host answered %d: %s", method, e.Code, e.Message)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: the host did not answer: %w", method, ctx.Err())
	}
}

// notify sends a notification.
func (c *rpcConn) notify(method string, params any) {
	body, err := json.Marshal(params, anyText)
	if err != nil {
		return
	}
	c.enqueue(func(dst []byte) []byte {
		return appendRequest(append(dst, `{"jsonrpc":"2.0"`...), method, body)
	})
	c.Flush()
}

// appendRequest appends a request behind its id.
func appendRequest(dst []byte, method string, params []byte) []byte {
	dst = append(dst, `,"method":"`...)
	dst = append(dst, method...)
	dst = append(dst, `","params":`...)
	dst = append(dst, params...)
	return append(dst, '}')
}

// handleResponse hands a response to the request that waits for it. Unknown ids are ignored.
func (c *rpcConn) handleResponse(f rpcFrame) {
	id, err := strconv.ParseUint(string(bytes.TrimSpace(f.id)), 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	answer := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if answer != nil {
		answer <- f
	}
}

// failPending ends all requests that wait, and later ones, with errHostGone.
func (c *rpcConn) failPending() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for id, answer := range c.pending {
		delete(c.pending, id)
		close(answer)
	}
}

// reply answers a request with a result or an error. A notification, without an id, gets no
// answer.
func (c *rpcConn) reply(id protocol.Raw, result any, fault *rpcError) {
	c.enqueueReply(id, result, fault)
	c.Flush()
}

// enqueueReply is [rpcConn.reply] without the flush: the caller may queue more behind it.
func (c *rpcConn) enqueueReply(id protocol.Raw, result any, fault *rpcError) {
	if id == nil {
		return
	}
	if fault != nil {
		c.replyError(id, fault)
		return
	}
	body, err := json.Marshal(result, anyText)
	if err != nil {
		c.replyError(id, &rpcError{rpcInternal, "encoding the answer: " + err.Error()})
		return
	}
	c.enqueue(func(dst []byte) []byte {
		dst = append(dst, `{"jsonrpc":"2.0","id":`...)
		dst = append(dst, id...)
		dst = append(dst, `,"result":`...)
		dst = append(dst, body...)
		return append(dst, '}')
	})
}

// replyError answers with an error. The id is nil when the frame could not be read.
func (c *rpcConn) replyError(id protocol.Raw, e *rpcError) {
	c.enqueue(func(dst []byte) []byte {
		dst = append(dst, `{"jsonrpc":"2.0","id":`...)
		if id == nil {
			id = protocol.Raw("null")
		}
		dst = append(dst, id...)
		dst = append(dst, `,"error":{"code":`...)
		dst = strconv.AppendInt(dst, int64(e.Code), 10)
		dst = append(dst, `,"message":`...)
		dst = protocol.AppendText(dst, e.Message)
		return append(dst, `}}`...)
	})
	c.Flush()
}
