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

// OwnerOf finds the process that listens where addr could not be bound: at the
// same port, at the same address or at all of them. It is not found when it
// belongs to another user, unless we are root.
func OwnerOf(addr netip.AddrPort) (Owner, bool) {
	sockets := listeners("/proc/net/tcp", addr)
	sockets = append(sockets, listeners("/proc/net/tcp6", addr)...)
	if len(sockets) == 0 {
		return Owner{}, false
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return Owner{}, false
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
			if err == nil && slices.Contains(sockets, target) {
				line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
				command := strings.ReplaceAll(strings.Trim(string(line), "\x00"), "\x00", " ")
				return Owner{PID: pid, Command: command}, true
			}
		}
	}
	return Owner{}, false
}

// listeners returns the listening sockets in a table of the kernel that stand in
// the way of addr, named as in /proc/PID/fd.
func listeners(table string, addr netip.AddrPort) []string {
	data, err := os.ReadFile(table)
	if err != nil {
		return nil
	}
	const listening = "0A"
	var sockets []string
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != listening {
			continue
		}
		at, ok := kernelAddr(f[1])
		if !ok || at.Port() != addr.Port() {
			continue
		}
		mine, other := addr.Addr().Unmap(), at.Addr().Unmap()
		if mine == other || mine.IsUnspecified() || other.IsUnspecified() {
			sockets = append(sockets, "socket:["+f[9]+"]")
		}
	}
	return sockets
}

// kernelAddr reads an address of the kernel's tables: 0100007F:24B8, in 32-bit
// words of the machine's own order.
func kernelAddr(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	p, perr := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || perr != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	if littleEndian {
		for i := 0; i < len(b); i += 4 {
			slices.Reverse(b[i : i+4])
		}
	}
	ip, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(ip, uint16(p)), ok
}

// littleEndian: so this machine lays out its words.
var littleEndian = func() bool {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], 1)
	return b[0] == 1
}()
