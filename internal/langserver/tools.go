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

// maxTools is how many tools the server can offer to a model, including its own and those of MCP
// servers. With one more, every turn fails.
const maxTools = 128

// Prefixes of the ids of tools: of those that a client has registered, and of the server's own.
const (
	clientProvider = "copilot-editor."
	serverProvider = "copilot."
)

// Tool is one of our tools. The model may call it in all conversations of mode [Agent], several
// calls at the same time. [Client.SetTools] registers it; name, description and parameters must
// have the form that package tools requires.
type Tool struct {
	Name        string
	Description string
	// in the server's strict form, see [StrictSchema]; nil: no parameters
	Parameters json.RawMessage
	// Call runs the tool. It bounds its own time and recovers its own panics, as
	// [tools.Tool.Call] does, and it must return soon after ctx ends: when the turn
	// is cancelled or the server is gone.
	Call func(ctx context.Context, call Invocation) Outcome
}

// Invocation is one call of a tool by the model. ConversationID and TurnID say for whom; Round
// counts the model's rounds of calls within the turn; CallID is new for each call.
type Invocation struct {
	Tool           string
	Input          json.RawMessage // as the model sent it, not checked against the schema
	ConversationID string
	TurnID         string
	Round          int
	CallID         string
}

// Fault says why [Client.SetTools] left a tool out: its definition is wrong, its name is there
// twice, the server refuses it, or there are too many tools.
type Fault struct {
	Tool   string
	Reason string
}

// Error implements error: the tool's name and the reason, on one line.
func (f Fault) Error() string { return fmt.Sprintf("tool %q: %s", f.Tool, f.Reason) }

// registry has our tools, and the server's knowledge of them.
type registry struct {
	client *Client

	updating   sync.Mutex        // held during SetTools; guards registered
	registered map[string][]byte // definitions at the server, by name

	mu     sync.Mutex // guards the field that follows
	byName map[string]Tool
}

// lookup returns the tool of a name.
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

func (r *registry) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byName, name)
}

// SetTools makes list the tools that the model may call. It registers the new and changed tools at
// the server and removes the missing ones. The model's next request has them, also during a turn.
//
// faults names the tools that were left out because the server does not accept them; the others are
// registered. After an error, the next SetTools completes this one.
func (c *Client) SetTools(ctx context.Context, list []Tool) (faults []Fault, err error) {
	r := &c.tools
	r.updating.Lock()
	defer r.updating.Unlock()
	if r.registered == nil {
		r.registered = map[string][]byte{}
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
		if bytes.Equal(wanted[t.Name], r.registered[t.Name]) {
			r.set(t)
		} else {
			changed = append(changed, t)
		}
	}
	var removed []string
	for name := range maps.Keys(r.registered) {
		if wanted[name] == nil {
			removed = append(removed, name)
		}
	}
	if err := r.unregister(ctx, removed); err != nil {
		return faults, err
	}
	refused, err := r.register(ctx, changed)
	return append(faults, refused...), err
}

// check returns why the server would not accept a tool, or "".
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

// definition returns a tool as conversation/registerTools expects it.
func definition(t Tool) []byte {
	d := struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema,omitzero"`
	}{wireName(t.Name), t.Description, t.Parameters}
	data, err := json.Marshal(d)
	if err != nil { // can't happen: check has read the schema
		panic(err)
	}
	return data
}

// unregister removes tools from the server.
func (r *registry) unregister(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	ids := make([]string, len(names))
	for i, name := range names {
		ids[i] = clientProvider + wireName(name) // the server ignores a name without it
	}
	if err := r.client.call(ctx, "conversation/unregisterTools", object{"toolIds": ids},
		nil); err != nil {
		return err
	}
	for _, name := range names {
		delete(r.registered, name)
		r.remove(name)
	}
	return nil
}

// register registers tools at the server. The server refuses a whole list because of one tool; then
// register sends each tool alone.
func (r *registry) register(ctx context.Context, list []Tool) (faults []Fault, err error) {
	list, faults, err = r.limitTools(ctx, list)
	if err != nil || len(list) == 0 {
		return faults, err
	}
	err = r.send(ctx, list)
	if !isRefused(err) {
		return faults, err
	}
	for _, t := range list {
		switch err := r.send(ctx, []Tool{t}); {
		case isRefused(err):
			faults = append(faults, Fault{t.Name, "the language server refuses it: " + reason(err)})
			if r.registered[t.Name] != nil { // the older definition is outdated
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

// limitTools leaves out the tools over the server's limit.
func (r *registry) limitTools(
	ctx context.Context, list []Tool,
) (fitting []Tool, faults []Fault, err error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	// A few tools are surely within the limit.
	if len(r.registered)+len(list) < maxTools/2 && len(r.client.options.MCP) == 0 {
		return list, nil, nil
	}
	others, err := r.client.otherTools(ctx)
	if err != nil {
		return nil, nil, err
	}
	count := len(r.registered) + others
	tooMany := fmt.Sprintf("the language server takes %d tools in all, "+
		"its own and those of MCP servers (%d) among them", maxTools, others)
	for _, t := range list {
		switch {
		case r.registered[t.Name] != nil:
			fitting = append(fitting, t)
		case count < maxTools:
			count++
			fitting = append(fitting, t)
		default:
			faults = append(faults, Fault{t.Name, tooMany})
		}
	}
	return fitting, faults, nil
}

// otherTools counts the tools of the server and of MCP servers.
func (c *Client) otherTools(ctx context.Context) (n int, err error) {
	var list []struct{ Type string }
	if err := c.call(ctx, "conversation/registerTools", object{"tools": []any{}},
		&list); err != nil {
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

// HideOwnTools hides from the model the tools that the server still has of its own, for the life of
// the server.
func (c *Client) HideOwnTools(ctx context.Context) error {
	var list []struct{ Type, Name string }
	if err := c.call(ctx, "conversation/registerTools", object{"tools": []any{}},
		&list); err != nil {
		return err
	}
	hidden := []any{}
	for _, t := range list {
		if t.Type != "client" {
			hidden = append(hidden, object{"name": t.Name, "status": "disabled"})
		}
	}
	return c.call(ctx, "conversation/updateToolsStatus", object{"tools": hidden}, nil)
}

// send registers all tools or fails. From then on calls go to them, also calls of an older
// definition.
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
			r.registered[t.Name] = definitions[i]
		case before[i].Call != nil:
			r.set(before[i])
		default:
			r.remove(t.Name)
		}
	}
	return err
}

func isRefused(err error) bool {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && e.Code == jsonrpc.CodeInvalidParams
}

func reason(err error) string {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return e.Message
	}
	return err.Error()
}
