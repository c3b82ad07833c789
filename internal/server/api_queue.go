package server

import (
	"net/http"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

func (a *api) editQueued(r *http.Request, s *gateway.Session, b adminapi.EditQueued) (any, error) {
	if strings.TrimSpace(b.Prompt) == "" {
		return nil, fieldError("prompt", "is required and must not be empty")
	}
	return adminapi.Nothing{}, s.EditQueued(r.PathValue("prompt"), b.Prompt)
}

func (a *api) cancelQueued(r *http.Request, s *gateway.Session) (any, error) {
	return adminapi.Nothing{}, s.CancelQueued(r.PathValue("prompt"))
}

func (a *api) sendQueued(r *http.Request, s *gateway.Session, _ adminapi.Nothing) (any, error) {
	return adminapi.Nothing{}, s.SendQueued(r.Context(), r.PathValue("prompt"))
}
