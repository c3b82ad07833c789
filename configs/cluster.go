package configs

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"tapgw/internal/lazyregexp"
)

// Cluster is the table [cluster]: the other gateways that this one joins through NATS, what it shares with them and
// whom it admits. Without URLs there is no cluster.
type Cluster struct {
	URLs []string // of NATS servers: nats, tls, ws or wss
	Name string   // of this gateway among the others
	// Credentials is a file of NATS with a user's JWT and key, NKey one with the seed of an nkey alone. At most one is
	// set.
	Credentials string
	NKey        string
	TLSCA       string // PEM files: whom the servers must be certified by, and this gateway's own certificate and key
	TLSCert     string
	TLSKey      string
	// Share has globs of the labels of sessions and the names of providers that admitted gateways may see and use.
	Share []string
	// Admit has the trust that providers of other gateways get here, [AdmitProject] or [AdmitExternal], by the name of
	// the gateway. Gateways without an entry see and use nothing.
	Admit map[string]string
	// Control names the gateways of Admit whose users may act on this one with tapctl --gateway.
	Control []string
	// MaxEach is how many providers run here at most for single sessions of other gateways.
	MaxEach int
	Keep    ClusterKeep
}

// ClusterKeep is the table [cluster.keep]: which streams of this gateway's providers last, in JetStream. Without
// Streams none does.
type ClusterKeep struct {
	Streams   []string      // globs of STREAM, of whichever provider, or of STREAM@PROVIDER
	MaxAge    time.Duration // of an event
	MaxEvents int           // of one stream
	MaxBytes  int           // of all of them together
}

// Values of cluster.admit.
const (
	AdmitProject  = "project"
	AdmitExternal = "external"
)

// maxEach bounds max_each: as many processes as one gateway runs.
const maxEach = 1000

// Enabled reports whether the gateway joins others.
func (c *Cluster) Enabled() bool { return len(c.URLs) > 0 }

// clusterName is what a gateway's name may look like: it is one token of a NATS subject and a key of a KV bucket.
var clusterName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

func (c *Cluster) read(t *table) {
	t.strs("urls", &c.URLs, isNATS)
	t.str("name", &c.Name, isClusterNameOrNone)
	t.str("credentials", &c.Credentials, nil)
	t.str("nkey", &c.NKey, nil)
	t.str("tls_ca", &c.TLSCA, nil)
	t.str("tls_cert", &c.TLSCert, nil)
	t.str("tls_key", &c.TLSKey, nil)
	t.strs("share", &c.Share, isGlob)
	t.strs("control", &c.Control, isClusterName)
	t.integer("max_each", &c.MaxEach, 0, maxEach)
	c.readAdmit(t)
	c.Keep.read(t.table("keep"))
	t.rejectUnknown()
	if t == nil || t.shape != nil {
		return
	}
	needs := func(key, other string, have, miss bool) {
		if have && miss && t.isGood(key) {
			t.fault(key, "needs %s beside it", other)
		}
	}
	needs("urls", "name", c.Enabled(), c.Name == "" && t.isGood("name"))
	for key, isSet := range map[string]bool{
		"name": c.Name != "", "credentials": c.Credentials != "", "nkey": c.NKey != "", "tls_ca": c.TLSCA != "",
		"tls_cert": c.TLSCert != "", "tls_key": c.TLSKey != "", "share": len(c.Share) > 0, "admit": len(c.Admit) > 0,
		"control": len(c.Control) > 0, "keep": len(c.Keep.Streams) > 0, "max_each": c.MaxEach > 0,
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
}

func (k *ClusterKeep) read(t *table) {
	t.strs("streams", &k.Streams, isStreamGlob)
	t.duration("max_age", &k.MaxAge, time.Minute, 10*365*24*time.Hour)
	t.integer("max_events", &k.MaxEvents, 1, 1_000_000)
	t.integer("max_bytes", &k.MaxBytes, 1<<20, 1<<40)
	t.rejectUnknown()
}

// readAdmit reads the table admit: the trust of each gateway's providers.
func (c *Cluster) readAdmit(t *table) {
	trust := oneOf(AdmitProject, AdmitExternal)
	sub := t.table("admit")
	sub.describeOthers(&jsonschema.Schema{Type: "string", Enum: []any{AdmitProject, AdmitExternal}})
	if sub != nil && sub.shape != nil { // with a default, [Changed] sees a change
		sub.shape.Default = literal(maps.Collect(maps.All(c.Admit)))
	}
	if sub == nil || sub.shape != nil {
		return
	}
	admit := map[string]string{}
	for name := range sub.values {
		key := append(slices.Clone(sub.path), name)
		value, isText := sub.values[name].(string)
		switch err := isClusterNameOrNone(name); {
		case err != nil || name == "":
			sub.faultAt(key, key.String(), fmt.Errorf("%q is not a gateway's name", name))
		case name == c.Name:
			sub.faultAt(key, key.String(), errors.New("is this gateway's own name"))
		case !isText:
			sub.faultAt(key, key.String(), fmt.Errorf("must be a string, found %s", typeName(sub.values[name])))
		default:
			if err := trust(value); err != nil {
				sub.faultAt(key, key.String(), err)
			}
		}
		admit[name] = value
	}
	c.Admit = admit
}

// resolve makes the paths absolute that a file in dir names.
func (c *Cluster) resolve(dir string) {
	for _, p := range []*string{&c.Credentials, &c.NKey, &c.TLSCA, &c.TLSCert, &c.TLSKey} {
		*p = resolvePath(dir, *p)
	}
}

func isNATS(s string) error {
	u, err := url.Parse(s)
	if err != nil { // whose text may have a password
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
	return isClusterNameOrNone(s)
}

func isClusterNameOrNone(s string) error {
	if s != "" && !clusterName.MatchString(s) {
		return fmt.Errorf("%q is not a gateway's name: 1 to 64 letters, digits, dashes and underscores, "+
			"the first a letter or digit", s)
	}
	return nil
}

// isStreamGlob checks globs of normal names, since others would match none.
func isStreamGlob(s string) error {
	stream, provider, hasProvider := strings.Cut(s, "@")
	for _, part := range []string{stream, provider} {
		plain := strings.ReplaceAll(part, "*", "")
		if part == "" && (hasProvider || stream == "") || plain != "" && !isNormal(plain) {
			return fmt.Errorf("%q is not STREAM or STREAM@PROVIDER: lower-case letters, digits, '.', '_' and '-', "+
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

func isGlob(s string) error {
	if _, err := path.Match(s, ""); err != nil || s == "" {
		return fmt.Errorf("%q is not a glob such as build-*", s)
	}
	return nil
}
