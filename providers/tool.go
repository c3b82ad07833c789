package providers

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"

	"tapgw/internal/protocol"
)

// Tool is a tool of a provider, its schema written by hand. [NewTool] and
// [AddTool] make one of a Go function.
type Tool struct {
	Name        string          // 1 to 64 letters, digits, '_' or '-'
	Description string          // what it does, for the model
	Parameters  json.RawMessage // JSON Schema of an object; nil: no parameters
	// Timeout of a call, from 1 ms to 1 h, in whole milliseconds. Zero: the
	// gateway's own, five minutes.
	Timeout time.Duration
	// SkipValidation: the gateway does not check the arguments of a call
	// against Parameters.
	SkipValidation bool
	// Handler runs a call. Args is a JSON object. The result may be anything
	// that encoding/json can write, an [Image] or a [File]. An [*Error]
	// carries its own code; any other error is INTERNAL. The context ends when
	// the call is cancelled; its cause is a [*CancelError].
	Handler func(ctx context.Context, args json.RawMessage) (any, error)
}

// Image is a result that the model sees as an image.
type Image struct {
	MIMEType string // image/png when empty
	Data     []byte
}

// MarshalJSON writes the image as the gateway takes it.
func (i Image) MarshalJSON() ([]byte, error) {
	mime := i.MIMEType
	if mime == "" {
		mime = "image/png"
	}
	return json.Marshal(map[string]string{
		"image": "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString(i.Data),
	})
}

// File is a result that lies in a file, for what is too large to send (5 MiB):
// the gateway reads it, up to 64 MiB.
type File struct {
	Path     string // absolute, inside [Binding.PersistDir]
	MIMEType string
	// TTL is how long the file stays; the gateway reads it before that. Zero:
	// until the gateway has read it, however long that takes.
	TTL time.Duration
}

// Timeout sets the timeout of a tool's calls, as an option of [AddTool].
func Timeout(d time.Duration) func(*Tool) {
	return func(t *Tool) { t.Timeout = d }
}

// NewTool makes a tool of a Go function. In is a struct, or a map with string
// keys; its JSON Schema is inferred: a field is required unless its json tag
// says omitempty or omitzero, and its jsonschema tag describes it to the model.
func NewTool[In, Out any](name, description string, fn func(ctx context.Context, in In) (Out, error)) (Tool, error) {
	t := Tool{Name: name, Description: description}
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		return Tool{}, fmt.Errorf("tool %q: inferring the schema of %v: %w", name, reflect.TypeFor[In](), err)
	}
	if slices.Equal(schema.Types, []string{"null", "object"}) {
		// A pointer to a struct: arguments are never null.
		schema.Type, schema.Types = "object", nil
	}
	if schema.Type != "object" {
		return Tool{}, fmt.Errorf("tool %q: its arguments must be a struct or a map with string keys, not %v", name,
			reflect.TypeFor[In]())
	}
	if t.Parameters, err = json.Marshal(schema); err != nil {
		return Tool{}, fmt.Errorf("tool %q: writing the schema of %v: %w", name, reflect.TypeFor[In](), err)
	}
	t.Handler = func(ctx context.Context, args json.RawMessage) (any, error) {
		var in In
		if err := unmarshal(args, &in); err != nil {
			return nil, fmt.Errorf("reading the arguments: %w", err)
		}
		return fn(ctx, in)
	}
	return t, t.check()
}

// AddTool makes a tool of a Go function, see [NewTool], and adds it to p. The
// functions in with change the tool first, as [Timeout] does.
//
// It is for tools that are written down in the program and panics where they
// are wrong. It does not wait for the gateway: should that refuse the tool,
// [Options.OnError] hears of it. [Provider.AddTool] returns errors.
func AddTool[In, Out any](p *Provider, name, description string, fn func(ctx context.Context, in In) (Out, error),
	with ...func(*Tool)) {
	t, err := NewTool(name, description, fn)
	if err == nil {
		for _, change := range with {
			change(&t)
		}
		if err = t.check(); err == nil {
			err = p.submit(t.addition(""))
		}
	}
	if err != nil {
		panic("providers: AddTool: " + err.Error())
	}
}

// AddTool adds a tool, or replaces the one of that name: in all sessions that
// the provider is bound to, or in these alone.
func (p *Provider) AddTool(ctx context.Context, t Tool, sessions ...string) (revision uint64, err error) {
	if err := t.check(); err != nil {
		return 0, err
	}
	return p.changeEach(ctx, sessions, t.addition)
}

func (t *Tool) addition(session string) *change {
	return &change{what: "adding tool " + t.Name, session: session,
		apply: func(o *offer) error {
			return o.changeTools(session, func(tools []Tool) []Tool {
				tools = slices.Clone(tools)
				if i := indexTool(tools, t.Name); i >= 0 {
					tools[i] = *t
					return tools
				}
				return append(tools, *t)
			})
		},
		message: func(o *offer, session, id string) protocol.Message {
			m := toolsUpdate(o, session, id)
			if m.Tools == nil {
				m.Tools, m.Remove = []protocol.Tool{t.wire()}, []string{}
			}
			return m
		},
	}
}

