package client

import (
	"context"
	"fmt"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

// NoSessions says what to do where there is none.
const NoSessions = "no sessions; start one with: tapctl sessions start --host local"

// FindSession finds the session that a user's word means: the one whose id or label
// it is, or whose id begins with it, and for "" the only session, else the
// foreground one. A word that means several is a usage error that lists them.
func (c *Client) FindSession(ctx context.Context, word string) (string, error) {
	sessions, err := c.Sessions(ctx)
	if err != nil {
		return "", err
	}
	for _, s := range sessions {
		if word == "" && s.Foreground {
			return s.ID, nil
		}
	}
	return resolve(word, sessions)
}

// FindNamedSession is FindSession for what can't be undone: one of several sessions
// has to be named.
func (c *Client) FindNamedSession(ctx context.Context, word string) (string, error) {
	sessions, err := c.Sessions(ctx)
	if err != nil {
		return "", err
	}
	return resolve(word, sessions)
}

func resolve(word string, sessions []adminapi.Session) (string, error) {
	named := make([]Named, len(sessions))
	for i, s := range sessions {
		named[i] = Named{s.ID, s.Label}
	}
	found, exact := Match(word, named)
	switch {
	case exact || len(found) == 1:
		return found[0].ID, nil
	case len(sessions) == 0:
		return "", cli.NotFound("%s", NoSessions)
	case len(found) == 0:
		return "", cli.NotFound("no session has the ID or label %q, nor an ID that begins so; there are: %s", word, Candidates(named))
	case word == "":
		return "", cli.Usage("which session? give the ID or label of one of: %s", Candidates(found))
	}
	return "", cli.Usage("session %q is ambiguous; give the ID of one of: %s", word, Candidates(found))
}

// Named is what people know a session by.
type Named struct{ ID, Label string }

// Match finds those that a word means: exactly the one whose id it is, else all
// whose label it is or whose id begins with it.
func Match(word string, all []Named) (found []Named, exact bool) {
	for _, n := range all {
		switch {
		case n.ID == word:
			return []Named{n}, true
		case strings.HasPrefix(n.ID, word), n.Label == word:
			found = append(found, n)
		}
	}
	return found, false
}

// Candidates lists sessions to choose from.
func Candidates(of []Named) string {
	list := make([]string, len(of))
	for i, n := range of {
		if list[i] = n.ID; n.Label != "" {
			list[i] += fmt.Sprintf(" (%s)", n.Label)
		}
	}
	return strings.Join(list, ", ")
}
