package protocol

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decoding of messages, strictly and in two steps: the outside, then the rest.

// fromProvider are the messages that a provider may send, fromGateway those of the gateway.
// They are made at first use, since commands have none of them.
var (
	fromProvider = sync.OnceValue(func() map[Type]reflect.Type {
		return byType(&Auth{}, &AuthConfirm{}, &Hello{}, &Goodbye{}, &SessionReady{}, &ToolResult{},
			&ToolProgress{}, &GateResult{}, &TransformResult{}, &Push{}, &ToolsUpdate{},
			&HooksUpdate{}, &ContextUpdate{}, &FilterSet{}, &StreamQuery{}, &QuestionAnswer{},
			&ShutdownReady{})
	})
	fromGateway = sync.OnceValue(func() map[Type]reflect.Type {
		return byType(&AuthPairing{}, &Sessions{}, &SessionsUpdated{}, &HelloAck{}, &Ack{},
			&Error{}, &ToolCall{}, &ToolCancel{}, &GateCheck{}, &TransformRequest{},
			&SessionEvent{}, &SessionLifecycle{}, &StreamHistory{})
	})
)

func byType(list ...Message) map[Type]reflect.Type {
	m := make(map[Type]reflect.Type, len(list))
	for _, empty := range list {
		m[empty.MessageType()] = reflect.TypeOf(empty).Elem()
	}
	return m
}

// newMessage makes an empty message of a type; nil for an unknown one.
func newMessage(t Type) Message {
	if typ := cmp.Or(fromProvider()[t], fromGateway()[t]); typ != nil {
		return reflect.New(typ).Interface().(Message)
	}
	return nil
}

// FromProvider reports whether a provider sends messages of this type. The gateway answers any
// other type from a provider with UNKNOWN_TYPE (docs/protocol.md, "From the provider").
func (t Type) FromProvider() bool { return fromProvider()[t] != nil }

// FromGateway reports whether the gateway sends messages of this type (docs/protocol.md, "From the
// gateway"). It is false for an unknown type.
func (t Type) FromGateway() bool { return fromGateway()[t] != nil }

// field is one member of an object; its value keeps its bytes.
type field struct {
	name  string
	value Raw
}

// Frame is a message whose outside [Open] has read: it is a JSON object with a type. [Frame.Decode]
// reads the rest. A frame keeps the bytes that Open got, so they must not change.
type Frame struct {
	Type      Type
	RequestID string // queryId of a stream.query; "" if it is missing or not a string
	CallID    string // id or callId of a result; "" if it is missing or not a string
	data      []byte
	fields    []field
}

var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// allowEscapes accepts a lone surrogate that is written as an escape, as JSON.stringify writes the
// lone surrogates of JavaScript strings. [Object] refuses bytes that are not UTF-8.
var allowEscapes = jsontext.AllowInvalidUTF8(true)

// Object calls visit with the members of one JSON object in their order; the values share data's
// memory. It refuses any other value, text after the object, and a key that occurs twice at any
// depth. Its errors are texts for people.
func Object(data []byte, visit func(name string, value Raw) error) error {
	if !utf8.Valid(data) {
		return errors.New("not valid UTF-8")
	}
	s := scanner{data: data}
	if found, ok := s.members(); ok {
		for _, m := range found {
			if err := visit(nameOf(m.name), m.value); err != nil {
				return err
			}
		}
		return nil
	}
	return object(data, visit)
}

// nameOf is the text of a member's name. The names of the messages of a call cost no allocation.
func nameOf(name []byte) string {
	switch string(name) {
	case "type":
		return "type"
	case "id":
		return "id"
	case "data":
		return "data"
	case "content":
		return "content"
	case "error":
		return "error"
	case "errorCode":
		return "errorCode"
	}
	return string(name)
}

// object is [Object] by means of the JSON library. data is valid UTF-8.
func object(data []byte, visit func(name string, value Raw) error) error {
	dec := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(dec)
	dec.Reset(bytes.NewBuffer(data), allowEscapes)
	if kind := dec.PeekKind(); kind != '{' && kind != 0 {
		return errors.New("must be a JSON object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return syntaxError(err)
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return syntaxError(err)
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return syntaxError(err)
		}
		// The decoder's value is valid until its next read only, so visit gets the same bytes of
		// data.
		end := int(dec.InputOffset())
		if err := visit(key, Raw(data[end-len(value):end:end])); err != nil {
			return err
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return syntaxError(err)
	}
	if rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return errors.New("not valid JSON: something follows the object")
	}
	return nil
}

func syntaxError(err error) error {
	if se, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(se.Err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("%s: stands twice", fieldPath("", string(se.JSONPointer)))
		}
		if !errors.Is(se.Err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("not valid JSON: %w (at byte %d)", se.Err, se.ByteOffset)
		}
	}
	return errors.New("not valid JSON: it ends too early")
}

