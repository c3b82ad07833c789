//go:build runtime

package copilot

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/configs"
)

// mcpProgram makes the test binary an MCP server, mcpAsks one that asks a URL before it
// answers a call, mcpForm one that has the user fill in a form.
const (
	mcpProgram = "TAPGW_TEST_MCP"
	mcpAsks    = "TAPGW_TEST_MCP_ASKS"
	mcpForm    = "TAPGW_TEST_MCP_FORM"
)

// TestMCPProgram is the server of TestProfileMCP, in a process of its own.
func TestMCPProgram(t *testing.T) {
	if os.Getenv(mcpProgram) == "" {
		return
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				ProtocolVersion string `json:"protocolVersion"`
			} `json:"params"`
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		result := map[string]any{}
		switch m.Method {
		case "initialize":
			result = map[string]any{
				"protocolVersion": m.Params.ProtocolVersion,
				"capabilities":    map[string]any{"tools": map[string]any{}},
				"serverInfo":      map[string]any{"name": "tea", "version": "1"},
			}
		case "tools/list":
			var tools []any
			for _, name := range []string{"brew", "pour"} {
				tools = append(
					tools,
					map[string]any{
						"name":        name,
						"description": "It is " + name,
						"inputSchema": map[string]any{"type": "object",
							"properties": map[string]any{}},
					},
				)
			}
			result["tools"] = tools
		case "tools/call":
			if url := os.Getenv(mcpAsks); url != "" {
				if r, err := http.Get(url); err == nil {
					_ = r.Body.Close()
				}
			}
			form := ""
			if message := os.Getenv(mcpForm); message != "" {
				_ = out.Encode(map[string]any{
					"jsonrpc": "2.0",
					"id":      "form",
					"method":  "elicitation/create",
					"params": map[string]any{
						"message": message,
						"requestedSchema": map[string]any{
							"type":       "object",
							"properties": map[string]any{"name": map[string]any{"type": "string"}},
						},
					},
				})
				for form == "" && lines.Scan() {
					if strings.Contains(lines.Text(), `"form"`) {
						form = " for " + lines.Text()
					}
				}
			}
			wd, _ := os.Getwd()
			result["content"] = []any{
				map[string]any{"type": "text",
					"text": os.Getenv(mcpProgram) + " in " + filepath.Base(wd) + form},
			}
		}
		_ = out.Encode(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
	}
	os.Exit(0)
}

func TestProfileMCP(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kitchen")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	server := configs.SessionMCP{
		Command: []string{
			os.Args[0], "-test.run=^TestMCPProgram$",
		}, CWD: dir, Env: map[string]string{mcpProgram: "brewed"}, Tools: []string{"brew"},
	}
	t.Run("started", func(t *testing.T) {
		g := newRig(
			t, withProfile(func(p *configs.Profile) {
				p.MCP = map[string]configs.SessionMCP{"tea": server}
			}),
			func(o *Options) { o.Permissions.MCP = configs.Allow },
		)
		s := g.start()
		s.turn("call:tea-brew {}")
		if s.lastSaid() != "brewed in kitchen" {
			t.Errorf(`the model said %q, want "brewed in kitchen"`, s.lastSaid())
		}
		if r := g.lastRequest(); r.HasTool("tea-pour") {
			t.Error("tool tea-pour is offered, want only what the profile names")
		}
	})
	t.Run("disabled", func(t *testing.T) {
		g := newRig(t, withProfile(func(p *configs.Profile) {
			p.MCP, p.DisabledMCPServers = map[string]configs.SessionMCP{"tea": server},
				[]string{"tea"}
		}))
		s := g.start()
		s.turn("hello")
		if r := g.lastRequest(); r.HasTool("tea-brew") {
			t.Error("tool tea-brew of a disabled server is offered, want none of its tools")
		}
	})
}
