package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/proc"
	"tapgw/internal/proof"
	"tapgw/internal/protocol"
)

// Sign-in: a link that works once gives a browser a cookie instead of the admin token.

const (
	signinPath = "/signin"
	// signinFilePattern matches the files that lead a browser to a link.
	signinFilePattern = "signin-*.html"
)

// Sizes and lifetimes of the secrets in links and cookies, and how many of each are kept.
const (
	signinLinkLife = 2 * time.Minute
	signinLife     = 7 * 24 * time.Hour
	signinLinkBits = 128
	signinBits     = 256
	maxSigninLinks = 100
	maxSignins     = 100
)

// signins are the unused sign-in links, and the browsers that used one. A browser's secret stands
// for the admin token.
type signins struct {
	mu       sync.Mutex // guards the fields below
	links    signinSecrets
	browsers signinSecrets
	used     []usedLink // oldest first, at most maxSigninLinks
}

// usedLink is a link that a browser used. Whoever tries it again learns when and by whom.
type usedLink struct {
	link, browser [sha256.Size]byte // hashes of the code and of the browser's secret
	at            time.Time
	by            proc.Owner
}

// signinSecrets are secrets with a lifetime, oldest first. Only their hashes are kept.
type signinSecrets []signinSecret

type signinSecret struct {
	sum    [sha256.Size]byte
	valid  context.Context // ends when the secret is void
	cancel context.CancelFunc
	uid    int // of the user that it is for, -1 for any
}

// issue makes a secret for a user, with its lifetime as a context. If there are more than most,
// the oldest are void.
func (s *signinSecrets) issue(
	bits int, life time.Duration, most, uid int,
) (secret string, valid context.Context) {
	secret = base64.RawURLEncoding.EncodeToString(randomBytes(bits / 8))
	valid = s.add(sha256.Sum256([]byte(secret)), time.Now().Add(life), uid)
	s.trimTo(most)
	return secret, valid
}

// add adds a secret by its hash.
func (s *signinSecrets) add(
	sum [sha256.Size]byte, until time.Time, uid int,
) (valid context.Context) {
	valid, cancel := context.WithDeadline(context.Background(), until)
	*s = append(*s, signinSecret{sum, valid, cancel, uid})
	return valid
}

// trimTo makes all secrets void but the newest.
func (s *signinSecrets) trimTo(most int) {
	old := max(len(*s)-most, 0)
	for _, s := range (*s)[:old] {
		s.cancel()
	}
	*s = slices.Delete(*s, 0, old)
}

// find returns the index of a valid secret, or -1. It takes the same time for any secret.
func (s signinSecrets) find(secret string) int {
	sum, index := sha256.Sum256([]byte(secret)), -1
	for i := range s {
		if subtle.ConstantTimeCompare(sum[:], s[i].sum[:]) == 1 && s[i].valid.Err() == nil {
			index = i
		}
	}
	return index
}

// remove makes a secret void and reports whether it was valid.
func (s *signinSecrets) remove(secret string) bool {
	i := s.find(secret)
	if i < 0 {
		return false
	}
	(*s)[i].cancel()
	*s = slices.Delete(*s, i, i+1)
	return true
}

// newLink makes the code of a link that signs in one browser, once, of the user that asks for it.
// If that is root or unknown, any user's browser may use it. The link is good as long as valid.
func (s *signins) newLink(requester proc.Owner) (code string, valid context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := requester.UID
	if uid == 0 {
		uid = -1 // users in containers may show as root
	}
	return s.links.issue(signinLinkBits, signinLinkLife, maxSigninLinks, uid)
}

// Why a link is refused, as the browser shows it.
const (
	unknownLinkText = "This sign-in link is too old, or of another gateway. Make a new one " +
		"with: tapctl open"
	foreignLinkText = "This sign-in link was made for another user of this machine. " +
		"Make one of your own with: tapctl open"
)

// redeem makes a link's code void and returns the secret for the browser's cookie. If the link
// can't be used, secret is "" and refusal is the text to show.
func (s *signins) redeem(code string, by proc.Owner) (secret, refusal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.links.find(code)
	if i < 0 {
		return "", unknownLinkText
	}
	// Root may use every link: it can read the code anyway, and users in containers may show as it.
	if made := s.links[i].uid; made >= 0 && by.UID > 0 && by.UID != made {
		return "", foreignLinkText // the link stays good for its user
	}
	s.links.remove(code)
	secret, _ = s.browsers.issue(signinBits, signinLife, maxSignins, by.UID)
	s.used = append(s.used, usedLink{
		link: sha256.Sum256([]byte(code)), browser: sha256.Sum256([]byte(secret)), at: time.Now(),
		by: by,
	})
	s.used = slices.Delete(s.used, 0, max(len(s.used)-maxSigninLinks, 0))
	return secret, ""
}

