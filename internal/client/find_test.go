package client

import (
	"errors"
	"testing"

	"tapgw/internal/cli"
)

func TestResolve(t *testing.T) {
	a, ab, b := Session{ID: "a", Label: "one"}, Session{ID: "ab"}, Session{ID: "b", Label: "two"}
	for _, tc := range []struct {
		id       string
		sessions []Session
		want     string
		exit     int
		says     string
	}{
		{"a", []Session{a, ab}, "a", 0, ""},
		{"ab", []Session{a, ab}, "ab", 0, ""},
		{"", []Session{b}, "b", 0, ""},
		{"", nil, "", 4, NoSessions},
		{"x", nil, "", 4, NoSessions},
		{"x", []Session{a, b}, "", 4, `no session begins with "x"; there are: a (one), b (two)`},
		{"", []Session{a, b}, "", 2, "which session? give the ID of one of: a (one), b (two)"},
		{"a", []Session{ab, {ID: "ac"}, b}, "", 2, `session "a" is ambiguous; give more of the ID of one of: ab, ac`},
	} {
		got, err := resolve(tc.id, tc.sessions)
		exit, says := 0, ""
		if e, ok := errors.AsType[*cli.Error](err); ok {
			exit, says = e.Exit, e.Message
		}
		if got != tc.want || exit != tc.exit || says != tc.says {
			t.Errorf("%q of %d: got %q, %d %s", tc.id, len(tc.sessions), got, exit, says)
		}
	}
}