// Open reads the outside of a message: it must be a JSON object without duplicate keys and with a
// type. The error is INVALID_JSON, and the frame then has the parts that could be read. The caller
// checks with [Type.FromProvider] whether the type is known.
func Open(data []byte) (Frame, *Error) {
	f := Frame{data: data, fields: make([]field, 0, 4)}
	var typ, requestID, queryID, id, callID Raw
	err := Object(data, func(name string, value Raw) error {
		switch name {
		case "type":
			typ = value
		case "requestId":
			requestID = value
		case "queryId":
			queryID = value
		case "id":
			id = value
		case "callId":
			callID = value
		}
		f.fields = append(f.fields, field{name, value})
		return nil
	})
	// The type and ids of a broken message help its sender.
	var isText bool
	f.Type, isText = typeOf(typ)
	if f.Type == TypeStreamQuery {
		requestID = queryID
	}
	f.RequestID, _ = Text(requestID)
	switch f.Type {
	case TypeToolResult:
		f.CallID, _ = Text(id)
	case TypeGateResult, TypeTransformResult:
		f.CallID, _ = Text(callID)
	}
	switch {
	case err != nil:
		return f, f.fault(CodeInvalidJSON, err.Error())
	case typ == nil:
		return f, f.fault(CodeInvalidJSON, "type: is required")
	case !isText:
		return f, f.fault(CodeInvalidJSON, "type: must be a string")
	}
	return f, nil
}

// typeOf is [Text] of a type. A known type costs no allocation.
func typeOf(v Raw) (Type, bool) {
	if len(v) > 2 {
		if known, ok := types()[string(v[1:len(v)-1])]; ok && v.Kind() == '"' {
			return known, true
		}
	}
	t, ok := Text(v)
	return Type(t), ok
}

// types are all types by their names.
var types = sync.OnceValue(func() map[string]Type {
	m := make(map[string]Type, len(fromProvider())+len(fromGateway()))
	for _, list := range []map[Type]reflect.Type{fromProvider(), fromGateway()} {
		for t := range list {
			m[string(t)] = t
		}
	}
	return m
})

// Text returns the text of a JSON string, unescaped; a lone surrogate becomes the replacement
// character. For any other JSON value, and for an empty v, it returns false.
func Text(v Raw) (string, bool) {
	if v.Kind() != '"' || len(v) < 2 {
		return "", false
	}
	if in := v[1 : len(v)-1]; bytes.IndexByte(in, '\\') < 0 {
		return string(in), true
	}
	s, err := jsontext.AppendUnquote(nil, v)
	// A lone surrogate is an error and a replacement character both.
	return string(s), err == nil || len(s) > 0
}

func (f *Frame) fault(code Code, message string) *Error {
	return &Error{Code: code, Message: message, ReplyTo: f.Type.echo(), RequestID: f.RequestID}
}

// Decode reads the message inside and validates it; raw parts share the frame's memory. The error
// names the field: INVALID_JSON, UNSUPPORTED_VERSION, UNKNOWN_TYPE, or PAYLOAD_TOO_LARGE for a
// limit. Only with PAYLOAD_TOO_LARGE the message comes too, because the gateway checks rights
// before limits (docs/adr/0004).
func (f *Frame) Decode() (Message, *Error) {
	m := newMessage(f.Type)
	if m == nil {
		return nil, UnknownType(f.Head())
	}
	// The most frequent messages are read from the members that Open found.
	if r, ok := m.(*ToolResult); ok {
		if err := f.result(r); err != nil {
			return nil, f.fault(CodeInvalidJSON, err.Error())
		}
	} else if c, ok := m.(*ToolCall); ok && f.call(c) {
		return c, nil
	} else if err := json.Unmarshal(f.data, m, allowEscapes, WholeNumbers); err != nil {
		if fault := f.versionError(); fault != nil {
			return nil, fault
		}
		return nil, f.fault(CodeInvalidJSON, Explain(string(f.Type), err))
	}
	if f.Type.FromProvider() {
		if err := Validate(m); err != nil {
			err.ReplyTo, err.RequestID = f.Type, f.RequestID
			if err.Code != CodePayloadTooLarge {
				m = nil
			}
			return m, err
		}
	}
	return m, nil
}

// versionError refuses a hello of another protocol version, whose other fields may have other
// types. It returns nil for any other message.
func (f *Frame) versionError() *Error {
	if f.Type != TypeHello {
		return nil
	}
	for _, m := range f.fields {
		var version int
		if m.name == "protocolVersion" && json.Unmarshal(m.value, &version, WholeNumbers) == nil &&
			m.value.Kind() == '0' && version != Version {
			return f.fault(CodeUnsupportedVersion,
				fmt.Sprintf("hello.protocolVersion: %d is not supported, this gateway speaks %d",
					version, Version))
		}
	}
	return nil
}

// UnknownType returns the error UNKNOWN_TYPE for a message whose type its sender may not send. It
// repeats at most the first 64 characters of the type, and echoes the request id.
func UnknownType(h Head) *Error {
	return &Error{Code: CodeUnknownType, Message: fmt.Sprintf("unknown message type %.64q",
		string(h.Type)),
		ReplyTo: h.Type.echo(), RequestID: h.RequestID}
}

