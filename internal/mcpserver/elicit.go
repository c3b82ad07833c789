package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// elicitsForms reports whether a client says in a request's _meta, as revisions without a
// handshake do, that it can show a form to its user.
func elicitsForms(meta mcp.Meta) bool {
	if version, _ := meta[mcp.MetaKeyProtocolVersion].(string); version < firstModern {
		return false
	}
	capabilities, _ := meta[mcp.MetaKeyClientCapabilities].(map[string]any)
	modes, ok := capabilities["elicitation"].(map[string]any)
	_, form := modes["form"]
	return ok && (form || len(modes) == 0)
}

// canElicit reports whether a client of a handshake revision can show a form to its user.
func canElicit(client *mcp.ServerSession) bool {
	p := client.InitializeParams()
	if p == nil || p.ProtocolVersion >= firstModern || p.Capabilities == nil {
		return false
	}
	can := p.Capabilities.Elicitation
	return can != nil && (can.Form != nil || can.URL == nil)
}

// readAnswer makes the answer of a client's user one for the gateway. It reports false if the user
// did not answer.
func readAnswer(r *mcp.ElicitResult) (answer gateway.Answer, ok bool) {
	answer.Person = "an MCP client"
	switch r.Action {
	case "accept":
		content, err := json.Marshal(r.Content)
		if r.Content == nil {
			content = nil
		}
		answer.Content = protocol.Raw(cmp.Or(string(content), "{}"))
		return answer, err == nil
	case "decline":
		answer.Decision = adminapi.DecideDeny
		return answer, true
	}
	return answer, false
}

// asker puts the questions about a call to the user of a client of a handshake revision, while the
// call runs. They are also put to people elsewhere; the first answer counts.
type asker struct {
	ctx    context.Context // of the call
	s      *gateway.Session
	client *mcp.ServerSession
	wg     sync.WaitGroup

	mu       sync.Mutex // guards the fields that follow; a leaf
	asking   map[string]context.CancelFunc
	isClosed bool
}

// asked is for [gateway.Call].Asked.
func (a *asker) asked(q adminapi.Question, over bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch cancel := a.asking[q.ID]; {
	case cancel != nil: // it is over
		cancel()
		delete(a.asking, q.ID)
	case !over && !a.isClosed && q.Kind == adminapi.QuestionForm:
		ctx, cancel := context.WithCancel(a.ctx)
		a.asking[q.ID] = cancel
		a.wg.Go(func() { a.ask(ctx, q) })
	}
}

// ask puts a question to the client's user. If that brings no answer, the question goes on waiting
// elsewhere.
func (a *asker) ask(ctx context.Context, q adminapi.Question) {
	r, err := a.client.Elicit(ctx, &mcp.ElicitParams{Message: q.Message, RequestedSchema: q.Schema})
	if err != nil {
		return
	}
	if answer, ok := readAnswer(r); ok {
		_ = a.s.Answer(q.ID, answer)
	}
}

// close ends the open questions of the call.
func (a *asker) close() {
	a.mu.Lock()
	a.isClosed = true
	for _, cancel := range a.asking {
		cancel()
	}
	a.mu.Unlock()
	a.wg.Wait()
}
