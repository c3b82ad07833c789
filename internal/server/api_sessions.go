package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/git"
	"tapgw/internal/protocol"
)

func (a *api) sessions(w http.ResponseWriter, _ *http.Request) error {
	return apiAnswer(w, http.StatusOK, apiList(a.gateway.Sessions()))
}

func (a *api) start(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Host string `json:"host"`
		apiStart
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	if body.Host == "" {
		body.Host = apiHostCopilot
	}
	if err := apiDirectory("cwd", body.CWD); err != nil {
		return err
	}
	if body.Label == "" {
		body.Label = git.Label(filepath.Clean(body.CWD))
	}
	request, err := body.request(body.Host)
	if err != nil {
		return err
	}
	s, err := a.gateway.Start(r.Context(), request)
	if err != nil {
		return err
	}
	return apiAnswer(w, http.StatusCreated, map[string]string{"id": s.ID()})
}

func apiDirectory(field, path string) error {
	switch {
	case path == "":
		return apiFault(field, "is required: the session's working directory")
	case !filepath.IsAbs(path):
		return apiFault(field, "%q must be an absolute path", path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return apiFault(field, "%q does not exist", path)
	case err != nil:
		return apiFault(field, "%v", err)
	case !info.IsDir():
		return apiFault(field, "%q is not a directory", path)
	}
	return nil
}

func (a *api) view(w http.ResponseWriter, _ *http.Request, s *gateway.Session) error {
	return apiAnswer(w, http.StatusOK, s.View())
}

func (a *api) stop(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	// It goes on when the one who asked does not wait for it.
	if err := s.Stop(context.WithoutCancel(r.Context()), "stopped by the user"); err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, struct{}{})
}

// apiInterrupted are the beginnings of the prompts that waited behind a turn and are
// dropped with it.
type apiInterrupted struct {
	Dropped []string `json:"dropped,omitempty"`
}

func (a *api) interrupt(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body struct {
		Reason string `json:"reason"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	if body.Reason == "" {
		body.Reason = "interrupted by the user"
	}
	dropped, err := s.Interrupt(r.Context(), body.Reason)
	if err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, apiInterrupted{dropped})
}

func (a *api) foreground(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	if err := apiBody(w, r, &struct{}{}); err != nil {
		return err
	}
	if err := a.gateway.SetForeground(s.ID()); err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, struct{}{})
}

func (a *api) rename(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body struct {
		Label string `json:"label"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	if err := s.Rename(r.Context(), body.Label); err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, struct{}{})
}

// keep is push for the next session, while there is none.
func (a *api) keep(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Provider string       `json:"provider"`
		Stream   string       `json:"stream"`
		Event    string       `json:"event"`
		Metadata protocol.Raw `json:"metadata"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	m := &protocol.Push{Stream: cmp.Or(body.Stream, apiPusher), Event: body.Event, Level: protocol.LevelKeep, Metadata: body.Metadata}
	if err := protocol.Validate(m); err != nil {
		err.Message = strings.TrimPrefix(err.Message, "push.")
		return err
	}
	receipt, err := a.gateway.StoreEvent(cmp.Or(body.Provider, apiPusher), m)
	return answerReceipt(w, receipt, err)
}

func (a *api) push(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body struct {
		Provider string       `json:"provider"`
		Stream   string       `json:"stream"`
		Level    string       `json:"level"`
		Event    string       `json:"event"`
		Prompt   string       `json:"prompt"`
		Metadata protocol.Raw `json:"metadata"`
		Wait     bool         `json:"wait"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	m := &protocol.Push{Stream: body.Stream, Event: body.Event, Prompt: body.Prompt, Level: protocol.Level(body.Level), Metadata: body.Metadata}
	if m.Stream == "" {
		m.Stream = apiPusher
	}
	if m.Level == "" {
		m.Level = protocol.LevelSurface
	}
	from := body.Provider
	if from == "" {
		from = apiPusher
	}
	if !protocol.ValidName(from) {
		return apiFault("provider", "must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit")
	}
	if err := protocol.Validate(m); err != nil {
		err.Message = strings.TrimPrefix(err.Message, "push.")
		return err
	}
	push := s.Push
	if body.Wait {
		push = s.PushAndWait
	}
	receipt, err := push(r.Context(), from, m)
	return answerReceipt(w, receipt, err)
}

func answerReceipt(w http.ResponseWriter, r gateway.Receipt, err error) error {
	if err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, adminapi.Receipt{Seq: r.Seq, Fate: r.Fate, Reason: r.Reason})
}
