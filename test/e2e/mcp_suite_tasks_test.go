//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/providers"
)

// taskTools are the tools of the suite's scenarios for tasks that ask nobody.
func taskTools() []providers.Tool {
	type handler = func(ctx context.Context, args json.RawMessage) (any, error)
	fails := func(ctx context.Context, _ json.RawMessage) (any, error) {
		if !after(ctx, time.Second) {
			return nil, context.Cause(ctx)
		}
		return nil, &providers.Error{Code: providers.CodeInternal, Message: "the job failed"}
	}
	return []providers.Tool{
		// The suite tries headers on the first tool by name. That must be none that asks the user.
		{Name: "a_quick_one", Handler: func(context.Context, json.RawMessage) (any, error) { return "done", nil }},
		{Name: "greet", Handler: func(_ context.Context, args json.RawMessage) (any, error) {
			var in struct{ Name string }
			err := json.Unmarshal(args, &in)
			return "Hello, " + in.Name + "!", err
		}},
		{Name: "slow_compute", Handler: func(ctx context.Context, args json.RawMessage) (any, error) {
			var in struct{ Seconds float64 }
			if err := json.Unmarshal(args, &in); err != nil {
				return nil, err
			}
			if !after(ctx, time.Duration(in.Seconds*float64(time.Second))) {
				return nil, context.Cause(ctx)
			}
			return "computed", nil
		}},
		{Name: "failing_job", Handler: handler(fails)},
		{Name: "protocol_error_job", Handler: handler(fails)},
	}
}

// after waits, and reports whether ctx still goes on.
func after(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// askingFile writes the provider file of the program asking.
func (h *home) askingFile() {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	h.put("providers/asking.toml", fmt.Sprintf("kind = \"mcp\"\ncommand = [%q]\nenv = { %s = \"asking\" }\n", self,
		programVariable))
}

// asking is a program: an MCP server on stdio with the tools of the suite's scenarios that ask the user.
func asking([]string) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "asking", Version: "1"}, nil)
	for name, fields := range map[string][]string{
		"confirm_delete": {"confirm"}, "multi_input": {"name", "confirm"}, "test_tool_with_task": {"user_name"},
	} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if r.Params.InputResponses == nil {
					questions := mcp.InputRequestMap{}
					for _, field := range fields {
						questions[field] = &mcp.ElicitParams{Message: field + "?", RequestedSchema: json.RawMessage(
							`{"type":"object","properties":{"name":{"type":"string"},"confirm":{"type":"boolean"}}}`)}
					}
					return &mcp.CallToolResult{InputRequests: questions}, nil
				}
				text, err := json.Marshal(r.Params.InputResponses)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, err
			})
	}
	return server.Run(context.Background(), &mcp.StdioTransport{})
}
