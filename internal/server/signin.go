package server

import (
	"context"
	"crypto/rand"
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
	"strings"
	"sync"
	"time"

	"tapgw/internal/proc"
	"tapgw/internal/proof"
)

// signinFilePattern names the files that lead a browser to a link.
const signinFilePattern = "signin-*.html"

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
	used     []usedLink // oldest first, at most maxSigninLinks
}

// followedLink is a link that was followed: whoever tries it again is told by whom.
type usedLink struct {
	link, browser [sha256.Size]byte // their secrets' hashes
	at            time.Time
	by            proc.Owner
}

// signinSecrets are secrets that are good until their time, oldest first.
type signinSecrets []signinSecret

type signinSecret struct {
	sum    [sha256.Size]byte
	valid  context.Context // ends with it
	cancel context.CancelFunc
	uid    int // of the user that it is for, -1 for anybody
}

// issue makes a secret. Of more than most the oldest go.
func (s *signinSecrets) issue(bits int, life time.Duration, most, uid int) (secret string, valid context.Context) {
	b := make([]byte, bits/8)
	_, _ = rand.Read(b) // it never fails
	secret = base64.RawURLEncoding.EncodeToString(b)
	valid, cancel := context.WithTimeout(context.Background(), life)
	*s = append(*s, signinSecret{sha256.Sum256([]byte(secret)), valid, cancel, uid})
	s.trimTo(most)
	return secret, valid
}

// keep ends all but the newest.
func (s *signinSecrets) trimTo(most int) {
	old := max(len(*s)-most, 0)
	for _, s := range (*s)[:old] {
		s.cancel()
	}
	*s = slices.Delete(*s, 0, old)
}

// find is where a secret is that is still good, -1 if nowhere. How long it takes
// says nothing of the secrets.
func (s signinSecrets) find(secret string) int {
	sum, at := sha256.Sum256([]byte(secret)), -1
	for i := range s {
		if subtle.ConstantTimeCompare(sum[:], s[i].sum[:]) == 1 && s[i].valid.Err() == nil {
			at = i
		}
	}
	return at
}

// take removes a secret and reports whether it was good.
func (s *signinSecrets) remove(secret string) bool {
	i := s.find(secret)
	if i < 0 {
		return false
	}
	(*s)[i].cancel()
	*s = slices.Delete(*s, i, i+1)
	return true
}

// link makes the code of a link that signs a browser in, once: one of the user who
// asks for it, unless that is root or nobody knows who it is. The link is good as
// long as the context lasts.
func (s *signins) newLink(requester proc.Owner) (code string, valid context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := requester.UID
	if uid == 0 {
		uid = -1 // root stands for users in containers
	}
	return s.links.issue(signinLinkBits, signinLinkLife, maxSigninLinks, uid)
}

// Why a link can't be followed, for the page that says so.
const (
	unknownLinkText = "This sign-in link is too old, or of another gateway. Make a new one with: tapctl open"
	foreignLinkText = "This sign-in link was made for another user of this machine. Make one of your own with: tapctl open"
)

// follow takes the code of a link and returns the browser's secret, or else why
// not, in words for whoever follows.
func (s *signins) redeem(code string, by proc.Owner) (secret, refusal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.links.find(code)
	if i < 0 {
		return "", unknownLinkText
	}
	// Root reads what it likes anyway, and stands for users in containers.
	if made := s.links[i].uid; made >= 0 && by.UID > 0 && by.UID != made {
		return "", foreignLinkText // it stays good for its user
	}
	s.links.remove(code)
	secret, _ = s.browsers.issue(signinBits, signinLife, maxSignins, by.UID)
	s.used = append(s.used, usedLink{
		link: sha256.Sum256([]byte(code)), browser: sha256.Sum256([]byte(secret)), at: time.Now(), by: by,
	})
	s.used = slices.Delete(s.used, 0, max(len(s.used)-maxSigninLinks, 0))
	return secret, ""
}

// made reports whether there is a link of this code that is still good.
func (s *signins) hasLink(code string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links.find(code) >= 0
}

// follower finds who has followed a link; ok is false for one that nobody has.
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

// knows returns a context that ends when a browser is no more signed in, and the user
// who followed its link, -1 where nobody knows; nil if it is not.
func (s *signins) browser(secret string) (signedIn context.Context, uid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.browsers.find(secret); i >= 0 {
		return s.browsers[i].valid, s.browsers[i].uid
	}
	return nil, -1
}

// out signs browsers out.
func (s *signins) signOut(secrets []*http.Cookie) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range secrets {
		s.browsers.remove(c.Value)
	}
}

// clear signs all browsers out and makes the links void.
func (s *signins) signOutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links.trimTo(0)
	s.browsers.trimTo(0)
}

// signinCookie names the cookie: a browser shares cookies between the ports of a
// host, so each gateway has its own.
func signinCookie(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil && port != "" {
		return "tapgw-" + port
	}
	return "tapgw"
}

// peer finds the process that made a request, as far as the system tells: it is
// looked up while its connection lasts.
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

// user is the user at the other end of a request's connection, which is looked up once
// for each; -1 where the system does not tell.
func (s *Server) requestUID(r *http.Request) int {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return -1
	}
	c.uidOnce.Do(func() { c.uid = s.requestOwner(r).UID })
	return c.uid
}

