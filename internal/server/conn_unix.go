//go:build unix

package server

import (
	"errors"
	"net"
	"syscall"
)

// newDirectWriter writes to the socket itself: it is in non-blocking mode, so
// the kernel takes what it has room for and says so.
func newDirectWriter(c net.Conn) directWriter {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return noDirect{}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return noDirect{}
	}
	return socket{raw}
}

type socket struct{ raw syscall.RawConn }

func (s socket) write(p []byte) (n int, err error) {
	var werr error
	err = s.raw.Write(func(fd uintptr) bool {
		for n < len(p) {
			var k int
			k, werr = syscall.Write(int(fd), p[n:])
			if k > 0 {
				n += k
			}
			if errors.Is(werr, syscall.EINTR) {
				continue
			}
			if werr != nil || k <= 0 {
				break
			}
		}
		return true // never wait here
	})
	if err != nil {
		return n, err
	}
	if werr != nil && !errors.Is(werr, syscall.EAGAIN) && !errors.Is(werr, syscall.EINTR) {
		return n, werr
	}
	return n, nil
}
