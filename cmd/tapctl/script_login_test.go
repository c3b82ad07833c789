package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"

	"tapgw/internal/client"
	"tapgw/internal/taptest"
)

// authServer is the key of a script's authorization server.
type authServer struct{}

func authServerOf(ts *testscript.TestScript) *taptest.AuthServer {
	return *ts.Value(authServer{}).(**taptest.AuthServer)
}

// cmdMCPServer starts an MCP server with the tool read that wants a login, and writes provider
// files for it.
func cmdMCPServer(ts *testscript.TestScript, _ bool, files []string) {
	a := taptest.NewAuthServer()
	ts.Defer(a.Close)
	*ts.Value(authServer{}).(**taptest.AuthServer) = a
	s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "read", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
		})
	web := httptest.NewServer(a.Protect(mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})))
	ts.Defer(func() {
		web.CloseClientConnections()
		web.Close()
	})
	for _, file := range files {
		text := fmt.Sprintf("kind = \"mcp\"\nurl = %q\n", web.URL+"/mcp")
		ts.Check(os.MkdirAll(filepath.Dir(ts.MkAbs(file)), 0o700))
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o600))
	}
}

// cmdBrowser opens the link that a process has printed, and expects a page that matches a pattern.
// With deny, the person denies the login.
func cmdBrowser(ts *testscript.TestScript, _ bool, args []string) {
	cmdPrinted(ts, false, []string{args[0], `https?://\S+state=`})
	link := regexp.MustCompile(`https?://[^\s"]+`).FindString(processOf(ts,
		args[0]).output.String())
	a := authServerOf(ts)
	a.Locked(func() {
		a.Answer = nil
		if len(args) > 2 && args[2] == "deny" {
			a.Answer = func(q url.Values) {
				q.Del("code")
				q.Set("error", "access_denied")
			}
		}
	})
	_, text, err := taptest.Browse(link)
	ts.Check(err)
	if !regexp.MustCompile(args[1]).MatchString(text) {
		ts.Fatalf("the browser shows %q, want a match of %s", text, args[1])
	}
}

// cmdFault waits until the gateway has a fault with a text, or with ! none.
func cmdFault(ts *testscript.TestScript, neg bool, args []string) {
	want := "1"
	if neg {
		want = "0"
	}
	waitForCount(ts, want, func(ctx context.Context, gw *client.Client) (n int, err error) {
		status, err := gw.Status(ctx)
		for _, f := range status.Faults {
			if strings.Contains(f.Message, args[0]) {
				n = 1
			}
		}
		return n, err
	})
}

// cmdNoSecrets checks that files have nothing of what the authorization server gave.
func cmdNoSecrets(ts *testscript.TestScript, _ bool, files []string) {
	secrets := authServerOf(ts).Secrets()
	if len(secrets) == 0 {
		ts.Fatalf("the authorization server gave nothing, want secrets to look for")
	}
	for _, file := range files {
		text := ts.ReadFile(file)
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				ts.Fatalf("%s has %s, want no secret in it:\n%s", file, secret, text)
			}
		}
	}
}
