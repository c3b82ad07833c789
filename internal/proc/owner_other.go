//go:build !linux

package proc

import "net/netip"

// OwnerOf would find the process that listens at an address; this system does
// not tell.
func OwnerOf(netip.AddrPort) (Owner, bool) { return unknown, false }

// PeerOf would find the process at the other end of a connection; this system does
// not tell.
func PeerOf(_, _ netip.AddrPort) (Owner, bool) { return unknown, false }
