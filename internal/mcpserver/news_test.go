package mcpserver

import (
	"context"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The SDK's own messages about changed tools are dropped, since clients are told before it tells
// them. It goes on to tell them of resources.
func TestNewsOfToolsAreNotTheSDKs(t *testing.T) {
	var n news
	var sent []string
	next := func(_ context.Context, method string, _ mcp.Request) (mcp.Result, error) {
		sent = append(sent, method)
		return nil, nil
	}
	sending := n.sending(next)
	client := &mcp.ServerSession{}
	tools := &mcp.ServerRequest[*mcp.ToolListChangedParams]{Session: client,
		Params: &mcp.ToolListChangedParams{}}
	resources := &mcp.ServerRequest[*mcp.ResourceListChangedParams]{Session: client,
		Params: &mcp.ResourceListChangedParams{}}
	for _, send := range []func() (mcp.Result, error){
		func() (mcp.Result, error) { return sending(t.Context(), methodToolsChanged, tools) },
		func() (mcp.Result, error) { return sending(t.Context(), "resources", resources) },
		func() (mcp.Result, error) { return n.send(t.Context(), "own", tools) },
	} {
		if _, err := send(); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"resources", "own"}; !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
}
