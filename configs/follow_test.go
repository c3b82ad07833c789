package configs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A file that can't be used leaves what it said before, each fault is told once,
// and what is to be known of a good file does not keep it from counting.
func TestFollower(t *testing.T) {
	type answer struct {
		says  string
		notes Faults
		err   error
	}
	bad := Faults{{"f", 2, 3, "bad"}}
	note := Faults{{"f", 1, 1, "later"}}
	var now answer
	var did []string
	f := Follower[string]{
		Current: "start",
		Load:    func() (string, Faults, error) { return now.says, now.notes, now.err },
		Apply: func(old, now string) {
			did = append(did, old+" -> "+now)
		},
		Report: func(f Fault, isNote bool) {
			if did = append(did, f.Message); isNote {
				did = append(did, "note")
			}
		},
		FaultsChanged: func() { did = append(did, "faults") },
	}
	for _, tt := range []struct {
		answer
		did    []string
		faults int
	}{
		{answer{says: "start"}, nil, 0},
		{answer{says: "a"}, []string{"start -> a"}, 0},
		{answer{says: "lost", err: bad}, []string{"bad", "faults"}, 1},
		{answer{says: "lost", err: bad}, nil, 1},
		{answer{err: errors.New("gone")}, []string{"gone", "faults"}, 1},
		{answer{says: "b", notes: note}, []string{"later", "note", "faults", "a -> b"}, 1},
		{answer{says: "c", notes: note}, []string{"b -> c"}, 1},
		{answer{says: "c"}, []string{"faults"}, 0},
	} {
		now, did = tt.answer, nil
		f.Reload()
		slices.Sort(did)
		slices.Sort(tt.did)
		if !slices.Equal(did, tt.did) || len(f.Faults()) != tt.faults {
			t.Errorf("%+v did %q and leaves %v, want %q and %d", tt.answer, did, f.Faults(), tt.did,
				tt.faults)
		}
	}
}

// Whoever is told that the faults have changed may ask which they are.
func TestFaultsChangedMayAsk(t *testing.T) {
	bad := Faults{{"f", 2, 3, "bad"}}
	found := make(chan Faults, 1)
	f := Follower[string]{
		Load:   func() (string, Faults, error) { return "", nil, bad },
		Report: func(Fault, bool) {},
	}
	f.FaultsChanged = func() { found <- f.Faults() }
	go f.Reload()
	select {
	case got := <-found:
		if !slices.Equal(got, bad) {
			t.Errorf("got %v, want %v", got, bad)
		}
	case <-time.After(time.Minute):
		t.Fatal("asking for the faults does not return, want no wait for the lock")
	}
}

// Changes of a file are followed, and so is one that a Reload saw and that was
// undone before the watch told of it.
func TestFollow(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits 3 s until the files are read once more")
	}
	file := filepath.Join(t.TempDir(), "f")
	said := make(chan string, 10)
	f := Follower[string]{
		Load: func() (string, Faults, error) {
			data, err := os.ReadFile(file)
			return string(data), nil, err
		},
		Apply:  func(_, now string) { said <- now },
		Report: func(Fault, bool) {},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Follow(ctx,
			func() []string {
				return []string{filepath.Dir(file)}
			}, func(name string) bool { return name == "f" })
	}()
	replace := func(text string) { // never half-written
		write(t, file+".new", text)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	replace("one")
	if got := <-said; got != "one" {
		t.Errorf(`it said %q, want "one"`, got)
	}
	replace("two")
	f.Reload()
	replace("one")
	for _, want := range []string{"two", "one"} {
		if got := <-said; got != want {
			t.Errorf("it said %q, want %q", got, want)
		}
	}
	cancel()
	<-done
}

func TestChanged(t *testing.T) {
	a, b := Default(), Default()
	if keys := Changed(a, b); keys != nil {
		t.Errorf("nothing has changed: %q", keys)
	}
	b.Hosts, b.API.Auth, b.Copilot.Permissions.Shell, b.Copilot.MaxRounds = []string{"h"}, AuthNone,
		Allow, 3
	if got := strings.Join(Changed(a, b),
		" "); got != "hosts api.auth copilot.max_rounds copilot.permissions.shell" {
		t.Errorf(
			"the keys %s have changed, want %q",
			got, "hosts api.auth copilot.max_rounds copilot.permissions.shell",
		)
	}
	b = Default()
	b.Copilot.Directories, b.Copilot.Profiles = []string{"/d"},
		map[string]Profile{"p": DefaultProfile()}
	b.Copilot.MCP = map[string]SessionMCP{"m": {URL: "http://h"}}
	if got := strings.Join(Changed(a, b),
		" "); got != "copilot.directories copilot.mcp copilot.profile" {
		t.Errorf(
			"the keys %s have changed, want directories, mcp and profile, which a person trusts by name", got)
	}
	c, d := DefaultLSClient(), DefaultLSClient()
	d.Allow.Terminal, d.MCP = []string{"x"}, map[string]MCPServer{"m": {URL: "http://h"}}
	if got := strings.Join(Changed(c, d), " "); got != "allow.terminal mcp" {
		t.Errorf(`the keys %s have changed, want "allow.terminal mcp"`, got)
	}
}

// A key's place is that in the user's file: a project says nothing of the gateway.
func TestWhere(t *testing.T) {
	dir := t.TempDir()
	user, project := filepath.Join(dir, "user.toml"), filepath.Join(dir, "project.toml")
	write(t, user, "listen = \"127.0.0.1:1\"\n[api]\n  auth = \"none\"\n")
	write(t, project, "\n\nlog_level = \"warn\"\n")
	f := Files{User: user, Project: project, Trusted: true}
	for key, want := range map[string]string{"api.auth": "user.toml:3:3: x",
		"log_level": "user.toml:1:1: x"} {
		if got := f.Where(key, "x").Error(); !strings.HasSuffix(got, "/"+want) {
			t.Errorf("%s is at %s, want %s", key, got, want)
		}
	}
}
