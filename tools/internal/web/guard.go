package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"tapgw/internal/weburl"
)

// Addresses that a request may reach.

// special are the networks, beside those that netip knows, that are not part of the public
// internet: this host and its networks, networks inside a provider, examples.
var special = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
	"198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4", "168.63.129.16/32", // the last: a cloud's metadata
	"::/96", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10",
)

// embedding are the networks whose addresses contain an IPv4 address, with the byte at
// which it begins.
var embedding = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, {netip.MustParsePrefix("2002::/16"), 2},
}

func prefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// isPublic reports whether an address belongs to the public internet.
func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return false
	}
	for _, p := range special {
		if p.Contains(ip) {
			return false
		}
	}
	for _, e := range embedding {
		if e.prefix.Contains(ip) {
			b := ip.As16()
			v4, _ := netip.AddrFromSlice(b[e.at : e.at+4])
			return isPublic(v4)
		}
	}
	// Of all other IPv6 addresses, only these networks are assigned.
	return ip.Is4() || netip.MustParsePrefix("2000::/3").Contains(ip) ||
		netip.MustParsePrefix("64:ff9b::/96").Contains(ip)
}

// parsePage reads the address of a page as browsers do and returns its canonical form,
// so that the checked address is the requested one.
func parsePage(address string) (*url.URL, error) {
	u, err := weburl.Parse(address)
	var canonical *url.URL
	if err == nil {
		canonical, err = url.Parse(u.Href)
	}
	switch {
	case err != nil:
		if at := strings.LastIndexByte(address, '@'); at >= 0 {
			address = "…" + address[at:] // the part before @ may be a password
		}
		return nil, fmt.Errorf("%q is no URL of a page: it has to be http or https, with a host",
			address)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%s: only http and https URLs can be fetched", canonical.Redacted())
	case u.User:
		return nil, fmt.Errorf("%s: a URL with a name and a password is not fetched",
			canonical.Redacted())
	}
	return canonical, nil
}

// privateError is the refusal of a server that is not public.
type privateError struct {
	host string
	addr netip.AddrPort // not valid: unknown
	err  error          // of Private; nil: there is no Private
}

func (p *privateError) Error() string {
	msg := fmt.Sprintf("%s is at %s, which is not on the public internet", p.host, p.addr.Addr())
	if !p.addr.IsValid() {
		msg = p.host + " has no address that is known here: only the proxy knows where it leads"
	}
	if p.err != nil {
		return msg + ": " + p.err.Error()
	}
	return msg + ": such servers may not be asked"
}

// guard returns an error unless an address may be connected to. An invalid addr means
// that only the proxy knows the address of host.
func (f Fetcher) guard(ctx context.Context, host string, addr netip.AddrPort) error {
	if addr.IsValid() {
		if isPublic(addr.Addr()) {
			return nil
		}
		addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	}
	if f.Private == nil {
		return &privateError{host, addr, nil}
	}
	if err := f.Private(ctx, host, addr); err != nil {
		return &privateError{host, addr, err}
	}
	return nil
}

// dial connects to a host. It checks each address at the moment of the connection,
// because a name may have had another address when it was looked up before.
func (f Fetcher) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{ControlContext: func(ctx context.Context, _, address string,
		_ syscall.RawConn) error {
		addr, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return f.guard(ctx, host, addr)
	}}
	return d.DialContext(ctx, network, address)
}

// privateSuffixes are the last parts of names that are never public.
var privateSuffixes = []string{
	"localhost", "local", "internal", "intranet", "private", "corp", "home", "lan", "localdomain",
	"home.arpa", "test", "invalid", "onion", "alt",
}

// guardProxied is guard for a host that a proxy looks up and connects to. The host must
// have public addresses here: a name without one could be a server inside the proxy's
// network.
func (f Fetcher) guardProxied(ctx context.Context, u *url.URL) error {
	host := strings.TrimRight(u.Hostname(), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return f.guard(ctx, host, netip.AddrPortFrom(ip, 0))
	}
	hasSuffix := func(suffix string) bool { return strings.HasSuffix("."+host, "."+suffix) }
	if !strings.Contains(host, ".") || slices.ContainsFunc(privateSuffixes, hasSuffix) {
		return fmt.Errorf("%s is a name of a private network: such servers may not be asked", host)
	}
	lookup := f.lookup
	if lookup == nil {
		lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	// the dot keeps the resolver from adding the domain of this network
	ips, err := lookup(ctx, host+".")
	if _, isUnknown := errors.AsType[*net.DNSError](err); isUnknown || err == nil && len(ips) == 0 {
		return f.guard(ctx, host, netip.AddrPort{})
	}
	for _, ip := range ips {
		if err := f.guard(ctx, host, netip.AddrPortFrom(ip, 0)); err != nil {
			return err
		}
	}
	return err
}
