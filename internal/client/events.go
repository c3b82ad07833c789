package client

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"

	"tapgw/internal/cli"
)

// State is one state of the gateway in full, for example the list of its sessions. It replaces every earlier State of
// the same name (docs/admin-api.md, GET /api/v1/events).
type State struct {
	Name string          // [adminapi.StateSessions] and so on
	Data json.RawMessage // what the GET request of that name answers
}

// Watch follows the named states of the gateway, all of them if names is empty. It yields each state at once, and again
// after each change, at most every 100 ms. It ends with an error only: [cli.ExitUnreachable] if the gateway ends, or
// the error of ctx (docs/admin-api.md, GET /api/v1/events).
func (c *Client) Watch(ctx context.Context, names ...string) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		var s State
		for line, err := range stream(ctx, c, http.MethodGet, "/events", url.Values{"name": names}, nil) {
			if err != nil {
				yield(State{}, err)
				return
			}
			// An event is a line for its name, one for its data and one for its id.
			field, value, _ := bytes.Cut(line, []byte(": "))
			switch string(field) {
			case "event":
				s.Name = string(value)
			case "data":
				s.Data = bytes.Clone(value)
			case "id":
				if !yield(s, nil) {
					return
				}
			}
		}
		yield(State{}, &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable,
			Message: "the gateway at " + c.URL() + " went away; see tapctl status"})
	}
}
