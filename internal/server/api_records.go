package server

import (
	"context"
	"net/http"
	"time"

	"tapgw/internal/adminapi"
)

// Records finds what the gateway has written down.
type Records interface {
	Find(ctx context.Context, q adminapi.RecordQuery) (adminapi.Records, error)
}

// maxRecords is how many records an answer has at most.
const maxRecords = 10_000

func (a *api) records(w http.ResponseWriter, r *http.Request) error {
	p, err := readParams(r, "since", "until", "kind", "session", "provider", "tool", "outcome", "trace", "last")
	if err != nil {
		return err
	}
	q := adminapi.RecordQuery{Kind: p.Get("kind"), Session: p.Get("session"), Provider: p.Get("provider"),
		Tool: p.Get("tool"), Outcome: p.Get("outcome"), Trace: p.Get("trace")}
	if q.Since, err = readTime(p, "since"); err != nil {
		return err
	}
	if q.Until, err = readTime(p, "until"); err != nil {
		return err
	}
	if q.Last, err = readLast(p, 1); err != nil {
		return err
	}
	if q.Last > maxRecords {
		return fieldError("last", "must be at most %d", maxRecords)
	}
	var found adminapi.Records
	if a.recorded != nil {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		if found, err = a.recorded.Find(ctx, q); err != nil {
			return err
		}
	}
	found.Records = orEmpty(found.Records)
	return writeJSON(w, http.StatusOK, found)
}
