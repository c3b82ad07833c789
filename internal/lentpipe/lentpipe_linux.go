package lentpipe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxDirect is how many bytes a pipe takes whole or not at all.
const maxDirect = 4096 // PIPE_BUF

// Owned is the owner's end of what the CLI sends. It has deadlines, and flags that are no other process's.
type Owned struct {
	of   *os.File
	file *os.File // nil: released
}

// Own opens the owner's end anew.
func Own(of *os.File) (*Owned, error) {
	o := &Owned{of: of}
	if err := o.Reacquire(); err != nil {
		return nil, err
	}
	if _, err := inodeOf(o.file); err != nil {
		o.Release()
		return nil, err
	}
	return o, nil
}

// Read implements [io.Reader].
func (o *Owned) Read(p []byte) (int, error) { return o.file.Read(p) }

// SetReadDeadline is that of [os.File].
func (o *Owned) SetReadDeadline(t time.Time) error { return o.file.SetReadDeadline(t) }

// IsEmpty reports whether nothing can be read at once.
func (o *Owned) IsEmpty() bool {
	there, err := unix.IoctlGetInt(fdOf(o.file), unix.TIOCINQ)
	return err != nil || there == 0
}

// WaitEnd returns when nobody has the CLI's end any more, also while another process reads the pipe.
func (o *Owned) WaitEnd() {
	events := []unix.PollFd{{Fd: int32(fdOf(o.of))}} //nolint:gosec // a file's number
	for {
		if _, err := unix.Poll(events, -1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Release keeps what the CLI sends from waking this process.
func (o *Owned) Release() {
	_ = o.file.Close()
	o.file = nil
}

// Reacquire ends what Release began.
func (o *Owned) Reacquire() (err error) {
	o.file, err = open(os.Getpid(), fdOf(o.of), os.O_RDONLY)
	return err
}

func open(pid, fd, flags int) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), flags|unix.O_NONBLOCK, 0)
}

// Offer makes the third pipe for one borrower, and says what to tell it. Close write when the borrower has taken the
// pipe, or has not.
func Offer(in *Owned, out *os.File) (e Ends, read, write *os.File, err error) {
	if read, write, err = os.Pipe(); err != nil {
		return e, nil, nil, err
	}
	e.PID = os.Getpid()
	for end, f := range map[*End]*os.File{&e.In: in.of, &e.Out: out, &e.Taken: write} {
		end.FD = fdOf(f)
		if end.Inode, err = inode(end.FD); err != nil {
			_ = read.Close()
			_ = write.Close()
			return e, nil, nil, err
		}
	}
	return e, read, write, nil
}

// fdOf is the number of an open file, whose flags stay as they are.
func fdOf(f *os.File) (fd int) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1
	}
	_ = raw.Control(func(number uintptr) { fd = int(number) })
	return fd
}

// inode returns the inode of an open pipe of this user.
func inode(fd int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFIFO:
		return 0, errors.New("it is no pipe")
	case int(st.Uid) != os.Geteuid():
		return 0, fmt.Errorf("it belongs to user %d", st.Uid)
	}
	return st.Ino, nil
}

func inodeOf(f *os.File) (number uint64, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := raw.Control(func(fd uintptr) { number, err = inode(int(fd)) }); e != nil {
		return 0, e
	}
	return number, err
}

// Borrowed is a pipe that was lent. One goroutine may read while another one writes.
type Borrowed struct {
	hand func(message []byte) error

	in, out, told          *os.File
	rawIn, rawTold         syscall.RawConn
	copyRead, copyWrite    int    // a pipe for copies of what the CLI has sent
	untaken                int    // bytes that Read has returned and that are still in the CLI's pipe
	known                  []byte // a place for copies of these
	begun, closed          chan struct{}
	beginOnce, closingOnce sync.Once
}

