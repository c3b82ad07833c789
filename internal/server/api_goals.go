package server

import (
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

var errNoGoals = protocol.Errorf(protocol.CodeNotFound, "this gateway keeps no goals")

func (a *api) goals(r *http.Request) (any, error) {
	p, err := readParams(r, "session")
	if err != nil {
		return nil, err
	}
	id := p.Get("session")
	list := a.goalsOf(id)
	if _, runs := a.gateway.Session(id); id != "" && !runs && len(list) == 0 {
		return nil, protocol.Errorf(protocol.CodeInvalidSession,
			"session: %q neither runs nor had a goal", id)
	}
	return list, nil
}

// goalsOf lists the goals of a session, or of all for "".
func (a *api) goalsOf(session string) []adminapi.Goal {
	if a.o.Goals == nil {
		return []adminapi.Goal{}
	}
	return orEmpty(a.o.Goals.List(session))
}

func (a *api) startGoal(_ *http.Request, body adminapi.GoalRequest) (any, error) {
	if a.o.Goals == nil {
		return nil, errNoGoals
	}
	g, err := a.o.Goals.Start(body, adminapi.GoalByPerson)
	return created{g}, err
}

func (a *api) goal(r *http.Request) (any, error) {
	if a.o.Goals == nil {
		return nil, errNoGoals
	}
	return a.o.Goals.Get(r.PathValue("goal"))
}

func (a *api) stopGoal(r *http.Request, body adminapi.GoalStop) (any, error) {
	if a.o.Goals == nil {
		return nil, errNoGoals
	}
	return a.o.Goals.Stop(r.PathValue("goal"), adminapi.GoalByPerson, body.Reason)
}
