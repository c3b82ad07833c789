package server

import (
	"net/http"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

func (a *api) queue(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, orEmpty(a.gateway.Queue()))
}

func (a *api) editQueued(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body adminapi.EditQueued
	if err := readBody(w, r, &body); err != nil {
		return err
	}
	if strings.TrimSpace(body.Prompt) == "" {
		return fieldError("prompt", "is required and must not be empty")
	}
	return done(w, s.EditQueued(r.PathValue("prompt"), body.Prompt))
}

func (a *api) cancelQueued(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	return done(w, s.CancelQueued(r.PathValue("prompt")))
}

func (a *api) sendQueued(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	if err := readBody(w, r, &adminapi.Nothing{}); err != nil {
		return err
	}
	return done(w, s.SendQueued(r.Context(), r.PathValue("prompt")))
}
