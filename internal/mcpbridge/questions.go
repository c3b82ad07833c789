package mcpbridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
	"tapgw/providers"
)

// Answers to a server's question, as MCP names them.
const (
	actionAccept  = "accept"
	actionDecline = "decline"
	actionCancel  = "cancel"
)

// maxAsked bounds a question's text, in bytes.
const maxAsked = 4 << 10

// elicit puts a question of the server to the person of the session whose call it is about. A
// question that can't be put is declined, with a line in the provider's log that says why.
func (u *upstream) elicit(ctx context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	decline := func(format string, args ...any) (*mcp.ElicitResult, error) {
		u.b.o.Line(fromGateway, "declined a question of the server: "+fmt.Sprintf(format, args...))
		return &mcp.ElicitResult{Action: actionDecline}, nil
	}
	if req.Params.Mode == "url" {
		return decline("it wants a page opened, which the gateway does not do")
	}
	session, id := "", ""
	if info, ok := providers.CallFrom(ctx); ok {
		session, id = info.Session, info.ID
	} else if call, alone := u.calls.only(); call != nil {
		// Older servers ask beside their calls. The question ends with the call.
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(call.ctx, cancel)()
		if session = call.session; alone {
			id = call.id
		}
	} else {
		return decline(
			"none or several sessions call its tools now, and it does not say which it asks; " +
				`sessions = "each" gives each session a server of its own`)
	}
	q := gateway.Question{
		Kind: adminapi.QuestionForm,
		Message: fmt.Sprintf("%s: %s", u.b.o.Provider.Name,
			cmp.Or(shorten(req.Params.Message, maxAsked), "asks")),
		Schema: protocol.Raw(`{"type":"object"}`),
		Call:   id,
	}
	if req.Params.RequestedSchema != nil {
		schema, err := formSchema(req.Params.RequestedSchema)
		if err != nil || len(schema) > maxTool {
			return decline("its form can't be shown")
		}
		q.Schema = schema
	}
	answer, err := u.b.o.Ask(ctx, session, q)
	switch {
	case errors.Is(err, gateway.ErrUnanswered):
		return &mcp.ElicitResult{Action: actionCancel}, nil
	case err != nil:
		return decline("%s", visible.Text(err.Error()))
	case answer.Denied():
		return &mcp.ElicitResult{Action: actionDecline}, nil
	}
	result := &mcp.ElicitResult{Action: actionAccept}
	if err := json.Unmarshal(answer.Content, &result.Content); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return result, nil
}

// formSchema is the schema of a form. The SDK keeps no order of its fields, so those that must be
// filled come first, as the server names them, and the others after them by name.
func formSchema(requested any) (protocol.Raw, error) {
	schema, _ := requested.(map[string]any)
	properties, ok := schema["properties"].(map[string]any)
	if !ok {
		return json.Marshal(requested)
	}
	required, _ := schema["required"].([]any)
	var names []string
	for _, name := range required {
		if name, ok := name.(string); ok && properties[name] != nil &&
			!slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	first := len(names)
	for name := range properties {
		if !slices.Contains(names[:first], name) {
			names = append(names, name)
		}
	}
	slices.Sort(names[first:])
	ordered := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			ordered = append(ordered, ',')
		}
		field, err := json.Marshal(map[string]any{name: properties[name]})
		if err != nil {
			return nil, err
		}
		ordered = append(ordered, field[1:len(field)-1]...)
	}
	schema = maps.Clone(schema)
	schema["properties"] = json.RawMessage(append(ordered, '}'))
	return json.Marshal(schema)
}
