package client

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"

	"tapgw/internal/cli"
)

// States that a gateway shows, for [Client.Watch].
const (
	StateSessions  = "sessions"
	StateProviders = "providers"
	StatePairings  = "pairings"
	StateQuestions = "questions"
)

// State is something that the gateway shows, as it is from now on.
type State struct {
	Name string
	Data json.RawMessage // as the answer of the GET of that name
}

// Watch follows what the gateway shows under these names: each state at once, and
// again when it has changed. It ends with an error only: the gateway went away, or
// ctx ended.
func (c *Client) Watch(ctx context.Context, names ...string) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		var s State
		for line, err := range stream(ctx, c, http.MethodGet, "/events", url.Values{"name": names}, nil) {
			if err != nil {
				yield(State{}, err)
				return
			}
			// An event's name and data are a line each, its id ends it.
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
		yield(State{}, &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable, Message: "the gateway at " + c.URL() + " went away; see tapctl status"})
	}
}

// SigninLink is a link that signs a browser in, once.
type SigninLink struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expiresAt"`
	File      string    `json:"file,omitempty"` // on the gateway's machine: a page that leads to the URL
}

// SigninLink makes a link that signs a browser in, and a file that leads to it where
// that is wanted.
func (c *Client) SigninLink(ctx context.Context, file bool) (SigninLink, error) {
	var l SigninLink
	body := map[string]bool{}
	if file {
		body["file"] = true
	}
	err := c.do(ctx, http.MethodPost, "/signin-links", nil, body, &l)
	return l, err
}

// SignOut signs all browsers out.
func (c *Client) SignOut(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/signout", nil, struct{}{}, nil)
}
