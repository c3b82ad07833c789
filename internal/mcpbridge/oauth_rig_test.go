package mcpbridge

import (
	"context"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/configs"
	"tapgw/internal/taptest"
)

func newAuthServer(t *testing.T) *taptest.AuthServer {
	t.Helper()
	a := taptest.NewAuthServer()
	t.Cleanup(a.Close)
	return a
}

// protectedServer serves the tools read and write behind a.
func protectedServer(t *testing.T, a *taptest.AuthServer, era string) configs.Provider {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	for _, name := range []string{"read", "write"} {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: anyObject},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return text("done"), nil
			})
	}
	p := serveHTTP(t, s, era, a.Protect)
	p.Name, p.Kind = "srv", configs.KindMCP
	return p
}

// browse follows a link as a browser does.
func browse(t *testing.T, link string) (status int, text string) {
	t.Helper()
	status, text, err := taptest.Browse(link)
	if err != nil {
		t.Errorf("the browser: %v, want a page", err)
	}
	return status, text
}

// logIn logs in with a browser. The person looks at the page until the login has ended.
func logIn(t *testing.T, l *Logins, p configs.Provider) error {
	t.Helper()
	var browser sync.WaitGroup
	defer browser.Wait()
	return l.Login(t.Context(), p, func(link string) error {
		browser.Go(func() { browse(t, link) })
		return nil
	})
}
