//go:build e2e && linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tapgw/internal/taptest"
)

// TestMCPLogin logs in at a remote MCP server with a real browser. The gateway's page says what to
// do as long as the server waits for a login.
func TestMCPLogin(t *testing.T) {
	t.Parallel()
	a := taptest.NewAuthServer()
	t.Cleanup(a.Close)
	a.Asks = true
	far := httptest.NewServer(a.Protect(http.HandlerFunc(serveOneTool)))
	t.Cleanup(far.Close)
	h := newHome(t)
	g := h.serveFiles()
	h.put("providers/far.toml", fmt.Sprintf("kind = \"mcp\"\nurl = %q\n", far.URL+"/mcp"))
	session := h.local()
	b := h.browser().profile(t)
	v := b.openView(h.link())
	v.waitText(".banner.error a", "far")
	v.click(".banner.error a")
	v.waitText(".view.providers", "needs a login: run tapctl providers login far")

	login := h.start(tapctl, "providers", "login", "far", "--print")
	consent := b.openView(login.expect("/authorize?"))
	consent.click("button")
	if code := login.wait(patience); code != 0 {
		t.Errorf("the login: exit code %d, want 0:\n%s", code, login.output())
	}
	consent.waitText("body", "tapgw is logged in for the provider far")
	h.waitTool(session, "read")
	if got := h.call(session, "read", "{}"); !strings.Contains(got, "done") {
		t.Errorf("a call gives %s, want done", got)
	}
	v.until(`!document.querySelector(".banner.error")`)
	v.checkFaults(g.origin())
}

// serveOneTool is an MCP server of an older revision that has the tool read.
func serveOneTool(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ID     json.RawMessage
		Method string
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&in) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	result, known := map[string]string{
		"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},` +
			`"serverInfo":{"name":"x","version":"1"}}`,
		"tools/list": `{"tools":[{"name":"read","description":"d","inputSchema":{"type":"object"}}]}`,
		"tools/call": `{"content":[{"type":"text","text":"done"}]}`,
	}[in.Method]
	switch {
	case in.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case known:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, result)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`,
			in.ID)
	}
}
