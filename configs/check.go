package configs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"tapgw/internal/lazyregexp"
)

// Checks of addresses, URLs and names in config files.

// CheckListen refuses an address that other machines can reach, unless c has TLS or insecure. It
// always refuses such an address with api.auth "none". Call it again after --listen has changed
// c.Listen.
func CheckListen(c Config) error {
	if err := isAddress(c.Listen); err != nil {
		return err
	}
	host, _, _ := net.SplitHostPort(c.Listen)
	if loopback(host) {
		return nil
	}
	if err := checkReach(c, c.Listen); err != nil {
		return err
	}
	if c.API.Auth == AuthNone {
		return fmt.Errorf(
			`%q can be reached from other machines: api.auth = "none" is for loopback only`,
			c.Listen)
	}
	return nil
}

// checkReach returns an error for an address beyond loopback if neither TLS nor insecure are set.
func checkReach(c Config, address string) error {
	host, _, _ := net.SplitHostPort(address)
	if loopback(host) || c.TLSCert != "" || c.Insecure {
		return nil
	}
	return fmt.Errorf(
		"%q can be reached from other machines: set tls_cert and tls_key, or insecure = true in "+
			"a trusted network",
		address,
	)
}

// checkWebhooks is [CheckListen] for webhooks.listen.
func checkWebhooks(c Config) error {
	if c.Webhooks.Listen == "" {
		return nil
	}
	_, port, _ := net.SplitHostPort(c.Webhooks.Listen)
	if _, own, _ := net.SplitHostPort(c.Listen); port == own && port != "0" {
		return fmt.Errorf(
			"%q has the port of listen, which serves webhooks too: choose another one, "+
				"or leave it out",
			c.Webhooks.Listen)
	}
	return checkReach(c, c.Webhooks.Listen)
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func isAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf(
			`%q is not host:port, such as "127.0.0.1:9400" ("127.0.0.1:0" picks a free port)`, s)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 ||
		strings.ContainsAny(port, "+-") {
		return fmt.Errorf("%q: the port is not a number from 0 to 65535", s)
	}
	if host == "" {
		return nil // all interfaces: CheckListen decides on them
	}
	if _, err := netip.ParseAddr(host); err != nil && isHost(host) != nil {
		return fmt.Errorf("%q: %q is neither an IP address nor a host name", s, host)
	}
	return nil
}

var hostName = lazyregexp.New(
	`^[A-Za-z0-9]([A-Za-z0-9_-]{0,62}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]{0,62}[A-Za-z0-9])?)*\.?$`,
)

func isHost(s string) error {
	if _, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return nil
	}
	if len(s) > 253 || !hostName.MatchString(s) {
		return fmt.Errorf(`%q is not a host name, such as "gateway.example" (no scheme, no port)`,
			s)
	}
	return nil
}

// CheckProviderURL accepts "" and the base URL of a model endpoint: http or https, without a
// user, a query and a fragment. Its error does not repeat the URL.
func CheckProviderURL(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New(`is not an http or https URL, such as "https://models.example/v1"`)
	case u.User != nil:
		return errors.New(
			"must not hold a user name or password: put the key into a variable and its name " +
				"into provider_key_env",
		)
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("must be a base URL: nothing behind a ? or #")
	}
	return nil
}

var envName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckKeyEnv accepts the name of an environment variable: letters, digits and '_', not beginning
// with a digit. Its error does not repeat the value, which may be a key in the wrong place.
func CheckKeyEnv(s string) error {
	if !envName.MatchString(s) {
		return errors.New(
			`is not the name of an environment variable, such as "TAP_MODEL_KEY"; put the key into that variable`,
		)
	}
	return nil
}

func isModel(s string) error {
	if s == "" || len(s) > 256 ||
		strings.ContainsFunc(s, func(r rune) bool {
			return unicode.IsSpace(r) || !unicode.IsPrint(r)
		}) {
		return fmt.Errorf("%q is not a model's id: one word without spaces", s)
	}
	return nil
}

func oneOf(allowed ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(allowed, s) {
			return nil
		}
		return &choiceError{s, allowed}
	}
}

// choiceError lists the words that a key may have.
type choiceError struct {
	got     string
	allowed []string
}

func (e *choiceError) Error() string {
	return fmt.Sprintf("%q is not one of %s", e.got, quoted(e.allowed))
}

func quoted(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = strconv.Quote(w)
	}
	return strings.Join(q, ", ")
}
