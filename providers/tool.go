package providers

import (
	"cmp"
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

// Tool is a tool of a provider with a schema written by hand. [NewTool] and [AddTool] make one from
// a Go function (docs/protocol.md, "Tool").
type Tool struct {
	Name        string          // 1 to 64 letters, digits, '_' or '-'
	Title       string          // the name for people; may be empty
	Description string          // tells the model the tool's purpose
	Parameters  json.RawMessage // JSON Schema of an object; nil: no parameters
	// OutputSchema is the JSON Schema of the results, which are then objects; nil: not known.
	OutputSchema json.RawMessage
	// Annotations are hints about the tool's effects; they may be nil.
	Annotations *Annotations
	// Timeout of a call, from 1 ms to 1 h, in whole milliseconds. Zero: five minutes.
	Timeout time.Duration
	// SkipValidation stops the gateway from checking the arguments of a call against Parameters.
	SkipValidation bool
	// Handler runs a call; several may run at once. args is a JSON object. The result is any value
	// that encoding/json can write, an [Image], a [File] or a [Content]. An [*Error] has its own
	// code; any other error becomes INTERNAL, or TIMEOUT for context.DeadlineExceeded. The context
	// ends when the call is cancelled; its cause is then a [*CancelError].
	Handler func(ctx context.Context, args json.RawMessage) (any, error)
}

// Annotations are hints about a tool's effects (docs/protocol.md, "Annotations"). A nil hint is not
// given.
type Annotations = protocol.Annotations

// Image is a result that the model sees as an image.
type Image struct {
	MIMEType string // image/png when empty
	Data     []byte
}

// MarshalJSON writes the image as {"image": "data:…"}, the form that the gateway knows.
func (i Image) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{
		"image": "data:" + cmp.Or(i.MIMEType, "image/png") + ";base64," +
			base64.StdEncoding.EncodeToString(i.Data),
	})
}

// File is a result in a file, for results over the 5 MiB of a message. The gateway reads the file,
// up to 64 MiB.
type File struct {
	Path     string // absolute, inside [Binding.PersistDir]
	MIMEType string
	// TTL says how long the file exists; the gateway reads it before. Zero: as long as the gateway
	// needs.
	TTL time.Duration
}

// Content is a result of several parts, of which a model gets those that it can take. Data is for
// programs beside them: any value that encoding/json can write, or nil.
type Content struct {
	Parts []Part
	Data  any
}

// Part is one part of a [Content]: a text, an image, a sound or a resource (docs/protocol.md,
// "Part"). All of a result may have 5 MiB; larger bytes go in a File.
type Part = protocol.Part

// FileRef is the file of a [Part], in place of its Data.
type FileRef = protocol.FileRef

// Timeout is an option of [AddTool]. It sets the timeout of a call, from 1 ms to 1 h.
func Timeout(d time.Duration) func(*Tool) {
	return func(t *Tool) { t.Timeout = d }
}

