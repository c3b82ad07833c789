package server

import (
	"net/http"
	"net/url"
	"path/filepath"

	"tapgw/internal/gateway"
)

// apiStart is what a request says of a session that is to start, or to start again.
type apiStart struct {
	Model       string `json:"model"`
	Effort      string `json:"effort"`
	Profile     string `json:"profile"`
	CWD         string `json:"cwd"`
	Label       string `json:"label"`
	ProviderURL string `json:"providerUrl"`
	ProviderKey string `json:"providerKey"`
	GitHubToken string `json:"githubToken"`
}

// request checks what can be checked here.
func (b apiStart) request(host string) (gateway.StartRequest, error) {
	if b.ProviderURL != "" {
		u, err := url.Parse(b.ProviderURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return gateway.StartRequest{}, apiFault("providerUrl", "must be an http or https URL")
		}
		if u.User != nil {
			return gateway.StartRequest{}, apiFault("providerUrl", "must hold no password; send it as providerKey")
		}
	} else if b.ProviderKey != "" {
		return gateway.StartRequest{}, apiFault("providerKey", "is the key of an endpoint of one's own: providerUrl is required with it")
	}
	if b.CWD != "" {
		b.CWD = filepath.Clean(b.CWD)
	}
	return gateway.StartRequest{
		Host: host, Model: b.Model, Effort: b.Effort, Profile: b.Profile, CWD: b.CWD, Label: b.Label,
		ProviderURL: b.ProviderURL, ProviderKey: b.ProviderKey, GitHubToken: b.GitHubToken,
	}, nil
}

// persisted lists the sessions on disk.
func (a *api) persisted(w http.ResponseWriter, r *http.Request) error {
	q, err := apiParams(r, "cwd", "repository", "branch", "last")
	if err != nil {
		return err
	}
	f := gateway.PersistedFilter{CWD: q.Get("cwd"), Repository: q.Get("repository"), Branch: q.Get("branch")}
	if q.Has("last") {
		if f.Last, err = apiLast(q, 1); err != nil {
			return err
		}
	}
	if f.CWD != "" {
		if !filepath.IsAbs(f.CWD) {
			return apiFault("cwd", "%q must be an absolute path", f.CWD)
		}
		f.CWD = filepath.Clean(f.CWD)
	}
	views, err := a.gateway.Persisted(r.Context(), f)
	if err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, apiList(views))
}

// resumePersisted brings a session on disk back.
func (a *api) resumePersisted(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		apiStart
		ContinuePendingWork bool `json:"continuePendingWork"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	if body.CWD != "" {
		if err := apiDirectory("cwd", body.CWD); err != nil {
			return err
		}
	}
	start, err := body.request("")
	if err != nil {
		return err
	}
	s, err := a.gateway.Resume(r.Context(), r.PathValue("id"), gateway.ResumeRequest{StartRequest: start, Continue: body.ContinuePendingWork})
	if err != nil {
		return err
	}
	return apiAnswer(w, http.StatusCreated, map[string]string{"id": s.ID()})
}

// deletePersisted removes a session from the disk.
func (a *api) deletePersisted(w http.ResponseWriter, r *http.Request) error {
	if err := a.gateway.DeletePersisted(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, struct{}{})
}

// setModel changes the model of a session that runs.
func (a *api) setModel(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body struct {
		Model  string `json:"model"`
		Effort string `json:"effort"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	if body.Model == "" {
		return apiFault("model", "is missing: the id of a model, see GET /api/v1/models")
	}
	if err := s.SetModel(r.Context(), body.Model, body.Effort); err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, struct{}{})
}
