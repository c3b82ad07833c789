package server

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"tapgw/internal/visible"
)

// More than maxAuthFailures wrong secrets from one source within authFailureWindow, and further
// wrong ones from there are answered with "too many" for as long again.
const (
	maxAuthFailures   = 20
	authFailureWindow = time.Minute
	maxLoggedPath     = 200 // bytes
)

// authFailures counts wrong tokens, codes and cookies by their source.
type authFailures struct {
	mu       sync.Mutex // guards the fields below
	bySource map[string]*failureTimes
}

type failureTimes struct {
	times        []time.Time // oldest first, at most maxAuthFailures+1
	blockedUntil time.Time
}

// record counts a failure now.
func (f *authFailures) record(source string) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bySource == nil {
		f.bySource = map[string]*failureTimes{}
	}
	for other, t := range f.bySource { // few: only the sources of the last minutes are kept
		if other != source && now.After(t.blockedUntil) &&
			now.Sub(t.times[len(t.times)-1]) > authFailureWindow {
			delete(f.bySource, other)
		}
	}
	t := f.bySource[source]
	if t == nil {
		t = &failureTimes{}
		f.bySource[source] = t
	}
	t.times = append(t.times, now)
	for now.Sub(t.times[0]) > authFailureWindow {
		t.times = t.times[1:]
	}
	if len(t.times) > maxAuthFailures {
		t.blockedUntil = now.Add(authFailureWindow)
		t.times = t.times[len(t.times)-1:]
	}
}

func (f *authFailures) isBlocked(source string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.bySource[source]
	return t != nil && time.Now().Before(t.blockedUntil)
}

// failureSource is the source that a request's wrong secrets count against: its address, and
// web pages of other origins apart from programs there.
func failureSource(r *http.Request) string {
	source := addressSource(r.RemoteAddr)
	if isForeignOrigin(r) {
		source += " web"
	}
	return source
}

// thisMachine is the source of all loopback addresses.
const thisMachine = "this machine"

// addressSource returns the group of addresses that an address counts as. All loopback addresses
// are one, since a program has sixteen million of them to choose from. So are the addresses of IPv6
// that one machine may choose from.
func addressSource(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	addr := at.Addr().Unmap().WithZone("")
	switch {
	case err != nil:
		return remote
	case addr.IsLoopback():
		return thisMachine
	case addr.Is6():
		subnet, _ := addr.Prefix(64)
		return subnet.String()
	}
	return addr.String()
}

// countAuthFailure counts a wrong secret that a request brought and logs its sender. When its
// source has sent too many, it reports that instead. Callers check the secret first, so a right one
// is never refused because of wrong ones.
func (s *Server) countAuthFailure(r *http.Request) (tooMany bool) {
	source := failureSource(r)
	if s.authFailures.isBlocked(source) {
		return true
	}
	s.authFailures.record(source)
	attrs := []any{"remote", r.RemoteAddr, "path", visible.Ends(r.URL.Path, maxLoggedPath, 1)}
	if origin := r.Header.Get("Origin"); origin != "" {
		attrs = append(attrs, "origin", origin)
	}
	if owner := s.requestOwner(r); owner.PID != 0 || owner.UID >= 0 {
		attrs = append(attrs, "process", owner.String())
	}
	s.log.Warn("a wrong token", attrs...)
	return false
}

// failTooMany answers a wrong secret of a source that has sent too many.
func failTooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "60")
	fail(w, http.StatusTooManyRequests, "RATE_LIMITED", "too many wrong tokens from this address, "+
		"the last of them this one; retry in a minute, with the right one at once")
}
