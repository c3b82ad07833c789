package configs

import (
	"errors"
	"net/url"
)

// MCPUpstream is what a provider file of kind mcp says of its MCP server beside Command, CWD and Env, which start one
// on this machine: where a remote one is, and what else than its tools becomes tools.
type MCPUpstream struct {
	URL       string            // of streamable HTTP; "" for a server that Command starts
	Headers   map[string]string // of each request to URL, with ${NAME} for variables of the environment
	Resources bool              // whether the model may list and read the server's resources
	Prompts   bool              // whether the model may list and get the server's prompts
}

func (m *MCPUpstream) read(t *table) {
	m.Resources, m.Prompts = true, true
	t.str("url", &m.URL, isMCPURL)
	t.headers(&m.Headers)
	t.boolean("resources", &m.Resources)
	t.boolean("prompts", &m.Prompts)
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
}
