package mcpserver_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/providers"
)

// askTool is a tool that asks something about its call, as often as times says, and gives the last
// answer.
func askTool(s *gateway.Session, kind string, times int) providers.Tool {
	return providers.Tool{
		Name:        "ask",
		Description: "Asks",
		Handler: func(ctx context.Context, _ json.RawMessage) (any, error) {
			call, _ := providers.CallFrom(ctx)
			var last string
			for range times {
				a, err := s.Ask(ctx, gateway.Question{Kind: kind, Message: "name?", Call: call.ID,
					Schema: protocol.Raw(
						`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)})
				if err != nil {
					return nil, err
				}
				if last = string(a.Content); a.Denied() {
					last = "denied"
				}
			}
			providers.Progress(ctx, "answered")
			return last, nil
		},
	}
}

func TestQuestionsGoToTheClient(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		for action, want := range map[string]string{"accept": `{"name":"Bo"}`,
			"decline": "denied"} {
			w := newWorld(t, 60)
			s := w.session()
			w.provide(s, askTool(s, adminapi.QuestionForm, 3))
			asked := 0
			w.elicit = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				if asked++; r.Params.Message != "name?" {
					t.Errorf("the message: got %q, want the question's", r.Params.Message)
				}
				result := &mcp.ElicitResult{Action: action}
				if action == "accept" {
					result.Content = map[string]any{"name": "Bo"}
				}
				return result, nil
			}
			c := w.connect(version, "/mcp", w.gateway.AdminToken())
			p := &mcp.CallToolParams{Name: "ask"}
			p.SetProgressToken("p1")
			if r, err := c.CallTool(t.Context(), p); err != nil || text(r) != want || asked != 3 {
				t.Errorf("%s: got %v, %v after %d questions, want %s after 3", action, r, err,
					asked, want)
			}
			select {
			case <-c.progress:
			case <-time.After(patience):
				t.Errorf("%s: got no progress, want some", action)
			}
		}
	})
}

// TestProgressWhileTheClientAsks has a provider that says something while no request of a modern
// client waits.
func TestProgressWhileTheClientAsks(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		s := w.session()
		asks, said := make(chan struct{}, 1), make(chan struct{}, 1)
		w.provide(s, providers.Tool{Name: "ask", Description: "Asks",
			Handler: func(ctx context.Context, _ json.RawMessage) (any, error) {
				go func() {
					select {
					case <-asks:
						providers.Progress(ctx, "meanwhile")
						said <- struct{}{}
					case <-ctx.Done():
					}
				}()
				call, _ := providers.CallFrom(ctx)
				a, err := s.Ask(ctx, gateway.Question{Kind: adminapi.QuestionForm, Message: "name?",
					Call:   call.ID,
					Schema: protocol.Raw(`{"type":"object"}`)})
				return string(a.Content), err
			}})
		w.elicit = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asks <- struct{}{}
			select {
			case <-said:
			case <-time.After(patience):
				t.Error("the provider says nothing, want its progress")
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		}
		c := w.connect(version, "/mcp", w.gateway.AdminToken())
		p := &mcp.CallToolParams{Name: "ask"}
		p.SetProgressToken("p1")
		if r, err := c.CallTool(t.Context(), p); err != nil || text(r) != "{}" {
			t.Fatalf("got %v, %v, want the answer", r, err)
		}
		select {
		case got := <-c.progress:
			if got != "meanwhile" {
				t.Errorf("got the progress %q, want meanwhile", got)
			}
		case <-time.After(patience):
			t.Error("got no progress, want some")
		}
	})
}

// answerElsewhere answers the first question that waits, as a person on the page does.
func (w *world) answerElsewhere(s *gateway.Session, a gateway.Answer) {
	w.Helper()
	for deadline := time.After(patience); ; {
		if list := w.gateway.Questions(); len(list) > 0 {
			if err := s.Answer(list[0].ID, a); err != nil {
				w.Error(err)
			}
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			w.Fatal("no question waits, want one")
		}
	}
}

// TestQuestionsThatTheClientLeaves has a client whose user gives no answer, and one that is asked
// for no permission.
func TestQuestionsThatTheClientLeaves(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		for _, tc := range []struct {
			kind   string
			answer gateway.Answer
			want   string
		}{
			{adminapi.QuestionForm, gateway.Answer{Content: protocol.Raw(`{"name":"page"}`)},
				`{"name":"page"}`},
			{adminapi.QuestionPermission, gateway.Answer{Decision: adminapi.DecideDeny}, "denied"},
		} {
			w := newWorld(t, 60)
			s := w.session()
			w.provide(s, askTool(s, tc.kind, 1))
			w.elicit = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				if tc.kind == adminapi.QuestionPermission {
					t.Error("the client is asked for a permission, want that it is not")
				}
				return &mcp.ElicitResult{Action: "cancel"}, nil
			}
			c := w.connect(version, "/mcp", w.gateway.AdminToken())
			done := make(chan *mcp.CallToolResult, 1)
			go func() {
				r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask"})
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			w.answerElsewhere(s, tc.answer)
			select {
			case r := <-done:
				if r == nil || text(r) != tc.want {
					t.Errorf("%s: got %v, want %s", tc.kind, r, tc.want)
				}
			case <-time.After(patience):
				t.Fatalf("%s: the call does not end, want its end", tc.kind)
			}
		}
	})
}

// TestClientThatTakesTasks has a client that says that it takes tasks, an extension that the
// gateway does not have. It gets the answers that others get.
func TestClientThatTakesTasks(t *testing.T) {
	const extension = "io.modelcontextprotocol/tasks"
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},` +
		`"extensions":{"` + extension + `":{}}}}`
	w := newWorld(t, 60)
	s := w.session()
	w.provide(s, askTool(s, adminapi.QuestionForm, 1))
	for _, tc := range []struct{ method, name, params, want string }{
		{"server/discover", "", "", `"resultType":"complete"`},
		{"tools/call", "echo", `"name":"echo","arguments":{},`, `"resultType":"complete"`},
		{"tools/call", "ask", `"name":"ask","arguments":{},`, `"resultType":"input_required"`},
		{"tasks/get", "x", `"taskId":"x",`, `"code":-32601`},
	} {
		_, got := w.post("/mcp",
			`{"jsonrpc":"2.0","id":1,"method":"`+tc.method+`","params":{`+tc.params+meta+`}}`,
			map[string]string{"Mcp-Method": tc.method, "Mcp-Name": tc.name})
		if !strings.Contains(got, tc.want) || strings.Contains(got, extension) {
			t.Errorf("%s %s: got %s, want %s, and no extension", tc.method, tc.name, got, tc.want)
		}
	}
}
