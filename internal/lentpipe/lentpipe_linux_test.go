package lentpipe

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tapgw/internal/jsonrpc"
)

// lent is a CLI's pipe in this process, and a borrower of it.
type lent struct {
	ends     Ends
	cli      *os.File // the CLI writes here
	toCLI    *os.File // and reads here
	own      *Owned   // the owner's end of what the CLI writes
	taken    *os.File
	borrowed *Borrowed
	handed   chan []byte
}

func newLent(t *testing.T) *lent {
	t.Helper()
	l := &lent{handed: make(chan []byte, 1)}
	in, cli := pipe(t)
	toCLI, out := pipe(t)
	own, err := Own(in)
	if err != nil {
		t.Fatal(err)
	}
	var fill *os.File
	if l.ends, l.taken, fill, err = Offer(own, out); err != nil {
		t.Fatal(err)
	}
	l.cli, l.toCLI, l.own = cli, toCLI, own
	l.borrowed, err = Borrow(l.ends, func(message []byte) error {
		l.handed <- bytes.Clone(message)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = fill.Close()
	t.Cleanup(func() {
		_ = l.borrowed.Close()
		own.Release()
		_ = l.taken.Close()
		_ = out.Close()
	})
	return l
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

func TestBorrow(t *testing.T) {
	l := newLent(t)
	l.borrowed.Begin()
	buf := make([]byte, 2)
	read := func(want string) {
		t.Helper()
		n, err := l.borrowed.Read(buf)
		if err != nil || string(buf[:n]) != want {
			t.Fatalf("Read: %q, %v, want %q", buf[:n], err, want)
		}
	}
	write := func(text string) {
		if _, err := io.WriteString(l.cli, text); err != nil {
			t.Error(err)
		}
	}
	write("one")
	read("on")
	read("e")
	// The owner is told of both when the CLI is silent.
	got := make([]byte, 3)
	go func() {
		if _, err := io.ReadFull(l.taken, got); err != nil {
			t.Error(err)
		}
		write("two")
	}()
	read("tw")
	_ = l.borrowed.Close()
	taken, err := io.ReadAll(l.taken)
	taken = append(got, taken...)
	rest := make([]byte, 10)
	n, _ := l.own.Read(rest)
	if got := string(taken) + "|" + string(rest[:n]); err != nil || got != "one|two" {
		t.Errorf("the owner reads %q (%v), want what was taken and what was not: one|two", got, err)
	}
	if _, err := l.borrowed.Read(buf); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Read after Close: %v, want %v", err, os.ErrClosed)
	}
}

// TestRest has a CLI that is never silent for long. The owner is told so early that the pipe does not fill, and of each
// byte in its order.
func TestRest(t *testing.T) {
	l := newLent(t)
	l.borrowed.Begin()
	sent := make([]byte, 1<<20)
	for i := range sent {
		sent[i] = byte(i / 7)
	}
	go func() {
		defer func() { _ = l.cli.Close() }()
		for at, n := 0, 1; at < len(sent); at, n = at+n, n%5000+713 {
			if _, err := l.cli.Write(sent[at:min(at+n, len(sent))]); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	told := make(chan []byte)
	go func() {
		taken, err := io.ReadAll(l.taken)
		if err != nil {
			t.Error(err)
		}
		told <- taken
	}()
	var read []byte
	buf := make([]byte, 3000)
	for {
		n, err := l.borrowed.Read(buf)
		if read = append(read, buf[:n]...); errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_ = l.borrowed.Close()
	if !bytes.Equal(read, sent) {
		t.Error("the borrower has read something else than what the CLI has sent")
	}
	if !bytes.Equal(<-told, sent) {
		t.Error("the owner was told something else than what the CLI has sent")
	}
}

func TestWrite(t *testing.T) {
	l := newLent(t)
	l.borrowed.Begin()
	for name, c := range map[string]struct {
		message string
		direct  bool
	}{
		"call":    {`{"method":"session.tools.handlePendingToolCall","id":"1"}`, true},
		"answer":  {`{"id":7,"result":{"method":"x"}}`, false},
		"tools":   {`{"method":"session.tools.set"}`, false},
		"join":    {`{"method":"session.resume"}`, false},
		"large":   {`{"method":"session.send","text":"` + strings.Repeat("x", maxDirect) + `"}`, false},
		"no json": {`{"method":`, false},
	} {
		frame := jsonrpc.AppendFrame(nil, []byte(c.message))
		if n, err := l.borrowed.Write(frame); n != len(frame) || err != nil {
			t.Fatalf("%s: Write: %d, %v", name, n, err)
		}
		got := make([]byte, len(frame))
		if c.direct {
			if _, err := io.ReadFull(l.toCLI, got); err != nil {
				t.Fatal(err)
			}
		} else {
			got = <-l.handed
		}
		if !bytes.Equal(got, frame) {
			t.Errorf("%s: %q has come, want %q", name, got, frame)
		}
	}
}

func TestReadWaits(t *testing.T) {
	l := newLent(t)
	got := make(chan string)
	go func() {
		buf := make([]byte, 100)
		for {
			n, err := l.borrowed.Read(buf)
			if err != nil {
				close(got)
				return
			}
			got <- string(buf[:n])
		}
	}()
	l.borrowed.Begin()
	taken := ""
	for _, text := range []string{"one", "two", "three"} {
		if _, err := io.WriteString(l.cli, text); err != nil {
			t.Fatal(err)
		}
		if read := <-got; read != text {
			t.Errorf("read %q, want %q", read, text)
		}
		buf := make([]byte, 100)
		n, err := l.taken.Read(buf)
		if taken = string(buf[:n]); err != nil || taken != text {
			t.Errorf("the owner reads %q (%v), want %q", taken, err, text)
		}
	}
	_ = l.cli.Close()
	if _, ok := <-got; ok {
		t.Error("something is read after the CLI has gone")
	}
}

func TestBorrowRefuses(t *testing.T) {
	l := newLent(t)
	socket, other := net.Pipe()
	defer func() { _, _ = socket.Close(), other.Close() }()
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	child := exec.Command("sleep", "0")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(e *Ends)
		want   string
	}{
		"a process that is gone": {func(e *Ends) { e.PID = child.Process.Pid }, "no such file"},
		"no such file":           {func(e *Ends) { e.Taken.FD = 1 << 20 }, "taken: "},
		"another pipe":           {func(e *Ends) { e.In.Inode++ }, "in: process"},
		"a file in its place":    {func(e *Ends) { e.Out.FD = fdOf(file) }, "out: it is no pipe"},
	} {
		e := l.ends
		c.change(&e)
		_, err := Borrow(e, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestSilentOwner has an owner that offers its pipe and never says that it has stopped reading.
func TestSilentOwner(t *testing.T) {
	l := newLent(t)
	read, written := make(chan error), make(chan error)
	go func() {
		_, err := l.borrowed.Read(make([]byte, 10))
		read <- err
	}()
	go func() {
		_, err := l.borrowed.Write([]byte("Content-Length: 2\r\n\r\n{}"))
		written <- err
	}()
	_, _ = io.WriteString(l.cli, "text")
	_ = l.borrowed.Close()
	for _, failed := range []chan error{read, written} {
		if err := <-failed; !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v, want %v", err, os.ErrClosed)
		}
	}
	buf := make([]byte, 10)
	if n, err := l.own.Read(buf); string(buf[:n]) != "text" || err != nil {
		t.Errorf("the owner reads %q (%v), want all that the CLI has sent", buf[:n], err)
	}
}

// TestStuckOwner has an owner that does not read what was taken. The borrower can still leave.
func TestStuckOwner(t *testing.T) {
	l := newLent(t)
	l.borrowed.Begin()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := l.borrowed.Read(make([]byte, 4096)); err != nil {
				return
			}
		}
	}()
	_ = l.cli.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	sent := 0
	for {
		n, err := l.cli.Write(make([]byte, 4096))
		if sent += n; err != nil {
			break
		}
	}
	_ = l.borrowed.Close()
	<-ended
	got, err := io.Copy(io.Discard, l.taken)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.cli.Close()
	rest, err := io.Copy(io.Discard, l.own)
	if err != nil || int(got+rest) != sent {
		t.Errorf("the owner reads %d and %d bytes (%v), want the %d that were sent", got, rest, err, sent)
	}
}

func FuzzParseEnds(f *testing.F) {
	for _, text := range []string{
		Ends{1, End{0, 10}, End{1, 11}, End{7, 12}}.String(), `{}`, `[]`, `{"pid":-1}`,
		`{"pid":1,"in":{"fd":-1,"inode":1}}`, "null", "\x00",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseEnds(text)
		if err != nil {
			return
		}
		again, err := ParseEnds(e.String())
		if err != nil || again != e {
			t.Errorf("%q: %v, then %v (%v)", text, e, again, err)
		}
		if e.PID <= 0 || min(e.In.FD, e.Out.FD, e.Taken.FD) < 0 || e.In.Inode == e.Out.Inode {
			t.Errorf("%q is taken: %v", text, e)
		}
	})
}
