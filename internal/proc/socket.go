package proc

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// maxSocketPath is the length of the longest path of a socket, in bytes, on all systems.
const maxSocketPath = 103

// SocketAddress returns the address of a Unix socket at a path, to use until release. Linux has a
// short way to a file of a directory that is open, so a longer path works there; on other systems
// it is an error of listening and dialling.
func SocketAddress(path string) (address *net.UnixAddr, release func()) {
	release = func() {}
	if len(path) > maxSocketPath {
		if dir, err := os.Open(filepath.Dir(path)); err == nil {
			path = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
			release = func() { _ = dir.Close() }
		}
	}
	return &net.UnixAddr{Name: path, Net: "unix"}, release
}
