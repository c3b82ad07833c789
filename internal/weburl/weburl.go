// Package weburl reads URLs as browsers do (WHATWG), so that a rule about a host holds
// for every spelling: full-width letters, percent-encoding, backslashes, missing
// slashes, decimal or short IPv4 addresses.
package weburl

import (
	"cmp"
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

// maxLength is the longest URL that Parse reads, in bytes. Most servers accept less, and
// the parser's time grows with the square of the length.
const maxLength = 8 << 10

// parameter matches the part of a path segment that some servers ignore.
var parameter = lazyregexp.New(`[;\x00][^/\\]*`)

// maxLayers is how many layers of percent-encoding a denial decodes.
const maxLayers = 5

// URL is an absolute URL in its canonical form. [Parse] makes one.
type URL struct {
	Scheme string // in lower case
	Host   string // in ASCII and lower case, without brackets and final dots; may be ""
	Port   string // default: the port of the scheme; may be ""
	Path   string // percent-encoded, without . and .. segments
	User   bool   // the URL has a user name or a password
	Href   string // the whole URL
}

// Parse reads an absolute URL of at most 8 KiB, also in its canonical form. The error describes the
// fault and never contains the URL, which may have a password.
func Parse(s string) (URL, error) {
	if len(s) > maxLength {
		return URL{}, fmt.Errorf("it is longer than %d bytes", maxLength)
	}
	u, err := whatwg.Parse(s)
	if err != nil {
		return URL{}, errors.New("it is no URL that a browser reads")
	}
	p := URL{
		Scheme: strings.TrimSuffix(u.Protocol(), ":"), Host: canonical(u.Hostname()),
		Port: u.Port(),
		Path: u.Pathname(),
		User: u.Username() != "" || u.Password() != "", Href: u.Href(false),
	}
	if len(p.Href) > maxLength { // percent-encoding makes it longer
		return URL{}, fmt.Errorf("it is longer than %d bytes once it is percent-encoded", maxLength)
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

// Addr returns the host as an IP address, false if it is a name.
func (u URL) Addr() (netip.Addr, bool) {
	ip, err := netip.ParseAddr(u.Host)
	return ip, err == nil
}

// Host returns the canonical form of a host name or an address, with or without
// brackets.
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

// canonical removes from a host of the parser the final dots of a name, and turns an
// IPv6 address that stands for an IPv4 address into that.
func canonical(host string) string {
	host = strings.TrimRight(strings.Trim(host, "[]"), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(host)
}

// Pattern matches URLs: [SCHEME://]HOST[:PORT][/PATH], with *. before HOST for all hosts
// below it. [ParsePattern] makes one.
type Pattern struct {
	scheme, host, port, path string
	subdomains               bool // it matches the hosts below host, not host itself
}

// ParsePattern reads a pattern. The error is one line and shows how a pattern looks.
func ParsePattern(s string) (Pattern, error) {
	bad := fmt.Errorf(`%q is not [SCHEME://]HOST[:PORT][/PATH], `+
		`such as "docs.example", "*.docs.example" or "https://api.example/v1"`, s)
	var p Pattern
	scheme, rest, hasScheme := strings.Cut(s, "://")
	if !hasScheme {
		scheme, rest = "", s
	}
	if p.scheme = strings.ToLower(scheme); hasScheme && p.scheme != "http" && p.scheme != "https" {
		return p, fmt.Errorf("%q: the scheme is not http or https", s)
	}
	rest, p.subdomains = strings.CutPrefix(rest, "*.")
	authority, urlPath, _ := strings.Cut(rest, "/")
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
	u, err := Parse("https://" + host + "/" + urlPath)
	if err != nil {
		return p, bad
	}
	if _, isAddr := u.Addr(); p.subdomains && isAddr {
		return p, fmt.Errorf("%q: there are no hosts below an address", s)
	}
	p.host, p.path = u.Host, strings.Trim(decode(u.Path), "/")
	return p, nil
}

// Example returns a URL that has all that the pattern names.
func (p Pattern) Example() string {
	host, port := p.host, p.port
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if p.subdomains {
		host = "x." + host
	}
	if port != "" {
		port = ":" + port
	}
	return cmp.Or(p.scheme, "https") + "://" + host + port + "/" + p.path
}

// Allows reports whether a URL certainly matches the pattern: its scheme (default: http
// or https), its host, its port (default: that of the scheme) and its path. Paths that
// servers read differently and URLs with a user never match.
func (p Pattern) Allows(u URL) bool {
	web := u.Scheme == "http" || u.Scheme == "https"
	port := p.port
	if port == "" && web {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if !web || u.User || p.scheme != "" && p.scheme != u.Scheme || !p.hasHost(u.Host) ||
		port != u.Port {
		return false
	}
	if p.path == "" {
		return true
	}
	lower := strings.ToLower(u.Path)
	for _, ambiguous := range []string{"%2f", "%5c", "%2e", "%25", "%00", "..", `\`, "//", ";"} {
		if strings.Contains(lower, ambiguous) {
			return false
		}
	}
	return isUnder(p.path, decode(u.Path))
}

// Denies reports whether a URL may match the pattern: its host, and its scheme, port and
// path if the pattern has them. A path matches if any way to read it does.
func (p Pattern) Denies(u URL) bool {
	if p.scheme != "" && p.scheme != u.Scheme || !p.hasHost(u.Host) || p.port != "" &&
		p.port != u.Port {
		return false
	}
	urlPath := u.Path
	for range maxLayers {
		// Servers differ in whether they resolve .. first.
		for _, at := range []string{urlPath, parameter.ReplaceAllString(urlPath, "")} {
			if isUnder(p.path, at) || strings.HasPrefix(strings.TrimLeft(at, "/")+"/", p.path+"/") {
				return true
			}
		}
		urlPath = decode(urlPath)
	}
	return false
}

func (p Pattern) hasHost(host string) bool {
	if p.subdomains {
		return strings.HasSuffix(host, "."+p.host)
	}
	return host == p.host
}

// isUnder reports whether a path is prefix or lies below it, by whole segments.
func isUnder(prefix, at string) bool {
	at = strings.Trim(path.Clean("/"+strings.ReplaceAll(at, `\`, "/")), "/")
	return prefix == "" || at == prefix || strings.HasPrefix(at, prefix+"/")
}

// decode removes one layer of percent-encoding and leaves invalid codes as they are.
func decode(s string) string {
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