// hasLink reports whether there is a valid link with this code.
func (s *signins) hasLink(code string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links.find(code) >= 0
}

// findUsed finds a link that was used already.
func (s *signins) findUsed(code string) (f usedLink, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := sha256.Sum256([]byte(code))
	for _, f := range s.used {
		if subtle.ConstantTimeCompare(sum[:], f.link[:]) == 1 {
			return f, true
		}
	}
	return f, false
}

// browser finds a signed-in browser by its secret. It returns a context that ends when the
// browser is signed out, and the user who used the link, -1 if unknown; or nil.
func (s *signins) browser(secret string) (signedIn context.Context, uid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.browsers.find(secret); i >= 0 {
		return s.browsers[i].valid, s.browsers[i].uid
	}
	return nil, -1
}

// signOut signs out the browsers that have these cookies.
func (s *signins) signOut(secrets []*http.Cookie) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range secrets {
		s.browsers.remove(c.Value)
	}
}

// signOutAll signs all browsers out and makes all links void.
func (s *signins) signOutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links.trimTo(0)
	s.browsers.trimTo(0)
}

// kept returns the browsers that are signed in, for the next server.
func (s *signins) kept() (kept []keptSignin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.browsers {
		if until, _ := b.valid.Deadline(); b.valid.Err() == nil {
			kept = append(kept, keptSignin{b.sum[:], until.UTC(), b.uid})
		}
	}
	return kept
}

// restore signs in the browsers that were signed in to the server before.
func (s *signins) restore(kept []keptSignin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kept {
		if left := time.Until(k.Until); len(k.Sum) == sha256.Size && left > 0 &&
			left < signinLife+time.Minute {
			s.browsers.add([sha256.Size]byte(k.Sum), k.Until, k.UID)
		}
	}
	s.browsers.trimTo(maxSignins)
}

// signinCookie returns the name of the gateway's cookie. It has the port, because a browser shares
// cookies between all ports of a host.
func signinCookie(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil && port != "" {
		return "tapgw-" + port
	}
	return "tapgw"
}

// requestOwner finds the process that made a request, as far as the system tells; it works only
// while the request's connection lasts. The UID is -1 if unknown.
func (s *Server) requestOwner(r *http.Request) proc.Owner {
	address, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	own, ownErr := netip.ParseAddrPort(proof.Address(address))
	if err != nil || ownErr != nil {
		return proc.Owner{UID: -1}
	}
	owner, _ := s.ownerOf(from, own)
	return owner
}

// requestUID returns the user at the other end of a request's connection, -1 if unknown. It asks
// the system once for each connection.
func (s *Server) requestUID(r *http.Request) int {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return -1
	}
	c.uidOnce.Do(func() { c.uid = s.requestOwner(r).UID })
	return c.uid
}

