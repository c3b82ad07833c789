package daemon

import (
	"context"
	"io"
	"net"
	"os"
	"time"

	"tapgw/internal/proc"
)

// A gateway that ends because it is restarted hands its listening sockets over, so that no other
// program can take its addresses before the next gateway does. The program that restarts it keeps
// them meanwhile: it listens on a socket in the state directory. The gateway that ends connects
// there and sends giveSockets with the sockets and, once it has shut down, its heritage. The next
// gateway connects there and sends takeSockets.
//
// A client that connects in between waits until the next gateway accepts its connection.
const (
	socketsFile = "restart.sock"

	giveSockets = "g"
	takeSockets = "t"

	maxHeritage    = 64 << 10
	socketsTimeout = 2 * time.Second // for a message between two processes of this machine
)

// keeper keeps the sockets of a gateway for the next one.
type keeper struct {
	listener *net.UnixListener
	ctx      context.Context // ends with the keeper
	cancel   context.CancelFunc
	done     chan struct{}

	// The goroutine of serve owns these fields until done is closed.
	files    []*os.File
	heritage []byte
}

// keepSockets calls restart, which ends the gateway that runs here and starts another, and keeps
// the sockets in between. It returns restart's error. If it can't keep the sockets, it calls notify
// and then restart; the next gateway then opens new sockets, and browsers have to sign in again.
// Call it with the start lock held.
func (d Dir) keepSockets(notify func(line string), restart func() error) error {
	_ = os.Remove(d.file(socketsFile)) // of a program that was killed
	defer func() { _ = os.Remove(d.file(socketsFile)) }()
	address, release := proc.SocketAddress(d.file(socketsFile))
	listener, err := net.ListenUnix("unix", address)
	release()
	if err != nil { // the path is too long for macOS, for example
		notify("browsers have to sign in again: keeping the address during the restart: " +
			err.Error())
		return restart()
	}
	listener.SetUnlinkOnClose(false)
	k := &keeper{listener: listener, done: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	go k.serve()
	defer k.close()
	return restart()
}

// KeepSockets calls restart, which makes a service manager end the gateway that runs here and start
// it again, and keeps the gateway's sockets in between. It returns the error of restart. No tapgw
// ensure starts a gateway in between.
func (d Dir) KeepSockets(
	ctx context.Context, notify func(line string), restart func() error,
) error {
	lock, err := d.lockStart(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return d.keepSockets(notify, restart)
}

// close ends the keeper. It releases the sockets that no gateway has taken.
func (k *keeper) close() {
	k.cancel()
	_ = k.listener.Close()
	<-k.done
	k.drop()
}

func (k *keeper) drop() {
	closeAll(k.files)
	k.files, k.heritage = nil, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// serve answers one gateway after the other.
func (k *keeper) serve() {
	defer close(k.done)
	for {
		c, err := k.listener.AcceptUnix()
		if err != nil {
			return
		}
		stop := context.AfterFunc(k.ctx, func() { _ = c.Close() })
		k.handle(c)
		stop()
		_ = c.Close()
	}
}

// handle takes the sockets of the gateway that ends, or gives them to the next one.
func (k *keeper) handle(c *net.UnixConn) {
	_ = c.SetReadDeadline(time.Now().Add(socketsTimeout / 2)) // for the next gateway's sake
	kind, files, err := proc.ReceiveFiles(c, 1)
	if err != nil {
		closeAll(files)
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	if kind == takeSockets {
		_ = c.SetDeadline(time.Now().Add(socketsTimeout))
		if proc.SendFiles(c, giveSockets, k.files...) == nil {
			_, _ = c.Write(k.heritage)
		}
		return
	}
	k.drop()
	k.files = files
	// it comes once the gateway has shut down
	k.heritage, _ = io.ReadAll(io.LimitReader(c, maxHeritage))
}

// Handing is the handover of a gateway that ends to the next one; nil if no program restarts the
// gateway.
type Handing struct{ conn *net.UnixConn }

// HandSockets gives the listening sockets of a gateway that is about to end to the program that
// restarts it. It returns nil if there is no such program, or if it does not take them. Call it
// before the listeners are closed.
func (d Dir) HandSockets(listeners []net.Listener) *Handing {
	c, err := d.dialSockets()
	if err != nil {
		return nil
	}
	var sockets []*net.TCPListener
	for _, l := range listeners {
		if tcp, ok := l.(*net.TCPListener); ok {
			sockets = append(sockets, tcp)
		}
	}
	if err := proc.SendFiles(c, giveSockets, sockets...); err != nil {
		_ = c.Close()
		return nil
	}
	return &Handing{c}
}

// Finish sends the heritage to the next gateway. If the gateway is killed before, the next one gets
// only the sockets. A nil Handing has no effect.
func (h *Handing) Finish(heritage []byte) {
	if h == nil {
		return
	}
	_ = h.conn.SetDeadline(time.Now().Add(socketsTimeout))
	_, _ = h.conn.Write(heritage)
	_ = h.conn.Close()
}

// TakeSockets returns the listeners of the gateway before and its heritage, if a program restarts
// it and keeps them. The caller closes the listeners.
func (d Dir) TakeSockets() (listeners []net.Listener, heritage []byte) {
	c, err := d.dialSockets()
	if err != nil {
		return nil, nil
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(socketsTimeout))
	if err := proc.SendFiles[*os.File](c, takeSockets); err != nil {
		return nil, nil
	}
	_, files, err := proc.ReceiveFiles(c, 1)
	if err == nil {
		heritage, err = io.ReadAll(io.LimitReader(c, maxHeritage))
	}
	for _, f := range files {
		if l, err := net.FileListener(f); err == nil {
			listeners = append(listeners, l)
		}
	}
	closeAll(files)
	if err != nil {
		heritage = nil
	}
	return listeners, heritage
}

func (d Dir) dialSockets() (*net.UnixConn, error) {
	address, release := proc.SocketAddress(d.file(socketsFile))
	defer release()
	return net.DialUnix("unix", nil, address)
}
