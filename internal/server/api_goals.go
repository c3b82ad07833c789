package server

import (
	"fmt"
	"net/http"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Goals keeps sessions at work on their goals; any goroutine may call it. The errors are NOT_FOUND
// for a goal that is not there, INVALID_STATE for one that has ended, and Start's own errors about
// the request.
type Goals interface {
	List(session string) []adminapi.Goal // of all sessions for ""
	Get(id string) (adminapi.Goal, error)
	Start(r adminapi.GoalRequest, by string) (adminapi.Goal, error)
	Stop(id, by, reason string) (adminapi.Goal, error)
}

func errNoGoals() error {
	return &protocol.Error{Code: protocol.CodeNotFound, Message: "this gateway keeps no goals"}
}

func (a *api) goals(w http.ResponseWriter, r *http.Request) error {
	p, err := readParams(r, "session")
	if err != nil {
		return err
	}
	id := p.Get("session")
	list := a.goalsOf(id)
	if _, runs := a.gateway.Session(id); id != "" && !runs && len(list) == 0 {
		return &protocol.Error{
			Code:    protocol.CodeInvalidSession,
			Message: fmt.Sprintf("session: %q neither runs nor had a goal", id),
		}
	}
	return writeJSON(w, http.StatusOK, list)
}

// goalsOf lists the goals of a session, or of all for "".
func (a *api) goalsOf(session string) []adminapi.Goal {
	if a.kept == nil {
		return []adminapi.Goal{}
	}
	return orEmpty(a.kept.List(session))
}

func (a *api) startGoal(w http.ResponseWriter, r *http.Request) error {
	var request adminapi.GoalRequest
	if err := readBody(w, r, &request); err != nil {
		return err
	}
	if a.kept == nil {
		return errNoGoals()
	}
	g, err := a.kept.Start(request, adminapi.GoalByPerson)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, g)
}

func (a *api) goal(w http.ResponseWriter, r *http.Request) error {
	if a.kept == nil {
		return errNoGoals()
	}
	g, err := a.kept.Get(r.PathValue("goal"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, g)
}

func (a *api) stopGoal(w http.ResponseWriter, r *http.Request) error {
	var request adminapi.GoalStop
	if err := readBody(w, r, &request); err != nil {
		return err
	}
	if a.kept == nil {
		return errNoGoals()
	}
	g, err := a.kept.Stop(r.PathValue("goal"), adminapi.GoalByPerson, request.Reason)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, g)
}