// NewTool makes a tool from a Go function. In is a struct, or a map with string keys. NewTool
// infers its JSON Schema: a field is required unless its json tag has omitempty or omitzero, and
// its jsonschema tag is its description. The error names the fault of the name, the description or
// the type.
func NewTool[In, Out any](
	name, description string, fn func(ctx context.Context, in In) (Out, error),
) (Tool, error) {
	t := Tool{Name: name, Description: description}
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		return Tool{}, fmt.Errorf("tool %q: inferring the schema of %v: %w", name,
			reflect.TypeFor[In](), err)
	}
	if slices.Equal(schema.Types, []string{"null", "object"}) {
		// In is a pointer to a struct. Arguments are never null.
		schema.Type, schema.Types = "object", nil
	}
	if schema.Type != "object" {
		return Tool{},
			fmt.Errorf("tool %q: its arguments must be a struct or a map with string keys, not %v",
				name, reflect.TypeFor[In]())
	}
	if t.Parameters, err = json.Marshal(schema); err != nil {
		return Tool{}, fmt.Errorf("tool %q: writing the schema of %v: %w", name,
			reflect.TypeFor[In](), err)
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

// AddTool makes a tool from a Go function, see [NewTool], and adds it to p. The options, such as
// [Timeout], change the tool before.
//
// AddTool is for tools that are part of the program's text: it panics if the tool is wrong. It does
// not wait for the gateway; if that refuses the tool, [Options.OnError] gets the error.
// [Provider.AddTool] returns errors instead.
func AddTool[In, Out any](p *Provider, name, description string,
	fn func(ctx context.Context, in In) (Out, error), opts ...func(*Tool)) {
	t, err := NewTool(name, description, fn)
	if err == nil {
		for _, option := range opts {
			option(&t)
		}
		if err = t.check(); err == nil {
			err = p.submit(t.addition(""))
		}
	}
	if err != nil {
		panic("providers: AddTool: " + err.Error())
	}
}

// AddTool adds a tool or replaces the tool of that name, in all sessions or only in these. It
// returns the revision once the gateway has confirmed, see [Provider]. The error is that of a wrong
// tool, or the gateway's [*Error]: TOOL_CONFLICT if another provider has a tool of that name.
func (p *Provider) AddTool(
	ctx context.Context, t Tool, sessions ...string,
) (revision uint64, err error) {
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

// RemoveTool removes a tool from all sessions, or only from these. Running calls of the tool run to
// their end. Removing a tool that does not exist is no error.
func (p *Provider) RemoveTool(
	ctx context.Context, name string, sessions ...string,
) (revision uint64, err error) {
	return p.changeEach(ctx, sessions, func(session string) *change {
		return &change{what: "removing tool " + name, session: session,
			apply: func(o *offer) error {
				return o.changeTools(session, func(tools []Tool) []Tool {
					// An empty list and not nil, which would mean the tools of all sessions.
					return slices.DeleteFunc(append([]Tool{}, tools...), func(t Tool) bool {
						return t.Name == name
					})
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

// SetTools replaces all tools in one step, in all sessions or only in these. A provider may have
// 100 tools; the error names the first tool that is wrong.
func (p *Provider) SetTools(
	ctx context.Context, tools []Tool, sessions ...string,
) (revision uint64, err error) {
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
			apply: func(o *offer) error {
				return o.changeTools(session, func([]Tool) []Tool { return tools })
			},
			message: func(_ *offer, session, id string) protocol.Message {
				return &protocol.ToolsUpdate{RequestID: id, SessionID: session,
					Tools: wireTools(tools)}
			},
		}
	})
}

// toolsUpdate makes an update with the whole list of tools, which every gateway understands. The
// list is nil, and the caller adds the difference, if a list for all sessions would remove the
// tools that one session has instead.
func toolsUpdate(o *offer, session, id string) *protocol.ToolsUpdate {
	m := &protocol.ToolsUpdate{RequestID: id, SessionID: session}
	if session != "" || !o.hasSessionTools() {
		m.Tools = wireTools(o.toolsIn(session))
	}
	return m
}

func indexTool(tools []Tool, name string) int {
	return slices.IndexFunc(tools, func(t Tool) bool { return t.Name == name })
}

// tool returns a tool of a session by name.
func (p *Provider) tool(session, name string) (Tool, bool) {
	return lookup(p, func(o *offer) (Tool, bool) {
		tools := o.toolsIn(session)
		if i := indexTool(tools, name); i >= 0 {
			return tools[i], true
		}
		return Tool{}, false
	})
}

// check returns the first mistake in a tool.
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
	if t.Timeout != 0 &&
		(t.Timeout < protocol.MinToolTimeout || t.Timeout > protocol.MaxToolTimeout) {
		return wrong("its timeout is %v, but must be from %v to %v", t.Timeout,
			protocol.MinToolTimeout, protocol.MaxToolTimeout)
	}
	if err := checkSchema(t.Parameters); err != nil {
		return wrong("its parameters: %w", err)
	}
	if err := checkSchema(t.OutputSchema); err != nil {
		return wrong("its output schema: %w", err)
	}
	return nil
}

// checkSchema returns the fault of the schema of an object, or nil.
func checkSchema(schema json.RawMessage) error {
	if schema == nil {
		return nil
	}
	if !protocol.Raw(schema).IsValid(allowSurrogates) {
		return errors.New("not valid JSON, or a key stands twice in it")
	}
	_, err := protocol.CompileSchema(protocol.Raw(schema))
	return err
}

func (t *Tool) wire() protocol.Tool {
	w := protocol.Tool{Name: t.Name, Title: t.Title, Description: t.Description,
		Parameters: protocol.Raw(t.Parameters), OutputSchema: protocol.Raw(t.OutputSchema),
		Annotations: t.Annotations}
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

// allowSurrogates accepts lone surrogates as the wire does: JavaScript strings may have them.
var allowSurrogates = jsontext.AllowInvalidUTF8(true)

// success returns the result of a call whose handler returned out.
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
	result := &protocol.ToolResult{}
	if c, ok := out.(Content); ok {
		if result.Content = c.Parts; c.Parts == nil {
			result.Content = []Part{}
		}
		if out = c.Data; out == nil {
			return result, nil
		}
	}
	data, err := marshal("the result", out)
	if err != nil {
		return nil, err
	}
	result.Data = data
	return result, nil
}
