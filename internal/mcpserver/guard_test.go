package mcpserver_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"tapgw/internal/mcpserver"
)

const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`

// post sends a request of the newest revision with headers, and returns the status and the body.
func (w *world) post(path, body string, headers map[string]string) (int, string) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.url+path,
		strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover",
		"Authorization": "Bearer " + w.gateway.AdminToken(),
	} {
		r.Header.Set(name, value)
	}
	for name, value := range headers {
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := c.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

func bearerOf(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

func TestGuards(t *testing.T) {
	w := newWorld(t, 60)
	mine, other := w.session(), w.session()
	token, err := mine.MCPToken()
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := mine.MCPToken(); again != token {
		t.Errorf("a second token: got another one, want the same")
	}
	scoped := bearerOf(token)
	for name, tc := range map[string]struct {
		path    string
		body    string
		headers map[string]string
		status  int
		want    string
	}{
		"the admin token": {path: "/mcp", status: 200, want: "supportedVersions"},
		"a session by its id": {path: "/mcp/s/" + mine.ID(), status: 200,
			want: "supportedVersions"},
		"no session": {path: "/mcp/s/x", status: 404, want: "INVALID_SESSION"},
		"the session's token": {path: "/mcp", headers: scoped, status: 200,
			want: "supportedVersions"},
		"its own path": {path: "/mcp/s/" + mine.ID(), headers: scoped, status: 200,
			want: "supportedVersions"},
		"the path of another": {path: "/mcp/s/" + other.ID(), headers: scoped, status: 403,
			want: "another"},
		"a path that is not": {path: "/mcp/s/x", headers: scoped, status: 403,
			want: "another session"},
		"a terminal with a session's token": {path: "/mcp/t/" + mine.ID() + "?pid=1&cwd=/",
			headers: scoped, status: 403, want: "a terminal needs the admin token"},
		"a terminal with a provider's token": {path: "/mcp/t/x?pid=1&cwd=/",
			headers: bearerOf(w.gateway.InstanceToken()), status: 401, want: "AUTH_FAILED"},
		"a terminal without a WebSocket": {path: "/mcp/t/x?pid=1&cwd=/", status: 409,
			want: "tapgw mcp in a terminal"},
		"the token at REST": {path: "/api/v1/reload", headers: scoped, status: 401,
			want: "AUTH_FAILED"},
		"no token": {path: "/mcp",
			headers: map[string]string{"Authorization": ""}, status: 401, want: "AUTH_FAILED"},
		"a wrong token": {path: "/mcp", headers: bearerOf("mcp-1"), status: 401,
			want: "AUTH_FAILED"},
		"a provider's token": {path: "/mcp", headers: bearerOf(w.gateway.InstanceToken()),
			status: 401, want: "AUTH_FAILED"},
		"a page of another site": {path: "/mcp",
			headers: map[string]string{"Origin": "https://evil.example"}, status: 403,
			want: "origins"},
		"a name that was rebound": {path: "/mcp",
			headers: map[string]string{"Host": "evil.example"}, status: 421, want: "UNAUTHORIZED"},
		"a long body": {path: "/mcp", body: strings.Repeat(" ", mcpserver.MaxBody+1), status: 413,
			want: "PAYLOAD_TOO_LARGE"},
		"no JSON": {path: "/mcp", body: "{", status: 400, want: ""},
	} {
		if tc.body == "" {
			tc.body = discover
		}
		status, body := w.post(tc.path, tc.body, tc.headers)
		if status != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s: got %d %.200s, want %d and %q", name, status, body, tc.status, tc.want)
		}
	}
	if err := mine.Stop(t.Context(), "over"); err != nil {
		t.Fatal(err)
	}
	if status, body := w.post("/mcp", discover, scoped); status != http.StatusUnauthorized {
		t.Errorf("the token after its session: got %d %s, want 401", status, body)
	}
	if _, err := mine.MCPToken(); err == nil {
		t.Error("a token of an ended session: got no error, want one")
	}
}

// Wrong tokens are slowed down, right ones never.
func TestManyWrongTokens(t *testing.T) {
	w := newWorld(t, 60)
	token, err := w.session().MCPToken()
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		if status, _ := w.post("/mcp", discover, bearerOf("wrong")); status == 429 {
			// A right token is good all the same.
			if status, body := w.post("/mcp", discover, bearerOf(token)); status != 200 {
				t.Errorf("a right token after many wrong ones: got %d %s, want 200", status, body)
			}
			return
		}
	}
	t.Error("30 wrong tokens: got no 429, want one")
}

// Clients of handshake revisions that never say that they go give their places to others; one that
// listens stays.
func TestClientsThatNeverGo(t *testing.T) {
	w := newWorld(t, 60)
	w.provide(w.session())
	stays := w.connect("2025-11-25", "/mcp", w.gateway.AdminToken())
	stays.hasTools("echo", "fails", "hang", "push", "query", "shape", "wait_for_event")
	old := map[string]string{"MCP-Protocol-Version": "2025-11-25"}
	for n := range 300 {
		status, body := w.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+
			`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, old)
		if status != http.StatusOK {
			t.Fatalf("client %d: got %d %s, want 200", n, status, body)
		}
	}
	w.connect("2025-11-25", "/mcp", w.gateway.AdminToken()).call("echo",
		map[string]any{"text": "x"})
	if got := text(stays.call("echo", map[string]any{"text": "here"})); got != "here" {
		t.Errorf("the client that listens: got %q, want here", got)
	}
}
