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

// States of this process for [Notifier.Notify], as sd_notify(3) words them. Send [Ready] once the
// gateway accepts connections, and again after [Reloading].
const (
	Ready     = "READY=1"
	Reloading = "RELOADING=1"
	Stopping  = "STOPPING=1"
)

// Notifier sends this process's states to the service manager that started it, over the socket of
// NOTIFY_SOCKET (sd_notify(3)). Without that variable, for example under launchd or in a terminal,
// it sends no states.
type Notifier struct {
	socket string
	log    *slog.Logger
}

// NewNotifier reads the socket's name from the environment variable NOTIFY_SOCKET and removes the
// variable, so that no child process can send states in this one's name. Call it before the first
// child starts.
func NewNotifier(log *slog.Logger) Notifier {
	n := Notifier{os.Getenv(socketVariable), log}
	_ = os.Unsetenv(socketVariable)
	return n
}

// Notify sends states, such as [Ready] and STATUS=text, in one message; at least one is required.
// It waits at most 2 s. It only logs a failure, because the gateway works without its manager.
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
