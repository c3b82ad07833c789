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
			return gateway.StartRequest{}, fieldError("providerUrl", "must hold no password; send it as providerKey")
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
func (a *api) persisted(w http.ResponseWriter, r *http.Request) error {
	q, err := readParams(r, "cwd", "repository", "branch", "last")
	if err != nil {
		return err
	}
	f := gateway.PersistedFilter{CWD: q.Get("cwd"), Repository: q.Get("repository"), Branch: q.Get("branch")}
	if q.Has("last") {
		if f.Last, err = readLast(q, 1); err != nil {
			return err
		}
	}
	if f.CWD != "" {
		if !filepath.IsAbs(f.CWD) {
			return fieldError("cwd", "%q must be an absolute path", f.CWD)
		}
		f.CWD = filepath.Clean(f.CWD)
	}
	views, err := a.gateway.Persisted(r.Context(), f)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, orEmpty(views))
}

// resumePersisted resumes a session on disk.
func (a *api) resumePersisted(w http.ResponseWriter, r *http.Request) error {
	var body adminapi.ResumeRequest
	if err := readBody(w, r, &body); err != nil {
		return err
	}
	if body.CWD != "" {
		if err := checkDirectory("cwd", body.CWD); err != nil {
			return err
		}
		body.CWD = filepath.Clean(body.CWD)
	}
	start, err := startRequest(body.ModelSettings)
	if err != nil {
		return err
	}
	start.CWD, start.Label = body.CWD, body.Label
	request := gateway.ResumeRequest{StartRequest: start, Continue: body.ContinuePendingWork}
	s, err := a.gateway.Resume(r.Context(), r.PathValue("id"), request)
	if err != nil {
		return err
	}
	a.settle(r.Context(), s)
	return writeJSON(w, http.StatusCreated, adminapi.Started{ID: s.ID()})
}

// deletePersisted removes a session from the disk.
func (a *api) deletePersisted(w http.ResponseWriter, r *http.Request) error {
	return done(w, a.gateway.DeletePersisted(r.Context(), r.PathValue("id")))
}

// setModel changes the model of a session that runs.
func (a *api) setModel(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body adminapi.ModelRequest
	if err := readBody(w, r, &body); err != nil {
		return err
	}
	if body.Model == "" {
		return fieldError("model", "is missing: the id of a model, see GET /api/v1/models")
	}
	return done(w, s.SetModel(r.Context(), body.Model, body.Effort))
}
