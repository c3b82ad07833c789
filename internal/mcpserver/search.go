package mcpserver

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/toolsearch"
)

type searchInput struct {
	Query string `json:"query"`
	Limit int    `json:"limit,omitempty"`
}

type describeInput struct {
	Name string `json:"name"`
}

// searchTools are the tools of a session with too many tools to list.
func (e *endpoint) searchTools() []ownTool {
	return []ownTool{
		{toolsearch.Search, func(name string) {
			mcp.AddTool(e.server, &mcp.Tool{Name: name, Title: "Search tools",
				Description: toolsearch.AboutSearch,
				InputSchema: json.RawMessage(toolsearch.SearchSchema), Annotations: readOnly()},
				e.search)
		}},
		{toolsearch.Describe, func(name string) {
			mcp.AddTool(e.server, &mcp.Tool{Name: name, Title: "Describe a tool",
				Description: toolsearch.AboutDescribe,
				InputSchema: json.RawMessage(toolsearch.DescribeSchema), Annotations: readOnly()},
				e.describe)
		}},
		{toolsearch.Call, func(name string) {
			e.server.AddTool(&mcp.Tool{Name: name, Title: "Call a tool",
				Description: toolsearch.AboutCall,
				InputSchema: json.RawMessage(toolsearch.CallSchema)}, e.callNamed)
		}},
	}
}

// sessionTools are the providers' tools of the session of now.
func (e *endpoint) sessionTools() []adminapi.Tool {
	if s := e.session(); s != nil {
		return s.Tools()
	}
	return nil
}

// search is the tool search_tools.
func (e *endpoint) search(
	_ context.Context, _ *mcp.CallToolRequest, in searchInput,
) (*mcp.CallToolResult, any, error) {
	found, err := toolsearch.Find(in.Query, in.Limit, e.sessionTools())
	if err != nil {
		return refuse(protocol.CodeInvalidArguments, err.Error())
	}
	return answer(found)
}

// describe is the tool describe_tool.
func (e *endpoint) describe(_ context.Context, _ *mcp.CallToolRequest, in describeInput,
) (*mcp.CallToolResult, any, error) {
	detail, err := toolsearch.Detail(in.Name, e.sessionTools())
	if err != nil {
		return refuse(protocol.CodeNotFound, err.Error())
	}
	return answer(detail)
}

// callNamed is the tool call_tool. Rules, gates and the timeline see the tool that it calls.
func (e *endpoint) callNamed(
	ctx context.Context, r *mcp.CallToolRequest,
) (*mcp.CallToolResult, error) {
	name, args, ok := toolsearch.Called(r.Params.Arguments)
	if !ok {
		return failed(protocol.CodeInvalidArguments, toolsearch.WrongCall), nil
	}
	return e.call(ctx, r, name, args)
}
