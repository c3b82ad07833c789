package proc

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOwnerOf(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
		l, err := net.Listen("tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		at := netip.MustParseAddrPort(l.Addr().String())
		asked := at
		if at.Addr().IsUnspecified() {
			asked = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), at.Port())
		}
		owner, ok := OwnerOf(asked)
		if !ok || owner.PID != os.Getpid() ||
			!strings.Contains(owner.Command, filepath.Base(self())) {
			t.Errorf("%s: found %+v, %v, want this process", listen, owner, ok)
		}
		_ = l.Close()
		if owner, ok := OwnerOf(asked); ok {
			t.Errorf("%s: found %+v at a free port, want none", listen, owner)
		}
	}
}

// The two ends of a connection have different owners.
func TestPeerOf(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = theirs.Close(), ours.Close() }()
	peer, own := netip.MustParseAddrPort(ours.RemoteAddr().String()),
		netip.MustParseAddrPort(ours.LocalAddr().String())
	if owner, ok := PeerOf(peer, own); !ok || owner.PID != os.Getpid() ||
		owner.UID != os.Geteuid() {
		t.Errorf("found %+v, %v; want this process and its user", owner, ok)
	}
	if !PeersOf(os.Geteuid())[Ends{peer, own}] || PeersOf(1234567)[Ends{peer, own}] {
		t.Error("the connection is not this user's, or another's; want it this user's alone")
	}
	if owner, ok := PeerOf(netip.AddrPortFrom(peer.Addr(), own.Port()), own); ok {
		t.Errorf("found %+v for a connection that is not there, want none", owner)
	}
	// The kernel gives what is left of a closed end to root.
	_ = theirs.Close()
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if PeersOf(0)[Ends{peer, own}] {
		t.Error("an end that is closed is root's, want nobody's")
	}
	if owner, ok := PeerOf(peer, own); ok {
		t.Errorf("found %+v for an end that is closed, want none", owner)
	}
}

func TestOwnerString(t *testing.T) {
	me := os.Geteuid()
	for want, o := range map[string]Owner{
		"process 7 (a  b)":                {PID: 7, Command: "a\n b", UID: me},
		"another process":                 unknown,
		"another process of user 1234567": {UID: 1234567},
		"process 7 (a) of user 1234567":   {PID: 7, Command: "a", UID: 1234567},
		"process 7 (curl -H Authorization: Bearer <secret> http://x)": {PID: 7, UID: me,
			Command: "curl -H Authorization: Bearer ptk-0123456789abcdef http://x"},
		"process 7 (tapctl --token=<secret> status)": {PID: 7, UID: me,
			Command: "tapctl --token=adm-01 status"},
		"process 7 (" + strings.Repeat("x", 79) + "…)": {PID: 7, Command: strings.Repeat("x", 99),
			UID: me},
	} {
		if got := o.String(); got != want {
			t.Errorf("%+v is %q, want %q", o, got, want)
		}
	}
}
