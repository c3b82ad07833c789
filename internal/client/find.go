package client

import (
	"context"
	"fmt"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

// NoSessions is the text that people read when a command finds no session. It names the command
// that starts one, and ends without a full stop.
const NoSessions = "no sessions; start one with: tapctl sessions start --host local"

// FindSession returns the id of the session that a user's word means: its id, the beginning of its
// id, or its label. "" means the foreground session, or the only one. The error is a [cli.Error]:
// [cli.ExitNotFound], or [cli.ExitUsage] with a list of the sessions if the word means several.
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

// FindNamedSession is [Client.FindSession] for commands that can't be undone, such as stopping a
// session. It does not fall back on the foreground session: if there are several sessions, "" is an
// error with [cli.ExitUsage].
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
		return "",
			cli.NotFound(
				"no session has the ID or label %q, nor an ID that begins so; there are: %s",
				word, Candidates(named))
	case word == "":
		return "", cli.Usage("which session? give the ID or label of one of: %s", Candidates(found))
	}
	return "", cli.Usage("session %q is ambiguous; give the ID of one of: %s", word,
		Candidates(found))
}

// Named is a session with the names by which a user can mean it. ID is never empty. Label is "" for
// a session without a label, and several sessions may have the same one.
type Named struct{ ID, Label string }

// Match returns the sessions that a word means. If one has the word as its id, the result is that
// session alone and exact is true. Otherwise it is all sessions whose label is the word or whose id
// begins with it, in the order of all; "" matches every session.
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

// Candidates lists sessions for the text of an error, separated by commas: each id, and behind it
// the label in parentheses if the session has one.
func Candidates(of []Named) string {
	list := make([]string, len(of))
	for i, n := range of {
		if list[i] = n.ID; n.Label != "" {
			list[i] += fmt.Sprintf(" (%s)", n.Label)
		}
	}
	return strings.Join(list, ", ")
}
