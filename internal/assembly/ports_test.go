package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"tapgw/internal/gateway"
	"tapgw/internal/proc"
)

func portsAt(path string) *attachedPorts {
	return newAttachedPorts(path, slog.New(slog.DiscardHandler))
}

// exists reports whether the file of attached ports is there.
func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// ownID returns the id of this process.
func ownID(t *testing.T) proc.ID {
	t.Helper()
	self, ok := proc.IDOf(os.Getpid())
	if !ok {
		t.Fatal("this system does not tell when a process began")
	}
	return self
}

// The next gateway attaches the ports whose terminals live, with the names of the tools that they
// have had.
func TestAttachedPortsComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "attached.json")
	self := ownID(t)
	ended := exec.Command("true")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	gone, _ := proc.IDOf(ended.Process.Pid)
	if err := ended.Wait(); err != nil {
		t.Fatal(err)
	}

	first := portsAt(path)
	first.add(attachedPort{Port: 7001, Process: self})
	first.add(attachedPort{Port: 7002, Process: gone})
	first.add(attachedPort{Port: 7003, Process: self})
	first.add(attachedPort{Port: 7004}) // whose process is not known
	first.gave(7001, []gateway.Tool{{Name: "greet"}})
	first.gave(7001, []gateway.Tool{{Name: "greet"}, {Name: "part"}})
	first.remove(7003)
	if noted, isNew := first.add(attachedPort{Port: 7001, Process: self}); isNew ||
		len(noted.Tools) != 2 {
		t.Errorf("the port that is attached is %+v, new: %v; want that of before with its tools",
			noted, isNew)
	}
	first.close()
	first.remove(7001) // its sessions end with the gateway

	second := portsAt(path)
	attached := make(chan attachedPort, 10)
	second.restore(func(_ context.Context, p attachedPort) error {
		attached <- p
		return nil
	})
	second.running.Wait()
	close(attached)
	var got []string
	for p := range attached {
		got = append(got, fmt.Sprint(p.Port, p.Tools))
	}
	if want := []string{"7001 [greet part]"}; !slices.Equal(got, want) {
		t.Errorf("attached again: %q, want %q", got, want)
	}
	second.remove(7001)
	if exists(t, path) {
		t.Error("the file is there without an attached port, want none")
	}
	second.close()
}

// A terminal that does not answer yet is tried again, and at last given up.
func TestAttachedPortsAreTriedAgain(t *testing.T) {
	dir := t.TempDir()
	self := ownID(t)
	for tries, want := range map[int]bool{3: true, attachTries + 1: false} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(dir, fmt.Sprint(tries))
			before := portsAt(path)
			before.add(attachedPort{Port: 7001, Process: self})
			before.close()
			a := portsAt(path)
			n := 0
			a.restore(func(context.Context, attachedPort) error {
				if n++; n < tries {
					return errors.New("busy")
				}
				return nil
			})
			a.running.Wait()
			if got := exists(t, path); got != want {
				t.Errorf("after %d tries the port is remembered: %v, want %v", n, got, want)
			}
			a.close()
		})
	}
}

// A damaged file attaches nothing, and is replaced by the next port.
func TestAttachedPortsFileIsDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "attached.json")
	if err := os.WriteFile(path, []byte(`[{"port": 70`), 0o600); err != nil {
		t.Fatal(err)
	}
	a := portsAt(path)
	a.restore(func(context.Context, attachedPort) error {
		t.Error("a port of a damaged file is attached")
		return nil
	})
	a.close()
	if exists(t, path) {
		t.Error("the damaged file stays, want it removed")
	}
}
