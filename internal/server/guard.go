package server

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"tapgw/internal/proof"
)

// fail answers a request with an error document.
func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": code, "message": message}})
}

// bodyPatience is how long a request's body may take to come. Whoever sends half of
// one would keep the connection forever otherwise, also without a token.
const bodyTimeout = 30 * time.Second

// guard is what every request passes first: its Host must be a name of this
// machine (a page on a rebound name would otherwise be same-origin), and a web
// page of another origin reaches the provider endpoint only, where it may do
// little more than pair.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		// Nothing of ours is for other sites' frames or scripts.
		h.Set("Content-Security-Policy", "frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		if r.Body != http.NoBody {
			// Up to the body's end: net/http waits for it even where nobody reads it.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		if !s.isKnownHost(r.Host) {
			fail(w, http.StatusMisdirectedRequest, "UNAUTHORIZED", "the Host header "+strings.TrimSpace(r.Host)+" is not a loopback name; add it to hosts in tapgw.toml if it is yours")
			return
		}
		if isForeignOrigin(r) && !allowsForeignOrigin(r) {
			fail(w, http.StatusForbidden, "UNAUTHORIZED", "requests from other origins are refused")
			return
		}
		if changesState(r) && isFromMarkup(r) {
			fail(w, http.StatusForbidden, "UNAUTHORIZED", "a link, an image or a form of a page changes nothing here; a program may ask, or the page's own script")
			return
		}
		if changesState(r) && lacksFetchMetadata(r) {
			fail(w, http.StatusForbidden, "UNAUTHORIZED", "browsers don't say at "+r.Host+" what makes them ask, so GET changes nothing there; use POST, the admin token, or 127.0.0.1")
			return
		}
		if !s.answerProof(w, r) {
			return
		}
		if isUpgrade(r) && s.draining.Load() {
			w.Header().Set("Retry-After", "5")
			fail(w, http.StatusServiceUnavailable, "INVALID_STATE", "the gateway is shutting down")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// prove answers a client that asks whether this gateway knows its token, before it
// sends that token or anything else. A question about a token that is unknown here
// counts as a wrong token, is answered with 401, and the result is false.
func (s *Server) answerProof(w http.ResponseWriter, r *http.Request) bool {
	question := r.Header.Get(proof.AskHeader)
	if question == "" {
		return true
	}
	id, nonce, err := proof.ParseQuestion(question)
	if err != nil {
		fail(w, http.StatusBadRequest, "INVALID_ARGUMENTS", err.Error())
		return false
	}
	address, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		fail(w, http.StatusInternalServerError, "INTERNAL", "the address of this connection is not known")
		return false
	}
	answer := s.gateway.Prove(id, nonce, proof.Address(address))
	if answer == "" {
		if s.countAuthFailure(r) {
			failTooMany(w)
		} else {
			fail(w, http.StatusUnauthorized, "AUTH_FAILED", "this gateway does not know the token; read its file again, each gateway has new ones")
		}
		return false
	}
	w.Header().Set(proof.AnswerHeader, answer)
	return true
}

