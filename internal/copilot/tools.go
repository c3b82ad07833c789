package copilot

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// Tools of providers in the runtime: their definitions and their calls.

// SetTools implements [gateway.Host]. While the runtime is down the list is stored for the next
// process.
func (s *session) SetTools(ctx context.Context, _ uint64, tools []gateway.Tool) error {
	s.mu.Lock()
	s.tools = tools
	close(s.toolsChanged)
	s.toolsChanged = make(chan struct{})
	c := s.conn
	s.mu.Unlock()
	s.forgetApprovals()
	if c == nil {
		return nil
	}
	err := s.applyTools(ctx, c)
	if err != nil && c.process.hasEnded() {
		return nil
	}
	return err
}

// renewTools gives the runtime the list that it should have now.
func (s *session) renewTools() {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c == nil {
		return // it gets the list when it is back
	}
	if err := s.applyTools(s.ctx, c); err != nil && s.ctx.Err() == nil && !c.process.hasEnded() {
		s.note(adminapi.LogWarning, fmt.Sprintf("the session did not take its tools: %v", err))
	}
}

// applyTools gives the runtime the present list of tools.
func (s *session) applyTools(ctx context.Context, c *conn) error {
	if err := s.configLock.Lock(ctx); err != nil {
		return err
	}
	defer s.configLock.Unlock()
	builtins, err := s.builtinNames(ctx, c)
	if err != nil {
		return fmt.Errorf("asking for the runtime's own tools: %w", err)
	}
	s.mu.Lock()
	tools := s.tools
	s.mu.Unlock()
	defs := s.definitions(tools, builtins)
	if slices.EqualFunc(
		defs, s.appliedTools, func(a, b rpc.ProtocolExternalToolDefinition) bool {
			return reflect.DeepEqual(a, b)
		},
	) {
		if s.joined != 0 {
			return nil // its system message is not ours
		}
		return s.resetPrompt(ctx, c) // setting equal tools would not renew the system message
	}
	s.mu.Lock()
	for _, d := range defs {
		s.everSet[d.Name] = true
	}
	s.mu.Unlock()
	err = execute(ctx, c.process, askTimeout, func(ctx context.Context) error {
		if s.r.lacksToolsSet || s.joined == byExtension { // which it refuses
			return errMethodNotFound
		}
		_, err := c.sdk.RPC.Tools.Set(ctx, &rpc.ToolsSetRequest{Tools: defs})
		return err
	})
	if err != nil && methodNotFound(err) {
		err = s.resumeOn(ctx, c, defs, false)
	}
	if err != nil {
		return fmt.Errorf("setting the session's tools: %w", err)
	}
	s.appliedTools = defs
	return nil
}

var errMethodNotFound = errors.New("JSON-RPC Error -32601: method not found")

// methodNotFound reports whether an error says that the runtime lacks a method: it is older than
// session.tools.set (1.0.81). The SDK does not export the type of its errors.
func methodNotFound(err error) bool { return strings.Contains(err.Error(), "-32601") }

