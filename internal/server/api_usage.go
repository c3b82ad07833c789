package server

import (
	"net/http"

	"tapgw/internal/gateway"
)

// usage answers with the usage of the session's models.
func (a *api) usage(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	if _, err := readParams(r); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.Usage())
}
