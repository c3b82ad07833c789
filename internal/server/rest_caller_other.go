//go:build !linux

package server

import "net"

// tcpState is unknown on systems other than Linux.
func tcpState(net.Conn) (state byte, ok bool) { return 0, false }
