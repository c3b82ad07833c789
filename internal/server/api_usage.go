package server

import (
	"net/http"

	"tapgw/internal/gateway"
)

// usage answers with the usage of the session's models.
func (a *api) usage(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	p, err := readParams(r, "calls")
	if err != nil {
		return err
	}
	withCalls, err := readFlag(p, "calls")
	if err != nil {
		return err
	}
	u := s.Usage()
	if withCalls {
		u.ModelCalls = s.ModelCalls()
	}
	return writeJSON(w, http.StatusOK, u)
}
