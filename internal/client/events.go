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

// State is one state of the gateway, as it is from now on.
type State struct {
	Name string          // [adminapi.StateSessions] and so on
	Data json.RawMessage // what the GET request of that name answers
}

// Watch follows the named states of the gateway: it returns each at once, and again when it
// has changed. It ends with an error only: the gateway went away, or ctx ended.
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
