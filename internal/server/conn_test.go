package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// queued makes a connection whose writes don't block, and counts its ends as slow.
func queued(c net.Conn) (*conn, *atomic.Int32) {
	var slow atomic.Int32
	q := newConn(c)
	q.startQueueing(maxPending, func() { slow.Add(1) })
	return q, &slow
}

// A peer that never reads is closed once 8 MiB wait for it, and at once; writes
// to it never block, and others notice nothing.
func TestSlowConsumerByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer func() { _ = theirs.Close() }()
		c, slow := queued(ours)
		start := time.Now()
		chunk := make([]byte, 1<<20)
		n := 0
		for ; n < 20; n++ {
			if _, err := c.Write(chunk); err != nil {
				if !errors.Is(err, errSlow) {
					t.Fatal(err)
				}
				break
			}
		}
		if n != 8 || slow.Load() != 1 || time.Since(start) != 0 {
			t.Errorf(
				"closed after %d MiB, onSlow called %d times, after %s; want once, at the limit", n,
				slow.Load(), time.Since(start))
		}
		if _, err := c.Write(chunk); err == nil {
			t.Error("a write after the end: no error, want one")
		}
		if _, err := theirs.Read(make([]byte, 1)); err == nil {
			t.Error("the socket is still open, want it closed")
		}
		_ = c.Close()
	})
}

// A peer that stops reading is closed after 10 s, however little waits for it.
func TestSlowConsumerByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer func() { _ = theirs.Close() }()
		c, slow := queued(ours)
		other, otherTheirs := net.Pipe()
		fast, _ := queued(other)
		var got bytes.Buffer
		var reading sync.WaitGroup
		reading.Go(func() { _, _ = io.Copy(&got, otherTheirs) })

		if _, err := c.Write([]byte("nobody reads this")); err != nil {
			t.Fatal(err)
		}
		for range 9 {
			wait(time.Second)
			if _, err := fast.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if slow.Load() != 0 {
			t.Fatal("closed before 10 s, want it closed after 10 s")
		}
		wait(time.Second)
		synctest.Wait()
		if _, err := c.Write([]byte("more")); err == nil || slow.Load() != 1 {
			t.Fatalf("after 10 s: got %v, onSlow called %d times; want an error and once", err,
				slow.Load())
		}
		_ = c.Close()
		_ = fast.Close()
		reading.Wait()
		if got.String() != "xxxxxxxxx" {
			t.Errorf(`the other got %q, want "xxxxxxxxx"`, got.String())
		}
	})
}

// Before queue is called writes go straight through; after Close nothing does.
func TestConnBeforeAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := newConn(ours)
		go func() { _, _ = c.Write([]byte("direct")) }()
		buf := make([]byte, 6)
		if _, err := io.ReadFull(theirs, buf); err != nil || string(buf) != "direct" {
			t.Fatalf("got %q, %v, want direct and no error", buf, err)
		}
		c.startQueueing(maxPending, nil)
		if _, err := c.Write([]byte("never read")); err != nil {
			t.Fatal(err)
		}
		_ = c.Close() // waits for the goroutine that sends
		if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v, want %v", err, net.ErrClosed)
		}
		_ = theirs.Close()
	})
}

// recorder notes the write deadlines of a TCP connection.
type recorder struct {
	*net.TCPConn
	mu   sync.Mutex
	last time.Time
	set  int
}

func (r *recorder) SetWriteDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = t
	r.set++
	return r.TCPConn.SetWriteDeadline(t)
}

// tcp is a connection over the loopback and its other end.
func tcp(t *testing.T) (*recorder, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return &recorder{TCPConn: ours.(*net.TCPConn)}, theirs
}

// What the socket does not take at once is sent on by a goroutine, in order, and
// afterwards writes go straight to the socket again, without a deadline that was
// for the time between.
func TestDirectWriter(t *testing.T) {
	sock, theirs := tcp(t)
	c, slow := queued(sock)
	if c.raw == nil {
		t.Fatal("no direct writes on TCP, want them")
	}
	var want bytes.Buffer
	send := func(p []byte) {
		want.Write(p)
		if _, err := c.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	send([]byte("hello"))
	if sock.set != 0 {
		t.Error("a small write set a deadline, want none")
	}
	// Nobody reads: some of it waits.
	chunk := make([]byte, 512<<10)
	for i := range 16 {
		for j := range chunk {
			chunk[j] = byte(i + j/7)
		}
		send(chunk)
	}
	c.mu.Lock()
	waiting := c.draining
	c.mu.Unlock()
	if !waiting {
		t.Fatal("the socket took 8 MiB at once, want it to wait")
	}
	got := make([]byte, want.Len())
	if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Fatalf("what came is not what was sent: %v, want no error and the same bytes", err)
	}
	c.drainDone.Wait()
	sock.mu.Lock()
	if sock.set == 0 || !sock.last.IsZero() {
		t.Errorf(
			"%d deadlines were set, the last is %v: writes after it would fail, want some and at last none",
			sock.set, sock.last,
		)
	}
	sock.mu.Unlock()
	if _, err := c.Write([]byte("again")); err != nil {
		t.Error(err)
	}
	got = got[:5]
	if _, err := io.ReadFull(theirs, got); err != nil || string(got) != "again" {
		t.Errorf("got %q, %v, want again and no error", got, err)
	}
	if slow.Load() != 0 {
		t.Error("counted as slow, want not")
	}
	_ = theirs.Close()
	_ = c.Close()
}

// What is held goes out together; large things that are held don't make a fast
// peer slow.
func TestHold(t *testing.T) {
	sock, theirs := tcp(t)
	c, slow := queued(sock)
	var reading sync.WaitGroup
	var got int64
	reading.Go(func() { got, _ = io.Copy(io.Discard, theirs) })
	c.cork()
	if _, err := c.Write([]byte("small")); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	if len(c.buf) != 5 {
		t.Errorf("%d bytes are queued, want the 5 that are held", len(c.buf))
	}
	c.mu.Unlock()
	large := make([]byte, 3<<20)
	for range 3 {
		if _, err := c.Write(large); err != nil {
			t.Fatal(err)
		}
	}
	c.uncork()
	c.drainDone.Wait()
	_ = c.Close()
	reading.Wait()
	if got != 5+9<<20 || slow.Load() != 0 {
		t.Errorf("%d bytes came, slow %d, want %d and 0", got, slow.Load(), 5+9<<20)
	}
	_ = theirs.Close()
}

// A peer that is gone makes an error, no panic and no slow consumer.
func TestPeerGone(t *testing.T) {
	sock, theirs := tcp(t)
	c, slow := queued(sock)
	_ = theirs.(*net.TCPConn).SetLinger(0)
	_ = theirs.Close()
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, err := c.Write([]byte("x")); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("writes go on for ever, want them to wait")
		}
	}
	if slow.Load() != 0 {
		t.Error("counted as slow, want not")
	}
	_ = c.Close()
}
