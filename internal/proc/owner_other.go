//go:build !linux

package proc

import "net/netip"

// OwnerOf finds no process, because this system does not tell which process listens.
func OwnerOf(netip.AddrPort) (Owner, bool) { return unknown, false }

// PeerOf finds no process, because this system does not tell which process has a connection.
func PeerOf(_, _ netip.AddrPort) (Owner, bool) { return unknown, false }
