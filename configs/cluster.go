package configs

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"tapgw/internal/lazyregexp"
)

// Cluster is the table [cluster]: the other gateways that this gateway joins through NATS, the data
// that it shares with them, and the gateways that it admits. Without URLs there is no cluster.
type Cluster struct {
	URLs []string `toml:"urls" is:"natsURL"`
	Name string   `toml:"name" is:"clusterName?"` // this gateway's name in the cluster
	// Credentials is a file of NATS with a user's JWT and key, NKey one with the seed of an nkey
	// alone. At most one is set.
	Credentials string `toml:"credentials" base:"file"`
	NKey        string `toml:"nkey" base:"file"`
	// PEM files: the authority that must have certified the servers, and this gateway's own
	// certificate and key.
	TLSCA   string `toml:"tls_ca" base:"file"`
	TLSCert string `toml:"tls_cert" base:"file"`
	TLSKey  string `toml:"tls_key" base:"file"`
	// Share has globs of the labels of sessions and the names of providers that admitted gateways
	// may see and use.
	Share []string `toml:"share" is:"glob"`
	// Control names the gateways of Admit whose users may act on this one with tapctl --gateway.
	Control []string `toml:"control" is:"clusterName"`
	// MaxEach is how many providers run here at most for single sessions of other gateways.
	MaxEach int `toml:"max_each" range:"0,1000"`
	// Admit has the trust that providers of other gateways get here, [AdmitProject] or
	// [AdmitExternal], by the name of the gateway. A gateway without an entry can't see or use
	// anything here.
	Admit map[string]string `toml:"admit" names:"admitted" of:"project,external"`
	Keep  ClusterKeep       `toml:"keep"`
}

// ClusterKeep is the table [cluster.keep]. It says which streams of this gateway's providers are
// kept in JetStream; without Streams the gateway keeps no stream.
type ClusterKeep struct {
	Streams   []string      `toml:"streams" is:"streamGlob"` // globs of STREAM or STREAM@PROVIDER
	MaxAge    time.Duration `toml:"max_age" default:"24h" range:"1m,87600h"`
	MaxEvents int           `toml:"max_events" default:"1000" range:"1,1000000"` // of one stream
	MaxBytes  int           `toml:"max_bytes" default:"67108864" range:"1048576,1099511627776"`
}

// Values of cluster.admit.
const (
	AdmitProject  = "project"
	AdmitExternal = "external"
)

// Enabled reports whether the gateway joins others.
func (c *Cluster) Enabled() bool { return len(c.URLs) > 0 }

// clusterName is the form of a gateway's name, which is one token of a NATS subject and a key of a
// KV bucket.
var clusterName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

func (c *Cluster) check(t *table) {
	needs := func(key, other string, have, miss bool) {
		if have && miss && t.isGood(key) {
			t.fault(key, "needs %s beside it", other)
		}
	}
	needs("urls", "name", c.Enabled(), c.Name == "" && t.isGood("name"))
	for key, isSet := range map[string]bool{
		"name": c.Name != "", "credentials": c.Credentials != "", "nkey": c.NKey != "",
		"tls_ca":   c.TLSCA != "",
		"tls_cert": c.TLSCert != "", "tls_key": c.TLSKey != "", "share": len(c.Share) > 0,
		"admit": len(c.Admit) > 0, "control": len(c.Control) > 0, "keep": len(c.Keep.Streams) > 0,
		"max_each": c.MaxEach > 0,
	} {
		needs(key, "urls", isSet, !c.Enabled() && t.isGood("urls"))
	}
	needs("tls_cert", "tls_key", c.TLSCert != "", c.TLSKey == "")
	needs("tls_key", "tls_cert", c.TLSKey != "", c.TLSCert == "")
	for _, name := range c.Control {
		if c.Admit[name] == "" && t.isGood("control") && t.isGood("admit") {
			t.fault("control", "%q is not in admit", name)
		}
	}
	if c.Credentials != "" && c.NKey != "" {
		t.fault("nkey", "stands beside credentials: keep one of them")
	}
	if _, isOwn := c.Admit[c.Name]; isOwn && c.Name != "" {
		t.fault("admit."+c.Name, "is this gateway's own name")
	}
}

func isNATS(s string) error {
	u, err := url.Parse(s)
	if err != nil { // err is left out, because its text may have a password
		return errors.New("is not a URL such as nats://host:4222")
	}
	if !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) || u.Hostname() == "" {
		return fmt.Errorf("%q is not a URL such as nats://host:4222", u.Redacted())
	}
	return nil
}

func isClusterName(s string) error {
	if s == "" {
		return errors.New("a gateway's name is empty")
	}
	if !clusterName.MatchString(s) {
		return fmt.Errorf(
			"%q is not a gateway's name: 1 to 64 letters, digits, dashes and underscores, "+
				"the first a letter or digit", s)
	}
	return nil
}

// isStreamGlob accepts only globs of normal names. Any other glob would match no stream.
func isStreamGlob(s string) error {
	stream, provider, hasProvider := strings.Cut(s, "@")
	for _, part := range []string{stream, provider} {
		plain := strings.ReplaceAll(part, "*", "")
		if part == "" && (hasProvider || stream == "") || plain != "" && !isNormal(plain) {
			return fmt.Errorf(
				"%q is not STREAM or STREAM@PROVIDER: lower-case letters, digits, '.', "+
					"'_' and '-', "+
					"and * for any text", s)
		}
	}
	return nil
}

func isNormal(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}
