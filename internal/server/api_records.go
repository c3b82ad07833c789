package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Records finds the records that the gateway has written.
type Records interface {
	Find(ctx context.Context, q adminapi.RecordQuery) (adminapi.Records, error)
}

// maxRecords is how many records an answer has at most.
const maxRecords = 10_000

func (a *api) records(r *http.Request) (any, error) {
	p, err := readParams(r, "since", "until", "kind", "session", "provider", "tool", "outcome",
		"trace", "last")
	if err != nil {
		return nil, err
	}
	q := adminapi.RecordQuery{Kind: p.Get("kind"), Session: p.Get("session"),
		Provider: p.Get("provider"), Tool: p.Get("tool"), Outcome: p.Get("outcome"),
		Trace: p.Get("trace")}
	if err := checkRecordQuery(&q); err != nil {
		return nil, err
	}
	if q.Since, err = readTime(p, "since"); err != nil {
		return nil, err
	}
	if q.Until, err = readTime(p, "until"); err != nil {
		return nil, err
	}
	if q.Last, err = readLast(p, 1); err != nil {
		return nil, err
	}
	if q.Last > maxRecords {
		return nil, fieldError("last", "must be at most %d", maxRecords)
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	found, err := a.findRecords(ctx, q)
	found.Records = orEmpty(found.Records)
	return found, err
}

// checkRecordQuery checks the words of a query. The error names the parameter. It does not check
// whether a provider or a tool exists: it may come later, and a host has tools of its own.
func checkRecordQuery(q *adminapi.RecordQuery) error {
	switch {
	case q.Kind != "" && !slices.Contains(adminapi.RecordKinds, q.Kind):
		return fieldError("kind", "%q is none of %s", q.Kind, joinNames(adminapi.RecordKinds))
	case q.Outcome != "" && !slices.Contains(adminapi.RecordOutcomes, q.Outcome):
		return fieldError("outcome", "%q is none of %s", q.Outcome,
			joinNames(adminapi.RecordOutcomes))
	case q.Trace != "" && !adminapi.IsTraceID(q.Trace):
		return fieldError("trace", "%q is not 32 hexadecimal digits in lower case", q.Trace)
	case q.Provider != "" && !protocol.ValidName(q.Provider):
		return fieldError("provider", "%q is not the name of a provider", q.Provider)
	case strings.ContainsFunc(q.Tool, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}):
		return fieldError("tool", "%q is not the name of a tool", q.Tool)
	}
	q.Provider = protocol.NormalName(q.Provider)
	return nil
}

// findRecords finds records. A session that neither runs nor has any record is an error: its id may
// be mistyped.
func (a *api) findRecords(
	ctx context.Context, q adminapi.RecordQuery,
) (found adminapi.Records, err error) {
	if a.o.Records != nil {
		if found, err = a.o.Records.Find(ctx, q); err != nil || len(found.Records) > 0 ||
			q.Session == "" {
			return found, err
		}
	}
	if _, runs := a.gateway.Session(q.Session); q.Session == "" || runs {
		return found, nil
	}
	if a.o.Records != nil {
		ever, err := a.o.Records.Find(ctx, adminapi.RecordQuery{Session: q.Session, Last: 1})
		if err != nil || len(ever.Records) > 0 {
			return found, err
		}
	}
	return found, protocol.Errorf(protocol.CodeInvalidSession,
		"session: %q neither runs nor is in the records, which have whole ids", q.Session)
}
