package proc

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// OwnerOf finds the process that listens on the port of addr, at the same address or at all
// addresses, so that addr can't be bound. A process of another user has no PID unless this process
// is root's. It returns false if no process listens there.
func OwnerOf(addr netip.AddrPort) (Owner, bool) {
	mine := addr.Addr().Unmap()
	return ownerOf(func(local, _ netip.AddrPort, state string) bool {
		other := local.Addr()
		overlaps := mine == other || mine.IsUnspecified() || other.IsUnspecified()
		return state == stateListen && local.Port() == addr.Port() && overlaps
	})
}

// PeerOf finds the process of this machine at the other end of a TCP connection; peer is its
// address, own is ours. The Owner is as from [OwnerOf]. It returns false for a peer on another
// machine or in another network namespace, and for one that has closed its end.
func PeerOf(peer, own netip.AddrPort) (Owner, bool) {
	peer, own = unmapAddrPort(peer), unmapAddrPort(own)
	return ownerOf(func(local, remote netip.AddrPort, _ string) bool {
		return local == peer && remote == own
	})
}

// PeersOf returns the TCP connections at whose other end is a process of a user; other processes
// may have this end. It reads the kernel's tables once, which takes milliseconds.
func PeersOf(uid int) map[Ends]bool {
	found := map[Ends]bool{}
	for _, s := range allSockets(func(_, _ netip.AddrPort, _ string) bool { return true }) {
		if s.uid == uid {
			found[s.ends] = true
		}
	}
	return found
}

// allSockets returns the matching sockets of IPv4 and IPv6.
func allSockets(matches func(local, remote netip.AddrPort, state string) bool) []socket {
	return append(sockets("/proc/net/tcp", matches), sockets("/proc/net/tcp6", matches)...)
}

// ownerOf finds the process that has a matching socket in the kernel's tables.
func ownerOf(matches func(local, remote netip.AddrPort, state string) bool) (Owner, bool) {
	sockets := allSockets(matches)
	if len(sockets) == 0 {
		return unknown, false
	}
	found := Owner{UID: sockets[0].uid}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return found, true
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", p.Name())
		fds, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue
		}
		for _, fd := range fds {
			target, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
			at := slices.IndexFunc(sockets, func(s socket) bool { return s.link == target })
			if err == nil && at >= 0 {
				line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
				command := strings.ReplaceAll(strings.Trim(string(line), "\x00"), "\x00", " ")
				return Owner{PID: pid, Command: command, UID: sockets[at].uid}, true
			}
		}
	}
	return found, true
}

// stateListen is the state of a socket that listens.
const stateListen = "0A"

// noInode stands in the tables for a socket that its process has closed. The tables then name root
// as its user, even if it belonged to another user.
const noInode = "0"

// socket is a line of the kernel's tables.
type socket struct {
	link string // the target of its link in /proc/PID/fd
	uid  int
	port uint16 // its own
	ends Ends   // as the process at the other end sees them
}

// sockets returns the matching sockets of a table of the kernel.
func sockets(
	table string, matches func(local, remote netip.AddrPort, state string) bool,
) (found []socket) {
	data, err := os.ReadFile(table)
	if err != nil {
		return nil
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 {
			continue
		}
		local, ok := kernelAddr(f[1])
		remote, rok := kernelAddr(f[2])
		uid, err := strconv.Atoi(f[7])
		ends := Ends{Peer: unmapAddrPort(local), Own: unmapAddrPort(remote)}
		if ok && rok && err == nil && matches(ends.Peer, ends.Own, f[3]) && f[9] != noInode {
			found = append(found, socket{"socket:[" + f[9] + "]", uid, local.Port(), ends})
		}
	}
	return found
}

func unmapAddrPort(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// kernelAddr reads an address of the kernel's tables, such as 0100007F:24B8, which consists of
// 32-bit words in the machine's byte order.
func kernelAddr(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	p, perr := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || perr != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	if isLittleEndian {
		for i := 0; i < len(b); i += 4 {
			slices.Reverse(b[i : i+4])
		}
	}
	ip, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(ip, uint16(p)), ok
}

// isLittleEndian says that this machine stores the low byte of a word first.
var isLittleEndian = func() bool {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], 1)
	return b[0] == 1
}()