// echo returns the type for replyTo, and "" for one too long to be a name.
func (t Type) echo() Type {
	if len(t) > 64 {
		return ""
	}
	return t
}

func (f *Frame) result(r *ToolResult) error {
	for _, m := range f.fields {
		null := m.value.Kind() == 'n'
		ok := true
		switch m.name {
		case "id":
			if r.ID = f.CallID; r.ID == "" {
				r.ID, ok = Text(m.value)
			}
		case "data":
			// null is a value: a tool may return it.
			r.Data = m.value
		case "content":
			if err := json.Unmarshal(m.value, &r.Content, WholeNumbers); err != nil {
				return errors.New(Explain("tool.result.content", err))
			}
		case "error":
			if !null {
				r.Error, ok = Text(m.value)
			}
		case "errorCode":
			if !null {
				var s string
				s, ok = Text(m.value)
				r.ErrorCode = Code(s)
			}
		case "retryable":
			switch m.value.Kind() {
			case 't':
				r.Retryable = true
			case 'f', 'n':
			default:
				return errors.New("tool.result.retryable: must be true or false")
			}
		case "file":
			if err := json.Unmarshal(m.value, &r.File, WholeNumbers); err != nil {
				return errors.New(Explain("tool.result.file", err))
			}
		}
		if !ok && m.value != nil {
			return fmt.Errorf("tool.result.%s: must be a string", m.name)
		}
	}
	return nil
}

// call reads the members of a call. It returns false where a member is no text that a call may
// have; the JSON library then finds the fault.
func (f *Frame) call(c *ToolCall) bool {
	for _, m := range f.fields {
		ok := true
		switch m.name {
		case "id":
			c.ID, ok = Text(m.value)
		case "sessionId":
			c.SessionID, ok = Text(m.value)
		case "tool":
			c.Tool, ok = Text(m.value)
		case "args":
			c.Args = m.value
		case "traceparent":
			c.Traceparent, ok = Text(m.value)
		}
		if !ok {
			*c = ToolCall{}
			return false
		}
	}
	return true
}

// Explain makes a line for people of an error of json.Unmarshal: the field, as a path below name
// such as hello.tools[3].name, and the values that it takes. For broken JSON the line begins with
// name itself.
func Explain(name string, err error) string {
	if se, ok := errors.AsType[*json.SemanticError](err); ok {
		want := "has the wrong type"
		if se.GoType != nil {
			want = expected(se.GoType)
		}
		return fieldPath(name, string(se.JSONPointer)) + ": " + want
	}
	return name + ": " + syntaxError(err).Error()
}

func expected(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[[]byte]():
		return "must be base64"
	case reflect.TypeFor[time.Time]():
		return "must be a time such as 2026-01-02T15:04:05Z"
	}
	switch t.Kind() {
	case reflect.String:
		return "must be a string"
	case reflect.Bool:
		return "must be true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "must be a whole number"
	case reflect.Float64:
		return "must be a number"
	case reflect.Slice, reflect.Array:
		return "must be an array"
	case reflect.Map, reflect.Struct:
		return "must be an object"
	case reflect.Pointer:
		return expected(t.Elem())
	}
	return "has the wrong type"
}

// fieldPath writes a JSON pointer as people write a field: hello.tools[3].name.
func fieldPath(name, pointer string) string {
	var b strings.Builder
	b.WriteString(name)
	for tok := range jsontext.Pointer(pointer).Tokens() {
		if tok != "" && strings.Trim(tok, "0123456789") == "" {
			b.WriteString("[" + tok + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(tok)
	}
	return b.String()
}

// Head identifies a message without its content: its type, the call that it answers, and the
// request id that errors repeat. Each field is "" if the message does not have it.
type Head struct {
	Type      Type
	ID        string // of the call that a result answers, else ""
	RequestID string
}

// Head returns the head of the frame's message, from the parts that [Open] could read; other fields
// are "".
func (f *Frame) Head() Head { return Head{f.Type, f.CallID, f.RequestID} }

// Peek reads the type and the ids of a message that was cut off, as far as its beginning has them;
// it never fails. The gateway needs them to answer messages that are too large (PAYLOAD_TOO_LARGE).
func Peek(beginning []byte) (h Head) {
	var queryID string
	defer func() {
		if h.Type == TypeStreamQuery {
			h.RequestID = queryID
		}
	}()
	dec := jsontext.NewDecoder(bytes.NewReader(beginning), allowEscapes)
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return h
	}
	for {
		name, err := dec.ReadToken()
		if err != nil || name.Kind() != '"' {
			return h
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return h
		}
		switch s, _ := Text(value); key {
		case "type":
			h.Type = Type(s)
		case "id":
			h.ID = s
		case "requestId":
			h.RequestID = s
		case "queryId":
			queryID = s
		}
	}
}
