package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// PersistentStarter is a [Starter] whose sessions stay on disk when they end, however they
// do: stopped, or lost with the gateway.
type PersistentStarter interface {
	Starter
	// Persisted lists the sessions on disk, the last used first.
	Persisted(ctx context.Context, f PersistedFilter) ([]adminapi.Persisted, error)
	// Resume brings a session back under its id, with its history, and
	// registers it as [Starter.Start] does.
	Resume(ctx context.Context, g *Gateway, id string, r ResumeRequest) (*Session, error)
	// Delete removes a session from the disk.
	Delete(ctx context.Context, id string) error
}

// PersistedFilter says which sessions on disk; empty members are for all.
type PersistedFilter struct {
	CWD        string // exact
	Repository string // owner/name
	Branch     string
	Last       int // so many at most
}

// ResumeRequest says how to resume a session; empty members are as they were.
type ResumeRequest struct {
	StartRequest // Host, CWD and Label are its own
	// Continue goes on with what was pending: calls of tools are made, questions
	// are asked again. Else what was pending is told to be interrupted.
	Continue bool
}

// persistentStarters lists the starters that keep sessions, by kind of host.
func (g *Gateway) persistentStarters() []PersistentStarter {
	var list []PersistentStarter
	for _, kind := range slices.Sorted(maps.Keys(g.starters)) {
		if k, ok := g.starters[kind].(PersistentStarter); ok {
			list = append(list, k)
		}
	}
	return list
}

// Persisted lists the sessions on disk, the last used first.
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
	slices.SortStableFunc(views, func(a, b adminapi.Persisted) int { return b.UsedAt.Compare(a.UsedAt) })
	if f.Last > 0 && len(views) > f.Last {
		views = views[:f.Last]
	}
	return views, nil
}

// Resume makes a session on disk one of the gateway's again.
func (g *Gateway) Resume(ctx context.Context, id string, r ResumeRequest) (*Session, error) {
	if _, live := g.Session(id); live {
		return nil, errorf(protocol.CodeInvalidState, "session %q runs in this gateway already", id)
	}
	return forPersisted(g, id, func(k PersistentStarter) (*Session, error) { return k.Resume(ctx, g, id, r) })
}

// DeletePersisted removes a session from the disk. One that runs is refused.
func (g *Gateway) DeletePersisted(ctx context.Context, id string) error {
	if _, live := g.Session(id); live {
		return errorf(protocol.CodeInvalidState, "session %q runs in this gateway: stop it first", id)
	}
	_, err := forPersisted(g, id, func(k PersistentStarter) (struct{}, error) { return struct{}{}, k.Delete(ctx, id) })
	return err
}

// forPersisted asks one keeper after the other until one has the session.
func forPersisted[T any](g *Gateway, id string, do func(PersistentStarter) (T, error)) (T, error) {
	for _, k := range g.persistentStarters() {
		v, err := do(k)
		if !IsNotPersisted(err) {
			return v, err
		}
	}
	var none T
	return none, NotPersisted(id)
}

// NotPersisted is the error of a [PersistentStarter] that has no such session on disk.
func NotPersisted(id string) error {
	return &protocol.Error{Code: protocol.CodeInvalidSession, Message: fmt.Sprintf("session %q is not on disk", id), SessionID: id}
}

// IsNotPersisted recognises the error of [NotPersisted].
func IsNotPersisted(err error) bool {
	e, ok := err.(*protocol.Error) //nolint:errorlint // as it was made
	return ok && e.Code == protocol.CodeInvalidSession
}

// ModelHost is a [Host] that can go on with another model.
type ModelHost interface {
	// SetModel changes the model from the next request on; an empty effort is
	// left to the host. The error names the field that is wrong.
	SetModel(ctx context.Context, model, effort string) error
}

// SetModel changes the model of a session that runs.
func (s *Session) SetModel(ctx context.Context, model, effort string) error {
	h, ok := s.host.(ModelHost)
	if !ok {
		return errorf(protocol.CodeInvalidState, "a session of host %s has no model to change", s.info.Kind)
	}
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	if err := h.SetModel(ctx, model, effort); err != nil {
		return err
	}
	s.Update("", model)
	return nil
}
