package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

func (a *api) call(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body struct {
		Args      protocol.Raw `json:"args"`
		TimeoutMs *int64       `json:"timeoutMs"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	c := gateway.Call{Name: r.PathValue("name"), Args: body.Args}
	if k := body.Args.Kind(); body.Args != nil && k != '{' && k != 'n' {
		return apiFault("args", "must be an object")
	} else if k == 'n' {
		c.Args = nil
	}
	if ms := body.TimeoutMs; ms != nil {
		c.Timeout = time.Duration(*ms) * time.Millisecond
		if *ms < 1 || *ms > protocol.MaxToolTimeout.Milliseconds() {
			return apiFault("timeoutMs", "must be from 1 to %d", protocol.MaxToolTimeout.Milliseconds())
		}
	}
	// What is not there was not called; a provider's own NOT_FOUND is an outcome.
	if !slices.ContainsFunc(s.Tools(), func(t adminapi.Tool) bool { return t.Name == c.Name }) {
		return &protocol.Error{Code: protocol.CodeNotFound, Message: fmt.Sprintf("tool %q does not exist in this session", c.Name)}
	}
	return apiAnswer(w, http.StatusOK, apiOutcome(s.Execute(r.Context(), c)))
}

type apiCallAnswer struct {
	Data       any    `json:"data,omitempty"`
	Error      string `json:"error,omitempty"`
	ErrorCode  string `json:"errorCode,omitempty"`
	DurationMs int64  `json:"durationMs"`
}

func apiOutcome(o gateway.Outcome) apiCallAnswer {
	answer := apiCallAnswer{Error: o.Error, ErrorCode: string(o.ErrorCode), DurationMs: o.Duration.Milliseconds()}
	switch {
	case o.Failed():
		if answer.Error == "" {
			answer.Error = "the call failed with " + answer.ErrorCode
		}
	case len(o.Data) > 0:
		answer.Data = json.RawMessage(o.Data)
	case o.File != nil:
		answer.Data = json.RawMessage(fileData(o.File))
	default:
		answer.Data = json.RawMessage("null")
	}
	return answer
}

func (a *api) tools(w http.ResponseWriter, r *http.Request) error {
	q, err := apiParams(r, "session")
	if err != nil {
		return err
	}
	id := q.Get("session")
	if id == "" {
		return apiAnswer(w, http.StatusOK, a.allTools())
	}
	s, ok := a.gateway.Session(id)
	if !ok {
		return &protocol.Error{Code: protocol.CodeInvalidSession, Message: fmt.Sprintf("session: %q does not exist", id)}
	}
	return apiAnswer(w, http.StatusOK, apiList(s.Tools()))
}

// allTools are the tools of all sessions.
func (a *api) allTools() []adminapi.Tool {
	tools := []adminapi.Tool{}
	for _, view := range a.gateway.Sessions() {
		if s, ok := a.gateway.Session(view.ID); ok {
			tools = append(tools, s.Tools()...)
		}
	}
	return tools
}
