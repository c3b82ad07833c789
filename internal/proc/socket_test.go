package proc

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A socket may lie deeper than the system's own limit for its path, where the system has a way.
func TestSocketAddress(t *testing.T) {
	dirs := []string{"short"}
	if runtime.GOOS == "linux" {
		dirs = append(dirs, strings.Repeat("long", 50))
	}
	for _, dir := range dirs {
		path := filepath.Join(t.TempDir(), dir, "socket")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		address, release := SocketAddress(path)
		listener, err := net.ListenUnix("unix", address)
		release()
		if err != nil {
			t.Errorf("listening at a path of %d bytes: %v", len(path), err)
			continue
		}
		listener.SetUnlinkOnClose(false)
		address, release = SocketAddress(path)
		conn, err := net.DialUnix("unix", nil, address)
		release()
		if err != nil {
			t.Errorf("dialling a path of %d bytes: %v", len(path), err)
		} else {
			_ = conn.Close()
		}
		_ = listener.Close()
	}
}
