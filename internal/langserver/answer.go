package langserver

import (
	"context"
	"encoding/json"

	"tapgw/internal/jsonrpc"
)

// answer answers the server's requests: all of them, so that none waits for ever.
// The server names more than it sends: those behind a capability that this client
// does not have are refused.
func (c *Client) answer(ctx context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case "conversation/invokeClientTool":
		return c.invoke(ctx, params), nil
	case "conversation/invokeClientToolConfirmation":
		return c.confirm(ctx, params), nil
	case "conversation/context":
		return []any{nil, nil}, nil // an editor's view, of which there is none
	case "copilot/watchedFiles":
		return object{"files": []any{}}, nil
	case "copilot/mcpElicitation":
		return object{"action": "decline"}, nil
	case "copilot/readMcpSamplingConfig", "copilot/showPanelMessageRequest":
		return []any{nil, nil}, nil
	case "copilot/codingAgentMessage":
		return object{"success": true}, nil
	case "copilot/dynamicOAuth":
		return nil, nil // nobody is there to type in a client's id
	case "worktree/requestUserDecision":
		return object{"cancelled": true}, nil
	case "workspace/configuration":
		return unset(params), nil
	case "workspace/workspaceFolders":
		return []any{c.o.folder()}, nil
	case "workspace/applyEdit":
		return object{"applied": false, "failureReason": "this client has no editor"}, nil
	case "window/showMessageRequest":
		c.logMessage(params)
		return nil, nil // none of the offered actions
	case "window/showDocument":
		return object{"success": c.show(params)}, nil
	case "client/registerCapability", "client/unregisterCapability", "window/workDoneProgress/create":
		return nil, nil
	}
	// copilot/token, copilot/fetch and its kin, copilot/ide/…, and the virtual
	// files of workspace/{readFile,readDirectory,findFiles,findTextInFiles}.
	c.log.Debug("the language server asked for what this client can't do", "method", method)
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this client can't do " + method}
}

// unset answers workspace/configuration: the settings were pushed at the start,
// and no file has others.
func unset(params json.RawMessage) []any {
	var p struct{ Items []any }
	_ = json.Unmarshal(params, &p)
	return make([]any, len(p.Items))
}

// show shows a page to the user. The server would open it itself if we said that
// we can't, on a machine that may have no screen.
func (c *Client) show(params json.RawMessage) bool {
	var p struct {
		URI      string
		External bool
	}
	if json.Unmarshal(params, &p) != nil || !p.External {
		return false
	}
	if c.o.Open != nil {
		c.o.Open(p.URI)
	}
	return true
}
