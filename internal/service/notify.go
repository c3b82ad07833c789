package service

import (
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
)

// socketVariable names the socket of a service manager that wants to know the states of
// the service (sd_notify(3)). A name that begins with @ is no file.
const socketVariable = "NOTIFY_SOCKET"

// notifyTimeout bounds the wait for a manager that does not read its socket.
const notifyTimeout = 2 * time.Second

// States that [Notifier.Notify] sends.
const (
	Ready     = "READY=1"
	Reloading = "RELOADING=1"
	Stopping  = "STOPPING=1"
)

// Notifier tells the service manager that started this process about its states. Where no
// manager did, it does nothing.
type Notifier struct {
	socket string
	log    *slog.Logger
}

// NewNotifier reads the socket's name from the environment and removes it there, so that
// no child process can speak for this one.
func NewNotifier(log *slog.Logger) Notifier {
	n := Notifier{os.Getenv(socketVariable), log}
	_ = os.Unsetenv(socketVariable)
	return n
}

// Notify sends states, such as [Ready] and STATUS=text, in one message. A failure is
// logged and nothing more: the gateway works without its manager.
func (n Notifier) Notify(states ...string) {
	if n.socket == "" {
		return
	}
	if err := n.send(states); err != nil {
		n.log.Warn("notifying the service manager", "state", states[0], "error", err)
	}
}

func (n Notifier) send(states []string) error {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	_, err = c.Write([]byte(strings.Join(states, "\n")))
	return err
}
