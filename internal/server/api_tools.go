package server

import (
	"cmp"
	"encoding/json"
	"net/http"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

func (a *api) call(r *http.Request, s *gateway.Session, body adminapi.Call) (any, error) {
	c := gateway.Call{Name: r.PathValue("name")}
	if body.Args != nil && kind(body.Args) != 'n' {
		if kind(body.Args) != '{' {
			return nil, fieldError("args", "must be an object")
		}
		c.Args = protocol.Raw(body.Args)
	}
	if ms := body.TimeoutMs; ms != nil {
		c.Timeout = time.Duration(*ms) * time.Millisecond
		if *ms < 1 || *ms > protocol.MaxToolTimeout.Milliseconds() {
			return nil, fieldError("timeoutMs", "must be from 1 to %d",
				protocol.MaxToolTimeout.Milliseconds())
		}
	}
	// A tool that does not exist is an error of the request. A NOT_FOUND that a provider
	// answers is the outcome of a call.
	if !s.MayHaveTool(c.Name) {
		return nil, protocol.Errorf(protocol.CodeNotFound,
			"tool %q does not exist in this session", c.Name)
	}
	return callResult(s.Execute(r.Context(), c)), nil
}

func callResult(o gateway.Outcome) adminapi.CallResult {
	r := adminapi.CallResult{
		Error: o.Error, ErrorCode: string(o.ErrorCode), DurationMs: o.Duration.Milliseconds(),
	}
	switch {
	case o.Failed():
		r.Error = cmp.Or(r.Error, "the call failed with "+r.ErrorCode)
	case o.File != nil:
		r.Data = json.RawMessage(fileData(o.File))
	default:
		r.Data, r.Content = outcomeData(o), contentParts(o)
	}
	return r
}

func (a *api) tools(r *http.Request) (any, error) {
	q, err := readParams(r, "session")
	if err != nil {
		return nil, err
	}
	id := q.Get("session")
	if id == "" {
		return a.allTools(), nil
	}
	s, ok := a.gateway.Session(id)
	if !ok {
		return nil, protocol.Errorf(protocol.CodeInvalidSession, "session: %q does not exist", id)
	}
	return s.Tools(), nil
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

// rules answers with the rules of all sessions.
func (a *api) rules(*http.Request) (any, error) {
	rules := []adminapi.SessionRule{}
	for _, view := range a.gateway.Sessions() {
		if s, ok := a.gateway.Session(view.ID); ok {
			rules = append(rules, s.Rules()...)
		}
	}
	return rules, nil
}

// filters answers with the filters of a session's streams, and the events that they dropped.
func (a *api) filters(_ *http.Request, s *gateway.Session) (any, error) { return s.Filters(), nil }
