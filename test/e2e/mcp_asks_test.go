//go:build e2e && linux

package e2e_test

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMCPAsksOverStdio has an MCP server ask while a client of `tapgw mcp` calls its tool: the
// client's user is asked, twice where the tool has two rounds, and the answers reach the server. So
// does a refusal.
func TestMCPAsksOverStdio(t *testing.T) {
	t.Parallel()
	for _, revision := range mcpEras {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			h.serveFiles()
			session := h.local()
			h.askingFile()
			h.waitTool(session, "test_elicitation")
			c := h.connectMCP(revision, "--session", session)
			c.has("test_elicitation")
			for _, tt := range []struct {
				tool   string
				answer mcp.ElicitResult
				asked  []string // a part of each message
				want   string   // in the result
			}{
				{
					"test_elicitation",
					mcp.ElicitResult{Action: "accept", Content: map[string]any{"username": "ada"}},
					[]string{"user?"}, `"username":"ada"`,
				},
				{
					"test_input_required_result_multi_round",
					mcp.ElicitResult{Action: "accept",
						Content: map[string]any{"name": "Ada", "color": "red"}},
					[]string{"step1?", "step2?"}, `"step2"`,
				},
				{"test_elicitation", mcp.ElicitResult{Action: "decline"}, []string{"user?"},
					`"action":"decline"`},
			} {
				c.answer = tt.answer
				got, err := c.call(tt.tool)
				if err != nil || !strings.Contains(got, tt.want) {
					t.Errorf("%s, %s: the server got %q, %v, want %s", tt.tool, tt.answer.Action,
						got, err, tt.want)
				}
				for _, want := range tt.asked {
					select {
					case message := <-c.asked:
						if !strings.Contains(message, want) {
							t.Errorf("%s: the user was asked %q, want %q", tt.tool, message, want)
						}
					default:
						t.Errorf("%s: the user was not asked %q", tt.tool, want)
					}
				}
			}
			if len(c.asked) > 0 {
				t.Errorf("the user was asked %d times more, want no more: %q", len(c.asked),
					<-c.asked)
			}
		})
	}
}
