package sources

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
)

// This file decides whether a webhook's request knows the secret, and remembers taken requests, so
// that a repeated one makes no second event.

// The headers that say that a request knows the secret, in the order in which they count: the first
// that is there decides. [docs/adr/0026-webhooks.md] has the reasons.
const (
	headerGitHub   = "X-Hub-Signature-256" // sha256=HEX of the body
	headerStandard = "Webhook-Signature"   // v1,BASE64 of id.timestamp.body
	headerBearer   = "Authorization"       // Bearer SECRET
)

const (
	// minSecret is the least length of a secret, in bytes. A shorter one could be found from one
	// signature.
	minSecret = 16
	// hookClock is how far the time of a signature may be from now.
	hookClock = 5 * time.Minute
	// maxSignatures is how many signatures a header may have: senders send two while they change
	// their secret.
	maxSignatures = 4
	// maxTaken is how many requests are remembered: more than come within hookClock.
	maxTaken   = 4096
	maxHookID  = 256
	whsec      = "whsec_" // before a secret that is base64
	maxTakenIn = 1 << 20  // bytes of the file
)

// proven is the result of checking a request that has a right secret.
type proven struct {
	key   string // the same if the request comes again; "" if nothing shows that
	fault string // why it does not count all the same
}

// strangersSecret stands in for a secret that is not there, so that the answer takes its time.
var strangersSecret = sync.OnceValue(func() []byte { return []byte(rand.Text()) })

// hookSecret reads a webhook's secret. If the variable is unset or too short, missing says so and
// secret is random, so that a check takes as long as with a real one.
func hookSecret(variable string) (secret []byte, missing string) {
	s := os.Getenv(variable)
	switch {
	case s == "":
		return strangersSecret(), "secret_env: the gateway's environment has no variable " +
			variable + "; set it and start the gateway again"
	case len(s) < minSecret:
		return strangersSecret(),
			fmt.Sprintf("secret_env: the secret in %s has fewer than %d characters; "+
				"set a longer one, such as openssl rand -hex 32 prints, and start the "+
				"gateway again", variable, minSecret)
	}
	return []byte(s), ""
}

// findHook returns the webhook whose secret a request proves, or nil. It takes as long without
// webhooks as with one.
func findHook(
	named []configs.Provider, h http.Header, body []byte, now time.Time,
) (p *configs.Provider, seen proven) {
	isKnown := false
	for i := range named {
		if !named[i].Source.Webhook {
			continue
		}
		isKnown = true
		secret, missing := hookSecret(named[i].Source.SecretEnv)
		if s, ok := prove(h, body, secret, now); ok && missing == "" && p == nil {
			p, seen = &named[i], s
		}
	}
	if !isKnown {
		prove(h, body, strangersSecret(), now)
	}
	return p, seen
}

// prove reports whether a request knows a secret, and returns its other claims.
func prove(h http.Header, body, secret []byte, now time.Time) (proven, bool) {
	switch {
	case len(h.Values(headerGitHub)) > 0:
		return proveGitHub(h, body, secret)
	case len(h.Values(headerStandard)) > 0:
		return proveStandard(h, body, secret, now)
	}
	token, ok := adminapi.BearerToken(only(h, headerBearer))
	given, want := sha256.Sum256([]byte(token)), sha256.Sum256(secret)
	if !hmac.Equal(given[:], want[:]) || !ok {
		return proven{}, false
	}
	if id := only(h, "Idempotency-Key"); id != "" {
		return proven{key: digest("key " + id)}, true
	}
	return proven{}, true
}

// proveGitHub checks a signature of the body alone. X-GitHub-Delivery is not signed, so the
// signature shows that a request comes again.
func proveGitHub(h http.Header, body, secret []byte) (proven, bool) {
	text, ok := strings.CutPrefix(only(h, headerGitHub), "sha256=")
	given, err := hex.DecodeString(text)
	want := sign(secret, body)
	if !hmac.Equal(given, want) || !ok || err != nil {
		return proven{}, false
	}
	return proven{key: digest("body " + string(want))}, true
}

// proveStandard checks a signature of the id, the time and the body (standardwebhooks.com).
func proveStandard(h http.Header, body, secret []byte, now time.Time) (proven, bool) {
	if text, ok := strings.CutPrefix(string(secret), whsec); ok {
		if key, err := base64.StdEncoding.DecodeString(text); err == nil {
			secret = key
		}
	}
	id, stamp := only(h, "Webhook-Id"), only(h, "Webhook-Timestamp")
	want := sign(secret, []byte(id), []byte("."), []byte(stamp), []byte("."), body)
	isRight := false
	list := strings.Fields(only(h, headerStandard))
	for _, item := range list[:min(len(list), maxSignatures)] {
		version, text, _ := strings.Cut(item, ",")
		given, err := base64.StdEncoding.DecodeString(text)
		isRight = hmac.Equal(given, want) && version == "v1" && err == nil || isRight
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	// With a dot in the id, parts of the signed text could change places.
	if !isRight || err != nil || id == "" || len(id) > maxHookID || strings.Contains(id, ".") {
		return proven{}, false
	}
	seen := proven{key: digest("id " + id)}
	if off := now.Sub(time.Unix(seconds, 0)); off.Abs() > hookClock {
		seen.fault = fmt.Sprintf("webhook-timestamp is more than %s from the gateway's time",
			hookClock)
	}
	return seen, true
}

func sign(secret []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, secret)
	for _, p := range parts {
		mac.Write(p)
	}
	return mac.Sum(nil)
}

// only is the value of a header, "" if there are several.
func only(h http.Header, name string) string {
	if values := h.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}

// taken remembers the requests that the webhooks of a file have taken, over a restart too.
type taken struct {
	file string     // "" if requests are not saved
	turn chans.Lock // held while a goroutine uses the fields below

	isLoaded bool
	keys     []string // oldest first
}

// takenFile is the content of the file.
type takenFile struct {
	Taken []string `json:"taken"`
}

// load reads the file, until that has worked once.
func (t *taken) load() error {
	if t.isLoaded || t.file == "" {
		return nil
	}
	var f takenFile
	if err := readState(t.file, maxTakenIn, &f); err != nil {
		return err
	}
	t.keys, t.isLoaded = f.Taken, true
	return nil
}

func (t *taken) has(key string) bool { return key != "" && slices.Contains(t.keys, key) }

// add remembers a request, and forgets the oldest one if there are too many.
func (t *taken) add(key string) error {
	t.keys = append(t.keys, key)
	if over := len(t.keys) - maxTaken; over > 0 {
		t.keys = slices.Clone(t.keys[over:])
	}
	if t.file == "" {
		return nil
	}
	return writeState(t.file, takenFile{t.keys})
}
