package server

import (
	"errors"
	"net"
	"strconv"
	"syscall"
)

// ListenError is the error of [Server.Listen] and [CanListen]: the address, and the system's error, which it wraps:
// EADDRINUSE, for example, when another program has the port.
type ListenError struct {
	Addr string // host:port
	Err  error
}

// Error implements error: the address and the system's error.
func (e *ListenError) Error() string { return "listening on " + e.Addr + ": " + e.Err.Error() }

// Unwrap returns the system's error.
func (e *ListenError) Unwrap() error { return e.Err }

// anyPortTries is how often Listen tries another port when the address has port 0 and the port
// that the system chose is in use on the other loopback.
const anyPortTries = 10

// Listen binds host:port; port 0 lets the system choose. For a loopback address it binds the same
// port of the other IP version too, if the machine has it: localhost resolves to either, and a
// program that has the other one would be taken for this gateway. The error is a [*ListenError].
func (s *Server) Listen(addr string) error {
	list, err := listen(addr)
	s.listeners = append(s.listeners, list...)
	return err
}

func listen(addr string) (list []net.Listener, err error) {
	for range anyPortTries {
		if list, err = listenBoth(addr); err == nil {
			return list, nil
		}
		if _, port, _ := net.SplitHostPort(addr); port != "0" || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
	return nil, err
}

// CanListen returns nil if [Server.Listen] would succeed on an address now, otherwise its error. It binds the address
// and frees it again, so another program may still take it.
func CanListen(addr string) error {
	s := &Server{}
	err := s.Listen(addr)
	for _, l := range s.listeners {
		_ = l.Close()
	}
	return err
}

// listenBoth binds an address, and its counterpart on the other loopback if there is one.
func listenBoth(addr string) ([]net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, &ListenError{addr, err}
	}
	other := otherLoopback(l.Addr())
	if other == "" {
		return []net.Listener{l}, nil
	}
	second, err := net.Listen("tcp", other)
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		return []net.Listener{l}, nil // this machine has no such loopback
	}
	if err != nil {
		_ = l.Close()
		return nil, &ListenError{other, err}
	}
	return []net.Listener{l, second}, nil
}

// otherLoopback returns the address to bind on the loopback of the other IP version, "" for none.
func otherLoopback(addr net.Addr) string {
	a, ok := addr.(*net.TCPAddr)
	switch {
	case !ok:
		return ""
	case a.IP.To4() != nil && (a.IP.IsLoopback() || a.IP.IsUnspecified()):
		return net.JoinHostPort("::1", strconv.Itoa(a.Port))
	case a.IP.IsLoopback():
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port))
	}
	return "" // [::] covers both
}