// setSignin gives a browser its secret, or takes it away.
func (s *Server) setSigninCookie(w http.ResponseWriter, r *http.Request, secret string, life time.Duration) {
	http.SetCookie(w, &http.Cookie{Name: signinCookie(r), Value: secret, Path: "/", MaxAge: int(life / time.Second),
		HttpOnly: true, Secure: s.tls != nil, SameSite: http.SameSiteStrictMode})
}

// signin answers a link: it signs the browser in that follows it and leads to the
// page.
func (s *Server) serveSignin(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		return // who only looks does not use it up
	}
	code, by := r.URL.Query().Get("code"), proc.Owner{UID: -1}
	if used, ok := s.signins.findUsed(code); ok {
		s.answerUsedLink(w, r, used, s.requestOwner(r))
		return
	}
	if s.signins.hasLink(code) { // else it is not worth the work of looking
		by = s.requestOwner(r)
	}
	secret, refusal := s.signins.redeem(code, by)
	if refusal != "" {
		if refusal == foreignLinkText {
			s.log.Warn("another user of this machine tried a sign-in link; it stays good for its own",
				"by", by.String())
		}
		if s.countAuthFailure(r) {
			failTooMany(w)
			return
		}
		http.Error(w, refusal, http.StatusForbidden)
		return
	}
	s.log.Info("a browser signed in", "by", by.String())
	s.setSigninCookie(w, r, secret, signinLife)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// followedBefore answers a link that was followed already. Only the browser that did
// comes to the page; anybody else may have been overtaken by a stranger.
func (s *Server) answerUsedLink(w http.ResponseWriter, r *http.Request, used usedLink, by proc.Owner) {
	for _, c := range r.CookiesNamed(signinCookie(r)) {
		if sha256.Sum256([]byte(c.Value)) == used.browser && s.signedIn(r) != nil {
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
	}
	at := used.at.UTC().Format(time.RFC3339)
	s.log.Warn("a sign-in link was followed a second time; if the first was not you, run: tapctl open --sign-out",
		"first_at", at, "first_by", used.by.String(), "by", by.String())
	http.Error(w, fmt.Sprintf("This sign-in link was used before: at %s, by %s.\n\n"+
		"If that was not you, somebody else is signed in now. Sign all browsers out with: tapctl open --sign-out\n"+
		"Then make a new link with: tapctl open", at, used.by), http.StatusForbidden)
}

// signedIn returns a context that ends when the browser is no more signed in whose
// cookie a request brings; nil if it is not. A browser shows the cookie to the servers
// on all ports of a host, those of other users too: it is good for the user alone who
// followed the link, and for root, as far as the system tells users apart. Who hangs up
// so soon that nobody knows whose the request is gets nothing.
func (s *Server) signedIn(r *http.Request) context.Context {
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
			s.log.Warn("that was the cookie of a browser of another user, who is not let in by it; " +
				"make it void with: tapctl open --sign-out")
		}
	}
	return nil
}

// fromPage reports whether a page of ours made the request; the guard has refused
// those that say that another one did, or that a link was followed. A cookie goes along whoever asks, so what
// changes something needs more. The session contract changes things by GET too.
func isFromOwnPage(r *http.Request) bool {
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
	File      string    `json:"file,omitempty"` // that leads to it
}

// signinLink makes a link to the host by which the request came.
func (a *api) signinLink(w http.ResponseWriter, r *http.Request) error {
	var request struct {
		File bool `json:"file"`
	}
	if err := apiBody(w, r, &request); err != nil {
		return err
	}
	if request.File && a.signinDir == "" {
		return apiFault("file", "this gateway has no directory for it")
	}
	code, valid := a.server.signins.newLink(a.server.requestOwner(r))
	scheme := "http://"
	if a.server.tls != nil {
		scheme = "https://"
	}
	expires, _ := valid.Deadline()
	link := apiLink{URL: scheme + r.Host + signinPath + "?code=" + code, ExpiresAt: expires.UTC()}
	if request.File {
		var err error
		if link.File, err = writeSigninFile(a.signinDir, link.URL, valid); err != nil {
			return err
		}
	}
	return apiAnswer(w, http.StatusCreated, link)
}

// signinFile writes a page that leads to a link, for its user alone to read: all
// users of the machine see the arguments of the program that opens it. The file goes
// when the link is followed or void.
func writeSigninFile(dir, link string, valid context.Context) (path string, err error) {
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
	_, err = fmt.Fprintf(f, `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">`+
		`<meta http-equiv="refresh" content="0; url=%s"><title>tapgw</title>`+
		`<p><a href="%s">Open tapgw</a></p>`+"\n", to, to)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("writing a file for the link: %w", err)
	}
	return f.Name(), nil
}

// RemoveSigninFiles removes the files of sign-in links that a killed gateway left in
// a directory.
func RemoveSigninFiles(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, signinFilePattern))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// signout signs the browser out that asks, or, with the admin token, all.
func (a *api) signout(w http.ResponseWriter, r *http.Request) error {
	if err := apiBody(w, r, &struct{}{}); err != nil {
		return err
	}
	if r.Header.Get("Authorization") != "" {
		a.server.signins.signOutAll()
	} else {
		a.server.signins.signOut(r.CookiesNamed(signinCookie(r)))
		a.server.setSigninCookie(w, r, "", -time.Second)
	}
	return apiAnswer(w, http.StatusOK, struct{}{})
}