// admin lets those through that carry the admin token, and pages of ours in a
// browser that is signed in.
func (s *Server) requireAdmin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			if signedIn := s.signedIn(r); signedIn != nil {
				s.requireOwnPage(signedIn, next).ServeHTTP(w, r)
				return
			}
		}
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || !s.gateway.IsAdmin(token) {
			if ok && s.countAuthFailure(r) {
				failTooMany(w)
				return
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="tapgw"`)
			fail(w, http.StatusUnauthorized, "AUTH_FAILED", "this needs the admin token: Authorization: Bearer, from the .admin-token file; a browser signs in by the link of tapctl open")
			return
		}
		s.withActivity(next).ServeHTTP(w, r)
	})
}

// page lets through what a page of ours asks for, and ends it when the browser is
// signed out.
func (s *Server) requireOwnPage(signedIn context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isFromOwnPage(r) {
			fail(w, http.StatusForbidden, "UNAUTHORIZED", "with the cookie alone this is for the gateway's own page; others need the admin token")
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(signedIn, cancel)()
		s.withActivity(next).ServeHTTP(w, r.WithContext(ctx))
	})
}

// noteUse notes that somebody uses the gateway.
func (s *Server) recordActivity() { s.lastActive.Store(time.Now().UnixNano()) }

// used notes it at each request.
func (s *Server) withActivity(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.recordActivity()
		next.ServeHTTP(w, r)
	})
}

func isUpgrade(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// knownHost reports whether a Host header names this machine's loopback, or is
// one that the configuration lists.
func (s *Server) isKnownHost(host string) bool {
	name := hostName(host)
	if name == "localhost" || s.settings.Load().hosts[name] {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// hostName is a Host header without its port and brackets, in lower case.
func hostName(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

// foreignMayAsk reports whether a request is one that pages of other origins may make:
// a connection to the provider endpoint, or a navigation to our page. The sign-in link
// counts as one, since it is followed from a file; a page without the code gains nothing.
func allowsForeignOrigin(r *http.Request) bool {
	return r.URL.Path == "/" && isUpgrade(r) || (r.URL.Path == "/" || r.URL.Path == signinPath) && isNavigation(r)
}

// opensPage reports whether the browser goes to where a link leads, in a window
// of its own: what the page there does is not the linking page's.
func isNavigation(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Origin") == "" &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// changes reports whether a request may change something, or take it away: the
// session contract does by GET too.
func changesState(r *http.Request) bool {
	if c, ok := restRoute(r.URL.EscapedPath()); ok {
		return c.name != restConfig && c.name != restTest && c.name != restToken && c.name != restModels
	}
	return r.Method != http.MethodGet && r.Method != http.MethodHead
}

// followed reports whether a browser makes the request because of what is written
// in a page, ours included: somebody followed a link, which may be in a model's
// text, or the page shows an image. What no browser sends says nothing of that.
func isFromMarkup(r *http.Request) bool {
	to := r.Header.Get("Sec-Fetch-Dest")
	return r.Header.Get("Sec-Fetch-Mode") == "navigate" || to != "" && to != "empty" && !isUpgrade(r)
}

// untold reports whether any page of any site may have had a browser make the request:
// to addresses that are neither https nor one of those that they hold for this
// machine's own browsers send no Sec-Fetch headers, and for an image no Origin.
func lacksFetchMetadata(r *http.Request) bool {
	if r.TLS != nil || r.Method != http.MethodGet || r.Header.Get("Authorization") != "" {
		return false
	}
	name := hostName(r.Host)
	addr, err := netip.ParseAddr(name)
	return name != "localhost" && (err != nil || !addr.IsLoopback() || addr.Is4In6())
}

// foreignOrigin reports whether a web page of another origin made the request.
// Browsers name no Origin where a page only gets something, an image say, but
// the session contract acts on that too.
func isForeignOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
		return true
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return false
	}
	u, err := url.Parse(origins[0])
	return len(origins) > 1 || err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) || (u.Scheme != "http" && u.Scheme != "https")
}

// pageOrigin is the origin of the page of another origin that made a request, "" for
// what is none.
func foreignOrigin(r *http.Request) string {
	if !isForeignOrigin(r) {
		return ""
	}
	return cmp.Or(r.Header.Get("Origin"), "null")
}

// remote is the address that a request comes from, without its port.
func clientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// culprit is whom a request's wrong tokens count against: its address, and the
// web pages there of other origins by themselves. All of this machine's own
// addresses are one: it has sixteen million of them.
func failureSource(r *http.Request) string {
	source := clientAddress(r)
	if addr, err := netip.ParseAddr(source); err == nil && addr.Unmap().IsLoopback() {
		source = "this machine"
	}
	if isForeignOrigin(r) {
		source += " web"
	}
	return source
}

// wrongSecret counts a wrong secret that a request brought, and says in the log who
// sent it. Where there were too many it reports that instead. Right ones are never
// refused for it: whoever calls this has looked at the secret first.
func (s *Server) countAuthFailure(r *http.Request) (tooMany bool) {
	source := failureSource(r)
	if s.authFailures.isBlocked(source) {
		return true
	}
	s.authFailures.record(source)
	attrs := []any{"remote", r.RemoteAddr, "path", r.URL.Path}
	if origin := r.Header.Get("Origin"); origin != "" {
		attrs = append(attrs, "origin", origin)
	}
	if owner := s.requestOwner(r); owner.PID != 0 || owner.UID >= 0 {
		attrs = append(attrs, "process", owner.String())
	}
	s.log.Warn("a wrong token", attrs...)
	return false
}

// failLimited answers a wrong secret after too many of them.
func failTooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "60")
	fail(w, http.StatusTooManyRequests, "RATE_LIMITED", "too many wrong tokens from this address, the last of them this one; retry in a minute, with the right one at once")
}

// secrets counts wrong tokens by culprit: more than maxBad in a minute, and further
// wrong ones are told so for a minute.
type authFailures struct {
	mu       sync.Mutex
	bySource map[string]*failureTimes
}

type failureTimes struct {
	times        []time.Time // the newest, at most maxBad+1
	blockedUntil time.Time
}

const (
	maxAuthFailures   = 20
	authFailureWindow = time.Minute
)

func (s *authFailures) record(source string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySource == nil {
		s.bySource = map[string]*failureTimes{}
	}
	for other, b := range s.bySource { // there are few: only those that failed lately
		if other != source && now.After(b.blockedUntil) && now.Sub(b.times[len(b.times)-1]) > authFailureWindow {
			delete(s.bySource, other)
		}
	}
	b := s.bySource[source]
	if b == nil {
		b = &failureTimes{}
		s.bySource[source] = b
	}
	b.times = append(b.times, now)
	for now.Sub(b.times[0]) > authFailureWindow {
		b.times = b.times[1:]
	}
	if len(b.times) > maxAuthFailures {
		b.blockedUntil = now.Add(authFailureWindow)
		b.times = b.times[len(b.times)-1:]
	}
}

func (s *authFailures) isBlocked(source string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bySource[source]
	return b != nil && time.Now().Before(b.blockedUntil)
}

// connKey finds the connection of a request in its context.
type connKey struct{}

func contextWithConn(ctx context.Context, c net.Conn) context.Context {
	for {
		switch v := c.(type) {
		case *conn:
			return context.WithValue(ctx, connKey{}, v)
		case interface{ NetConn() net.Conn }: // TLS
			c = v.NetConn()
		default:
			return ctx
		}
	}
}
