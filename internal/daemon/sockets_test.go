package daemon

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The sockets of a gateway go to the next one without a moment in which somebody else could have
// its address, and a connection that comes in between waits for it.
func TestSocketsAreHandedOver(t *testing.T) {
	for name, dir := range map[string]string{
		"short": t.TempDir(), "long": filepath.Join(t.TempDir(), strings.Repeat("x", 120)),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			d := Dir(dir)
			first, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address := first.Addr().String()
			checkTaken := func(when string) {
				t.Helper()
				if l, err := net.Listen("tcp", address); !errors.Is(err, syscall.EADDRINUSE) {
					if err == nil {
						_ = l.Close()
					}
					t.Errorf("%s somebody else can listen at %s (%v), want it in use", when,
						address, err)
				}
			}
			var next []net.Listener
			notify := func(line string) { t.Errorf("said %q, want nothing to say", line) }
			err = d.keepSockets(notify, func() error {
				handing := d.HandSockets([]net.Listener{first})
				if handing == nil {
					t.Fatal("the gateway that ends found nobody who keeps its sockets")
				}
				if err := first.Close(); err != nil {
					t.Fatal(err)
				}
				checkTaken("while the gateway ends")
				handing.Finish([]byte("heritage"))
				checkTaken("between the gateways")
				waiting, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatalf("connecting between the gateways: %v", err)
				}
				defer func() { _ = waiting.Close() }()
				var heritage []byte
				next, heritage = d.TakeSockets()
				if len(next) != 1 || next[0].Addr().String() != address ||
					string(heritage) != "heritage" {
					t.Fatalf("the next gateway got %v and %q, want the listener and its heritage",
						next, heritage)
				}
				c, err := next[0].Accept()
				if err != nil {
					t.Fatal(err)
				}
				if c.RemoteAddr().String() != waiting.LocalAddr().String() {
					t.Errorf("accepted %s, want the connection that waited", c.RemoteAddr())
				}
				return c.Close()
			})
			if err != nil {
				t.Fatal(err)
			}
			checkTaken("with the next gateway")
			_ = next[0].Close()
			if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 0 {
				t.Errorf("left %v, %v, want no file", left, err)
			}
		})
	}
}

// What is not handed over in full gives nobody the heritage, and what nobody takes is free again.
func TestSocketsOfAKilledGateway(t *testing.T) {
	d := Dir(t.TempDir())
	if handing := d.HandSockets(nil); handing != nil {
		t.Error("a gateway hands its sockets to nobody")
	}
	(*Handing)(nil).Finish([]byte("x")) // it does nothing
	if listeners, heritage := d.TakeSockets(); listeners != nil || heritage != nil {
		t.Errorf("took %v and %q from nobody", listeners, heritage)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	failure := errors.New("the next one did not start")
	err = d.keepSockets(func(string) {}, func() error {
		handing := d.HandSockets([]net.Listener{l})
		_ = handing.conn.Close() // as the system does when the gateway is killed
		_ = l.Close()
		listeners, heritage := d.TakeSockets()
		if len(listeners) != 1 || len(heritage) != 0 {
			t.Errorf("took %v and %q, want the listener alone", listeners, heritage)
		}
		for _, l := range listeners {
			_ = l.Close() // a gateway that does not start
		}
		return failure
	})
	if !errors.Is(err, failure) {
		t.Errorf("got %v, want %v", err, failure)
	}
	again, err := net.Listen("tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("after the restart: %v, want the address free", err)
	}
	_ = again.Close()
}

// Who connects and says nothing ends no handover.
func TestSilentClientOfTheKeeper(t *testing.T) {
	d := Dir(t.TempDir())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	err = d.keepSockets(func(string) {}, func() error {
		silent, err := d.dialSockets()
		if err != nil {
			return err
		}
		defer func() { _ = silent.Close() }()
		d.HandSockets([]net.Listener{l}).Finish([]byte("heritage"))
		_ = l.Close()
		listeners, heritage := d.TakeSockets()
		if len(listeners) != 1 || string(heritage) != "heritage" {
			t.Errorf("took %v and %q behind a silent client, want the listener and its heritage",
				listeners, heritage)
		}
		for _, l := range listeners {
			_ = l.Close()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
