package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// hookSession starts a session whose host asks the gates itself.
func (r *rig) hookSession(id string) *gateway.Session {
	r.t.Helper()
	s, err := r.g.Register(gateway.SessionSpec{ID: id, Label: id, CWD: "/w/" + id},
		gateway.HostInfo{Kind: "test", Send: true, LiveTools: true, Hooks: true},
		&host{came: make(chan struct{}, 1)})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// shell is the gates' decision about a shell's command.
func shell(t *testing.T, s *gateway.Session) string {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	d := s.PreToolUse(ctx, "shell", protocol.Raw(`{"command":"rm -rf /"}`))
	return fmt.Sprint(d.Deny, " ", d.Reason)
}

const guarded = "true guarded"

// No call passes a required provider that is away: in new sessions, after its end, and while it is
// restarted.
func TestRequiredGateStaysClosed(t *testing.T) {
	for _, sessions := range []string{"each", "all"} {
		t.Run(sessions, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			more := []string{"required = true", fmt.Sprintf("sessions = %q", sessions)}
			if sessions == "all" {
				more = append(more, "ALL=1")
			}
			r.put("a", r.file("guard", more...))
			r.s.Reload()
			var s *gateway.Session
			for i := range 10 {
				s = r.hookSession(fmt.Sprint("s", i))
				if got := shell(t, s); got != guarded {
					t.Errorf("the first call of session %d: %s, want %s", i, got, guarded)
				}
			}
			last := r.child()
			for len(r.beats) > 0 {
				last = r.child()
			}
			for i := range 3 {
				pid, err := strconv.Atoi(last.pid)
				if err != nil {
					t.Fatal(err)
				}
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if got := shell(t, s); !strings.HasPrefix(got, "true ") {
					t.Errorf("kill %d: %s, want a denial", i, got)
				}
				r.ended(last)
				if got := shell(t, s); got != guarded {
					t.Errorf("after kill %d: %s, want %s", i, got, guarded)
				}
				last = r.child()
			}
			for i := range 3 {
				ctx, stop := context.WithCancel(t.Context())
				open := make(chan string)
				go func() {
					defer close(open)
					for ctx.Err() == nil {
						if got := shell(t, s); got != guarded && ctx.Err() == nil {
							open <- got
							return
						}
					}
				}()
				if _, err := r.s.Restart(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
				stop()
				if got, is := <-open; is {
					t.Errorf("during restart %d: %s, want %s", i, got, guarded)
				}
			}
		})
	}
}

// Only a setting of the file opens the gate of a required provider that does not run, and the
// denial says why it does not.
func TestRequiredProviderDoesNotRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.hookSession("s")
	decide := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		d := s.PreToolUse(ctx, "shell", protocol.Raw(`{}`))
		return fmt.Sprint(d.Deny, " ", d.Reason)
	}
	const away = "true provider a is required here and is not connected: "
	steps := []struct{ file, want string }{
		{"kind = \"command\"\ncommand = [\"x\"]\nrequired = true\nno_key = 1\n",
			away + "line 4: unknown key no_key: "},
		{"kind = \"command\"\ncommand = [\"x\"]\ngrants = [\"gates\", \"x\"]\n",
			away + "line 3: grants[1]: "},
		{"kind = \"command\"\ncommand = [\"x\"]\nrequired = \"no\"\n", away + "line 3: required: "},
		{"kind = \"command\"\ncommand = [\"x\"]\nrequired = false\ngrants = [\"gates\", \"x\"]\n",
			"false "},
		{"kind = \"command\"\ncommand = [\"x\"]\nrequired = true\nsessions = { label = \"other\" }\nno_key = 1\n", "false "},
		{"kind = \"connect\"\ngrants = [\"gates\"]\n",
			away + "its program, which starts itself, has not joined"},
		// its last content without a fault counts
		{"kind = \"connect\"\ngrants = [\"gates\"]\nno_key = 1\n", away},
		{"kind = \"connect\"\ngrants = [\"gates\"]\nrequired = false\n", "false "},
		{"kind = \"connect\"\ngrants = [\"gates\"]\nenabled = false\n", "false "},
		{r.file("start", "required = true"), away},
	}
	for i, step := range steps {
		r.put("a", step.file)
		r.s.Reload()
		if got := decide(); !strings.HasPrefix(got, step.want) {
			t.Errorf("file %d: %s, want %s", i, got, step.want)
		}
	}
	r.eventually(func() error {
		if got := decide(); !strings.Contains(got, "exit status 3") {
			return fmt.Errorf("a process that ends: %s, want its end in the reason", got)
		}
		return nil
	})
	if _, err := r.s.Stop("a"); err != nil {
		t.Fatal(err)
	}
	if got, want := decide(), away+"by the user; tapctl providers start a"; got != want {
		t.Errorf("stopped: %s, want %s", got, want)
	}
	// A link that leads nowhere is a file that can't be read, and no file that is gone.
	file := filepath.Join(r.dir, "a.toml")
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink("/nowhere/a.toml", link), os.Rename(link, file)); err != nil {
		t.Fatal(err)
	}
	r.s.Reload()
	if got := decide(); !strings.HasPrefix(got, away) {
		t.Errorf("behind a link that leads nowhere: %s, want %s", got, away)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.put("a", "kind = \"command\"\ncommand = [\"x\"]\nenabled = false\n")
	r.s.Reload()
	if got := decide(); got != "false " {
		t.Errorf("turned off: %s, want it allowed", got)
	}
}
