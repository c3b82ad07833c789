package configs

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// MCPUpstream is what a provider file of kind mcp says of its MCP server beside Command, CWD and Env, which start one
// on this machine: where a remote one is, and what else than its tools becomes tools.
type MCPUpstream struct {
	URL       string            // of streamable HTTP; "" for a server that Command starts
	Headers   map[string]string // of each request to URL, with ${NAME} for variables of the environment
	Resources bool              // whether the model may list and read the server's resources
	Prompts   bool              // whether the model may list and get the server's prompts
	OAuth     OAuth             // how the gateway logs in at URL
	Events    []MCPEvent        // none: what the server tells unasked becomes no events
}

// OAuth is the table [oauth]: how the gateway logs in at an MCP server that wants it. The zero value does for servers
// that register their clients themselves.
type OAuth struct {
	ClientID     string   // of a client that was registered beforehand; "": the gateway registers itself
	ClientSecret string   // ${NAME} for a variable of the environment; "" for a client without a secret
	Issuer       string   // the only authorization server that may see the client; "": the one that the server names
	Scopes       []string // to ask for; none: those that the server names
	Port         int      // where the browser returns to, on 127.0.0.1; 0: a free one
}

func (m *MCPUpstream) read(t *table, provider string) {
	m.Resources, m.Prompts = true, true
	t.str("url", &m.URL, isMCPURL)
	t.headers(&m.Headers)
	t.boolean("resources", &m.Resources)
	t.boolean("prompts", &m.Prompts)
	m.OAuth.read(t.table("oauth"))
	m.readEvents(t, provider)
}

func (o *OAuth) read(t *table) {
	t.str("client_id", &o.ClientID, visibleASCII)
	t.str("client_secret", &o.ClientSecret, func(s string) error {
		if s != "" && variable.FindString(s) != s {
			return errors.New(`is a secret: write "${NAME}" for a variable of the gateway's environment`)
		}
		return headerValue(s)
	})
	t.str("issuer", &o.Issuer, func(s string) error {
		if s == "" {
			return nil
		}
		return isMCPURL(s)
	})
	t.strs("scopes", &o.Scopes, func(s string) error {
		if s == "" || strings.ContainsAny(s, ` "\`) {
			return fmt.Errorf("%q is not a scope; each stands alone, without blanks", s)
		}
		return visibleASCII(s)
	})
	t.integer("port", &o.Port, 0, 65535)
	t.rejectUnknown()
}

// HasAuthorization reports whether Headers say who the gateway is, so that it never logs in.
func (m *MCPUpstream) HasAuthorization() bool {
	for name := range m.Headers {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			return true
		}
	}
	return false
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

func isMCPURL(s string) error {
	if err := isHTTP(s); err != nil {
		return err
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return err
	case u.User != nil:
		return errors.New("must not hold a user name or password: write headers, with ${NAME} for a variable")
	case u.Fragment != "":
		return errors.New("must have nothing behind a #")
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
		t.fault("kind", `"mcp" needs command = ["program", "argument"], or url = "https://tools.example/mcp"`)
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
