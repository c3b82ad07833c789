package client

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/taptest"
)

// TestSessionIsFoundByIDBeginningAndLabel, and without a word it is the only one or
// the foreground one, unless what is asked for can't be undone.
func TestSessionIsFoundByIDBeginningAndLabel(t *testing.T) {
	a, ab := adminapi.Session{ID: "a", Label: "one"}, adminapi.Session{ID: "ab"}
	b := adminapi.Session{ID: "b", Label: "two"}
	front := adminapi.Session{ID: "f", Label: "two", Foreground: true}
	for _, tc := range []struct {
		word     string
		sessions []adminapi.Session
		want     string
		named    bool // has to be, with several
		exit     int
		says     string
	}{
		{"a", []adminapi.Session{a, ab}, "a", false, 0, ""},
		{"ab", []adminapi.Session{a, ab}, "ab", false, 0, ""},
		{"one", []adminapi.Session{a, ab, b}, "a", false, 0, ""},
		{"", []adminapi.Session{b}, "b", true, 0, ""},
		{"", []adminapi.Session{a, front, b}, "f", false, 0, ""},
		{"", nil, "", false, 4, NoSessions},
		{"x", nil, "", false, 4, NoSessions},
		{"x", []adminapi.Session{a, b}, "", false, 4,
			`no session has the ID or label "x", nor an ID that begins so; there are: a (one), b (two)`},
		{"", []adminapi.Session{a, b}, "", false, 2,
			"which session? give the ID or label of one of: a (one), b (two)"},
		{"", []adminapi.Session{a, front}, "", true, 2,
			"which session? give the ID or label of one of: a (one), f (two)"},
		{"a", []adminapi.Session{ab, {ID: "ac"}, b}, "", false, 2,
			`session "a" is ambiguous; give the ID of one of: ab, ac`},
		{"two", []adminapi.Session{a, b, front}, "", false, 2,
			`session "two" is ambiguous; give the ID of one of: b (two), f (two)`},
		// A label does not hide a session whose id begins so.
		{"a", []adminapi.Session{ab, {ID: "z", Label: "a"}}, "", false, 2,
			`session "a" is ambiguous; give the ID of one of: ab, z (a)`},
	} {
		web := httptest.NewServer(
			taptest.Proving(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_ = json.NewEncoder(w).Encode(tc.sessions)
			}), "t"))
		gw, err := New(Options{URL: web.URL, Token: "t"})
		if err != nil {
			t.Fatal(err)
		}
		find := gw.FindSession
		if tc.named {
			find = gw.FindNamedSession
		}
		got, err := find(t.Context(), tc.word)
		gw.Close()
		web.Close()
		exit, says := 0, ""
		if e, ok := errors.AsType[*cli.Error](err); ok {
			exit, says = e.Exit, e.Message
		}
		if got != tc.want || exit != tc.exit || says != tc.says {
			t.Errorf("%q of %d: got %q, exit %d, %s; want %q, exit %d, %s",
				tc.word, len(tc.sessions), got, exit, says, tc.want, tc.exit, tc.says)
		}
	}
}
