package server

import (
	"net/http"

	"tapgw/internal/gateway"
	"tapgw/internal/recording"
)

// record answers with the recording of a session, from now until it ends or the reader goes.
func (a *api) record(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	if _, err := readParams(r); err != nil {
		return err
	}
	copied, start, err := s.Record()
	if err != nil {
		return err
	}
	defer copied.Stop()
	start.Gateway = a.o.Status().Version
	redactor := recording.NewRedactor(s.ID())
	out := newLineWriter(w, r)
	out.write(redactor.Start(start))
	for out.err == nil {
		lines, err := copied.Next(r.Context())
		if err != nil {
			return nil // the session has ended, or the reader is gone
		}
		for _, line := range lines {
			out.write(redactor.Line(line))
		}
	}
	return nil
}
