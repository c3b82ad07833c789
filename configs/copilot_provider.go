package configs

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"slices"
)

// Endpoint is the table provider: a model endpoint of the user's own. Secrets are never in
// the file, which names the environment variables that hold them.
type Endpoint struct {
	Kind            string            // EndpointOpenAI, EndpointAzure or EndpointAnthropic
	URL             string            // base URL; "": GitHub's models, as the user is signed in
	Wire            string            // WireCompletions or WireResponses; not for anthropic
	Transport       string            // "http" or "websockets" (with WireResponses)
	APIVersion      string            // azure's; "": its route without versions
	KeyEnv          string            // the variable that holds the key
	BearerTokenEnv  string            // the variable that holds a bearer token, instead of a key
	Headers         map[string]string // with ${NAME} for variables of the environment
	Models          []string          // what to offer; empty: what the endpoint lists
	ModelID         string            // whose abilities and limits the runtime assumes; "": the session's model
	WireModel       string            // the name on the wire; "": the session's model
	MaxPromptTokens int               // 0: what the runtime knows of the model
	MaxOutputTokens int
}

// Values of provider.kind: the interface that the model endpoint speaks, OpenAI's, Azure's or Anthropic's.
const (
	EndpointOpenAI    = "openai"
	EndpointAzure     = "azure"
	EndpointAnthropic = "anthropic"
)

// Values of provider.wire, which of OpenAI's interfaces the endpoint has, and of provider.transport; WebSockets need
// [WireResponses].
const (
	WireCompletions = "completions"
	WireResponses   = "responses"

	TransportHTTP       = "http"
	TransportWebSockets = "websockets"
)

func defaultEndpoint() Endpoint {
	return Endpoint{Kind: EndpointOpenAI, Wire: WireCompletions, Transport: TransportHTTP}
}

// read puts the keys of the table over those of e. Another URL is another endpoint, which
// must not get the key or any other setting of the old one.
func (e *Endpoint) read(t *table) {
	if t.has("url") && t.values["url"] != e.URL {
		*e = defaultEndpoint()
	}
	t.str("kind", &e.Kind, oneOf(EndpointOpenAI, EndpointAzure, EndpointAnthropic))
	t.str("url", &e.URL, CheckProviderURL)
	t.str("wire", &e.Wire, oneOf(WireCompletions, WireResponses))
	t.str("transport", &e.Transport, oneOf(TransportHTTP, TransportWebSockets))
	t.str("api_version", &e.APIVersion, isModelOrNone)
	if t.has("bearer_token_env") && !t.has("key_env") {
		e.KeyEnv = ""
	}
	if t.has("key_env") && !t.has("bearer_token_env") {
		e.BearerTokenEnv = ""
	}
	t.str("key_env", &e.KeyEnv, isEnvOrNone)
	t.str("bearer_token_env", &e.BearerTokenEnv, isEnvOrNone)
	t.headers(&e.Headers)
	t.strs("models", &e.Models, isModel)
	t.str("model_id", &e.ModelID, isModelOrNone)
	t.str("wire_model", &e.WireModel, isModelOrNone)
	t.integer("max_prompt_tokens", &e.MaxPromptTokens, 0, 100_000_000)
	t.integer("max_output_tokens", &e.MaxOutputTokens, 0, 100_000_000)
	t.rejectUnknown()
}

// check complains about keys of the table provider in t that do not go with each
// other.
func (e Endpoint) check(t *table) {
	d := defaultEndpoint()
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
		{"wire", e.Wire != d.Wire, e.Kind != EndpointAnthropic, `does not go with kind = "anthropic"`},
		{
			"transport", e.Transport != d.Transport, e.Kind != EndpointAnthropic && e.Wire == WireResponses,
			`"websockets" goes with wire = "responses" only`,
		},
		{"api_version", e.APIVersion != "", e.Kind == EndpointAzure, `goes with kind = "azure" only`},
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

// UseEndpoint replaces the endpoint of [copilot], also in the profiles that inherit it. The variable keyEnv holds its
// key. With the old URL, only the key changes; with an empty URL, models are GitHub's again.
func (c *Copilot) UseEndpoint(url, keyEnv string) {
	before := c.Provider.URL
	c.ProviderURL, c.ProviderKeyEnv = url, keyEnv
	e := defaultEndpoint()
	if url != "" {
		e.URL, e.KeyEnv, e.Models = url, keyEnv, c.Models
	}
	if url == before && url != "" { // only the key is another
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

// headers reads a table of HTTP headers, with ${NAME} for variables of the
// environment.
func (t *table) headers(into *map[string]string) {
	t.strings("headers", into, func(name string) error {
		if !headerName.MatchString(name) ||
			slices.Contains([]string{"Host", "Content-Length", "Transfer-Encoding", "Connection"},
				http.CanonicalHeaderKey(name)) {
			return errors.New("is not a header that can be set")
		}
		return nil
	})
	for _, name := range slices.Sorted(maps.Keys(*into)) {
		if err := headerValue((*into)[name]); err != nil && t.has("headers") {
			t.fault("headers."+name, "%w", err)
		}
	}
}
