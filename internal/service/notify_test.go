package service

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// listenNotify is a service manager's ear; next returns what it hears next.
func listenNotify(t *testing.T, socket string) (next func() string) {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		message := make([]byte, 4096)
		n, err := c.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
}

func TestNotifier(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))

	// Hidden from what we start.
	socket := filepath.Join(t.TempDir(), "s")
	if runtime.GOOS == "linux" { // where systemd's may have no file
		socket = "@" + socket
	}
	next := listenNotify(t, socket)
	t.Setenv("NOTIFY_SOCKET", socket)
	n := NewNotifier(logger)
	if _, ok := os.LookupEnv("NOTIFY_SOCKET"); ok {
		t.Error("what we start is told of the socket")
	}
	n.Notify(Ready)
	if got := next(); got != "READY=1" {
		t.Errorf("told %q", got)
	}

	// Nobody asked.
	NewNotifier(logger).Notify(Ready)
	if log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}
	// Nobody is there.
	Notifier{filepath.Join(t.TempDir(), "none"), logger}.Notify(Stopping)
	if !strings.Contains(log.String(), "state=STOPPING=1") && !strings.Contains(log.String(), `state="STOPPING=1"`) {
		t.Errorf("logged %s", &log)
	}
}