// setSigninCookie gives a browser its secret; a negative life takes the cookie away.
func (s *Server) setSigninCookie(
	w http.ResponseWriter, r *http.Request, secret string, life time.Duration,
) {
	http.SetCookie(w, &http.Cookie{
		Name: signinCookie(r), Value: secret, Path: "/", MaxAge: int(life / time.Second),
		HttpOnly: true, Secure: s.o.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
}

// serveSignin answers a sign-in link: it signs the browser in and leads it to the page.
func (s *Server) serveSignin(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		return // a preview must not use the link up
	}
	code, by := r.URL.Query().Get("code"), proc.Owner{UID: -1}
	if used, ok := s.signins.findUsed(code); ok {
		s.answerUsedLink(w, r, used, s.requestOwner(r))
		return
	}
	if s.signins.hasLink(code) { // finding the owner is too much work for a wrong code
		by = s.requestOwner(r)
	}
	secret, refusal := s.signins.redeem(code, by)
	if refusal != "" {
		if refusal == foreignLinkText {
			s.log.Warn(
				"another user of this machine tried a sign-in link; it stays good for its own",
				"by", by.String())
		}
		if s.countAuthFailure(r) {
			failTooMany(w)
			return
		}
		refuseLink(w, r, refusal)
		return
	}
	s.log.Info("a browser signed in", "by", by.String())
	s.setSigninCookie(w, r, secret, signinLife)
	clearSite(w)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// answerUsedLink answers a link that was used already. The browser that used it goes to the page;
// any other gets a warning, since a stranger may have used the link first.
func (s *Server) answerUsedLink(
	w http.ResponseWriter, r *http.Request, used usedLink, by proc.Owner,
) {
	for _, c := range r.CookiesNamed(signinCookie(r)) {
		if sha256.Sum256([]byte(c.Value)) == used.browser && s.signedIn(r) != nil {
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
	}
	at := used.at.UTC().Format(time.RFC3339)
	s.log.Warn(
		"a sign-in link was followed a second time; if the first was not you, run: tapctl "+
			"open --sign-out",
		"first_at", at, "first_by", used.by.String(), "by", by.String())
	refuseLink(w, r, fmt.Sprintf("This sign-in link was used before: at %s, by %s.\n\n"+
		"If that was not you, somebody else is signed in now. Sign all browsers out with: tapctl "+
		"open --sign-out\n\n"+
		"Then make a new link with: tapctl open", at, used.by))
}

// refuseLink says why a link does not sign a browser in: on a page, if a browser opens it as one.
// text has paragraphs.
func refuseLink(w http.ResponseWriter, r *http.Request, text string) {
	showText(w, r, http.StatusForbidden, "tapgw: not signed in", text,
		`<p><a href="./">To the page</a>, which also takes a new link</p>`+"\n")
}

// signedIn returns a context that ends when the request's browser is signed out, or nil if it is
// not signed in. The cookie counts at the page's host only. A browser sends it to the servers on
// all ports of the host, those of other users too. So, where the system tells users apart, the
// cookie is good only on connections of the user who used the link, and of root.
func (s *Server) signedIn(r *http.Request) context.Context {
	if !s.isPageHost(r.Host) {
		return nil
	}
	for _, c := range r.CookiesNamed(signinCookie(r)) {
		signedIn, uid := s.signins.browser(c.Value)
		if signedIn == nil {
			continue
		}
		if uid < 0 {
			return signedIn
		}
		if user := s.requestUID(r); user == uid || user == 0 {
			return signedIn
		}
		if !s.countAuthFailure(r) {
			s.log.Warn(
				"that was the cookie of a browser of another user, who is not let in by it; " +
					"make it void with: tapctl open --sign-out")
		}
	}
	return nil
}

// isFromOwnPage reports whether the gateway's own page made a request. The browser sends the cookie
// with requests of other pages too. The guard has refused those that show it, so a request without
// Sec-Fetch-Site and Origin may only read; the session API changes things by GET too.
func isFromOwnPage(r *http.Request) bool {
	if r.Header.Get("Sec-Fetch-Site") == "same-origin" || r.Header.Get("Origin") != "" {
		return true
	}
	_, isREST := restRoute(r.URL.EscapedPath())
	return !isREST && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// signinLink answers the request for a link, which leads to the page's host.
func (a *api) signinLink(r *http.Request, body adminapi.SigninRequest) (any, error) {
	if body.File && a.o.SigninDir == "" {
		return nil, fieldError("file", "this gateway has no directory for it")
	}
	host := a.server.pageHost(r.Host)
	if host == "" {
		return nil, protocol.Errorf(protocol.CodeInvalidState,
			"the gateway does not listen on 127.0.0.1, "+
				"so its page needs a name of yours: list it under hosts in tapgw.toml, and "+
				"use it in --url")
	}
	code, valid := a.server.signins.newLink(a.server.requestOwner(r))
	scheme := "http://"
	if a.server.o.TLS != nil {
		scheme = "https://"
	}
	expires, _ := valid.Deadline()
	link := adminapi.SigninLink{URL: scheme + host + signinPath + "?code=" + code,
		ExpiresAt: expires.UTC()}
	if body.File {
		var err error
		if link.File, err = writeSigninFile(valid, a.o.SigninDir, link.URL); err != nil {
			return nil, err
		}
	}
	return created{link}, nil
}

// writeSigninFile writes a page that leads to a link, readable by its user alone: all users of the
// machine see the arguments of the program that opens it. The file is removed when valid ends.
func writeSigninFile(valid context.Context, dir, link string) (path string, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("making a file for the link: %w", err)
	}
	f, err := os.CreateTemp(dir, signinFilePattern) // mode 0600
	if err != nil {
		return "", fmt.Errorf("making a file for the link: %w", err)
	}
	context.AfterFunc(valid, func() { _ = os.Remove(f.Name()) })
	to := html.EscapeString(link)
	_, err = fmt.Fprintf(f,
		`<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">`+
			`<meta http-equiv="refresh" content="0; url=%s"><title>tapgw</title>`+
			`<p><a href="%s">Continue</a></p>`+"\n", to, to)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("writing a file for the link: %w", err)
	}
	return f.Name(), nil
}

// RemoveSigninFiles removes the sign-in files in dir that a gateway left when it was killed. Call
// it before a server uses the directory. The error joins those of the single files; a missing
// directory is not an error.
func RemoveSigninFiles(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, signinFilePattern))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// signout signs out the browser that asks, or all browsers if the admin token asks.
func (a *api) signout(w http.ResponseWriter, r *http.Request) error {
	if err := readBody(w, r, &struct{}{}); err != nil {
		return err
	}
	if r.Header.Get("Authorization") != "" {
		a.server.signins.signOutAll()
	} else {
		a.server.signins.signOut(r.CookiesNamed(signinCookie(r)))
		a.server.setSigninCookie(w, r, "", -time.Second)
		clearSite(w)
	}
	return writeJSON(w, http.StatusOK, struct{}{})
}
