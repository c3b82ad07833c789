package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	signinLinkLife = 2 * time.Minute
	signinLife     = 7 * 24 * time.Hour
	signinLinkBits = 128
	signinBits     = 256
	maxSigninLinks = 100
	maxSignins     = 100
	signinPath     = "/signin"
)

// signins are the links that wait to be followed and the browsers that followed
// one: what they hold stands for the admin token until the gateway ends.
type signins struct {
	mu       sync.Mutex
	links    signinSecrets
	browsers signinSecrets
}

// signinSecrets are secrets that are good until their time, oldest first.
type signinSecrets []signinSecret

type signinSecret struct {
	sum  [sha256.Size]byte
	good context.Context // ends with it
	end  context.CancelFunc
}

// issue makes a secret. Of more than most the oldest go.
func (x *signinSecrets) issue(bits int, life time.Duration, most int) (secret string, expires time.Time) {
	b := make([]byte, bits/8)
	_, _ = rand.Read(b) // it never fails
	secret, expires = base64.RawURLEncoding.EncodeToString(b), time.Now().Add(life)
	good, end := context.WithDeadline(context.Background(), expires)
	*x = append(*x, signinSecret{sha256.Sum256([]byte(secret)), good, end})
	x.keep(most)
	return secret, expires
}

// keep ends all but the newest.
func (x *signinSecrets) keep(most int) {
	old := max(len(*x)-most, 0)
	for _, s := range (*x)[:old] {
		s.end()
	}
	*x = slices.Delete(*x, 0, old)
}

// find is where a secret is that is still good, -1 if nowhere. How long it takes
// says nothing of the secrets.
func (x signinSecrets) find(secret string) int {
	sum, at := sha256.Sum256([]byte(secret)), -1
	for i := range x {
		if subtle.ConstantTimeCompare(sum[:], x[i].sum[:]) == 1 && x[i].good.Err() == nil {
			at = i
		}
	}
	return at
}

// take removes a secret and reports whether it was good.
func (x *signinSecrets) take(secret string) bool {
	i := x.find(secret)
	if i < 0 {
		return false
	}
	(*x)[i].end()
	*x = slices.Delete(*x, i, i+1)
	return true
}

// link makes the code of a link that signs a browser in, once.
func (x *signins) link() (code string, expires time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.links.issue(signinLinkBits, signinLinkLife, maxSigninLinks)
}

// follow takes the code of a link and returns the browser's secret.
func (x *signins) follow(code string) (secret string, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.links.take(code) {
		return "", false
	}
	secret, _ = x.browsers.issue(signinBits, signinLife, maxSignins)
	return secret, true
}

// knows returns a context that ends when a browser is no more signed in; nil if it
// is not.
func (x *signins) knows(secret string) context.Context {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := x.browsers.find(secret); i >= 0 {
		return x.browsers[i].good
	}
	return nil
}

// out signs browsers out.
func (x *signins) out(secrets []*http.Cookie) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range secrets {
		x.browsers.take(c.Value)
	}
}

// clear signs all browsers out and makes the links void.
func (x *signins) clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.links.keep(0)
	x.browsers.keep(0)
}

// signinCookie names the cookie: a browser shares cookies between the ports of a
// host, so each gateway has its own.
func signinCookie(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil && port != "" {
		return "tapgw-" + port
	}
	return "tapgw"
}

// setSignin gives a browser its secret, or takes it away.
func (s *Server) setSignin(w http.ResponseWriter, r *http.Request, secret string, life time.Duration) {
	http.SetCookie(w, &http.Cookie{Name: signinCookie(r), Value: secret, Path: "/", MaxAge: int(life / time.Second),
		HttpOnly: true, Secure: s.tls != nil, SameSite: http.SameSiteStrictMode})
}

// signin answers a link: it signs the browser in that follows it and leads to the
// page.
func (s *Server) signin(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		return // who only looks does not use it up
	}
	secret, ok := s.signins.follow(r.URL.Query().Get("code"))
	if !ok && s.signedIn(r) != nil {
		http.Redirect(w, r, "/", http.StatusSeeOther) // followed a second time
		return
	}
	if !ok {
		s.secrets.bad(culprit(r))
		http.Error(w, "This sign-in link was used or is too old. Make a new one with: tapctl open", http.StatusForbidden)
		return
	}
	s.setSignin(w, r, secret, signinLife)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// signedIn returns a context that ends when the browser is no more signed in whose
// cookie a request brings; nil if it is not.
func (s *Server) signedIn(r *http.Request) context.Context {
	for _, c := range r.CookiesNamed(signinCookie(r)) {
		if good := s.signins.knows(c.Value); good != nil {
			return good
		}
	}
	return nil
}

// fromPage reports whether a page of ours made the request; the guard has refused
// those that say that another one did, or that a link was followed. A cookie goes along whoever asks, so what
// changes something needs more. The session contract changes things by GET too.
func fromPage(r *http.Request) bool {
	if r.Header.Get("Sec-Fetch-Site") == "same-origin" || r.Header.Get("Origin") != "" {
		return true
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return reads && (strings.HasPrefix(r.URL.Path, apiPrefix+"/") || !strings.HasPrefix(r.URL.Path, restPrefix))
}

// apiLink is a link that signs a browser in.
type apiLink struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// signinLink makes a link to the host by which the request came.
func (a *api) signinLink(w http.ResponseWriter, r *http.Request) error {
	if err := apiBody(w, r, &struct{}{}); err != nil {
		return err
	}
	code, expires := a.server.signins.link()
	scheme := "http://"
	if a.server.tls != nil {
		scheme = "https://"
	}
	return apiAnswer(w, http.StatusCreated, apiLink{scheme + r.Host + signinPath + "?code=" + code, expires.UTC()})
}

// signout signs the browser out that asks, or, with the admin token, all.
func (a *api) signout(w http.ResponseWriter, r *http.Request) error {
	if err := apiBody(w, r, &struct{}{}); err != nil {
		return err
	}
	if r.Header.Get("Authorization") != "" {
		a.server.signins.clear()
	} else {
		a.server.signins.out(r.CookiesNamed(signinCookie(r)))
		a.server.setSignin(w, r, "", -time.Second)
	}
	return apiAnswer(w, http.StatusOK, struct{}{})
}
