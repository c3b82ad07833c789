package copilot

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"tapgw/internal/jsonrpc"
	"tapgw/internal/proc"
)

// outlet checks a runtime's output on its way to the SDK, because the SDK allocates as much memory
// as a message announces. The launcher sends the SDK's pipe to the gateway over a socket and gets
// another pipe for the runtime. The gateway reads that pipe and passes on messages within the
// bounds. It kills a runtime that writes anything else.
type outlet struct {
	listener *net.UnixListener
	running  sync.WaitGroup

	mu        sync.Mutex // guards the fields that follow
	pid       int        // 0 until the launcher has reported it
	err       error      // the fault of the output
	isClosed  bool
	toSDK, in *os.File // nil until the launcher is there
}

// openOutlet waits for the launcher of one runtime at a socket in a private directory.
func openOutlet(dir string) (*outlet, error) {
	path := outletSocket(dir)
	_ = os.Remove(path)
	address, release := proc.SocketAddress(path)
	listener, err := net.ListenUnix("unix", address)
	release()
	if err != nil {
		return nil, fmt.Errorf("waiting for the Copilot runtime: %w", err)
	}
	listener.SetUnlinkOnClose(false) // it goes with the directory; its address is no path then
	o := &outlet{listener: listener}
	o.running.Go(o.serve)
	return o, nil
}

// serve takes the launcher's pipe and passes the runtime's messages on to it.
func (o *outlet) serve() {
	conn, err := o.listener.AcceptUnix()
	if err != nil {
		return
	}
	err = o.exchange(conn)
	_ = conn.Close()
	if err != nil {
		return // the launcher says so, and ends
	}
	err = jsonrpc.CopyFrames(o.toSDK, o.in, jsonrpc.MaxMessage)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil || o.isClosed || errors.Is(err, unix.EPIPE) {
		_ = o.toSDK.Close() // the SDK reads to the end
		return
	}
	// The SDK gets no error from here: it notices the end of the process.
	o.err = err
	kill(o.pid)
}

// exchange reads the launcher's pid and the pipe to the SDK, and sends a pipe for the runtime.
func (o *outlet) exchange(conn *net.UnixConn) error {
	text, toSDK, err := receiveFile(conn)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 0 {
		_ = toSDK.Close()
		return errors.New("the launcher has no pid")
	}
	in, out, err := os.Pipe()
	if err != nil {
		_ = toSDK.Close()
		return err
	}
	defer func() { _ = out.Close() }()
	o.mu.Lock()
	o.pid, o.toSDK, o.in = pid, toSDK, in
	o.mu.Unlock()
	return proc.SendFiles(conn, "output", out)
}

// process is the pid of the runtime, 0 while it is not known.
func (o *outlet) process() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pid
}

// fault returns why the output was refused; nil if it was not.
func (o *outlet) fault() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// close ends the outlet, whether or not somebody has the runtime's output open, and waits for its
// goroutine.
func (o *outlet) close() {
	_ = o.listener.Close()
	o.mu.Lock()
	o.isClosed = true
	files := []*os.File{o.in, o.toSDK}
	o.mu.Unlock()
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
	o.running.Wait()
}

// exchangeOutput gives the gateway this process's standard output, and makes the pipe that comes
// back the new one.
func exchangeOutput(socket string) error {
	address, release := proc.SocketAddress(socket)
	pipe, err := net.DialUnix("unix", nil, address)
	release()
	if err != nil {
		return err
	}
	defer func() { _ = pipe.Close() }()
	if err := proc.SendFiles(pipe, strconv.Itoa(os.Getpid()), os.Stdout); err != nil {
		return err
	}
	_, file, err := receiveFile(pipe)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	fd := int(file.Fd())
	// programs expect that writing their output blocks
	if err := unix.SetNonblock(fd, false); err != nil {
		return err
	}
	return unix.Dup2(fd, 1)
}

// receiveFile reads a message of at most 32 bytes with one file.
func receiveFile(conn *net.UnixConn) (text string, f *os.File, err error) {
	text, files, err := proc.ReceiveFiles(conn, 32)
	if err == nil && len(files) == 1 {
		return text, files[0], nil
	}
	for _, f := range files {
		_ = f.Close()
	}
	return "", nil, errors.Join(io.ErrUnexpectedEOF, err)
}
