package server

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"syscall"

	"tapgw/internal/proc"
)

// ListenError is the error of [Server.Listen] and [CanListen]: the address, and the system's error,
// which it wraps: EADDRINUSE, for example, when another program has the port.
type ListenError struct {
	Addr string // host:port
	Err  error
}

// Error implements error: the address and the system's error.
func (e *ListenError) Error() string { return "listening on " + e.Addr + ": " + e.Err.Error() }

// Unwrap returns the system's error.
func (e *ListenError) Unwrap() error { return e.Err }

// NameUser returns an error that names the process that uses the port, if that is why a
// [ListenError] failed, and the remedy. It returns any other error unchanged.
func NameUser(err error) error {
	failed, ok := errors.AsType[*ListenError](err)
	if !ok || !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	user := "another process"
	if tcp, err := net.ResolveTCPAddr("tcp", failed.Addr); err == nil {
		owner, _ := proc.OwnerOf(tcp.AddrPort())
		user = owner.String()
	}
	return fmt.Errorf("listening on %s: the port is in use by %s; stop it, or choose a free port: "+
		"tapgw serve --listen 127.0.0.1:0, or listen in tapgw.toml", failed.Addr, user)
}

// anyPortTries is how often Listen tries another port when the address has port 0 and the port
// that the system chose is in use on the other loopback.
const anyPortTries = 10

// Listen binds host:port; port 0 lets the system choose. For a loopback address it binds the same
// port of the other IP version too, if the machine has it: localhost resolves to either, and a
// program that has the other one would be taken for this gateway. The error is a [*ListenError].
func (s *Server) Listen(addr string) error { return s.ListenWith(addr, nil, nil) }

// ListenWith is [Server.Listen], but uses the listeners of the previous gateway that have the
// addresses to bind, and closes its others. If it inherits every address, no other program can have
// had one meanwhile, so the server keeps the page's origin, which heritage holds
// ([Server.Heritage]).
func (s *Server) ListenWith(addr string, inherited []net.Listener, heritage []byte) error {
	list, isWhole, err := listen(addr, inherited)
	for _, l := range inherited {
		if !slices.Contains(list, l) {
			_ = l.Close()
		}
	}
	s.listeners = append(s.listeners, list...)
	if err != nil {
		return err
	}
	if isWhole {
		s.inherit(heritage)
	}
	s.limitPageName()
	return nil
}

// listen binds an address; isWhole says that all of it was inherited.
func listen(addr string, inherited []net.Listener) (list []net.Listener, isWhole bool, err error) {
	for range anyPortTries {
		if list, isWhole, err = listenBoth(addr, inherited); err == nil {
			return list, isWhole, nil
		}
		if _, port, _ := net.SplitHostPort(addr); port != "0" ||
			!errors.Is(err, syscall.EADDRINUSE) {
			return nil, false, err
		}
		inherited = nil // its port is in use on the other loopback
	}
	return nil, false, err
}

// CanListen returns nil if [Server.Listen] would succeed on an address now, otherwise its error. It
// binds the address and frees it again, so another program may still take it.
func CanListen(addr string) error {
	s := &Server{}
	err := s.Listen(addr)
	for _, l := range s.listeners {
		_ = l.Close()
	}
	return err
}

// listenBoth binds an address, and its counterpart on the other loopback if there is one.
func listenBoth(
	addr string, inherited []net.Listener,
) (list []net.Listener, isWhole bool, err error) {
	l, isInherited, err := listenAt(addr, inherited)
	if err != nil {
		return nil, false, err
	}
	other := otherLoopback(l.Addr())
	if other == "" {
		return []net.Listener{l}, isInherited, nil
	}
	second, isOtherInherited, err := listenAt(other, inherited)
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		return []net.Listener{l}, isInherited, nil // this machine has no such loopback
	}
	if err != nil {
		if !isInherited { // another port needs it no more
			_ = l.Close()
		}
		return nil, false, err
	}
	return []net.Listener{l, second}, isInherited && isOtherInherited, nil
}

// listenAt returns the inherited listener of an address, else binds the address.
func listenAt(addr string, inherited []net.Listener) (l net.Listener, isInherited bool, err error) {
	if wanted, err := net.ResolveTCPAddr("tcp", addr); err == nil {
		for _, l := range inherited {
			at, ok := l.Addr().(*net.TCPAddr)
			isSameIP := ok && (at.IP.Equal(wanted.IP) || wanted.IP == nil && at.IP.IsUnspecified())
			if isSameIP && (wanted.Port == at.Port || wanted.Port == 0) {
				return l, true, nil
			}
		}
	}
	if l, err = net.Listen("tcp", addr); err != nil {
		return nil, false, &ListenError{addr, err}
	}
	return l, false, nil
}

// otherLoopback returns the address to bind on the loopback of the other IP version, or "".
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
