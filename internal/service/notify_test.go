package service

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"tapgw/internal/taptest"
)

func TestNotifier(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))

	// Hidden from what we start.
	socket := filepath.Join(t.TempDir(), "s")
	if runtime.GOOS == "linux" { // where systemd's may have no file
		socket = "@" + socket
	}
	next := taptest.ListenNotify(t, socket)
	t.Setenv("NOTIFY_SOCKET", socket)
	n := NewNotifier(logger)
	if _, ok := os.LookupEnv("NOTIFY_SOCKET"); ok {
		t.Error("NOTIFY_SOCKET is in the environment of what we start, want it removed")
	}
	n.Notify(Ready)
	if got := next(); got != "READY=1" {
		t.Errorf(`told %q, want "READY=1"`, got)
	}

	// Nobody asked.
	NewNotifier(logger).Notify(Ready)
	if log.Len() > 0 {
		t.Errorf("logged %s, want at most 0", &log)
	}
	// Nobody is there.
	Notifier{filepath.Join(t.TempDir(), "none"), logger}.Notify(Stopping)
	if !strings.Contains(log.String(), "state=STOPPING=1") &&
		!strings.Contains(log.String(), `state="STOPPING=1"`) {
		t.Errorf("logged %s", &log)
	}
}
