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

// special are the networks, besides those that netip knows, whose servers are not
// the public internet's: this host, its networks, a provider's insides, examples.
var special = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4", "168.63.129.16/32", // the last: metadata of a cloud
	"::/96", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10",
)

// embedding are the networks whose addresses stand for an IPv4 address, and where
// in them that begins.
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

// Public reports whether an address is one of the public internet.
func Public(ip netip.Addr) bool {
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
			return Public(v4)
		}
	}
	// Of the rest only this part is given out.
	return ip.Is4() || netip.MustParsePrefix("2000::/3").Contains(ip) ||
		netip.MustParsePrefix("64:ff9b::/96").Contains(ip)
}

// page reads the address of a page as browsers do and returns it in its one form, so
// that what is judged is what is asked for.
func page(address string) (*url.URL, error) {
	u, err := weburl.Parse(address)
	var canonical *url.URL
	if err == nil {
		canonical, err = url.Parse(u.Href)
	}
	switch {
	case err != nil:
		if at := strings.LastIndexByte(address, '@'); at >= 0 {
			address = "…" + address[at:] // before it may stand a password
		}
		return nil, fmt.Errorf("%q is no URL of a page: it has to be http or https, with a host", address)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%s: only http and https URLs can be fetched", canonical.Redacted())
	case u.User:
		return nil, fmt.Errorf("%s: a URL with a name and a password is not fetched", canonical.Redacted())
	}
	return canonical, nil
}

// private is the refusal of a server.
type private struct {
	host string
	addr netip.AddrPort // not valid: unknown
	err  error          // of whoever was asked; nil: nobody
}

func (p *private) Error() string {
	msg := fmt.Sprintf("%s is at %s, which is not on the public internet", p.host, p.addr.Addr())
	if !p.addr.IsValid() {
		msg = p.host + " has no address that is known here: only the proxy knows where it leads"
	}
	if p.err != nil {
		return msg + ": " + p.err.Error()
	}
	return msg + ": such servers may not be asked"
}

// guard decides about an address to connect to; one that is not valid stands for a
// host of which nobody here knows the address.
func (f Fetcher) guard(ctx context.Context, host string, addr netip.AddrPort) error {
	if addr.IsValid() {
		if Public(addr.Addr()) {
			return nil
		}
		addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	}
	if f.Private == nil {
		return &private{host, addr, nil}
	}
	if err := f.Private(ctx, host, addr); err != nil {
		return &private{host, addr, err}
	}
	return nil
}

// dial connects to a host. Each address is looked at when it is connected to: what
// a name meant a moment ago is of no interest.
func (f Fetcher) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		addr, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return f.guard(ctx, host, addr)
	}}
	return d.DialContext(ctx, network, address)
}

// inside are the last parts of names that are never public.
var inside = []string{
	"localhost", "local", "internal", "intranet", "private", "corp", "home", "lan", "localdomain", "home.arpa", "test",
	"invalid", "onion", "alt",
}

// guardProxied decides about a host that a proxy is going to connect to, and to
// which the proxy looks up the address: the host must have public addresses here.
// What has none here could be anything inside the proxy's network.
func (f Fetcher) guardProxied(ctx context.Context, u *url.URL) error {
	host := strings.TrimRight(u.Hostname(), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return f.guard(ctx, host, netip.AddrPortFrom(ip, 0))
	}
	if !strings.Contains(host, ".") ||
		slices.ContainsFunc(inside, func(end string) bool { return strings.HasSuffix("."+host, "."+end) }) {
		return fmt.Errorf("%s is a name of a private network: such servers may not be asked", host)
	}
	lookup := f.lookup
	if lookup == nil {
		lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	ips, err := lookup(ctx, host+".") // no name of a network that is searched here
	if _, unknown := errors.AsType[*net.DNSError](err); unknown || err == nil && len(ips) == 0 {
		return f.guard(ctx, host, netip.AddrPort{})
	}
	for _, ip := range ips {
		if err := f.guard(ctx, host, netip.AddrPortFrom(ip, 0)); err != nil {
			return err
		}
	}
	return err
}
