package server

import (
	"encoding/binary"
	"net"
	"syscall"
)

// tcpState returns the kernel's state of a TCP connection. ok is false for other connections.
func tcpState(c net.Conn) (state byte, ok bool) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return 0, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, false
	}
	var info int
	var optErr error
	if err := raw.Control(func(fd uintptr) {
		// The first four bytes of tcp_info; the first is the state.
		info, optErr = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
	}); err != nil || optErr != nil {
		return 0, false
	}
	return binary.NativeEndian.AppendUint32(nil, uint32(info))[0], true
}
