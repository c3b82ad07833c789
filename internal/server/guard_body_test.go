package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Who begins a request and does not end it is let go of, whether the request is
// good or not; a body that comes slowly is taken, and leaves the answer its time.
func TestBodyTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRESTBubble(t)
		send := func(path, token string) net.Conn {
			c, err := f.client.Transport.(*http.Transport).DialContext(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(c,
				"POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 4\r\n\r\n{", path, token); err != nil {
				t.Fatal(err)
			}
			return c
		}
		const refused = "i/o timeout"
		for _, tc := range []struct{ path, token, want string }{
			{"/api/v1/sessions", f.gateway.AdminToken(), refused},
			{"/api/copilot/session/x/query", "", refused},
			{"/api/v1/sessions", "wrong", "AUTH_FAILED"},
			{"/nothing", "", "NOT_FOUND"},
		} {
			began := time.Now()
			c := send(tc.path, tc.token)
			answer, err := io.ReadAll(c)
			if took := time.Since(began); err != nil || took < bodyTimeout ||
				took > bodyTimeout+time.Second || !strings.Contains(string(answer), tc.want) {
				t.Errorf(
					"%s: after %s %v, want %q after %s to %s\n%s",
					tc.path, took, err, tc.want, bodyTimeout, bodyTimeout+time.Second, answer,
				)
			}
			_ = c.Close()
		}

		c := send("/api/copilot/session/"+f.mustStart("local")+"/live", "")
		wait(bodyTimeout - time.Second)
		if _, err := io.WriteString(c, " } "); err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(r.Body)
		if err != nil || !strings.Contains(string(answer), restTimeout) {
			t.Errorf("after a slow body: %v %s, want no error and %q in it", err, answer,
				restTimeout)
		}
		_ = c.Close()
	})
}
