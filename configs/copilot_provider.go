package configs

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
)

// Endpoint is the table provider: a model endpoint of the user's own. Secrets are never in
// the file, which names the environment variables that hold them.
type Endpoint struct {
	Kind string `toml:"kind" of:"openai,azure,anthropic" default:"openai"`
	// "": GitHub's models
	URL string `toml:"url" is:"baseURL"`
	// not for anthropic
	Wire       string `toml:"wire" of:"completions,responses" default:"completions"`
	Transport  string `toml:"transport" of:"http,websockets" default:"http"` // see Wire
	APIVersion string `toml:"api_version" is:"model?"`                       // azure's
	// KeyEnv is the variable that holds the key, BearerTokenEnv one that holds a bearer token
	// instead.
	KeyEnv         string            `toml:"key_env" is:"keyEnv?"`
	BearerTokenEnv string            `toml:"bearer_token_env" is:"keyEnv?"`
	Headers        map[string]string `toml:"headers" names:"header" is:"headerValue"`
	Models         []string          `toml:"models" is:"model"` // empty: the models that it lists
	// ModelID is the model whose abilities and limits the runtime assumes, WireModel the name on
	// the wire; "": the session's model.
	ModelID   string `toml:"model_id" is:"model?"`
	WireModel string `toml:"wire_model" is:"model?"`
	// Limits of tokens; 0: the limits that the runtime knows for the model.
	MaxPromptTokens int `toml:"max_prompt_tokens" range:"0,100000000"`
	MaxOutputTokens int `toml:"max_output_tokens" range:"0,100000000"`
}

// Values of provider.kind: the interface that the model endpoint speaks, OpenAI's, Azure's or
// Anthropic's.
const (
	EndpointOpenAI    = "openai"
	EndpointAzure     = "azure"
	EndpointAnthropic = "anthropic"
)

// Values of provider.wire, which of OpenAI's interfaces the endpoint has, and of
// provider.transport; WebSockets need [WireResponses].
const (
	WireCompletions = "completions"
	WireResponses   = "responses"

	TransportHTTP       = "http"
	TransportWebSockets = "websockets"
)

// prepare makes another URL another endpoint, which must not get the key or any other setting of
// the old one.
func (e *Endpoint) prepare(t *table) {
	if t.has("url") && t.values["url"] != e.URL {
		*e = defaults[Endpoint]()
	}
	if t.has("bearer_token_env") && !t.has("key_env") {
		e.KeyEnv = ""
	}
	if t.has("key_env") && !t.has("bearer_token_env") {
		e.BearerTokenEnv = ""
	}
}

// checkTogether complains about keys of the table provider in t that do not go with each
// other.
func (e Endpoint) checkTogether(t *table) {
	d := defaults[Endpoint]()
	for _, k := range []struct {
		key   string
		set   bool
		legal bool
		why   string
	}{
		{"kind", e.Kind != d.Kind, e.URL != "", "needs url beside it"},
		{"headers", len(e.Headers) > 0, e.URL != "", "needs url beside it"},
		{"key_env", e.KeyEnv != "", e.URL != "", "needs url beside it"},
		{"bearer_token_env", e.BearerTokenEnv != "", e.URL != "", "needs url beside it"},
		{"models", len(e.Models) > 0, e.URL != "", "needs url beside it"},
		{"model_id", e.ModelID != "", e.URL != "", "needs url beside it"},
		{"wire_model", e.WireModel != "", e.URL != "", "needs url beside it"},
		{"max_prompt_tokens", e.MaxPromptTokens != 0, e.URL != "", "needs url beside it"},
		{"max_output_tokens", e.MaxOutputTokens != 0, e.URL != "", "needs url beside it"},
		{"wire", e.Wire != d.Wire, e.Kind != EndpointAnthropic,
			`does not go with kind = "anthropic"`},
		{
			"transport", e.Transport != d.Transport, e.Kind != EndpointAnthropic &&
				e.Wire == WireResponses,
			`"websockets" goes with wire = "responses" only`,
		},
		{"api_version", e.APIVersion != "", e.Kind == EndpointAzure,
			`goes with kind = "azure" only`},
		{
			"bearer_token_env", e.BearerTokenEnv != "", e.KeyEnv == "",
			"either key_env or bearer_token_env: the runtime sends one of them",
		},
	} {
		if k.set && !k.legal {
			t.fault("provider."+k.key, "%s", k.why)
		}
	}
}

// mergeShortKeys makes the short keys of [copilot] (provider_url, provider_key_env, models)
// and the table provider equal.
func (c *Copilot) mergeShortKeys(t *table) {
	e := &c.Provider
	switch {
	case e.URL == "":
		e.URL = c.ProviderURL
	case c.ProviderURL == "":
		c.ProviderURL = e.URL
		c.ProviderKeyEnv = cmp.Or(e.KeyEnv, e.BearerTokenEnv, c.ProviderKeyEnv)
	case c.ProviderURL != e.URL:
		t.fault("provider.url", "provider_url names another endpoint: leave one of them out")
	}
	if e.URL == "" {
		return
	}
	if e.KeyEnv == "" && e.BearerTokenEnv == "" {
		e.KeyEnv = c.ProviderKeyEnv
	}
	if len(e.Models) == 0 {
		e.Models = c.Models
	}
}

// UseEndpoint replaces the endpoint of [copilot], also in the profiles that inherit it. The
// variable keyEnv holds its key. With the old URL, only the key changes; with an empty URL, models
// are GitHub's again.
func (c *Copilot) UseEndpoint(url, keyEnv string) {
	before := c.Provider.URL
	c.ProviderURL, c.ProviderKeyEnv = url, keyEnv
	e := defaults[Endpoint]()
	if url != "" {
		e.URL, e.KeyEnv, e.Models = url, keyEnv, c.Models
	}
	if url == before && url != "" { // only the key differs
		e = c.Provider
		e.KeyEnv, e.BearerTokenEnv = keyEnv, ""
	}
	c.Provider = e
	for name, p := range c.Profiles {
		if p.Provider.URL == before {
			p.Provider = e
			c.Profiles[name] = p
		}
	}
}

func isHeader(name string) error {
	if !headerName.MatchString(name) ||
		slices.Contains([]string{"Host", "Content-Length", "Transfer-Encoding", "Connection"},
			http.CanonicalHeaderKey(name)) {
		return errors.New("is not a header that can be set")
	}
	return nil
}
