package server

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// The page has a host name of its own, chosen at random, so that it shares its origin with no other
// program.

// newPageName makes the name of the page's host. Browsers resolve names below localhost themselves,
// to this machine. Service workers, cookies and stored data belong to an origin. Because the name
// is random, a program that had the port before can't have prepared its origin
// (docs/adr/0042-page-origin.md).
func newPageName() string { return "tapgw-" + strings.ToLower(rand.Text()) + ".localhost" }

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// isPageHost reports whether the page, sign-in links and the cookie count at a Host header: at the
// random name, and at the names that the user has listed. With TLS they count at every name, since
// only the gateway has the key.
func (s *Server) isPageHost(host string) bool {
	name := hostName(host)
	return s.o.TLS != nil || s.pageName != "" && name == s.pageName || s.settings.Load().hosts[name]
}

// pageHost returns the host of the page, with the port, for a client that reached the gateway at
// another one; "" if the gateway has no page that the client could open.
func (s *Server) pageHost(reached string) string {
	if s.isPageHost(reached) {
		return reached
	}
	if s.pageName == "" {
		return ""
	}
	if _, port, err := net.SplitHostPort(reached); err == nil && port != "" {
		return net.JoinHostPort(s.pageName, port)
	}
	return s.pageName
}

// limitPageName takes the page's name away if the gateway is not where the name leads: on
// 127.0.0.1.
func (s *Server) limitPageName() {
	for _, l := range s.listeners {
		at, err := netip.ParseAddrPort(l.Addr().String())
		if ip := at.Addr().Unmap(); err != nil || ip.IsUnspecified() ||
			ip == netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
			return
		}
	}
	s.pageName = ""
}

// atPageHost serves the page at its own host only. At any other, a stranger's service worker may
// stand between it and the browser.
func (s *Server) atPageHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.isPageHost(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		status, text := http.StatusNotFound,
			"The page is not at this address. In a terminal on this machine, run\n\n"+
				"tapctl open\n\nand it opens the page, at an address that is new for each gateway."
		if s.pageName == "" {
			text =
				"The page is not at this address, and the gateway does not listen on 127.0.0.1. " +
					"List a name of it under hosts in tapgw.toml, then run\n\ntapctl open"
		}
		if r.URL.Path == "/" {
			status = http.StatusOK // the existence of a gateway is no secret
		}
		showText(w, r, status, "tapgw", text, "")
	})
}

// endedPageText is for a browser whose page is of a gateway that has ended.
const endedPageText = "This is the address of the page of a gateway that has ended. In a " +
	"terminal on this machine, " +
	"run\n\ntapctl open\n\nand it opens the page of the one that runs now."

// isEndedPage reports whether a Host header may be the page's host at a gateway that has ended.
func isEndedPage(host string) bool { return strings.HasSuffix(hostName(host), ".localhost") }

// clearSite makes the browser remove the stored data and service workers of this origin, at a
// sign-in and a sign-out. It leaves the cookie, which the same answer sets or removes. It leaves
// the cache too, because browsers ask for the page's files each time anyway, and take seconds to
// empty a large cache.
func clearSite(w http.ResponseWriter) { w.Header().Set("Clear-Site-Data", `"storage"`) }

// showText answers with paragraphs for a person, as a page if a browser opens it as one. foot is
// markup below them, on a page that has the stylesheet.
func showText(w http.ResponseWriter, r *http.Request, status int, title, text, foot string) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = fmt.Fprintln(w, text)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; worker-src 'none'; "+
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.WriteHeader(status)
	var paragraphs strings.Builder
	for text := range strings.SplitSeq(text, "\n\n") {
		paragraphs.WriteString("<p>" + html.EscapeString(text) + "</p>\n")
	}
	style := ""
	if foot != "" {
		style = `<link rel="stylesheet" href="page/style.css">` + "\n"
	}
	_, _ = fmt.Fprintf(w, `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
%s<main class="signin">
<h1>tapgw</h1>
%s%s</main>
</html>
`, title, style, &paragraphs, foot)
}

// heritage is the state that a server leaves to the next one that takes its listeners. It has no
// browser's secret, but must stay private: with pageKey, a program can pass for the gateway to an
// open page.
type heritage struct {
	PageName string       `json:"pageName"`
	PageKey  []byte       `json:"pageKey"`
	Signins  []keptSignin `json:"signins"`
}

// keptSignin is a browser that is signed in.
type keptSignin struct {
	Sum   []byte    `json:"sum"` // SHA-256 of its secret
	Until time.Time `json:"until"`
	UID   int       `json:"uid"` // of the user who followed the link, -1 if unknown
}

// Heritage returns the state with which the next server keeps pages open and browsers signed in,
// for [Server.ListenWith]. Call it after [Server.Shutdown], when browsers can't sign in or out any
// more.
func (s *Server) Heritage() []byte {
	data, err := json.Marshal(heritage{s.pageName, s.pageKey, s.signins.kept()})
	if err != nil { // which numbers, texts and times don't cause
		s.log.Error("browsers have to sign in again", "error", err)
	}
	return data
}

// inherit takes over the page's origin and the browsers that are signed in to it. The listeners
// must have been open all the time: otherwise a stranger may have served that origin.
func (s *Server) inherit(data []byte) {
	var h heritage
	if err := json.Unmarshal(data, &h); err != nil || len(h.PageKey) != sha256.Size {
		return // of a gateway that was killed, or of another version
	}
	if s.pageName != "" && h.PageName != "" {
		s.pageName = h.PageName
	}
	s.pageKey = h.PageKey
	s.signins.restore(h.Signins)
}
