//go:build unix

package server

import (
	"errors"
	"net"
	"syscall"
)

// newDirectWriter writes to the socket itself. It is in non-blocking mode, so the kernel takes as
// much as it has room for.
func newDirectWriter(c net.Conn) directWriter {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return noDirectWriter{}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return noDirectWriter{}
	}
	return socketWriter{raw}
}

type socketWriter struct{ raw syscall.RawConn }

func (s socketWriter) write(p []byte) (n int, err error) {
	var writeErr error
	err = s.raw.Write(func(fd uintptr) bool {
		for n < len(p) {
			var written int
			written, writeErr = syscall.Write(int(fd), p[n:])
			if written > 0 {
				n += written
			}
			if errors.Is(writeErr, syscall.EINTR) {
				continue
			}
			if writeErr != nil || written <= 0 {
				break
			}
		}
		return true // never wait here
	})
	if err != nil {
		return n, err
	}
	if writeErr != nil && !errors.Is(writeErr, syscall.EAGAIN) && !errors.Is(writeErr, syscall.EINTR) {
		return n, writeErr
	}
	return n, nil
}
