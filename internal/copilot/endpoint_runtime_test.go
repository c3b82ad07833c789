//go:build runtime

package copilot

import (
	"strings"
	"testing"

	"tapgw/configs"
	"tapgw/internal/scriptmodel"
)

// onEndpoint makes an endpoint that of every session.
func onEndpoint(change func(e *configs.Endpoint, m string)) func(*Options) {
	return func(o *Options) {
		root := strings.TrimSuffix(o.ProviderURL, "/v1")
		o.Profile = configs.DefaultProfile()
		o.Profile.Provider.URL = o.ProviderURL
		change(&o.Profile.Provider, root)
		o.ProviderURL, o.ProviderKey = "", ""
	}
}

// The values of ENDPOINT_KEY and ENDPOINT_TOKEN in these tests.
const (
	endpointKey   = "the-key-of-the-endpoint"
	endpointToken = "the-token-of-the-endpoint"
)

// endpointTest is a change of an endpoint's settings and the requests that follow from it.
type endpointTest struct {
	endpoint func(e *configs.Endpoint, root string)
	path     string
	query    string // of api-version
	headers  map[string]string
	model    string
}

// checkEndpoints runs a turn at each endpoint and checks the model's requests.
func checkEndpoints(t *testing.T, tests map[string]endpointTest) {
	t.Helper()
	t.Setenv("ENDPOINT_KEY", endpointKey)
	t.Setenv("ENDPOINT_TOKEN", endpointToken)
	t.Setenv("TEAM", "red")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, onEndpoint(tt.endpoint))
			s := g.start()
			s.tool("quick", text("here I am"))
			s.turn("call:quick")
			if s.lastSaid() != "here I am" {
				t.Errorf(`the model said %q; errors %q, want "here I am"`, s.lastSaid(), s.errors())
			}
			for i, r := range g.model.Requests() {
				if r.Path != tt.path || r.Query.Get("api-version") != tt.query ||
					r.Model != tt.model || !r.Stream {
					t.Errorf(
						"request %d: %s?%s of model %q, want %s?%s of model %q, streamed",
						i, r.Path, r.Query.Encode(), r.Model, tt.path, tt.query, tt.model,
					)
				}
				for h, want := range tt.headers {
					if got := r.Header.Get(h); got != want {
						t.Errorf("request %d: header %s is %q, want %q", i, h, got, want)
					}
				}
				for _, secret := range []string{endpointKey, endpointToken} {
					if strings.Contains(string(r.Body), secret) {
						t.Errorf("request %d has a secret in its body, want no %q in it", i, secret)
					}
				}
			}
		})
	}
}

// Each kind of endpoint gets requests at its path, with its secret and its model's name.
func TestEndpoints(t *testing.T) {
	checkEndpoints(t, map[string]endpointTest{
		"openai completions": {
			func(e *configs.Endpoint, _ string) { e.KeyEnv = "ENDPOINT_KEY" },
			"/v1/chat/completions", "", map[string]string{"Authorization": "Bearer " + endpointKey},
			scriptmodel.ModelID,
		},
		"openai responses": {
			func(e *configs.Endpoint, _ string) {
				e.KeyEnv, e.Wire = "ENDPOINT_KEY", configs.WireResponses
			},
			"/v1/responses", "", map[string]string{"Authorization": "Bearer " + endpointKey},
			scriptmodel.ModelID,
		},
		"bearer token": {
			func(e *configs.Endpoint, _ string) { e.BearerTokenEnv = "ENDPOINT_TOKEN" },
			"/v1/chat/completions", "", map[string]string{"Authorization": "Bearer " +
				endpointToken},
			scriptmodel.ModelID,
		},
		"headers": {
			func(e *configs.Endpoint, _ string) {
				e.KeyEnv, e.Headers = "ENDPOINT_KEY", map[string]string{"X-Team": "team ${TEAM}",
					"X-Plain": "yes"}
			},
			"/v1/chat/completions", "",
			map[string]string{"X-Team": "team red", "X-Plain": "yes",
				"Authorization": "Bearer " + endpointKey},
			scriptmodel.ModelID,
		},
		"names of the model": {
			func(e *configs.Endpoint, _ string) {
				e.KeyEnv, e.ModelID, e.WireModel = "ENDPOINT_KEY", "gpt-5", "my-tune"
			},
			"/v1/chat/completions", "", nil, "my-tune",
		},
	})
}

func TestAzureEndpoints(t *testing.T) {
	checkEndpoints(t, map[string]endpointTest{
		"azure by version": {
			func(e *configs.Endpoint, root string) {
				e.Kind, e.URL, e.APIVersion = configs.EndpointAzure, root, "2024-10-21"
				e.KeyEnv, e.WireModel = "ENDPOINT_KEY", "deployed"
			},
			"/openai/deployments/deployed/chat/completions", "2024-10-21",
			map[string]string{"Api-Key": endpointKey},
			"deployed",
		},
		"azure without version": {
			func(e *configs.Endpoint, root string) {
				e.Kind, e.URL, e.KeyEnv = configs.EndpointAzure, root, "ENDPOINT_KEY"
			},
			"/openai/v1/chat/completions", "", map[string]string{"Api-Key": endpointKey},
			scriptmodel.ModelID,
		},
		"azure responses": {
			func(e *configs.Endpoint, root string) {
				e.Kind, e.URL, e.KeyEnv, e.Wire = configs.EndpointAzure, root, "ENDPOINT_KEY",
					configs.WireResponses
			},
			"/openai/v1/responses", "", map[string]string{"Api-Key": endpointKey},
			scriptmodel.ModelID,
		},
		"azure with a token": {
			func(e *configs.Endpoint, root string) {
				e.Kind, e.URL, e.BearerTokenEnv = configs.EndpointAzure, root, "ENDPOINT_TOKEN"
			},
			"/openai/v1/chat/completions", "", map[string]string{"Authorization": "Bearer " +
				endpointToken},
			scriptmodel.ModelID,
		},
	})
}

func TestAnthropicEndpoints(t *testing.T) {
	checkEndpoints(t, map[string]endpointTest{
		"anthropic": {
			func(e *configs.Endpoint, root string) {
				e.Kind, e.URL, e.KeyEnv = configs.EndpointAnthropic, root, "ENDPOINT_KEY"
			},
			"/v1/messages", "", map[string]string{"X-Api-Key": endpointKey,
				"Anthropic-Version": "2023-06-01"},
			scriptmodel.ModelID,
		},
		"anthropic with a token": {
			func(e *configs.Endpoint, root string) {
				e.Kind, e.URL, e.BearerTokenEnv = configs.EndpointAnthropic, root, "ENDPOINT_TOKEN"
			},
			"/v1/messages", "", map[string]string{"Authorization": "Bearer " + endpointToken},
			scriptmodel.ModelID,
		},
	})
}
