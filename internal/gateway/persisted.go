package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// PersistentStarter is a [Starter] whose sessions stay on disk when they end, even when the
// gateway dies with them. Any goroutine may call its methods. [NotPersisted] tells the
// gateway to ask the next starter.
type PersistentStarter interface {
	Starter
	// Persisted lists the sessions on disk, last used first.
	Persisted(ctx context.Context, f PersistedFilter) ([]adminapi.Persisted, error)
	// Resume starts a session on disk again under its id and with its history, and
	// registers it as [Starter.Start] does. It returns [NotPersisted] if the session
	// is not on disk.
	Resume(ctx context.Context, g *Gateway, id string, r ResumeRequest) (*Session, error)
	// Delete removes a session from the disk, or returns [NotPersisted].
	Delete(ctx context.Context, id string) error
}

// MayReturn reports whether a session of a kind of host may come back under its id after its end:
// one that is kept on disk, or one of another program, which may register it again.
func (g *Gateway) MayReturn(kind string) bool {
	starter, isOwn := g.o.Starters[kind]
	_, keeps := starter.(PersistentStarter)
	return keeps || !isOwn
}

// PersistedFilter selects sessions on disk, as the parameters of GET /persisted do; an
// empty field, or 0, selects all. A session must fit every field that is set.
type PersistedFilter struct {
	CWD        string // exact
	Repository string // owner/name
	Branch     string
	Last       int // so many at most
}

// ResumeRequest says how to resume a session, as POST /persisted/{id}/resume of
// docs/admin-api.md does; empty fields keep the session's values. Keys and tokens are kept
// nowhere, so they must come again.
type ResumeRequest struct {
	StartRequest // Host, CWD and Label are its own
	// Continue makes the tool calls and asks the questions that were pending. Without
	// it they end as interrupted.
	Continue bool
}

// persistentStarters lists the persistent starters, by kind of host.
func (g *Gateway) persistentStarters() []PersistentStarter {
	var list []PersistentStarter
	for _, kind := range slices.Sorted(maps.Keys(g.o.Starters)) {
		if k, ok := g.o.Starters[kind].(PersistentStarter); ok {
			list = append(list, k)
		}
	}
	return list
}

// Persisted lists the sessions on disk that the filter selects, of all persistent starters,
// last used first. Those that run in this gateway have the state live. The error is that of
// the first starter that fails.
func (g *Gateway) Persisted(ctx context.Context, f PersistedFilter) ([]adminapi.Persisted, error) {
	views := []adminapi.Persisted{}
	for _, k := range g.persistentStarters() {
		list, err := k.Persisted(ctx, f)
		if err != nil {
			return nil, err
		}
		views = append(views, list...)
	}
	for i, v := range views {
		if _, live := g.Session(v.ID); live {
			views[i].State = adminapi.PersistedLive
		}
	}
	slices.SortStableFunc(views, func(a, b adminapi.Persisted) int {
		return b.UsedAt.Compare(a.UsedAt)
	})
	if f.Last > 0 && len(views) > f.Last {
		views = views[:f.Last]
	}
	return views, nil
}

// Resume starts a session on disk again. The error is INVALID_STATE if it runs in this
// gateway, INVALID_SESSION if it is not on disk, or that of its starter.
func (g *Gateway) Resume(ctx context.Context, id string, r ResumeRequest) (*Session, error) {
	if _, live := g.Session(id); live {
		return nil, errorf(protocol.CodeInvalidState, "session %q runs in this gateway already", id)
	}
	return forPersisted(g, id, func(k PersistentStarter) (*Session, error) {
		return k.Resume(ctx, g, id, r)
	})
}

// DeletePersisted removes a session from the disk, for good. The error is INVALID_STATE if
// it runs in this gateway, INVALID_SESSION if it is not on disk, or that of its starter.
func (g *Gateway) DeletePersisted(ctx context.Context, id string) error {
	if _, live := g.Session(id); live {
		return errorf(protocol.CodeInvalidState, "session %q runs in this gateway: stop it first",
			id)
	}
	_, err := forPersisted(g, id, func(k PersistentStarter) (struct{}, error) {
		return struct{}{}, k.Delete(ctx, id)
	})
	return err
}

// forPersisted calls do for each persistent starter until one has the session on disk.
func forPersisted[T any](g *Gateway, id string, do func(PersistentStarter) (T, error)) (T, error) {
	for _, p := range g.persistentStarters() {
		v, err := do(p)
		if !IsNotPersisted(err) {
			return v, err
		}
	}
	var none T
	return none, NotPersisted(id)
}

// NotPersisted is the INVALID_SESSION error of a [PersistentStarter] without such a session
// on disk. It must be returned as it is, not wrapped: [IsNotPersisted] does not look into
// errors.
func NotPersisted(id string) error {
	return &protocol.Error{Code: protocol.CodeInvalidSession, SessionID: id,
		Message: fmt.Sprintf("session %q is not on disk", id)}
}

// IsNotPersisted reports whether an error is a [NotPersisted]: an INVALID_SESSION error that is not
// wrapped. It is false for nil.
func IsNotPersisted(err error) bool {
	e, ok := err.(*protocol.Error) //nolint:errorlint // as it was made
	return ok && e.Code == protocol.CodeInvalidSession
}
