//go:build !linux

package proc

import "net/netip"

// OwnerOf returns false for every address, because on this system no process can be found by its
// port. Callers must not take that for a free port.
func OwnerOf(netip.AddrPort) (Owner, bool) { return unknown, false }

// PeerOf returns false for every connection, because on this system no process can be found by its
// connection. Callers must not take that for another machine.
func PeerOf(_, _ netip.AddrPort) (Owner, bool) { return unknown, false }

// PeersOf returns nil, as [PeerOf] finds no process.
func PeersOf(int) map[Ends]bool { return nil }
