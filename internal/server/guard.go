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
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/proof"
)

// The guard decides which requests reach a handler, by host, origin, token and cookie.

// fail answers a request with {"error": {"code", "message"}}.
func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(adminapi.Error{Error: adminapi.Failure{Code: code,
		Message: message}})
}

// bodyTimeout is how long a request's body may take. Without it a client could keep a
// connection for ever by sending half a body, even without a token.
const bodyTimeout = 30 * time.Second

// guard is in front of every handler. The Host header must name this machine: otherwise a page
// whose name resolves to a loopback address would count as the gateway's own. Pages of other
// origins reach the provider endpoint only, where they can do little more than pair. Requests
// that change something must not come from a link, an image or a form. SECURITY.md, "Who is
// trusted", has the reasons.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSafeHeaders(w.Header())
		if r.Body != http.NoBody {
			// net/http reads to the body's end even if the handler does not.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		if r.Header.Get("Service-Worker") != "" {
			// the page has no service worker, and other pages must not get one from here
			notFound(w, r)
			return
		}
		if !s.isKnownHost(r.Host) {
			refuseHost(w, r)
			return
		}
		if isForeignOrigin(r) && !allowsForeignOrigin(r) {
			fail(w, http.StatusForbidden, "UNAUTHORIZED", "requests from other origins are refused")
			return
		}
		if changesState(r) && isFromMarkup(r) {
			fail(w, http.StatusForbidden, "UNAUTHORIZED",
				"a link, an image or a form of a page changes nothing here; "+
					"a program may ask, or the page's own script")
			return
		}
		if changesState(r) && lacksFetchMetadata(r) {
			fail(w, http.StatusForbidden, "UNAUTHORIZED",
				"browsers don't say at "+r.Host+" what makes them ask, "+
					"so GET changes nothing there; use POST, the admin token, or 127.0.0.1")
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

// refuseHost answers a request whose Host header this gateway does not know. The name of an ended
// gateway's page must not become one of the user's: a stranger may have prepared its origin.
func refuseHost(w http.ResponseWriter, r *http.Request) {
	isEnded := isEndedPage(r.Host)
	if isEnded && strings.Contains(r.Header.Get("Accept"), "text/html") {
		showText(w, r, http.StatusMisdirectedRequest, "tapgw", endedPageText, "")
		return
	}
	why := " is not a loopback name; add it to hosts in tapgw.toml if it is yours"
	if isEnded {
		why = " is not that of this gateway's page; open the page with: tapctl open"
	}
	fail(w, http.StatusMisdirectedRequest, "UNAUTHORIZED",
		"the Host header "+strings.TrimSpace(r.Host)+why)
}

// setSafeHeaders sets the headers of every answer.
func setSafeHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	// Other sites may neither frame nor load anything from here.
	h.Set("Content-Security-Policy", "frame-ancestors 'none'; worker-src 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
}

// answerProof answers a client that asks for a proof that this gateway knows its token, before
// it sends the token (docs/protocol.md, "Is it your gateway?"). It reports whether the request
// goes on. A question about an unknown token counts as a wrong token and is answered with 401.
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
		fail(w, http.StatusInternalServerError, "INTERNAL",
			"the address of this connection is not known")
		return false
	}
	answer := s.gateway.Prove(id, nonce, proof.Address(address))
	if answer == "" {
		if s.countAuthFailure(r) {
			failTooMany(w)
		} else {
			fail(w, http.StatusUnauthorized, "AUTH_FAILED",
				"this gateway does not know the token; "+
					"read its file again, each gateway has new ones")
		}
		return false
	}
	w.Header().Set(proof.AnswerHeader, answer)
	return true
}

// requireAdmin refuses requests with 401 that have neither the admin token nor the cookie of a
// browser that is signed in.
func (s *Server) requireAdmin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			if signedIn := s.signedIn(r); signedIn != nil {
				prove(r)
				s.requireOwnPage(signedIn, next).ServeHTTP(w, r)
				return
			}
		}
		if s.requireToken(w, r, s.gateway.IsAdmin,
			"this needs the admin token: Authorization: Bearer, "+
				"from the .admin-token file; a browser signs in by the link of tapctl open") {
			s.withActivity(next).ServeHTTP(w, r)
		}
	})
}

// requireToken refuses a request with 401 that does not have a right bearer token, and reports
// whether it goes on. need tells the client which token that is.
func (s *Server) requireToken(
	w http.ResponseWriter, r *http.Request, isRight func(token string) bool, need string,
) bool {
	token, ok := adminapi.BearerToken(r.Header.Get("Authorization"))
	switch {
	case ok && isRight(token):
		prove(r)
		return true
	case ok && s.countAuthFailure(r):
		failTooMany(w)
	default:
		w.Header().Set("WWW-Authenticate", `Bearer realm="tapgw"`)
		fail(w, http.StatusUnauthorized, "AUTH_FAILED", need)
	}
	return false
}

