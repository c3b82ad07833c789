package langserver

import (
	"context"
	"encoding/json"

	"tapgw/internal/jsonrpc"
)

// answerRequest answers the server's requests, all of them, so that the server never waits in vain.
// It refuses methods for which this client has announced no capability.
func (c *Client) answerRequest(
	ctx context.Context, method string, params json.RawMessage,
) (any, error) {
	switch method {
	case "conversation/invokeClientTool":
		return c.invoke(ctx, params), nil
	case "conversation/invokeClientToolConfirmation":
		return c.confirm(ctx, params)
	case "conversation/context":
		return []any{nil, nil}, nil // there is no editor
	case "copilot/watchedFiles":
		return object{"files": []any{}}, nil
	case "copilot/mcpElicitation":
		return object{"action": "decline"}, nil
	case "copilot/readMcpSamplingConfig", "copilot/showPanelMessageRequest":
		return []any{nil, nil}, nil
	case "copilot/codingAgentMessage":
		return object{"success": true}, nil
	case "copilot/dynamicOAuth":
		return nil, nil // no person can type a client id
	case "worktree/requestUserDecision":
		return object{"cancelled": true}, nil
	case "workspace/configuration":
		return noSettings(params), nil
	case "workspace/workspaceFolders":
		return []any{c.options.folder()}, nil
	case "workspace/applyEdit":
		return object{"applied": false, "failureReason": "this client has no editor"}, nil
	case "window/showMessageRequest":
		c.logMessage(params)
		return nil, nil // accepts no offered action
	case "window/showDocument":
		return object{"success": c.showPage(params)}, nil
	case "client/registerCapability", "client/unregisterCapability",
		"window/workDoneProgress/create":
		return nil, nil
	}
	// For example copilot/token, copilot/fetch, copilot/ide/…, and the virtual files of
	// workspace/{readFile,readDirectory,findFiles,findTextInFiles}.
	c.log.Debug("the language server asked for what this client can't do", "method", method)
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
		Message: "this client can't do " + method}
}

// noSettings answers workspace/configuration with null for each item: the client has sent the
// settings at the start.
func noSettings(params json.RawMessage) []any {
	var p struct{ Items []any }
	_ = json.Unmarshal(params, &p)
	return make([]any, len(p.Items))
}

// showPage shows a page to the user. Without that capability the server would open the page itself,
// on a machine that may have no screen.
func (c *Client) showPage(params json.RawMessage) bool {
	var p struct {
		URI      string
		External bool
	}
	if json.Unmarshal(params, &p) != nil || !p.External {
		return false
	}
	if c.options.Open != nil {
		c.options.Open(p.URI)
	}
	return true
}
