package main

import (
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
)

// envNotify names the socket on which a service manager wants to hear how we are
// (sd_notify(3)); one that begins with @ has no file.
const envNotify = "NOTIFY_SOCKET"

// notifyTimeout bounds how long a manager that does not listen can hold us up.
const notifyTimeout = 2 * time.Second

// States that service managers know.
const (
	notifyReady     = "READY=1"
	notifyReloading = "RELOADING=1"
	notifyStopping  = "STOPPING=1"
)

// notifier tells the service manager that started us how we are. Without one it
// tells nobody.
type notifier struct {
	socket string
	log    *slog.Logger
}

// newNotifier takes the socket out of the environment: what we start is not to
// speak for us.
func newNotifier(log *slog.Logger) notifier {
	n := notifier{os.Getenv(envNotify), log}
	_ = os.Unsetenv(envNotify)
	return n
}

// tell sends states in one message. That nobody hears them must not stop a
// gateway: it is logged.
func (n notifier) tell(states ...string) {
	if n.socket == "" {
		return
	}
	if err := n.send(states); err != nil {
		n.log.Warn("telling the service manager", "state", states[0], "error", err)
	}
}

func (n notifier) send(states []string) error {
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
