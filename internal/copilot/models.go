package copilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// signIn says what to do without a GitHub sign-in.
const signIn = "not signed in to GitHub Copilot: run `copilot login`, or set GH_TOKEN or COPILOT_GITHUB_TOKEN, or set provider_url in [copilot] of tapgw.toml"

// maxModelList bounds what an endpoint lists.
const maxModelList = 8 << 20

// Models implements [gateway.Starter].
func (r *Runtime) Models(ctx context.Context) ([]gateway.Model, error) {
	if r.o.ProviderURL != "" {
		if len(r.o.Models) > 0 {
			return named(r.o.Models), nil
		}
		ids, err := endpointModels(ctx, r.o.ProviderURL, r.o.ProviderKey)
		if err != nil {
			return nil, fault(fmt.Errorf("listing the models of provider_url (or name them in models in [copilot] of tapgw.toml): %w", err))
		}
		return named(ids), nil
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	p, err := r.process(ctx)
	if err != nil {
		return nil, fault(err)
	}
	if err := r.checkSignedIn(ctx, p); err != nil {
		return nil, err
	}
	return r.githubModels(ctx, p)
}

func named(ids []string) []gateway.Model {
	models := make([]gateway.Model, len(ids))
	for i, id := range ids {
		models[i] = gateway.Model{ID: id, Name: id}
	}
	return models
}

func (r *Runtime) checkSignedIn(ctx context.Context, p *process) error {
	auth, err := askClient(ctx, p, askTimeout, p.client.GetAuthStatus)
	if err != nil {
		return fault(fmt.Errorf("asking for the sign-in: %w", err))
	}
	if !auth.IsAuthenticated {
		return &protocol.Error{Code: protocol.CodeInvalidState, Message: signIn}
	}
	return nil
}

func (r *Runtime) githubModels(ctx context.Context, p *process) ([]gateway.Model, error) {
	list, err := askClient(ctx, p, askTimeout, p.client.ListModels)
	if err != nil {
		return nil, fault(fmt.Errorf("listing GitHub's models: %w", err))
	}
	models := make([]gateway.Model, len(list))
	for i, m := range list {
		models[i] = gateway.Model{ID: m.ID, Name: m.Name, Multiplier: multiplier(m)}
	}
	return models, nil
}

func multiplier(m sdk.ModelInfo) float64 {
	if m.Billing == nil || m.Billing.Multiplier == nil {
		return 0
	}
	return *m.Billing.Multiplier
}

// checkModel checks that the user is signed in and that GitHub has the model;
// an empty one is the runtime's default.
func (r *Runtime) checkModel(ctx context.Context, p *process, model string) error {
	if err := r.checkSignedIn(ctx, p); err != nil {
		return err
	}
	if model == "" {
		return nil
	}
	models, err := r.githubModels(ctx, p)
	if err != nil {
		return err
	}
	ids := make([]string, len(models))
	for i, m := range models {
		ids[i] = m.ID
	}
	if !slices.Contains(ids, model) {
		return unknownModel(model, ids)
	}
	return nil
}

func unknownModel(model string, have []string) error {
	return &protocol.Error{Code: protocol.CodeInvalidJSON, Message: fmt.Sprintf("model: there is no model %q; there are %s", model, strings.Join(have, ", "))}
}

// checkProvider checks what a session on a model endpoint needs. The models of
// the configuration are those of its own endpoint only.
func checkProvider(p *sdk.ProviderConfig, model string, offered []string) error {
	if err := checkURL(p.BaseURL); err != nil {
		return &protocol.Error{Code: protocol.CodeInvalidJSON, Message: "providerUrl: " + err.Error()}
	}
	switch {
	case model == "" && len(offered) > 0:
		return &protocol.Error{Code: protocol.CodeInvalidJSON, Message: "model: missing; provider_url has " + strings.Join(offered, ", ")}
	case model == "":
		return &protocol.Error{Code: protocol.CodeInvalidJSON, Message: "model: missing; with a model endpoint of one's own (provider_url) name a model that it serves"}
	case len(offered) > 0 && !slices.Contains(offered, model):
		return unknownModel(model, offered)
	}
	return nil
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

// endpointModels asks an endpoint on the OpenAI wire what models it has.
func endpointModels(ctx context.Context, base, key string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/models", nil)
	if err != nil {
		return nil, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
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
