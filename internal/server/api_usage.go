package server

import (
	"net/http"

	"tapgw/internal/gateway"
)

// usage answers with the usage of the session's models.
func (a *api) usage(r *http.Request, s *gateway.Session) (any, error) {
	p, err := readParams(r, "calls")
	if err != nil {
		return nil, err
	}
	withCalls, err := readFlag(p, "calls")
	u := s.Usage()
	if withCalls {
		u.ModelCalls = s.ModelCalls()
	}
	return u, err
}
