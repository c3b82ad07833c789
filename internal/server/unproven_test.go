package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"tapgw/internal/proc"
)

// addressConn is a connection from an address.
type addressConn struct {
	net.Conn

	from   string
	closed *[]string // addresses
}

func (c addressConn) Close() error { *c.closed = append(*c.closed, c.from); return nil }

func (c addressConn) LocalAddr() net.Addr { return addressOf("127.0.0.1:9400") }

func (c addressConn) RemoteAddr() net.Addr { return addressOf(c.from) }

type addressOf string

func (addressOf) Network() string  { return "tcp" }
func (a addressOf) String() string { return string(a) }

// connList is a listener at which connections have come.
type connList struct {
	net.Listener

	list []net.Conn
}

func (l *connList) Accept() (net.Conn, error) {
	if len(l.list) == 0 {
		return nil, net.ErrClosed
	}
	c := l.list[0]
	l.list = l.list[1:]
	return c, nil
}

// When too many connections have shown no secret, the oldest of the group with the most goes, of
// all if they come from everywhere. Exactly as many stay as the limit says.
func TestUnprovenConnections(t *testing.T) {
	own := netip.MustParseAddrPort("127.0.0.1:9400")
	peersOf := func(int) map[proc.Ends]bool {
		ours := map[proc.Ends]bool{}
		for port := range uint16(1000) {
			ours[proc.Ends{Peer: netip.AddrPortFrom(own.Addr(), port), Own: own}] = true
		}
		return ours
	}
	address := func(format string, first, n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf(format, first+i))
		}
		return list
	}
	ours, users := address("127.0.0.1:%d", 1, 40), address("127.0.0.1:%d", 50_000, 80)
	one, many := address("192.0.2.1:%d", 1, 80), address("10.0.0.%d:1", 1, 100)
	subnet := address("[2001:db8::%x]:1", 1, 80)
	for name, tt := range map[string]struct {
		groupOf func(*conn) string
		come    [][]string
		closed  []string
	}{
		"as many as fit": {userOrSource, [][]string{ours, many[:60]}, nil},
		"one more": {userOrSource, [][]string{ours, many[:60], many[60:61]},
			ours[:1]},
		"another user":            {userOrSource, [][]string{ours, users}, users[:20]},
		"another user comes late": {userOrSource, [][]string{users, ours}, users[:20]},
		"one address":             {sourceOf, [][]string{ours, one}, one[:20]},
		"one IPv6 subnet":         {sourceOf, [][]string{ours, subnet}, subnet[:20]},
		"a proxy":                 {sourceOf, [][]string{many[:20], users, ours[:1]}, users[:1]},
		"everywhere":              {sourceOf, [][]string{ours[:10], many}, ours[:10]},
	} {
		u := &unproven{log: slog.New(slog.DiscardHandler), groupOf: tt.groupOf, limit: 100,
			peersOf: peersOf}
		var closed []string
		from := &connList{}
		for _, a := range slices.Concat(tt.come...) {
			from.list = append(from.list, addressConn{from: a, closed: &closed})
		}
		l := listener{from, u}
		kept := 0
		for _, err := l.Accept(); err == nil; _, err = l.Accept() {
			kept++
		}
		if !slices.Equal(closed, tt.closed) {
			t.Errorf("%s: %d closed, %v, want %d, %v", name, len(closed), closed, len(tt.closed),
				tt.closed)
		}
		if want := kept - len(closed); len(u.list) != want {
			t.Errorf("%s: %d are counted, want %d", name, len(u.list), want)
		}
		first := u.list[0]
		if u.enter(first); len(u.list) != kept-len(closed) {
			t.Errorf("%s: a connection is counted twice", name)
		}
		for _, c := range slices.Clone(u.list) {
			_ = c.Close()
			_ = c.Close() // net/http does
		}
		if len(u.list) != 0 {
			t.Errorf("%s: %d are counted after all ended, want 0", name, len(u.list))
		}
	}
}

// Sockets that send nothing do not close a connection whose request is being answered, and a
// connection that was closed takes no place again when net/http reads its end.
func TestRequestsBesideSilentSockets(t *testing.T) {
	u := &unproven{log: slog.New(slog.DiscardHandler), groupOf: sourceOf, limit: 100}
	var closed []string
	accept := func(from string) *conn {
		c, err := listener{&connList{list: []net.Conn{addressConn{from: from, closed: &closed}}},
			u}.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return connOf(c)
	}
	asks, waits := accept("127.0.0.1:1"), accept("127.0.0.1:2")
	followState(asks, http.StateActive)
	followState(waits, http.StateActive)
	followState(waits, http.StateIdle)
	var silent []*conn
	for i := range 300 {
		silent = append(silent, accept(fmt.Sprintf("127.0.0.1:%d", 1000+i)))
	}
	if !slices.Contains(u.list, asks) || !slices.Contains(u.list, waits) || len(closed) != 202 {
		t.Fatalf("%d are closed, beginning with %v; want 202 of those that send nothing",
			len(closed), closed[:3])
	}
	for _, c := range silent[:202] {
		followState(c, http.StateActive)
	}
	if len(closed) != 202 || len(u.list) != 100 {
		t.Errorf("after the ends of what was closed %d are closed and %d kept, want 202 and 100",
			len(closed), len(u.list))
	}
	for _, c := range silent[202:] {
		followState(c, http.StateActive)
	}
	followState(asks, http.StateActive) // its next request
	for i := range 90 {
		followState(accept(fmt.Sprintf("127.0.0.1:%d", 2000+i)), http.StateActive)
	}
	if !slices.Contains(u.list, asks) {
		t.Error("a connection with a request newer than those of the others was closed first")
	}
}
