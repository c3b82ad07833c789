package mcpbridge

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxPages bounds the size of the pages of a server's lists behind the first ones, together, in
// bytes. The SDK keeps each page by its cursor as long as the connection, so this is about
// different pages, whenever they came.
const maxPages = 16 << 20

// pages counts different pages of a server's lists.
type pages struct {
	mu   sync.Mutex // guards the fields that follow
	seen map[[sha256.Size]byte]bool
	size int
}

// bound is the SDK's middleware for requests: a list whose pages don't end ends the connection.
func (p *pages) bound(lose func(error)) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, req)
			if cursor := cursorOf(req.GetParams()); err == nil && cursor != "" &&
				!p.add(method, cursor, result) {
				err = fmt.Errorf("the pages of the MCP server's lists have more than %d MiB",
					maxPages>>20)
				lose(err)
				return nil, err
			}
			return result, err
		}
	}
}

func cursorOf(params mcp.Params) string {
	switch p := params.(type) {
	case *mcp.ListToolsParams:
		return p.Cursor
	case *mcp.ListResourcesParams:
		return p.Cursor
	case *mcp.ListResourceTemplatesParams:
		return p.Cursor
	case *mcp.ListPromptsParams:
		return p.Cursor
	}
	return ""
}

// add counts a page, and reports whether there may be as many.
func (p *pages) add(method, cursor string, result mcp.Result) bool {
	key := sha256.Sum256([]byte(method + " " + cursor))
	p.mu.Lock()
	isKnown := p.seen[key]
	p.mu.Unlock()
	if isKnown {
		return true
	}
	data, err := json.Marshal(result)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[[sha256.Size]byte]bool{}
	}
	p.seen[key] = true
	p.size += len(data) + len(cursor) + 1<<10 // the SDK's cost of an empty page
	return err == nil && p.size <= maxPages
}
