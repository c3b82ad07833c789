package server

import (
	"net/http"
	"net/url"
	"path/filepath"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// startRequest checks a model's settings and makes a gateway's request of them. The
// error names the field.
func startRequest(m adminapi.ModelSettings) (gateway.StartRequest, error) {
	if m.ProviderURL != "" {
		u, err := url.Parse(m.ProviderURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return gateway.StartRequest{}, fieldError("providerUrl", "must be an http or https URL")
		}
		if u.User != nil {
			return gateway.StartRequest{}, fieldError("providerUrl",
				"must hold no password; send it as providerKey")
		}
	} else if m.ProviderKey != "" {
		return gateway.StartRequest{}, fieldError("providerKey",
			"requires providerUrl: the model endpoint that the key is for")
	}
	return gateway.StartRequest{
		Model: m.Model, Effort: m.Effort, Profile: m.Profile,
		ProviderURL: m.ProviderURL, ProviderKey: m.ProviderKey, GitHubToken: m.GitHubToken,
	}, nil
}

// persisted lists the sessions on disk.
func (a *api) persisted(r *http.Request) (any, error) {
	q, err := readParams(r, "cwd", "repository", "branch", "last")
	if err != nil {
		return nil, err
	}
	f := gateway.PersistedFilter{CWD: q.Get("cwd"), Repository: q.Get("repository"),
		Branch: q.Get("branch")}
	if q.Has("last") {
		if f.Last, err = readLast(q, 1); err != nil {
			return nil, err
		}
	}
	if f.CWD != "" {
		if !filepath.IsAbs(f.CWD) {
			return nil, fieldError("cwd", "%q must be an absolute path", f.CWD)
		}
		f.CWD = filepath.Clean(f.CWD)
	}
	return a.gateway.Persisted(r.Context(), f)
}

// resumePersisted resumes a session on disk.
func (a *api) resumePersisted(r *http.Request, body adminapi.ResumeRequest) (any, error) {
	if body.CWD != "" {
		if err := checkDirectory("cwd", body.CWD); err != nil {
			return nil, err
		}
		body.CWD = filepath.Clean(body.CWD)
	}
	start, err := startRequest(body.ModelSettings)
	if err != nil {
		return nil, err
	}
	start.CWD, start.Label = body.CWD, body.Label
	request := gateway.ResumeRequest{StartRequest: start, Continue: body.ContinuePendingWork}
	s, err := a.gateway.Resume(r.Context(), r.PathValue("id"), request)
	return a.started(r.Context(), s, err)
}

// deletePersisted removes a session from the disk.
func (a *api) deletePersisted(r *http.Request) (any, error) {
	return adminapi.Nothing{}, a.gateway.DeletePersisted(r.Context(), r.PathValue("id"))
}

// setModel changes the model of a session that runs.
func (a *api) setModel(r *http.Request, s *gateway.Session, b adminapi.ModelRequest) (any, error) {
	if b.Model == "" {
		return nil, fieldError("model", "is missing: the id of a model, see GET /api/v1/models")
	}
	return adminapi.Nothing{}, s.SetModel(r.Context(), b.Model, b.Effort)
}
