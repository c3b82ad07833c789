package protocol

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// encodeOptions keep the bytes of raw strings, lone surrogates included.
var encodeOptions = json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true),
	jsontext.PreserveRawStrings(true))

// Append appends the JSON of a message to dst, with "type" as its first member, and returns the
// longer slice. The args of a tool.call are appended byte for byte; in other messages the white
// space of raw parts may change.
func Append(dst []byte, m Message) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, m.MessageType()...)
	dst = append(dst, '"')
	if c, ok := m.(*ToolCall); ok {
		return appendCall(dst, c)
	}
	body, err := json.Marshal(m, encodeOptions)
	if err != nil {
		// Messages consist of strings, numbers and JSON that was read before, so this can't happen.
		panic(fmt.Sprintf("protocol: encoding %T: %v", m, err))
	}
	if len(body) > len("{}") {
		dst = append(dst, ',')
	}
	return append(dst, body[1:]...)
}

func appendCall(dst []byte, c *ToolCall) []byte {
	dst = append(dst, `,"id":`...)
	dst = AppendText(dst, c.ID)
	dst = append(dst, `,"sessionId":`...)
	dst = AppendText(dst, c.SessionID)
	dst = append(dst, `,"tool":`...)
	dst = AppendText(dst, c.Tool)
	dst = append(dst, `,"args":`...)
	if len(c.Args) == 0 {
		dst = append(dst, "{}"...)
	} else {
		dst = append(dst, c.Args...)
	}
	if c.Traceparent != "" {
		dst = append(dst, `,"traceparent":`...)
		dst = AppendText(dst, c.Traceparent)
	}
	return append(dst, '}')
}

// AppendText appends s to dst as a JSON string, with its quotes. It replaces bytes that are not
// UTF-8 with U+FFFD and never fails.
func AppendText(dst []byte, s string) []byte {
	// The only possible error is that bytes were replaced.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
