package client

import (
	"context"
	"fmt"
	"strings"

	"tapgw/internal/cli"
)

// NoSessions says what to do where there is none.
const NoSessions = "no sessions; start one with: tapctl sessions start --host local"

// FindSession finds the session that an ID of the user's means: the one with it,
// the only one that begins with it, or for "" the only one there is.
func (c *Client) FindSession(ctx context.Context, id string) (string, error) {
	sessions, err := c.Sessions(ctx)
	if err != nil {
		return "", err
	}
	return resolve(id, sessions)
}

func resolve(id string, sessions []Session) (string, error) {
	var found []Session
	for _, s := range sessions {
		if s.ID == id {
			return id, nil
		}
		if strings.HasPrefix(s.ID, id) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 1:
		return found[0].ID, nil
	case len(sessions) == 0:
		return "", cli.NotFound("%s", NoSessions)
	case len(found) == 0:
		return "", cli.NotFound("no session begins with %q; there are: %s", id, candidates(sessions))
	case id == "":
		return "", cli.Usage("which session? give the ID of one of: %s", candidates(found))
	}
	return "", cli.Usage("session %q is ambiguous; give more of the ID of one of: %s", id, candidates(found))
}

func candidates(sessions []Session) string {
	list := make([]string, len(sessions))
	for i, s := range sessions {
		if list[i] = s.ID; s.Label != "" {
			list[i] += fmt.Sprintf(" (%s)", s.Label)
		}
	}
	return strings.Join(list, ", ")
}
