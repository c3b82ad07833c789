package server_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"tapgw/internal/server"
)

// syncBuffer is a log that several write to.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A wrong token is in the log with the process that sent it, and without itself; so
// are no more of them than are counted.
func TestWrongTokenNamesItsProcess(t *testing.T) {
	var log syncBuffer
	_, s := running(t, server.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 30 {
		r, err := http.NewRequestWithContext(t.Context(), "GET",
			"http"+strings.TrimPrefix(s.URL(), "ws")+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer adm-hunter2")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 21 {
		t.Errorf("%d lines, want 21:\n%s", len(lines), log.String())
	}
	if want := fmt.Sprintf("process %d (", os.Getpid()); !strings.Contains(lines[0],
		"a wrong token") ||
		!strings.Contains(lines[0], want) ||
		!strings.Contains(lines[0], "path=/metrics") ||
		strings.Contains(log.String(), "hunter2") {
		t.Errorf(`the log says %s, want "a wrong token", %q and "path=/metrics" without the token`,
			lines[0], want)
	}
}
