package server

import (
	"encoding/binary"
	"net"
	"syscall"
)

// tcpState asks the kernel for the state of a connection; not ok for what is no
// TCP connection.
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
	var asked error
	if err := raw.Control(func(fd uintptr) {
		// Of tcp_info the first four bytes, the first of which is the state.
		info, asked = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
	}); err != nil || asked != nil {
		return 0, false
	}
	return binary.NativeEndian.AppendUint32(nil, uint32(info))[0], true
}