// Borrow opens a pipe that its owner offers. Nothing is read or written before [Borrowed.Begin]. hand gives the owner a
// message with its header, and returns when the owner has written it to the CLI.
func Borrow(e Ends, hand func(message []byte) error) (_ *Borrowed, err error) {
	b := &Borrowed{hand: hand, copyRead: -1, copyWrite: -1, known: make([]byte, maxRest),
		begun: make(chan struct{}), closed: make(chan struct{})}
	defer func() {
		if err != nil {
			b.closeFiles()
		}
	}()
	for _, one := range []struct {
		name  string
		file  **os.File
		end   End
		flags int
	}{
		{"in", &b.in, e.In, os.O_RDONLY}, {"out", &b.out, e.Out, os.O_WRONLY}, {"taken", &b.told, e.Taken, os.O_WRONLY},
	} {
		if *one.file, err = open(e.PID, one.end.FD, one.flags); err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		number, err := inodeOf(*one.file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		if number != one.end.Inode {
			return nil, fmt.Errorf("%s: process %d has another file there", one.name, e.PID)
		}
	}
	if b.rawIn, err = b.in.SyscallConn(); err != nil {
		return nil, err
	}
	if b.rawTold, err = b.told.SyscallConn(); err != nil {
		return nil, err
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	b.copyRead, b.copyWrite = ends[0], ends[1]
	return b, nil
}

// Begin says that the owner does not read the pipe any more.
func (b *Borrowed) Begin() { b.beginOnce.Do(func() { close(b.begun) }) }

// restTime is how long the CLI has to be silent until what Read has returned is moved to the owner, and maxRest how
// many bytes may wait for that. Until then the owner sleeps: to wake it while an answer is on its way would slow that
// down.
const (
	restTime = 5 * time.Millisecond
	maxRest  = 16 << 10
)

// Read returns what the CLI has sent. It has the owner know, later, of what it has returned before.
func (b *Borrowed) Read(p []byte) (n int, err error) {
	if err := b.wait(); err != nil {
		return 0, err
	}
	if b.untaken >= maxRest {
		if err := b.take(); err != nil {
			return 0, b.cause(err)
		}
	}
	for {
		var silence time.Time // none
		if b.untaken > 0 {
			silence = time.Now().Add(restTime)
		}
		_ = b.in.SetReadDeadline(silence)
		waiting := b.rawIn.Read(func(fd uintptr) bool {
			n, err = b.peek(int(fd), p)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case b.untaken > 0 && errors.Is(waiting, os.ErrDeadlineExceeded):
			if err := b.take(); err != nil {
				return 0, b.cause(err)
			}
			continue
		case waiting != nil:
			return 0, b.cause(waiting)
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		b.untaken += n
		return n, nil
	}
}

// Closed is closed at Close, by whoever called it.
func (b *Borrowed) Closed() <-chan struct{} { return b.closed }

// wait waits until the owner does not read any more: it would get what the CLI answers.
func (b *Borrowed) wait() error {
	select {
	case <-b.begun:
		return nil
	case <-b.closed:
		return os.ErrClosed
	}
}

// cause is why something failed: after Close, because of that.
func (b *Borrowed) cause(err error) error {
	select {
	case <-b.closed:
		return os.ErrClosed
	default:
		return err
	}
}

// peek copies what is in the CLI's pipe behind what Read has returned, and leaves all of it there.
func (b *Borrowed) peek(fd int, p []byte) (int, error) {
	if b.untaken > 0 {
		if there, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil && there <= b.untaken {
			return 0, unix.EAGAIN // the end shows when all is taken
		}
	}
	n, err := retry(func() (int64, error) {
		return unix.Tee(fd, b.copyWrite, b.untaken+len(p), unix.SPLICE_F_NONBLOCK)
	})
	if err != nil {
		return 0, err
	}
	for read := 0; read < int(n); {
		into := [][]byte{b.known[min(read, b.untaken):b.untaken], p[max(read-b.untaken, 0):]}
		m, err := retry(func() (int64, error) {
			m, err := unix.Readv(b.copyRead, into)
			return int64(m), err
		})
		if err != nil {
			return 0, fmt.Errorf("reading a copy of a terminal's message: %w", err)
		}
		read += int(m)
	}
	if b.untaken > 0 && int(n) <= b.untaken {
		return 0, unix.EAGAIN // no more fits into the copy; take makes room
	}
	return int(n) - b.untaken, nil
}

// take moves to the owner what Read has returned.
func (b *Borrowed) take() error {
	var err error
	if closed := b.rawIn.Control(func(in uintptr) {
		for b.untaken > 0 && err == nil {
			waiting := b.rawTold.Write(func(told uintptr) bool {
				var n int64
				n, err = retry(func() (int64, error) {
					return unix.Splice(int(in), nil, int(told), nil, b.untaken,
						unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
				})
				b.untaken -= int(max(n, 0))
				if n == 0 && err == nil {
					err = io.ErrUnexpectedEOF // somebody else has read it
				}
				return !errors.Is(err, unix.EAGAIN)
			})
			if waiting != nil {
				err = waiting
			}
		}
	}); closed != nil {
		return closed
	}
	return err
}

// retry makes a call of the kernel again that a signal has interrupted.
func retry(call func() (int64, error)) (int64, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Write gives the CLI a message, which it gets whole.
func (b *Borrowed) Write(message []byte) (int, error) {
	if err := b.wait(); err != nil {
		return 0, err
	}
	_, body, _ := bytes.Cut(message, []byte("\r\n\r\n"))
	if len(message) <= maxDirect && isForBorrower(body) {
		return b.out.Write(message)
	}
	if err := b.hand(message); err != nil {
		return 0, err
	}
	return len(message), nil
}

// Close gives the pipe back. What Read has returned last, the owner may read again.
func (b *Borrowed) Close() error {
	b.closingOnce.Do(func() {
		close(b.closed)
		_ = b.out.SetDeadline(time.Unix(1, 0))
		_ = b.told.SetDeadline(time.Unix(1, 0)) // for take, for which the first Close waits
		b.closeFiles()
	})
	return nil
}

// closeFiles closes the end for the owner last: that tells it that nobody else has the CLI's pipe.
func (b *Borrowed) closeFiles() {
	_ = b.in.Close() // which waits for Read
	_ = b.out.Close()
	for _, fd := range []int{b.copyRead, b.copyWrite} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	_ = b.told.Close()
}
