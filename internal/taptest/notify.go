package taptest

import (
	"net"
	"testing"
	"time"
)

// ListenNotify listens as a service manager does, at a Unix datagram socket: the path of a file, or
// @ and an abstract name. next waits up to a minute for the next message and returns it.
func ListenNotify(t *testing.T, socket string) (next func() string) {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return func() string {
		t.Helper()
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		message := make([]byte, 4096)
		n, err := c.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
}
