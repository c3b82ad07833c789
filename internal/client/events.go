package client

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

// State is one state of the gateway in full, for example the list of its sessions. It replaces
// every earlier State of the same name (docs/admin-api.md, GET /api/v1/events).
type State struct {
	Name string          // [adminapi.StateSessions] and so on
	Data json.RawMessage // the answer of the GET request of that name
}

// Watch follows the named states of the gateway, all of them if names is empty. It yields each
// state at once, and again after each change, at most every 100 ms. It ends with an error only:
// [cli.ExitUnreachable] if the gateway ends, or the error of ctx (docs/admin-api.md, GET
// /api/v1/events).
func (c *Client) Watch(ctx context.Context, names ...string) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		for e, err := range events(ctx, c, "/events", url.Values{"name": names}) {
			if !yield(State(e), err) || err != nil {
				return
			}
		}
		yield(State{}, c.gone())
	}
}

// SessionEvent is an event of a session. Name is [adminapi.EventTimeline] or another event name,
// and decides the type of the JSON in Data.
type SessionEvent struct {
	Name string
	Data json.RawMessage
}

// FollowSession yields the events of a session: at most the last few that have happened, and then
// each new one. After [adminapi.EventEnded] it ends; it ends with an error if the gateway goes away
// (docs/admin-api.md, GET /api/v1/sessions/{id}/events).
func (c *Client) FollowSession(
	ctx context.Context, id string, last int,
) iter.Seq2[SessionEvent, error] {
	return func(yield func(SessionEvent, error) bool) {
		q := url.Values{"last": {strconv.Itoa(last)}}
		for e, err := range events(ctx, c, sessionPath(id, "events"), q) {
			if !yield(e, err) || err != nil || e.Name == adminapi.EventEnded {
				return
			}
		}
		yield(SessionEvent{}, c.gone())
	}
}

// events yields the server-sent events of an answer.
func events(
	ctx context.Context, c *Client, path string, q url.Values,
) iter.Seq2[SessionEvent, error] {
	return func(yield func(SessionEvent, error) bool) {
		var e SessionEvent
		for line, err := range stream(ctx, c, http.MethodGet, path, q, nil) {
			if err != nil {
				yield(SessionEvent{}, err)
				return
			}
			// An event has three lines: its name, its data and its id.
			field, value, _ := bytes.Cut(line, []byte(": "))
			switch string(field) {
			case "event":
				e.Name = string(value)
			case "data":
				e.Data = bytes.Clone(value)
			case "id":
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// gone is the error of an answer that ended with the gateway.
func (c *Client) gone() *cli.Error {
	return &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable,
		Message: "the gateway at " + c.URL() + " went away; see tapctl status"}
}
