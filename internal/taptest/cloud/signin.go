package cloud

import (
	"encoding/base64"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// UserCode is the code that a person would type in, and deviceToken the token that the sign-in
// results in.
const (
	UserCode    = "ABCD-1234"
	deviceToken = "gho_from_the_device_flow"
)

// device is a sign-in under way.
type device struct {
	approved bool
	denied   bool
}

// Approve lets the sign-in by device code succeed from now on, as if a person had typed in
// [UserCode]. The client notices at its next poll.
func (c *Cloud) Approve() { c.set(func() { c.device = device{approved: true} }) }

// Pend makes the sign-in by device code wait for a person again, as at the start. It undoes
// [Cloud.Approve] and [Cloud.Deny].
func (c *Cloud) Pend() { c.set(func() { c.device = device{} }) }

// Deny makes the sign-in by device code fail from now on with access_denied, as if the person had
// refused it.
func (c *Cloud) Deny() { c.set(func() { c.device = device{denied: true} }) }

func (c *Cloud) serveDeviceCode(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, object{
		"device_code": "device", "user_code": UserCode,
		"verification_uri": "https://github.com/login/device", "expires_in": 900, "interval": 0.05,
	})
}

func (c *Cloud) serveAccessToken(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	d := c.device
	c.mu.Unlock()
	switch {
	case d.approved:
		writeJSON(
			w, http.StatusOK, object{"access_token": deviceToken, "token_type": "bearer",
				"scope": "repo,workflow"},
		)
	case d.denied:
		writeJSON(
			w, http.StatusOK,
			object{"error": "access_denied",
				"error_description": "The authorization request was denied."},
		)
	default:
		writeJSON(w, http.StatusOK, object{"error": "authorization_pending"})
	}
}

// Tunnel is a connection that a client made through the proxy, with the method CONNECT. Tests check
// by it that a program uses its proxy settings.
type Tunnel struct {
	Host string // host:port that it was for
	Auth string // user:pass; may be ""
}

// Tunnels returns a copy of the list of connections through the proxy since the start, oldest
// first.
func (c *Cloud) Tunnels() []Tunnel {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.tunnels)
}

// serveProxy connects tunnels to https hosts with the stand-in.
func (c *Cloud) serveProxy(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "CONNECT only", http.StatusMethodNotAllowed)
		return
	}
	auth := r.Header.Get("Proxy-Authorization")
	if encoded, ok := strings.CutPrefix(auth, "Basic "); ok {
		if plain, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			auth = string(plain)
		}
	}
	c.set(func() { c.tunnels = append(c.tunnels, Tunnel{r.Host, auth}) })
	addr := r.Host
	if _, port, _ := net.SplitHostPort(addr); port == "443" {
		addr = c.tls.Listener.Addr().String()
	}
	there, err := net.Dial("tcp", addr)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = there.Close() }()
	w.WriteHeader(http.StatusOK)
	here, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = here.Close() }()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(there, here)
		_ = there.Close()
	})
	_, _ = io.Copy(here, there)
	_ = here.Close()
	both.Wait()
}

// discard drops the messages of a TLS server whose certificate its clients don't trust.
var discard = log.New(io.Discard, "", 0)
