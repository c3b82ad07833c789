package copilot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
	"tapgw/internal/adminapi"
)

// Models, and the checks of a session's model and effort.

// Models implements [gateway.Starter].
func (r *Runtime) Models(ctx context.Context) ([]adminapi.Model, error) {
	o := r.current.Load()
	if e := o.Profile.Provider; e.URL != "" {
		return o.endpointModels(ctx, e)
	}
	ctx, cancel := r.untilClosed(ctx)
	defer cancel()
	p, err := r.process(ctx)
	if err != nil {
		return nil, internalError(err)
	}
	return r.githubModels(ctx, p, "")
}

func (r *Runtime) checkSignedIn(ctx context.Context, p *process) error {
	auth, err := askClient(ctx, p, askTimeout, p.client.GetAuthStatus)
	if err != nil {
		return internalError(fmt.Errorf("asking for the sign-in: %w", err))
	}
	if !auth.IsAuthenticated {
		return invalidState("%s", notSignedIn)
	}
	return nil
}

// githubModels lists GitHub's models for the signed-in user, or for the user of a token.
func (r *Runtime) githubModels(
	ctx context.Context, p *process, token string,
) ([]adminapi.Model, error) {
	if token == "" {
		if err := r.checkSignedIn(ctx, p); err != nil {
			return nil, err
		}
	}
	list, err := askClient(ctx, p, askTimeout, func(ctx context.Context) (*rpc.ModelList, error) {
		return p.client.RPC.Models.List(ctx,
			&rpc.ModelsListRequest{GitHubToken: pointerUnless(token, "")})
	})
	if err != nil {
		return nil, internalError(fmt.Errorf("listing GitHub's models: %w%s", err, signInHint(err)))
	}
	models := make([]adminapi.Model, len(list.Models))
	for i, m := range list.Models {
		models[i] = githubModel(m)
	}
	return models, nil
}

func githubModel(m rpc.Model) adminapi.Model {
	v := adminapi.Model{
		ID: m.ID, Name: m.Name, Efforts: append([]string{}, m.SupportedReasoningEfforts...),
		DefaultEffort: deref(m.DefaultReasoningEffort),
	}
	if m.Billing != nil && m.Billing.Multiplier != nil {
		v.Multiplier = *m.Billing.Multiplier
	}
	if s := m.Capabilities.Supports; s != nil && s.Vision != nil {
		v.Vision = *s.Vision
	}
	if l := m.Capabilities.Limits; l != nil {
		v.MaxPromptTokens, v.MaxContextTokens = int(deref(l.MaxPromptTokens)),
			int(deref(l.MaxContextWindowTokens))
	}
	if m.Policy != nil {
		v.Policy = string(m.Policy.State)
	}
	return v
}

// checkModel checks that a session may use GitHub's models, and that its model exists and knows its
// effort. An empty model or effort is the runtime's choice.
func (r *Runtime) checkModel(ctx context.Context, p *process, model, effort, token string) error {
	models, err := r.githubModels(ctx, p, token)
	if err != nil {
		return err
	}
	if model == "" {
		return nil
	}
	ids := make([]string, len(models))
	for i, m := range models {
		ids[i] = m.ID
	}
	at := slices.Index(ids, model)
	if at < 0 {
		return unknownModel(model, ids)
	}
	switch known := models[at].Efforts; {
	case effort == "":
		return nil
	case len(known) == 0:
		return invalidRequest("effort: model %q can't be told how hard to think", model)
	default:
		return checkEffort(effort, known)
	}
}

func checkEffort(effort string, known []string) error {
	if effort == "" || slices.Contains(known, effort) {
		return nil
	}
	return invalidRequest("effort: there is no %q; there are %s", effort, strings.Join(known, ", "))
}

func unknownModel(model string, have []string) error {
	return invalidRequest("model: there is no model %q; there are %s", model,
		strings.Join(have, ", "))
}

// SetModel is [gateway.HostInfo].SetModel. The session keeps its history.
func (s *session) SetModel(ctx context.Context, model, effort string) error {
	if err := checkEffort(effort, configs.Efforts); err != nil {
		return err
	}
	c, err := s.waitConn(ctx)
	if err != nil {
		return err
	}
	if s.provider == nil {
		err = s.r.checkModel(ctx, c.process, model, effort, s.githubToken)
	} else {
		err = checkEndpoint(s.provider, model, s.offeredModels)
	}
	if err != nil {
		return err
	}
	// A resume under way would send the runtime the old model.
	if err := s.configLock.Lock(ctx); err != nil {
		return err
	}
	defer s.configLock.Unlock()
	s.mu.Lock()
	wasModel, wasEffort := s.model, s.effort
	if s.provider != nil {
		// on such an endpoint the runtime keeps the effort anyway
		effort = cmp.Or(effort, wasEffort)
	}
	s.model, s.effort = model, effort // a session that is resumed from now on gets these
	s.mu.Unlock()
	err = execute(ctx, c.process, askTimeout, func(ctx context.Context) error {
		return c.sdk.SetModel(
			ctx, s.runtimeModelName(model),
			&sdk.SetModelOptions{ReasoningEffort: pointerUnless(effort, ""),
				ModelCapabilities: s.capabilities()},
		)
	})
	if err != nil {
		s.mu.Lock()
		s.model, s.effort = wasModel, wasEffort
		s.mu.Unlock()
		return internalError(fmt.Errorf("changing the model: %w", err))
	}
	return s.storeMetadata(ctx, c, map[string]string{metaModel: model, metaEffort: effort})
}