// requireOwnPage refuses requests of a signed-in browser with 403 that the gateway's own page did
// not make. It ends a request when signedIn ends: the browser was signed out.
func (s *Server) requireOwnPage(signedIn context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isFromOwnPage(r) {
			fail(w, http.StatusForbidden, "UNAUTHORIZED",
				"with the cookie alone this is for the gateway's own page; "+
					"others need the admin token")
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(signedIn, cancel)()
		s.withActivity(next).ServeHTTP(w, r.WithContext(ctx))
	})
}

// recordActivity makes [Server.LastActivity] now.
func (s *Server) recordActivity() { s.lastActive.Store(time.Now().UnixNano()) }

// withActivity records the activity of each request.
func (s *Server) withActivity(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.recordActivity()
		next.ServeHTTP(w, r)
	})
}

// requireUpgrade refuses a request that asks for no WebSocket, and reports whether it goes on.
func requireUpgrade(w http.ResponseWriter, r *http.Request, message string) bool {
	if !isUpgrade(r) {
		w.Header().Set("Upgrade", "websocket")
		fail(w, http.StatusUpgradeRequired, "INVALID_STATE", message)
	}
	return isUpgrade(r)
}

func isUpgrade(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// isKnownHost reports whether a Host header names this machine's loopback, is the page's, or is one
// that the configuration lists. Other names below localhost are not known: they may be those of
// gateways that have ended.
func (s *Server) isKnownHost(host string) bool {
	name := hostName(host)
	if name == "localhost" || name != "" && name == s.pageName || s.settings.Load().hosts[name] {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// hostName returns a Host header without its port and brackets, in lower case.
func hostName(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

// allowsForeignOrigin reports whether pages of other origins may make this request: a WebSocket to
// the provider endpoint, or a navigation to the page or to a sign-in link, which is followed from
// a file. A page that navigates to /signin without the code gains nothing. A webhook's handler
// refuses pages itself, if they don't know the secret.
func allowsForeignOrigin(r *http.Request) bool {
	if isWebhook(r) {
		return true
	}
	switch r.URL.Path {
	case "/":
		return isUpgrade(r) || isNavigation(r)
	case signinPath:
		return isNavigation(r)
	}
	return false
}

// isNavigation reports whether the browser opens the address as a document of its own, where the
// page that linked to it can't reach its content.
func isNavigation(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Origin") == "" &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// changesState reports whether a request may change something. Most paths of the session API
// (docs/admin-api.md) do by GET too, or take a response away.
func changesState(r *http.Request) bool {
	if c, ok := restRoute(r.URL.EscapedPath()); ok {
		return c.name != restConfig && c.name != restTest && c.name != restToken &&
			c.name != restModels
	}
	return r.Method != http.MethodGet && r.Method != http.MethodHead
}

// isFromMarkup reports whether a browser makes the request because of a link, an image, a form or
// the like in a page. The gateway's own page counts: a model may have written the link. It is false
// for requests of scripts and programs.
func isFromMarkup(r *http.Request) bool {
	destination := r.Header.Get("Sec-Fetch-Dest")
	return r.Header.Get("Sec-Fetch-Mode") == "navigate" ||
		destination != "" && destination != "empty" && !isUpgrade(r)
}

// lacksFetchMetadata reports whether a page of any site may have made a browser send this GET
// without a trace of it. Browsers send Sec-Fetch headers only over https and to localhost and
// loopback addresses, and no Origin for an image.
func lacksFetchMetadata(r *http.Request) bool {
	if r.TLS != nil || r.Method != http.MethodGet || r.Header.Get("Authorization") != "" {
		return false
	}
	name := hostName(r.Host)
	addr, err := netip.ParseAddr(name)
	isLocalhost := name == "localhost" || strings.HasSuffix(name, ".localhost")
	return !isLocalhost && (err != nil || !addr.IsLoopback() || addr.Is4In6())
}

// isForeignOrigin reports whether a web page of another origin made the request. It looks at
// Sec-Fetch-Site too: browsers send no Origin for an image, for example.
func isForeignOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" &&
		site != "same-origin" {
		return true
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return false
	}
	u, err := url.Parse(origins[0])
	return len(origins) > 1 || err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) ||
		(u.Scheme != "http" && u.Scheme != "https")
}

// foreignOrigin returns the origin of the page of another origin that made a request, "null" if
// the browser does not name it, and "" for all other requests.
func foreignOrigin(r *http.Request) string {
	if !isForeignOrigin(r) {
		return ""
	}
	return cmp.Or(r.Header.Get("Origin"), "null")
}

// connKey is the key of a request's *conn in its context.
type connKey struct{}

// contextWithConn stores the connection in the context of its requests, for [http.Server].
func contextWithConn(ctx context.Context, c net.Conn) context.Context {
	if known := connOf(c); known != nil {
		return context.WithValue(ctx, connKey{}, known)
	}
	return ctx
}
