// Package weburl reads URLs as browsers do (WHATWG), so that a rule about a host
// holds for every way to write it: in full-width letters, percent-encoded, with
// backslashes or without slashes, as a decimal or short IPv4 address.
package weburl

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"tapgw/internal/lazyregexp"
)

// maxLength bounds the URLs that are read, in bytes: more than most servers take. The
// time that the parser takes grows with the square of it.
const maxLength = 8 << 10

// parameter is what some servers leave out of a segment of a path.
var parameter = lazyregexp.New(`[;\x00][^/\\]*`)

// maxLayers is how many layers of percent-encoding a denial looks through.
const maxLayers = 5

// URL is an absolute URL in its canonical form.
type URL struct {
	Scheme string // in lower case
	Host   string // in ASCII and lower case, without brackets and dots at its end; "": none
	Port   string // the scheme's own where none is named; "": none
	Path   string // percent-encoded, without . and .. segments
	User   bool   // it holds a name or a password
	Href   string // all of it
}

// Parse reads an absolute URL. The error says why it is none, without its text.
func Parse(s string) (URL, error) {
	if len(s) > maxLength {
		return URL{}, fmt.Errorf("it is longer than %d bytes", maxLength)
	}
	u, err := whatwg.Parse(s)
	if err != nil {
		return URL{}, errors.New("it is no URL that a browser reads")
	}
	p := URL{
		Scheme: strings.TrimSuffix(u.Protocol(), ":"), Host: canonical(u.Hostname()), Port: u.Port(),
		Path: u.Pathname(),
		User: u.Username() != "" || u.Password() != "", Href: u.Href(false),
	}
	switch {
	case p.Port != "":
	case p.Scheme == "http", p.Scheme == "ws":
		p.Port = "80"
	case p.Scheme == "https", p.Scheme == "wss":
		p.Port = "443"
	}
	if p.Host == "" && (p.Scheme == "http" || p.Scheme == "https") {
		return URL{}, errors.New("it names no host")
	}
	return p, nil
}

// Addr returns the IP address that the host is. False: it is a name.
func (u URL) Addr() (netip.Addr, bool) {
	ip, err := netip.ParseAddr(u.Host)
	return ip, err == nil
}

// Host returns the one form of a host, which may stand in brackets.
func Host(s string) (string, error) {
	if strings.Contains(s, ":") && !strings.HasPrefix(s, "[") {
		s = "[" + s + "]"
	}
	if strings.ContainsAny(s, "/\\?#@") {
		return "", fmt.Errorf("%q is no host", s)
	}
	u, err := Parse("https://" + s + "/")
	if err != nil || u.Port != "443" {
		return "", fmt.Errorf("%q is no host", s)
	}
	return u.Host, nil
}

// canonical is a host's one form: the parser knows all of it but that a name may end
// with dots and that an IPv6 address may be an IPv4 one.
func canonical(host string) string {
	host = strings.TrimRight(strings.Trim(host, "[]"), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(host)
}

// Pattern is [SCHEME://]HOST[:PORT][/PATH], with *. before HOST for all hosts below
// it. [ParsePattern] makes one.
type Pattern struct {
	scheme, host, port, path string
	below                    bool
}

// ParsePattern reads a pattern. The error says what is wrong with it.
func ParsePattern(s string) (Pattern, error) {
	bad := fmt.Errorf(`%q is not [SCHEME://]HOST[:PORT][/PATH], such as "docs.example", "*.docs.example" or "https://api.example/v1"`, s)
	var p Pattern
	scheme, rest, named := strings.Cut(s, "://")
	if !named {
		scheme, rest = "", s
	}
	if p.scheme = strings.ToLower(scheme); named && p.scheme != "http" && p.scheme != "https" {
		return p, fmt.Errorf("%q: the scheme is not http or https", s)
	}
	rest, p.below = strings.CutPrefix(rest, "*.")
	authority, where, _ := strings.Cut(rest, "/")
	switch {
	case strings.ContainsAny(rest, "?#@"):
		return p, errors.New("must hold neither user, query nor fragment")
	case authority == "" || strings.ContainsAny(rest, " \\*\t\r\n"):
		return p, bad
	}
	host := authority
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		n, err := strconv.ParseUint(authority[i+1:], 10, 16)
		if err != nil || n == 0 {
			return p, bad
		}
		host, p.port = authority[:i], strconv.FormatUint(n, 10)
	}
	u, err := Parse("https://" + host + "/" + where)
	if err != nil {
		return p, bad
	}
	_, address := u.Addr()
	if p.below && address {
		return p, fmt.Errorf("%q: there are no hosts below an address", s)
	}
	p.host, p.path = u.Host, strings.Trim(decoded(u.Path), "/")
	return p, nil
}

// Allows reports whether a URL is of the pattern beyond doubt: scheme (http or https
// unless the pattern says), host, port (the scheme's own unless it says), and a path
// of which no server makes another one. A URL with a user is of none.
func (p Pattern) Allows(u URL) bool {
	web := u.Scheme == "http" || u.Scheme == "https"
	port := p.port
	if port == "" && web {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if !web || u.User || p.scheme != "" && p.scheme != u.Scheme || !p.hasHost(u.Host) || port != u.Port {
		return false
	}
	if p.path == "" {
		return true
	}
	lower := strings.ToLower(u.Path)
	for _, odd := range []string{"%2f", "%5c", "%2e", "%25", "%00", "..", `\`, "//", ";"} {
		if strings.Contains(lower, odd) {
			return false
		}
	}
	return under(p.path, decoded(u.Path))
}

// Denies reports whether a URL may be of the pattern: of its host, of its scheme if
// it says one, of any port and path unless it says those, in any way to read the path.
func (p Pattern) Denies(u URL) bool {
	if p.scheme != "" && p.scheme != u.Scheme || !p.hasHost(u.Host) || p.port != "" && p.port != u.Port {
		return false
	}
	at := u.Path
	for range maxLayers {
		// With and without .. counted: servers differ.
		for _, at := range []string{at, parameter.ReplaceAllString(at, "")} {
			if under(p.path, at) || strings.HasPrefix(strings.TrimLeft(at, "/")+"/", p.path+"/") {
				return true
			}
		}
		at = decoded(at)
	}
	return false
}

func (p Pattern) hasHost(host string) bool {
	if p.below {
		return strings.HasSuffix(host, "."+p.host)
	}
	return host == p.host
}

// under reports whether a path is a prefix or below it, by whole segments.
func under(prefix, at string) bool {
	at = strings.Trim(path.Clean("/"+strings.ReplaceAll(at, `\`, "/")), "/")
	return prefix == "" || at == prefix || strings.HasPrefix(at, prefix+"/")
}

// decoded takes one layer of percent-encoding off, where it is right.
func decoded(s string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "%")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		if c, err := hex.DecodeString(rest[:min(2, len(rest))]); err == nil && len(c) == 1 {
			b.WriteByte(c[0])
			rest = rest[2:]
		} else {
			b.WriteByte('%')
		}
		s = rest
	}
}