// resumeOn resumes the session on the connection that it has. That sets the options that can't be
// changed otherwise: tools, where the runtime lacks tools.set, and hooks, which stay once they are
// set. A running turn goes on. The SDK makes a new session object. Call it with configLock held.
func (s *session) resumeOn(
	ctx context.Context, c *conn, defs []rpc.ProtocolExternalToolDefinition, withHooks bool,
) error {
	s.mu.Lock()
	withHooks = withHooks || s.conn != nil && s.conn.hooksEnabled
	s.mu.Unlock()
	cfg := s.resumeConfig(c.gen, withHooks)
	cfg.SuppressResumeEvent = true
	cfg.ContinuePendingWork = new(true)
	for _, d := range defs {
		t := sdk.Tool{
			Name: d.Name, Description: d.Description, Parameters: d.Parameters,
			SkipPermission: deref(d.SkipPermission), Defer: sdk.ToolDefer(deref(d.Defer)),
		}
		cfg.Tools = append(cfg.Tools, t)
	}
	var release func()
	cfg.OnEvent, release = s.onEventHeld(c.gen)
	defer release()
	resumed, err := askClient(ctx, c.process, askTimeout, func(ctx context.Context) (*sdk.Session,
		error) {
		return c.process.client.ResumeSession(ctx, s.id, cfg)
	})
	if err != nil {
		return err
	}
	c.process.track(resumed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && s.conn.gen == c.gen {
		s.conn = &conn{process: c.process, sdk: resumed, gen: c.gen, hooksEnabled: withHooks}
	}
	return nil
}

// hiddenTools are tools of the runtime's own that it does not list, because a session has no use
// for them. If a provider's tool had such a name, the model would be offered the runtime's tool
// instead. The runtime would run it, in some cases without asking for permission. Measured on
// 1.0.85 and CLI 1.0.102.
var hiddenTools = []string{
	"apply_patch", "ask_user", "context_board", "create_pull_request", "exit_plan_mode",
	"extensions_manage", "extensions_reload", "fetch_copilot_cli_documentation",
	"invoke_canvas_action", "list_agents",
	"list_canvas_capabilities", lspTool, "manage_schedule", "open_canvas", "powershell",
	"reply_to_comment",
	"report_progress", "rg", "search_code_subagent", codeSearchTool, "send_inbox",
	"session_store_sql", "skill",
	"store_memory", "str_replace_editor", "task_complete", "tool_search_tool", "update_todo",
	"vote_memory",
}

// builtinNames returns the names of the runtime's own tools, hidden ones too, and of those of MCP
// servers.
func (s *session) builtinNames(ctx context.Context, c *conn) (map[string]bool, error) {
	have, err := ask(ctx, c.process, askTimeout,
		func(ctx context.Context) (*rpc.ToolsGetCurrentMetadataResult, error) {
			return c.sdk.RPC.Tools.GetCurrentMetadata(ctx)
		})
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range have.Tools {
		// Between turns the runtime still lists tools of providers that were removed.
		if t.MCPServerName != nil || !s.everSet[t.Name] {
			names[t.Name] = true
		}
	}
	for _, name := range hiddenTools {
		names[name] = true
	}
	return names, nil
}

// definitions converts the providers' tools for the runtime. It omits a tool with the name of
// one of the runtime's own tools, with a warning, because every turn would fail.
func (s *session) definitions(
	tools []gateway.Tool, builtins map[string]bool,
) []rpc.ProtocolExternalToolDefinition {
	searches := s.areTooMany(tools, builtins)
	s.searches.Store(searches)
	if searches {
		s.warnedTools = nil
		return s.searchers()
	}
	never := rpc.ProtocolExternalToolDeferNever
	defs := []rpc.ProtocolExternalToolDefinition{}
	left := map[string]string{}
	for _, t := range tools {
		if builtins[t.Name] {
			left[t.Name] = fmt.Sprintf(
				"tool %s of provider %s is left out: the Copilot runtime has a tool of that "+
					"name; rename it", t.Name,
				t.Provider,
			)
			continue
		}
		params, err := parameters(t.Parameters)
		if err != nil {
			left[t.Name] = fmt.Sprintf(
				"tool %s of provider %s is left out: its parameters: %v", t.Name, t.Provider, err,
			)
			continue
		}
		defs = append(defs, rpc.ProtocolExternalToolDefinition{
			Name:           t.Name,
			Description:    t.Description,
			Parameters:     params,
			SkipPermission: new(s.skipsPermission()),
			Defer:          &never,
		})
	}
	for name, warning := range left {
		if s.warnedTools[name] != warning { // warn once while it lasts
			s.note(adminapi.LogWarning, warning)
		}
	}
	s.warnedTools = left
	return defs
}

// skipsPermission reports whether the runtime calls providers' tools without asking for permission.
// In a terminal its person decides. The result stays the same while the session runs: see
// needsPermission.
func (s *session) skipsPermission() bool {
	return s.joined == 0 && s.skipsTools
}

// startCall runs a tool call of the model on a goroutine of its own, and answers the runtime. The
// pump calls it.
func (s *session) startCall(c *conn, d *rpc.ExternalToolRequestedData) {
	if s.joined != 0 && !s.hasSet(d.ToolName) {
		return // a tool of another client of the terminal
	}
	s.runCall(c, d, s.calls.CallTool)
}

// hasSet reports whether the runtime ever had a tool from us.
func (s *session) hasSet(tool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.everSet[tool]
}

func (s *session) runCall(
	c *conn, d *rpc.ExternalToolRequestedData,
	callTool func(context.Context, gateway.Call) gateway.Outcome,
) {
	call := gateway.Call{Name: d.ToolName, Args: rawJSON(d.Arguments),
		Traceparent: deref(d.Traceparent), HostID: d.ToolCallID}
	call.AskGates = s.joined != 0 // no hook asks about calls of providers' tools in a terminal
	s.whilePending(c, d.RequestID, func(ctx context.Context) {
		begin := func(ctx context.Context, c gateway.Call) gateway.Outcome {
			return s.answer(ctx, c, callTool)
		}
		if s.needsPermission(call.Name) {
			asked := begin
			begin = func(ctx context.Context, c gateway.Call) gateway.Outcome {
				return s.permitted(ctx, c, asked)
			}
		}
		outcome := begin(ctx, call)
		if ctx.Err() != nil {
			return // the runtime no longer waits for the result
		}
		result := toolResult(outcome)
		if outcome.Context != "" {
			result.TextResultForLlm += "\n\n" + outcome.Context
		}
		if len(result.BinaryResultsForLlm) > 0 {
			s.hasShownImage.Store(true)
		}
		err := execute(s.ctx, c.process, askTimeout, func(ctx context.Context) error {
			_, err := c.sdk.RPC.Tools.HandlePendingToolCall(
				ctx, &rpc.HandlePendingToolCallRequest{RequestID: d.RequestID, Result: result},
			)
			return err
		})
		if err != nil {
			s.log.Warn("a tool's result did not reach the runtime", "tool", d.ToolName, "error",
				err)
		}
	})
}

// cancelCall cancels a call or question that the runtime no longer waits for.
func (s *session) cancelCall(requestID string) {
	s.mu.Lock()
	cancel := s.inFlight[requestID]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// cancelCalls cancels all calls and questions in flight.
func (s *session) cancelCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.inFlight {
		cancel()
	}
}

// rawJSON encodes a value that the SDK decoded, without escapes for HTML. The order of keys and the
// precision of numbers above 2^53 are lost before, in the runtime.
func rawJSON(v any) protocol.Raw {
	if v == nil {
		return protocol.Raw("{}")
	}
	data, err := protocol.Marshal(v)
	if err != nil {
		return protocol.Raw("{}")
	}
	return data
}

// deref returns what p points to, or the zero value.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