// RemoveTool removes a tool, from all sessions or from these; one that is not
// there is no error. Calls of it that are running run to their end.
func (p *Provider) RemoveTool(ctx context.Context, name string, sessions ...string) (revision uint64, err error) {
	return p.changeEach(ctx, sessions, func(session string) *change {
		return &change{what: "removing tool " + name, session: session,
			apply: func(o *offer) error {
				return o.changeTools(session, func(tools []Tool) []Tool {
					// Not nil, which would mean the tools that all have.
					return slices.DeleteFunc(append([]Tool{}, tools...), func(t Tool) bool { return t.Name == name })
				})
			},
			message: func(o *offer, session, id string) protocol.Message {
				m := toolsUpdate(o, session, id)
				if m.Tools == nil {
					m.Remove = []string{name}
				}
				return m
			},
		}
	})
}

// SetTools replaces all tools at once, in all sessions or in these.
func (p *Provider) SetTools(ctx context.Context, tools []Tool, sessions ...string) (revision uint64, err error) {
	for i, t := range tools {
		if err := t.check(); err != nil {
			return 0, err
		}
		if indexTool(tools[:i], t.Name) >= 0 {
			return 0, fmt.Errorf("tool %q: stands twice in the list", t.Name)
		}
	}
	tools = append([]Tool{}, tools...)
	return p.changeEach(ctx, sessions, func(session string) *change {
		return &change{what: "setting the tools", session: session,
			apply: func(o *offer) error { return o.changeTools(session, func([]Tool) []Tool { return tools }) },
			message: func(_ *offer, session, id string) protocol.Message {
				return &protocol.ToolsUpdate{RequestID: id, SessionID: session, Tools: wireTools(tools)}
			},
		}
	})
}

// toolsUpdate says the whole list, which every gateway understands; without
// tools where that would take from a session what it has for itself.
func toolsUpdate(o *offer, session, id string) *protocol.ToolsUpdate {
	m := &protocol.ToolsUpdate{RequestID: id, SessionID: session}
	if session != "" || !o.hasOwnTools() {
		m.Tools = wireTools(o.toolsIn(session))
	}
	return m
}

func indexTool(tools []Tool, name string) int {
	return slices.IndexFunc(tools, func(t Tool) bool { return t.Name == name })
}

// tool returns the tool of that name as a session has it.
func (p *Provider) tool(session, name string) (Tool, bool) {
	return lookup(p, func(o *offer) (Tool, bool) {
		tools := o.toolsIn(session)
		if i := indexTool(tools, name); i >= 0 {
			return tools[i], true
		}
		return Tool{}, false
	})
}

// check finds what is wrong with a tool, before the gateway does.
func (t *Tool) check() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("tool %q: %w", t.Name, fmt.Errorf(format, args...))
	}
	if !protocol.ValidToolName(t.Name) {
		return wrong("its name must be 1 to 64 letters, digits, '_' or '-'")
	}
	if t.Description == "" {
		return wrong("it needs a description: the model chooses by it")
	}
	if t.Handler == nil {
		return wrong("it needs a handler")
	}
	if t.Timeout != 0 && (t.Timeout < protocol.MinToolTimeout || t.Timeout > protocol.MaxToolTimeout) {
		return wrong("its timeout is %v, but must be from %v to %v", t.Timeout, protocol.MinToolTimeout,
			protocol.MaxToolTimeout)
	}
	if t.Parameters == nil {
		return nil
	}
	if !protocol.Raw(t.Parameters).IsValid(lenient) {
		return wrong("its parameters are not valid JSON, or have a key twice")
	}
	if _, err := protocol.CompileSchema(protocol.Raw(t.Parameters)); err != nil {
		return wrong("its parameters: %w", err)
	}
	return nil
}

func (t *Tool) wire() protocol.Tool {
	w := protocol.Tool{Name: t.Name, Description: t.Description, Parameters: protocol.Raw(t.Parameters)}
	if t.Parameters == nil {
		w.Parameters = protocol.Raw(`{"type":"object"}`)
	}
	if t.Timeout != 0 {
		ms := t.Timeout.Milliseconds()
		w.Timeout = &ms
	}
	if t.SkipValidation {
		validate := false
		w.Validate = &validate
	}
	return w
}

// lenient reads JSON as the wire does: JavaScript strings hold lone surrogates.
var lenient = jsontext.AllowInvalidUTF8(true)

// encode is json.Marshal without the escapes that only HTML wants.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// success is the result of a call whose handler returned out.
func success(out any) (*protocol.ToolResult, error) {
	if f, ok := out.(*File); ok && f != nil {
		out = *f
	}
	if f, ok := out.(File); ok {
		if f.Path == "" {
			return nil, errors.New("the result is a file without a path")
		}
		return &protocol.ToolResult{File: &protocol.FileRef{
			Path: f.Path, MimeType: f.MIMEType, TTL: int64(math.Ceil(f.TTL.Seconds())),
		}}, nil
	}
	data, err := marshal("the result", out)
	if err != nil {
		return nil, err
	}
	return &protocol.ToolResult{Data: data}, nil
}
