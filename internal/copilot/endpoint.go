package copilot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// Model endpoints, GitHub's and the user's own: their tokens, URLs and models.

// maxModelList bounds an endpoint's list of models, in bytes.
const maxModelList = 8 << 20

// endpointFor returns the model endpoint of a session, nil for GitHub's models. The key of a
// request is used only for the endpoint of the request.
func (o *Options) endpointFor(
	profile configs.Profile, req gateway.StartRequest,
) (*sdk.ProviderConfig, error) {
	e := profile.Provider
	if e.URL == "" {
		return nil, nil //nolint:nilnil // GitHub's
	}
	key, err := o.keyFor(e, req)
	if err != nil {
		return nil, err
	}
	headers, err := expand("provider.headers", e.Headers)
	if err != nil {
		return nil, err
	}
	p := &sdk.ProviderConfig{
		Type: e.Kind, BaseURL: e.URL, WireAPI: e.Wire, Headers: headers,
		ModelID: e.ModelID, WireModel: e.WireModel, MaxPromptTokens: e.MaxPromptTokens,
		MaxOutputTokens: e.MaxOutputTokens,
	}
	if e.ModelID != "" { // the runtime gets this name; see [session.runtimeModelName]
		p.WireModel = cmp.Or(e.WireModel, profile.Model)
	}
	if e.Kind == configs.EndpointAnthropic {
		p.WireAPI = ""
	}
	if e.Transport != configs.TransportHTTP {
		p.Transport = e.Transport
	}
	if e.APIVersion != "" {
		p.Azure = &sdk.AzureProviderOptions{APIVersion: e.APIVersion}
	}
	if e.BearerTokenEnv != "" {
		p.BearerToken = key
	} else {
		p.APIKey = key
	}
	return p, nil
}

// keyFromEnv reads the secret of an endpoint from the environment. A key may be missing, because an
// endpoint may not need one, but a bearer token that the config names must be set.
func (o *Options) keyFromEnv(e configs.Endpoint) (string, error) {
	if e.BearerTokenEnv != "" {
		token := os.Getenv(e.BearerTokenEnv)
		if token == "" {
			return "", unsetVariable("provider.bearer_token_env", e.BearerTokenEnv)
		}
		return token, nil
	}
	if e.KeyEnv == "" && e.URL == o.ProviderURL {
		return o.ProviderKey, nil
	}
	return os.Getenv(e.KeyEnv), nil // "" if KeyEnv is ""
}

// githubToken returns the GitHub token of one session, "" if it uses the runtime's.
func (o *Options) githubToken(p configs.Profile, req gateway.StartRequest) (string, error) {
	if req.GitHubToken != "" || p.GitHubTokenEnv == "" ||
		p.GitHubTokenEnv == o.Profile.GitHubTokenEnv {
		return req.GitHubToken, nil
	}
	return tokenFromEnv(p.GitHubTokenEnv)
}

// tokenFromEnv reads a GitHub token from the environment.
func tokenFromEnv(variable string) (string, error) {
	if variable == "" {
		return "", nil
	}
	token := os.Getenv(variable)
	if token == "" {
		return "", unsetVariable("github_token_env", variable)
	}
	return token, nil
}

// checkEndpoint checks that a session on the user's own endpoint has a URL and a model.
func checkEndpoint(p *sdk.ProviderConfig, model string, offered []string) error {
	if err := checkURL(p.BaseURL); err != nil {
		return invalidRequest("providerUrl: %v", err)
	}
	switch {
	case model == "":
		return missingModel("name a model that it serves")
	case len(offered) > 0 && !slices.Contains(offered, model):
		return unknownModel(model, offered)
	}
	return nil
}

func missingModel(what string) error {
	return invalidRequest("model: missing; with a model endpoint of one's own (provider_url) %s",
		what)
}

// defaultModel returns the model of a session that does not name one: the only model of its
// endpoint, by the config or by the endpoint's list. For GitHub it is "", because GitHub chooses.
func (o *Options) defaultModel(
	ctx context.Context, p configs.Profile, req gateway.StartRequest,
) (string, error) {
	e := p.Provider
	if p.Model != "" || e.URL == "" || checkURL(e.URL) != nil { // checkEndpoint reports a wrong URL
		return p.Model, nil
	}
	ids := e.Models
	if len(ids) == 0 {
		key, err := o.keyFor(e, req)
		if err != nil {
			return "", err
		}
		if ids, err = o.listModels(ctx, e, key); err != nil {
			return "",
				missingModel(fmt.Sprintf("name a model that it serves: its list can't be read: %v",
					err))
		}
	}
	if len(ids) != 1 {
		list := cmp.Or(strings.Join(ids, ", "), "its list has none")
		return "", missingModel("name one of those that it has: " + list)
	}
	return ids[0], nil
}

// keyFor returns the key of a request's endpoint. A request with its own URL has its own key.
func (o *Options) keyFor(e configs.Endpoint, req gateway.StartRequest) (string, error) {
	if req.ProviderURL != "" {
		return req.ProviderKey, nil
	}
	return o.keyFromEnv(e)
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("%q is not an http or https URL", u.Redacted())
	}
	return nil
}

// endpointModels returns the models of an endpoint: those that the config names, else those that
// the endpoint lists.
func (o *Options) endpointModels(
	ctx context.Context, e configs.Endpoint,
) ([]adminapi.Model, error) {
	ids := e.Models
	if len(ids) == 0 {
		key, err := o.keyFromEnv(e)
		if err != nil {
			return nil, err
		}
		if ids, err = o.listModels(ctx, e, key); err != nil {
			return nil, internalError(fmt.Errorf(
				"listing the models of provider_url (or name them in models in [copilot] of "+
					"tapgw.toml): %w", err))
		}
	}
	models := make([]adminapi.Model, len(ids))
	for i, id := range ids {
		models[i] = adminapi.Model{ID: id, Name: id, Efforts: []string{}}
	}
	return models, nil
}

// listModels asks an endpoint for its models, in the way of its kind.
func (o *Options) listModels(
	ctx context.Context, e configs.Endpoint, key string,
) ([]string, error) {
	if e.Kind == configs.EndpointAzure {
		return nil, errors.New("azure lists no deployments")
	}
	headers, err := expand("provider.headers", e.Headers)
	if err != nil {
		return nil, err
	}
	path := "/models"
	if e.Kind == configs.EndpointAnthropic {
		path = "/v1/models"
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(e.URL, "/")+path,
		nil)
	if err != nil {
		return nil, err
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	switch {
	case key == "":
	case e.Kind == configs.EndpointAnthropic && e.BearerTokenEnv == "":
		req.Header.Set("X-Api-Key", key)
		req.Header.Set("Anthropic-Version", cmp.Or(req.Header.Get("Anthropic-Version"),
			"2023-06-01"))
	default:
		req.Header.Set("Authorization", "Bearer "+key)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment,
		DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s answered %s", req.URL.Redacted(), resp.Status)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxModelList)).Decode(&list); err != nil {
		return nil, fmt.Errorf("reading the list: %w", err)
	}
	ids := make([]string, len(list.Data))
	for i, m := range list.Data {
		ids[i] = m.ID
	}
	return ids, nil
}
