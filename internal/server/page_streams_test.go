package server

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"
)

// pageLink is a page's WebSocket, and what has come of each stream.
type pageLink struct {
	f    signinFixture
	ws   *websocket.Conn
	seen map[uint32]*pageSeen
}

type pageSeen struct {
	status int
	text   string
	ended  bool
}

// openPageLink connects as a browser with this cookie does.
func (f signinFixture) openPageLink(cookie string) *pageLink {
	f.t.Helper()
	ws, _, err := websocket.Dial(f.t.Context(), f.page+pageStreamsPath,
		&websocket.DialOptions{HTTPClient: f.client,
			HTTPHeader: http.Header{"Cookie": {cookie}, "Origin": {f.page}}})
	if err != nil {
		f.t.Fatal(err)
	}
	return &pageLink{f, ws, map[uint32]*pageSeen{}}
}

func (l *pageLink) send(format string, values ...any) {
	l.f.t.Helper()
	if err := l.ws.Write(l.f.t.Context(), websocket.MessageText,
		fmt.Appendf(nil, format, values...)); err != nil {
		l.f.t.Fatal(err)
	}
}

// until reads until a stream is as it should be.
func (l *pageLink) until(number uint32, is func(*pageSeen) bool) *pageSeen {
	l.f.t.Helper()
	for {
		if s := l.seen[number]; s != nil && is(s) {
			return s
		}
		kind, data, err := l.ws.Read(l.f.t.Context())
		if err != nil {
			l.f.t.Fatalf("stream %d has %+v, and then: %v", number, l.seen[number], err)
		}
		if kind == websocket.MessageBinary {
			l.seen[binary.BigEndian.Uint32(data)].text += string(data[4:])
			continue
		}
		var a pageAnswer
		if err := json.Unmarshal(data, &a); err != nil {
			l.f.t.Fatal(err)
		}
		if a.Status != 0 {
			l.seen[a.Stream] = &pageSeen{status: a.Status}
		}
		l.seen[a.Stream].ended = a.Ended
	}
}

func hasEnded(s *pageSeen) bool { return s.ended }

// A page follows all that streams over one connection, with the rights that its cookie gives it.
func TestPageStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSigninFixture(t)
		cookie := f.follow(f.link())
		l := f.openPageLink(cookie)
		for i, tc := range []struct {
			path   string
			status int
			text   string
		}{
			{"/sessions/none/events", 404, "INVALID_SESSION"},
			{"/nothing", 404, "NOT_FOUND"},
			{"/events?name=nothing", 400, "is not one of"},
			{" %zz", 400, "INVALID_ARGUMENTS"},
			{"/../../signin", 307, ""},
			{"/status", 200, `"pid"`},
			{"/signout", 405, "POST"},
		} {
			number := uint32(i + 1)
			l.send(`{"stream":%d,"path":%q}`, number, tc.path)
			if s := l.until(number, hasEnded); s.status != tc.status ||
				!strings.Contains(s.text, tc.text) {
				t.Errorf("%s: got %d %s, want %d and %q", tc.path, s.status, s.text, tc.status,
					tc.text)
			}
		}

		// A stream goes on until the page ends it, and its number is taken so long.
		const states = `{"stream":%d,"path":"/events?name=sessions"}`
		l.send(states, 100)
		l.until(100, func(s *pageSeen) bool {
			return strings.Contains(s.text, "event: sessions\ndata: []\n")
		})
		l.send(`{"stream":100}`)
		l.send(`{"stream":101}`) // there is none
		l.until(100, hasEnded)
		for i := range maxPageStreams {
			l.send(states, i+1)
			l.until(uint32(i+1), func(s *pageSeen) bool { return s.status == 200 && s.text != "" })
		}
		l.send(states, 99)
		if s := l.until(99, hasEnded); s.status != http.StatusTooManyRequests {
			t.Errorf("stream %d at once: got %d, want %d", maxPageStreams+1, s.status,
				http.StatusTooManyRequests)
		}

		// Signing out ends all of it.
		f.send("POST", f.page+"/api/v1/signout",
			http.Header{"Cookie": {cookie}, "Origin": {f.page}})
		for {
			if _, _, err := l.ws.Read(t.Context()); err != nil {
				break
			}
		}
	})
}

// Nobody else reaches the page's streams, and nonsense ends the connection.
func TestPageStreamsRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSigninFixture(t)
		cookie := f.follow(f.link())
		for name, tc := range map[string]struct {
			header http.Header
			status int
		}{
			"no cookie":      {http.Header{"Origin": {f.page}}, 401},
			"a wrong cookie": {http.Header{"Cookie": {cookie + "x"}, "Origin": {f.page}}, 401},
			"another site": {http.Header{"Cookie": {cookie}, "Origin": {"https://evil.example"}},
				403},
		} {
			_, response, err := websocket.Dial(t.Context(), f.page+pageStreamsPath,
				&websocket.DialOptions{HTTPClient: f.client, HTTPHeader: tc.header})
			if err == nil || response == nil || response.StatusCode != tc.status {
				t.Errorf("%s: got %v, %v, want status %d", name, response, err, tc.status)
			}
		}
		response, _ := f.send("GET", f.page+pageStreamsPath, http.Header{"Cookie": {cookie}})
		if response.StatusCode != http.StatusUpgradeRequired {
			t.Errorf("without an upgrade: got %s, want %d", response.Status,
				http.StatusUpgradeRequired)
		}
		for _, nonsense := range []string{"", "[]", `{"stream":-1}`, `{"stream":"1"}`} {
			l := f.openPageLink(cookie)
			l.send("%s", nonsense)
			_, _, err := l.ws.Read(t.Context())
			if websocket.CloseStatus(err) != websocket.StatusUnsupportedData {
				t.Errorf("%q: got %v, want close code %d", nonsense, err,
					websocket.StatusUnsupportedData)
			}
		}
		l := f.openPageLink(cookie)
		if err := l.ws.Write(t.Context(), websocket.MessageText,
			make([]byte, maxPageRequest+1)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.ws.Read(t.Context()); err == nil ||
			errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after a request of %d bytes: got %v, want the end", maxPageRequest+1, err)
		}
	})
}
