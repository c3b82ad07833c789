package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFindHolder: a number in a lock's file alone names no process.
func TestFindHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	own, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := FindHolder(path); err != nil || p.Pid != os.Getpid() ||
		LockHolder(path) != os.Getpid() {
		t.Errorf("the holder is %v, %v, want this process", p, err)
	}
	fields := strings.Fields(string(own))
	for name, text := range map[string]string{
		"a number alone":        fields[0],
		"no start":              fields[0] + " 0 " + fields[2],
		"another start":         fmt.Sprintf("%s 1%s %s", fields[0], fields[1], fields[2]),
		"another namespace":     strings.Join(fields[:2], " ") + " other/pid:[1]",
		"a process that is not": "99999999 " + strings.Join(fields[1:], " "),
		"a group":               "-1 " + strings.Join(fields[1:], " "),
		"nothing":               "",
	} {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := FindHolder(path); !errors.Is(err, ErrElsewhere) {
			t.Errorf("%s: %v, %v, want %v", name, p, err, ErrElsewhere)
		}
	}
}
