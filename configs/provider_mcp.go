package configs

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// MCPUpstream has the keys of a provider file of kind mcp beside Command, CWD and Env, which start
// a local server: the address of a remote server, and the parts of the server beside its tools that
// also become tools.
type MCPUpstream struct {
	URL     string            `toml:"url" is:"mcpURL" kinds:"mcp,source"` // streamable HTTP
	Headers map[string]string `toml:"headers" names:"header" is:"headerValue" kinds:"mcp,source"`
	// Whether the model may list and read the server's resources, and list and get its prompts.
	Resources bool       `toml:"resources" default:"true" kinds:"mcp"`
	Prompts   bool       `toml:"prompts" default:"true" kinds:"mcp"`
	OAuth     OAuth      `toml:"oauth" kinds:"mcp"`
	Events    []MCPEvent `toml:"events" kinds:"mcp"` // which notifications become events
}

// OAuth is the table [oauth]: how the gateway logs in at an MCP server that wants it. The zero
// value does for servers that register their clients themselves.
type OAuth struct {
	// the id of a client that was registered beforehand; "": the gateway registers itself
	ClientID     string `toml:"client_id" is:"ascii"`
	ClientSecret string `toml:"client_secret" is:"oauthSecret"` // "${NAME}"
	// Issuer is the only authorization server that may see the client; "" allows the server's own
	// choice.
	Issuer string   `toml:"issuer" is:"mcpURL?"`
	Scopes []string `toml:"scopes" is:"scope"`    // to ask for; empty: the server's own list
	Port   int      `toml:"port" range:"0,65535"` // 0: a free one
}

// HasAuthorization reports whether Headers authenticate the gateway, so that it never logs in.
func (m *MCPUpstream) HasAuthorization() bool {
	for name := range m.Headers {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			return true
		}
	}
	return false
}

func isOAuthSecret(s string) error {
	if s != "" && variable.FindString(s) != s {
		return errors.New(
			`is a secret: write "${NAME}" for a variable of the gateway's environment`)
	}
	return headerValue(s)
}

func isScope(s string) error {
	if s == "" || strings.ContainsAny(s, ` "\`) {
		return fmt.Errorf("%q is not a scope; each stands alone, without blanks", s)
	}
	return visibleASCII(s)
}

// visibleASCII refuses characters that OAuth allows neither in a client's id nor in a scope.
func visibleASCII(s string) error {
	for _, c := range s {
		if c < ' ' || c > '~' {
			return errors.New("must have printable ASCII characters only")
		}
	}
	return nil
}

// checkMCP adds faults for keys of kind mcp that exclude or need each other.
func (p *Provider) checkMCP(t *table) {
	_, hasCommand := t.values["command"]
	_, hasURL := t.values["url"]
	switch {
	case hasCommand && hasURL:
		t.fault("url", "excludes command: a server is started, or reached by its URL")
	case !hasCommand && !hasURL, hasCommand && t.isGood("command") && len(p.Command) == 0:
		t.fault("kind",
			`"mcp" needs command = ["program", "argument"], or url = "https://tools.example/mcp"`)
	}
	goesWith := func(key, other string, isThere bool) {
		if _, has := t.values[key]; has && t.isGood(key) && !isThere {
			t.fault(key, "goes with %s", other)
		}
	}
	goesWith("cwd", "command", hasCommand)
	goesWith("env", "command", hasCommand)
	goesWith("headers", "url", hasURL)
	goesWith("oauth", "url", hasURL)
	oauth, hasOAuth := t.values["oauth"].(map[string]any)
	if !hasOAuth {
		return
	}
	if p.MCP.HasAuthorization() {
		t.fault("oauth", "excludes the header Authorization, which says already who the gateway is")
	}
	for _, key := range []string{"client_secret", "issuer"} {
		if _, has := oauth[key]; has && p.MCP.OAuth.ClientID == "" {
			t.fault("oauth."+key, "goes with client_id")
		}
	}
}
