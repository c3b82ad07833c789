package client

import (
	"context"
	"fmt"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

// NoSessions is the text for people when there is no session.
const NoSessions = "no sessions; start one with: tapctl sessions start --host local"

// FindSession returns the id of the session that a user's word means: its id, the beginning of its
// id, or its label; for "" the foreground session, or the only one. The error is a [cli.Error]: not
// found, or wrong usage that lists the sessions if the word means several.
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

// FindNamedSession is FindSession for what can't be undone: if there are several sessions, "" is an
// error, too.
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
		return "", cli.NotFound("no session has the ID or label %q, nor an ID that begins so; there are: %s",
			word, Candidates(named))
	case word == "":
		return "", cli.Usage("which session? give the ID or label of one of: %s", Candidates(found))
	}
	return "", cli.Usage("session %q is ambiguous; give the ID of one of: %s", word, Candidates(found))
}

// Named has the names by which a user can mean a session.
type Named struct{ ID, Label string }

// Match returns the sessions that a word means: the one with that id, and exact is true, else all
// with that label and all whose id begins with the word.
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

// Candidates lists sessions for an error, with their labels.
func Candidates(of []Named) string {
	list := make([]string, len(of))
	for i, n := range of {
		if list[i] = n.ID; n.Label != "" {
			list[i] += fmt.Sprintf(" (%s)", n.Label)
		}
	}
	return strings.Join(list, ", ")
}
