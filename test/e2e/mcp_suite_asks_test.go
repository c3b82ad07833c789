//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// askingFile writes the provider file of the program asking.
func (h *home) askingFile() {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	h.put("providers/asking.toml",
		fmt.Sprintf("kind = \"mcp\"\ncommand = [%q]\nenv = { %s = \"asking\" }\n", self,
			programVariable))
}

// Schemas of what the tools ask.
const (
	askName = `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`
	askOK   = `{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`
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

// asking is a program: an MCP server on stdio with the tools of the suite's scenarios that ask the
// user.
func asking([]string) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "asking", Version: "1"}, nil)
	for name, rounds := range map[string][]asked{
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
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(
					text)}}}, err
			})
	}
	return server.Run(context.Background(), &mcp.StdioTransport{})
}
