package server

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"tapgw/internal/proc"
	"tapgw/internal/proof"
)

// Bounds of the resources for peers that have shown no secret. A peer that shows one leaves these
// counts.
const (
	// maxUnproven is how many of their connections a port keeps; the gateway's own keeps as many
	// more as providers may be connected, so that all may come back at once.
	maxUnproven = 256
	// When no group has 1/fairShare of the limit, they come from everywhere, and the oldest of all
	// goes.
	fairShare = 8
	// lookInterval is the least time between two questions to the system, whose connections there
	// are.
	lookInterval = time.Second
)

// unproven are connections whose peers have shown no secret, or have not shown it for the request
// under way. When there are too many, the oldest of the largest group is closed, so that one source
// can't keep others out. Connections of one source in different states are different groups, so
// that a flood of idle sockets does not close connections with a request under way. A connection
// counts as new again with each request.
type unproven struct {
	log     *slog.Logger
	what    string // they are, for the log
	groupOf func(c *conn) string
	peersOf func(uid int) map[proc.Ends]bool // finds connections of our user; nil: not asked

	mu         sync.Mutex // guards the fields below
	limit      int
	list       []*conn // longest without a request first
	lastLooked time.Time
	lastLogged time.Time
}

func (u *unproven) setLimit(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limit = n
}

// enter adds a connection as the newest, also one that is there.
func (u *unproven) enter(c *conn) {
	u.mu.Lock()
	u.list = append(slices.DeleteFunc(u.list, func(known *conn) bool { return known == c }), c)
	var look []*conn
	// The system takes milliseconds to name the peers. A connection that comes meanwhile is
	// younger, and is dropped later.
	if u.peersOf != nil && len(u.list) > u.limit/2 && time.Since(u.lastLooked) > lookInterval {
		u.lastLooked, look = time.Now(), slices.Clone(u.list)
	}
	u.mu.Unlock()
	if look != nil {
		u.look(look)
	}
	for {
		list, limit := u.excess()
		if list == nil {
			return
		}
		if c := u.first(list, limit); u.leave(c) {
			c.isClosed.Store(true)
			_ = c.Conn.Close()
		}
	}
}

// look finds out which connections are of our own user.
func (u *unproven) look(list []*conn) {
	ours := u.peersOf(os.Geteuid())
	for _, c := range list {
		peer, err := netip.ParseAddrPort(proof.Address(c.RemoteAddr()))
		own, ownErr := netip.ParseAddrPort(proof.Address(c.LocalAddr()))
		if err == nil && ownErr == nil && ours[proc.Ends{Peer: peer, Own: own}] {
			c.isOurs.Store(true)
		}
	}
}

// leave removes a connection, because its peer has shown a secret or it has ended. It reports
// whether it was there.
func (u *unproven) leave(c *conn) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := slices.Index(u.list, c)
	if at < 0 {
		return false
	}
	u.list = slices.Delete(u.list, at, at+1)
	return true
}

// excess returns the connections if they are too many, otherwise nil.
func (u *unproven) excess() (list []*conn, limit int) {
	u.mu.Lock()
	if len(u.list) > u.limit {
		list, limit = slices.Clone(u.list), u.limit
	}
	isNews := list != nil && time.Since(u.lastLogged) > limitFaultTime
	if isNews {
		u.lastLogged = time.Now()
	}
	u.mu.Unlock()
	if isNews {
		u.log.Warn("too many "+u.what+" have shown no secret; the oldest are closed", "limit",
			limit)
	}
	return list, limit
}

// first returns the connection that has to go.
func (u *unproven) first(list []*conn, limit int) *conn {
	type group struct {
		source string
		state  int32
	}
	groups, counts := make([]group, len(list)), map[group]int{}
	for i, c := range list {
		groups[i] = group{u.groupOf(c), c.state.Load()}
		counts[groups[i]]++
	}
	most := 0
	for _, n := range counts {
		most = max(most, n)
	}
	if most*fairShare < limit {
		return list[0] // they come from everywhere
	}
	return list[slices.IndexFunc(groups, func(g group) bool { return counts[g] == most })]
}

// sourceOf is the group of a connection at a listener for webhooks. Its user says nothing about the
// sender, since webhooks come through proxies.
func sourceOf(c *conn) string { return addressSource(c.RemoteAddr().String()) }

// userOrSource is the group of a connection at the gateway's own port. All other users of this
// machine are one, since one of them may have many numbers.
func userOrSource(c *conn) string {
	source := sourceOf(c)
	if source == thisMachine && !c.isOurs.Load() {
		return "other users"
	}
	return source
}

// prove takes a request's connection out of the unproven ones until its next request: a secret was
// shown.
func prove(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok && c.unproven != nil {
		c.unproven.leave(c)
	}
}

// followState is for [http.Server].ConnState. A request makes its connection an unproven one again:
// behind a proxy it may be another sender's. The end of a half-sent request counts as a request in
// net/http; a connection that was closed for it must not come back to the list, where others would
// have to make room for it.
func followState(c net.Conn, state http.ConnState) {
	known := connOf(c)
	if known == nil || known.unproven == nil {
		return
	}
	known.state.Store(int32(state))
	if state == http.StateActive && !known.isClosed.Load() {
		known.unproven.enter(known)
	}
}

// connOf returns the connection below TLS, nil for one that no [listener] accepted.
func connOf(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	known, _ := c.(*conn)
	return known
}
