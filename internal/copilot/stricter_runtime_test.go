//go:build runtime

package copilot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/configs"
	"tapgw/internal/gateway"
)

// TestStricterWhileItRuns: a project's file that nobody trusts makes a running session stricter
// from the next call on, also for calls of tools about which the runtime does not ask, and the
// session stays so when the file goes.
func TestStricterWhileItRuns(t *testing.T) {
	g := newRig(t, readsAll, func(o *Options) { o.Permissions.Write = configs.Allow })
	made := func(name string) bool {
		_, err := os.Stat(filepath.Join(g.cwd, name))
		return err == nil
	}
	s := g.start()
	called := 0
	s.tool("work", func(context.Context, string) gateway.Outcome {
		called++
		return gateway.Outcome{Data: []byte(`"done"`)}
	})
	create := func(name string) {
		t.Helper()
		s.turn(fmt.Sprintf(`call:create {"path":%q,"file_text":"x"}`, filepath.Join(g.cwd, name)))
	}
	create("before.txt")
	s.turn(`call:work {}`)
	if !made("before.txt") || called != 1 {
		t.Fatalf("before: written: %v, %d calls, want a file and a call", made("before.txt"),
			called)
	}
	file := filepath.Join(g.cwd, ".tapgw", "tapgw.toml")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(g.cwd, "key.pem"), "PRIVATE")
	write(t, file,
		"[copilot.permissions]\nwrite = \"deny\"\ncustom-tool = \"deny\"\ndeny_paths = [\"*.pem\"]\n")
	create("after.txt")
	if made("after.txt") {
		t.Error("the file was written though the project denies it now")
	}
	s.turn(`call:work {}`)
	if called != 1 || !strings.Contains(s.lastSaid(), "DENIED") {
		t.Errorf("%d calls, said %q, want no call and DENIED", called, s.lastSaid())
	}
	for _, call := range []string{`view {"path":%q}`,
		`edit {"path":%q,"old_str":"none","new_str":"x"}`} {
		s.turn(fmt.Sprintf("call:"+call, filepath.Join(g.cwd, "key.pem")))
		if said := s.lastSaid(); !strings.Contains(said, "deny_paths") ||
			strings.Contains(said, "PRIVATE") {
			t.Errorf("%s: %q, want deny_paths in it", call, said)
		}
	}
	s.turn(`call:grep {"pattern":"PRIV","output_mode":"content"}`)
	if said := s.lastSaid(); strings.Contains(said, "PRIVATE") {
		t.Errorf("a search below a denied file: %q", said)
	}
	const note = "trusted or not, makes the session stricter until it ends: [copilot.permissions] has now other " +
		"values of write, custom-tool, deny_paths"
	if n := strings.Count(s.allNotes(), note); n != 1 {
		t.Errorf("%d notes that say so, want 1: %s", n, s.allNotes())
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	create("gone.txt")
	if made("gone.txt") {
		t.Error("the session got wider when the file went")
	}
	s = g.start()
	create("new.txt")
	if !made("new.txt") {
		t.Error("a new session has the rules of a file that is gone")
	}
}
