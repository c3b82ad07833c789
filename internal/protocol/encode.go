package protocol

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// encodeOptions keep raw strings as they came, lone surrogates included.
var encodeOptions = json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true),
	jsontext.PreserveRawStrings(true))

// Append writes a message as it goes over the wire, its type first. Raw parts
// stay byte for byte in a tool.call, the hot one.
func Append(dst []byte, m Message) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, m.MessageType()...)
	dst = append(dst, '"')
	if c, ok := m.(*ToolCall); ok {
		return appendCall(dst, c)
	}
	body, err := json.Marshal(m, encodeOptions)
	if err != nil {
		// Every message is made of strings, numbers and JSON that was read
		// before: this is a broken invariant.
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

// AppendText writes s as a JSON string.
func AppendText(dst []byte, s string) []byte {
	// The error only tells of bytes that were replaced.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
