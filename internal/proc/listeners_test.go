package proc

import (
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
)

func TestListeners(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it needs /proc")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	mine := Listener{PID: os.Getpid(), Port: l.Addr().(*net.TCPAddr).Port}
	for arg, want := range map[string]bool{os.Args[0]: true, os.Args[0] + "-": false} {
		found, err := Listeners(t.Context(), arg)
		if err != nil || slices.Contains(found, mine) != want {
			t.Errorf("Listeners(%q): %v, %v; want this process there: %v", arg, found, err, want)
		}
	}
}
