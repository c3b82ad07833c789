package server

import (
	"net/http"

	"tapgw/internal/gateway"
)

// usage says what the session's models read, wrote and cost.
func (a *api) usage(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	if _, err := apiParams(r); err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, s.Usage())
}

// runtimeEvents writes the events of the session's runtime as they came, one a
// line.
func (a *api) runtimeEvents(w http.ResponseWriter, r *http.Request, s *gateway.Session, follow bool) error {
	if err := s.CheckRuntimeEvents(); err != nil {
		return err
	}
	_ = apiFollow(newAPILines(w, r), 0, s.RuntimeEvents, func(after uint64) error {
		if !follow {
			return gateway.ErrSessionEnded
		}
		return s.WaitRuntimeEvents(r.Context(), after)
	})
	return nil
}
