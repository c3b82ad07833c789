package langserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"tapgw/internal/jsonrpc"
	"tapgw/tools"
)

// maxTools is how many tools the server offers to a model, its own and those of
// MCP servers among them: one more, and every turn fails.
const maxTools = 128

// clientProvider begins the ids of tools that a client registered.
const clientProvider = "copilot-editor."

// Tool is a tool of ours that the model may call in every conversation.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // in the server's strict form, see [StrictSchema]; nil: none
	// Call runs the tool. It bounds its own time and recovers its own panics, as
	// [tools.Tool.Call] does, and it must return soon after ctx ends: when the turn
	// is cancelled or the server is gone.
	Call func(ctx context.Context, call Invocation) Outcome
}

// Invocation is one call of a tool.
type Invocation struct {
	Tool           string
	Input          json.RawMessage // as the model sent it: not checked against the schema
	ConversationID string
	TurnID         string
	Round          int
	CallID         string
}

// Fault is why a tool is not registered.
type Fault struct {
	Tool   string
	Reason string
}

// Error says which tool it is about, and what is wrong with it.
func (f Fault) Error() string { return fmt.Sprintf("tool %q: %s", f.Tool, f.Reason) }

// registry is what the server knows of our tools.
type registry struct {
	client *Client

	change sync.Mutex        // held while the server is told; guards known
	known  map[string][]byte // definitions at the server, by name

	mu     sync.Mutex // guards the field that follows
	byName map[string]Tool
}

// lookup finds the tool behind a call.
func (r *registry) lookup(name string) (Tool, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.byName[name]
	return t, ok
}

func (r *registry) set(t Tool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName == nil {
		r.byName = map[string]Tool{}
	}
	r.byName[t.Name] = t
}

func (r *registry) drop(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byName, name)
}

// SetTools makes these the tools that the model may call: what is new or has
// another definition is registered, what is gone is unregistered. It takes effect
// with the model's next request, in the middle of a turn, too. A name of one of
// the server's own tools replaces that one; insert_edit_into_file and create_file
// switch on the server's edit tools, which write through them.
//
// A tool that the server would refuse, or does, is left out and named in faults;
// the others are registered all the same. After an error the next SetTools finishes
// what this one left undone.
func (c *Client) SetTools(ctx context.Context, list []Tool) (faults []Fault, err error) {
	r := &c.tools
	r.change.Lock()
	defer r.change.Unlock()
	if r.known == nil {
		r.known = map[string][]byte{}
	}
	wanted := map[string][]byte{}
	var changed []Tool
	for _, t := range list {
		if reason := check(t); reason != "" {
			faults = append(faults, Fault{t.Name, reason})
			continue
		}
		if wanted[t.Name] != nil {
			faults = append(faults, Fault{t.Name, "a second tool has this name"})
			continue
		}
		wanted[t.Name] = definition(t)
		if bytes.Equal(wanted[t.Name], r.known[t.Name]) {
			r.set(t)
		} else {
			changed = append(changed, t)
		}
	}
	var gone []string
	for name := range maps.Keys(r.known) {
		if wanted[name] == nil {
			gone = append(gone, name)
		}
	}
	if err := r.unregister(ctx, gone); err != nil {
		return faults, err
	}
	refused, err := r.register(ctx, changed)
	return append(faults, refused...), err
}

// check says what makes a tool unfit for the server, "" for nothing.
func check(t Tool) string {
	if t.Call == nil {
		return "it has no Call"
	}
	params := t.Parameters
	if params == nil {
		params = noParameters
	}
	err := (&tools.Tool{Name: t.Name, Description: t.Description, Parameters: params}).Check()
	if err == nil {
		return ""
	}
	if inner := errors.Unwrap(err); inner != nil { // without the name
		err = inner
	}
	return err.Error()
}

var noParameters = json.RawMessage(`{"type":"object","properties":{},"required":[]}`)

// definition is a tool as conversation/registerTools takes it.
func definition(t Tool) []byte {
	d := struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema,omitzero"`
	}{t.Name, t.Description, t.Parameters}
	data, err := json.Marshal(d)
	if err != nil { // check has read the schema
		panic(err)
	}
	return data
}

// unregister takes tools away from the server.
func (r *registry) unregister(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	ids := make([]string, len(names))
	for i, name := range names {
		ids[i] = clientProvider + name // a bare name is ignored
	}
	if err := r.client.call(ctx, "conversation/unregisterTools", object{"toolIds": ids}, nil); err != nil {
		return err
	}
	for _, name := range names {
		delete(r.known, name)
		r.drop(name)
	}
	return nil
}

// register gives tools to the server. One that it refuses makes it refuse all that
// come with it: then each goes alone.
func (r *registry) register(ctx context.Context, list []Tool) (faults []Fault, err error) {
	list, faults, err = r.fit(ctx, list)
	if err != nil || len(list) == 0 {
		return faults, err
	}
	err = r.send(ctx, list)
	if !refusal(err) {
		return faults, err
	}
	for _, t := range list {
		switch err := r.send(ctx, []Tool{t}); {
		case refusal(err):
			faults = append(faults, Fault{t.Name, "the language server refuses it: " + reason(err)})
			if r.known[t.Name] != nil { // what it was before is not wanted any more
				if err := r.unregister(ctx, []string{t.Name}); err != nil {
					return faults, err
				}
			}
		case err != nil:
			return faults, err
		}
	}
	return faults, nil
}

// fit leaves out tools for which the server has no room.
func (r *registry) fit(ctx context.Context, list []Tool) (fitting []Tool, faults []Fault, err error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	// Only many tools are worth a question.
	if len(r.known)+len(list) < maxTools/2 && len(r.client.o.MCP) == 0 {
		return list, nil, nil
	}
	others, err := r.client.otherTools(ctx)
	if err != nil {
		return nil, nil, err
	}
	count := len(r.known) + others
	for _, t := range list {
		switch {
		case r.known[t.Name] != nil:
			fitting = append(fitting, t)
		case count < maxTools:
			count++
			fitting = append(fitting, t)
		default:
			faults = append(faults, Fault{t.Name,
				fmt.Sprintf("the language server takes %d tools in all, its own and those of MCP servers (%d) among them", maxTools, others)})
		}
	}
	return fitting, faults, nil
}

// otherTools counts the tools that are not ours.
func (c *Client) otherTools(ctx context.Context) (n int, err error) {
	var list []struct{ Type string }
	if err := c.call(ctx, "conversation/registerTools", object{"tools": []any{}}, &list); err != nil {
		return 0, err
	}
	for _, t := range list {
		if t.Type != "client" {
			n++
		}
	}
	servers, err := c.MCPServers(ctx)
	if errors.Is(err, ErrMCPDisabled) {
		return n, nil
	}
	for _, s := range servers {
		n += len(s.Tools)
	}
	return n, err
}

// send registers tools, all or none. Their calls are taken from then on; an older
// version's calls go to it, too.
func (r *registry) send(ctx context.Context, list []Tool) error {
	definitions := make([]json.RawMessage, len(list))
	before := make([]Tool, len(list))
	for i, t := range list {
		definitions[i] = definition(t)
		before[i], _ = r.lookup(t.Name)
		r.set(t)
	}
	err := r.client.call(ctx, "conversation/registerTools", object{"tools": definitions}, nil)
	for i, t := range list {
		switch {
		case err == nil:
			r.known[t.Name] = definitions[i]
		case before[i].Call != nil:
			r.set(before[i])
		default:
			r.drop(t.Name)
		}
	}
	return err
}

func refusal(err error) bool {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && e.Code == jsonrpc.CodeInvalidParams
}

func reason(err error) string {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
