package copilot

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/toolsearch"
)

// A session with more tools of providers than [Options.ToolThreshold] gives its model three tools
// to find and call them. Everything else sees the tool that call_tool names: hooks, permissions,
// the gateway and the timeline.

// searchers are the three tools for the runtime. A person need not allow the two that only read the
// list; the third asks as the tool that it calls would.
func (s *session) searchers() []rpc.ProtocolExternalToolDefinition {
	never := rpc.ProtocolExternalToolDeferNever
	define := func(name, about, schema string, skip bool) rpc.ProtocolExternalToolDefinition {
		params, _ := parameters(protocol.Raw(schema)) // it is JSON
		return rpc.ProtocolExternalToolDefinition{
			Name: name, Description: about, Parameters: params, Defer: &never,
			SkipPermission: new(skip && s.joined == 0),
		}
	}
	return []rpc.ProtocolExternalToolDefinition{
		define(toolsearch.Search, toolsearch.AboutSearch, toolsearch.SearchSchema, true),
		define(toolsearch.Describe, toolsearch.AboutDescribe, toolsearch.DescribeSchema, true),
		define(toolsearch.Call, toolsearch.AboutCall, toolsearch.CallSchema, s.skipsPermission()),
	}
}

// areTooMany reports whether the model is to search so many tools. A runtime with a tool of a
// searcher's name gets the whole list.
func (s *session) areTooMany(tools []gateway.Tool, builtins map[string]bool) bool {
	threshold := s.r.toolThreshold.Load()
	return threshold >= 0 && int64(len(tools)) > threshold &&
		!builtins[toolsearch.Search] && !builtins[toolsearch.Describe] && !builtins[toolsearch.Call]
}

// isSearcher reports whether a name is that of a searcher now, and not of a provider's tool.
func (s *session) isSearcher(name string) bool {
	switch name {
	case toolsearch.Search, toolsearch.Describe, toolsearch.Call:
		return s.searches.Load()
	}
	return false
}

// called returns the tool that a call runs, and its arguments. For call_tool both are named in the
// arguments.
func (s *session) called(name string, args protocol.Raw) (string, protocol.Raw) {
	if name != toolsearch.Call || !s.isSearcher(name) {
		return name, args
	}
	own, ownArgs, ok := toolsearch.Called(json.RawMessage(args))
	if !ok {
		return name, args
	}
	if len(ownArgs) == 0 || string(ownArgs) == "null" {
		ownArgs = json.RawMessage("{}")
	}
	return own, protocol.Raw(ownArgs)
}

// pendingOf is a call that waited when its gateway ended, as one of the tool that it calls: the
// searchers come back only with the providers.
func (s *session) pendingOf(d *rpc.ExternalToolRequestedData) *rpc.ExternalToolRequestedData {
	if d.ToolName != toolsearch.Call || s.r.toolThreshold.Load() < 0 {
		return d
	}
	tool, args, ok := toolsearch.Called(json.RawMessage(rawJSON(d.Arguments)))
	if !ok {
		return d
	}
	of := *d
	of.ToolName, of.Arguments = tool, nil
	if len(args) > 0 {
		of.Arguments = args
	}
	return &of
}

// requested is a request for permission about the tool that is called.
func (s *session) requested(req sdk.PermissionRequest) sdk.PermissionRequest {
	custom, ok := req.(*rpc.PermissionRequestCustomTool)
	if !ok || custom.ToolName != toolsearch.Call {
		return req
	}
	tool, args := s.called(custom.ToolName, rawJSON(custom.Args))
	of := *custom
	of.ToolName, of.Args = tool, json.RawMessage(args)
	return &of
}

// maxAsked bounds the calls whose hooks were asked and that have not come.
const maxAsked = 1000

// noteAsked notes that the hooks were asked about a call that call_tool makes.
func (s *session) noteAsked(tool string, args protocol.Raw) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil || len(s.asked) >= maxAsked {
		s.asked = map[string]int{}
	}
	s.asked[tool+" "+string(args)]++
}

// wasAsked reports whether the hooks were asked about this very call, and forgets one such call.
func (s *session) wasAsked(tool string, args protocol.Raw) bool {
	var v any
	if json.Unmarshal(args, &v) == nil {
		args = rawJSON(v) // in the hooks' encoding, also if a terminal encoded the call's
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := tool + " " + string(args)
	n := s.asked[key]
	if n <= 1 {
		delete(s.asked, key)
	} else {
		s.asked[key] = n - 1
	}
	return n > 0
}

// answer answers a call of the model: of a searcher, or through callTool of a provider's tool.
func (s *session) answer(
	ctx context.Context, c gateway.Call,
	callTool func(context.Context, gateway.Call) gateway.Outcome,
) gateway.Outcome {
	if !s.isSearcher(c.Name) {
		return callTool(ctx, c)
	}
	wrong := func(code protocol.Code, text string) gateway.Outcome {
		return gateway.Outcome{ErrorCode: code, Error: text}
	}
	var in struct {
		Query string `json:"query"`
		Name  string `json:"name"`
		Limit int    `json:"limit"`
	}
	switch c.Name {
	case toolsearch.Call:
		searcher := c.Name
		if c.Name, c.Args = s.called(c.Name, c.Args); c.Name == searcher {
			return wrong(protocol.CodeInvalidArguments, toolsearch.WrongCall)
		}
		if s.isExcluded(c.Name) {
			return wrong(protocol.CodeNotFound,
				fmt.Sprintf("tool %q does not exist in this session", c.Name))
		}
		// The searchers may have changed since the hook, which then asked about another tool.
		c.AskGates = !s.wasAsked(c.Name, c.Args) || c.AskGates
		return callTool(ctx, c)
	case toolsearch.Search:
		if err := json.Unmarshal(c.Args, &in); err != nil {
			return wrong(protocol.CodeInvalidArguments,
				"search_tools takes query, a text, and limit, a number")
		}
		found, err := toolsearch.Find(in.Query, in.Limit, s.listed())
		if err != nil {
			return wrong(protocol.CodeInvalidArguments, err.Error())
		}
		return gateway.Outcome{Data: rawJSON(found)}
	}
	if err := json.Unmarshal(c.Args, &in); err != nil {
		return wrong(protocol.CodeInvalidArguments, "describe_tool takes name, a text")
	}
	detail, err := toolsearch.Detail(in.Name, s.listed())
	if err != nil {
		return wrong(protocol.CodeNotFound, err.Error())
	}
	return gateway.Outcome{Data: rawJSON(detail)}
}

// listed are the providers' tools of this moment, as the searchers show them.
func (s *session) listed() []adminapi.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []adminapi.Tool{}
	for _, t := range s.tools {
		if !s.isExcluded(t.Name) {
			list = append(list, adminapi.Tool{Name: t.Name, Provider: t.Provider,
				Description: t.Description, Parameters: json.RawMessage(t.Parameters)})
		}
	}
	return list
}

// isExcluded reports whether the session's profile excludes a provider's tool. Where the runtime
// has the tool itself, it sees to that.
func (s *session) isExcluded(tool string) bool {
	return slices.ContainsFunc(s.baseConfig.ExcludedTools, func(pattern string) bool {
		return pattern == tool || pattern == "custom:"+tool || pattern == customTools ||
			pattern == "*"
	})
}
