//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
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

// Schemas of what the tools ask.
const (
	askName = `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`
	askOK   = `{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`
	askBoth = `{"type":"object","properties":{"name":{"type":"string"},"confirm":{"type":"boolean"}}}`
	askUser = `{"type":"object","properties":{"username":{"type":"string"},"email":{"type":"string"}}}`
	// Defaults, and choices in each of their forms, as the suite looks for them.
	askDefaults = `{"type":"object","properties":{"name":{"type":"string","default":"John Doe"},
"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},
"verified":{"type":"boolean","default":true}}}`
	askChoices = `{"type":"object","properties":{
"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},
	{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},
	{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}}}`
)

// asked is what a tool asks in a round, by names that the server gives to its questions.
type asked map[string]string

// asking is a program: an MCP server on stdio with the tools of the suite's scenarios that ask the user.
func asking([]string) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "asking", Version: "1"}, nil)
	for name, rounds := range map[string][]asked{
		"confirm_delete":                            {{"confirm": askBoth}},
		"multi_input":                               {{"name": askBoth, "confirm": askBoth}},
		"test_tool_with_task":                       {{"user_name": askBoth}},
		"test_elicitation":                          {{"user": askUser}},
		"test_elicitation_sep1034_defaults":         {{"defaults": askDefaults}},
		"test_elicitation_sep1330_enums":            {{"choices": askChoices}},
		"test_input_required_result_elicitation":    {{"user_name": askName}},
		"test_input_required_result_request_state":  {{"confirm": askOK}},
		"test_input_required_result_tampered_state": {{"confirm": askOK}},
		"test_input_required_result_multi_round": {{"step1": askName}, {
			"step2": `{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}`}},
	} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				round := len(r.Params.RequestState)
				if round < len(rounds) {
					questions := mcp.InputRequestMap{}
					for name, schema := range rounds[round] {
						questions[name] = &mcp.ElicitParams{
							Message:         name + "?",
							RequestedSchema: json.RawMessage(schema),
						}
					}
					return &mcp.CallToolResult{
						InputRequests: questions,
						RequestState:  strings.Repeat("x", round+1),
					}, nil
				}
				text, err := json.Marshal(r.Params.InputResponses)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, err
			})
	}
	return server.Run(context.Background(), &mcp.StdioTransport{})
}
