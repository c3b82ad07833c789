package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// A file is a provider in every session: one that comes, changes or goes does so
// without anybody's doing.
func TestFileIsProvider(t *testing.T) {
	t.Setenv("SECRET", "of the gateway")
	r := newRig(t)
	one, h1 := r.session("one")
	r.put("a", r.file("plain", "TOOL=first"))
	r.has(h1, "first")
	p1 := r.child()
	o := call(one, "first")
	if text := o.Text(); o.Failed() || !strings.HasPrefix(text, p1.pid+" ") ||
		strings.Contains(text, "of the gateway") {
		t.Errorf(
			`the call: %q (the process is %s), want %q at its start and no "of the gateway" in it`,
			text, p1.pid, p1.pid+" ",
		)
	}
	// Each session has a process of its own, which ends with it.
	two, h2 := r.session("two")
	r.has(h2, "first")
	p2 := r.child()
	if err := two.Stop(context.Background(), "test"); err != nil {
		t.Fatal(err)
	}
	r.ended(p2)
	// The same content again changes nothing.
	r.put("a", "# a remark\n"+r.file("plain", "TOOL=first"))
	r.s.Reload()
	if !p1.isAlive() || len(r.beats) > 0 {
		t.Error("a comment started the process again, want the first process")
	}
	r.put("a", r.file("plain", "TOOL=second"))
	r.has(h1, "second")
	r.ended(p1)
	p3 := r.child()
	r.put("a", r.file("plain", "TOOL=second", "enabled = false"))
	r.has(h1)
	r.ended(p3)
	r.put("a", r.file("plain", "TOOL=second"))
	r.has(h1, "second")
	p4 := r.child()
	if err := os.Rename(filepath.Join(r.dir, "a.toml"),
		filepath.Join(r.dir, "b.toml")); err != nil {
		t.Fatal(err)
	}
	r.ended(p4)
	p5 := r.child()
	if err := os.Remove(filepath.Join(r.dir, "b.toml")); err != nil {
		t.Fatal(err)
	}
	r.ended(p5)
	r.has(h1)
}

// A directory that can't be read leaves the providers of its files running; one that is gone does
// not.
func TestUnreadableDirectoryKeepsWhatRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	r := newRig(t)
	_, h := r.session("one")
	r.put("a", r.file("plain", "TOOL=old"))
	r.has(h, "old")
	away := r.dir + ".away"
	if err := os.Rename(r.dir, away); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.s.Reload()
	if f := r.s.Faults(); len(f) != 1 || f[0].File != r.dir ||
		!strings.Contains(f[0].Message, "cannot be read") {
		t.Errorf("the faults are %v, want one of %s, which cannot be read", f, r.dir)
	}
	r.has(h, "old")
	if err := os.Remove(r.dir); err != nil {
		t.Fatal(err)
	}
	r.s.Reload()
	r.has(h)
	if err := os.Rename(away, r.dir); err != nil {
		t.Fatal(err)
	}
	r.has(h, "old")
}

// Trust that was taken back ends the providers of a directory, whether that can be read or not.
func TestUnreadableDirectoryWithoutTrust(t *testing.T) {
	s := New(Options{Gateway: gateway.New(gateway.Options{})})
	defer s.Close()
	s.setFiles([]configs.ProviderFile{{Name: "a", File: "/project/a.toml"}})
	for _, barred := range []bool{false, true} {
		s.setFiles(
			[]configs.ProviderFile{{File: "/project", LeftOut: barred,
				Faults: configs.Faults{{File: "/project"}}}},
		)
		if s.isNamed("a") == barred {
			t.Errorf(
				"the directory is barred: %v, and what its file said counts: %v, want it to count only if not barred",
				barred, !barred,
			)
		}
	}
}

// A file that can't be used leaves its last good version running, and is named with its line.
func TestBadFileKeepsTheLastGoodVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, h := r.session("one")
	good := r.file("plain")
	r.put("a", good)
	r.has(h, "t")
	p := r.child()
	path := filepath.Join(r.dir, "a.toml")
	for _, text := range []string{
		"", good[:20], strings.Replace(good, "command", "comand", 1), "kind = 1", good + "x =",
	} {
		r.put("a", text)
		r.s.Reload()
		faults := r.s.Faults()
		if len(faults) == 0 || faults[0].File != path || faults[0].Line == 0 {
			t.Errorf("%q: faults %v, want one with a line of %s", text, faults, path)
		}
		if o := call(s, "t"); o.Failed() || !strings.HasPrefix(o.Text(), p.pid+" ") {
			t.Errorf("%q: the call: %s, want success and %q at its start", text, o.Text(),
				p.pid+" ")
		}
	}
	r.put("a", good)
	r.s.Reload()
	if f := r.s.Faults(); len(f) > 0 || !p.isAlive() {
		t.Errorf("good again: %v, the process lives %v, want none and true", f, p.isAlive())
	}
}

// The new version is there before the old one goes, with the same tools: the session always has the
// tools of exactly one. A running call ends on the old one.
func TestChangeIsAtomicForTheSession(t *testing.T) {
	t.Parallel()
	for _, sessions := range []string{"each", "all"} {
		t.Run(sessions, func(t *testing.T) {
			r := newRig(t)
			s, h := r.session("one")
			more := []string{`sessions = "` + sessions + `"`}
			if sessions == "all" {
				more = append(more, "ALL=1")
			}
			r.put("a", r.file("slow", append(more, "VERSION=1")...))
			r.has(h, "t")
			old := r.child()
			result := make(chan gateway.Outcome, 1)
			go func() { result <- call(s, "t") }()
			if got := <-old.said; got != "called" {
				t.Fatalf(`the child said %q, want "called"`, got)
			}
			r.put("a", r.file("plain", append(more, "VERSION=2")...))
			next := r.child()
			r.until(h, "the new version", func(_ []string, tools []gateway.Tool) bool {
				return len(tools) == 1 && tools[0].Description == "a tool2"
			})
			if o := call(s, "t"); !strings.HasPrefix(o.Text(), next.pid) || !old.isAlive() {
				t.Errorf(
					"the new version said %s; the old one lives: %v, want %s at its start and true",
					o.Text(), old.isAlive(), next.pid,
				)
			}
			if _, err := old.conn.Write([]byte("go on\n")); err != nil {
				t.Fatal(err)
			}
			if o := <-result; o.Failed() || !strings.HasPrefix(o.Text(), old.pid) ||
				!strings.HasSuffix(o.Text(), "1") {
				t.Errorf(
					`the call that was running: %s, want success, %q at its start and "1" at its end`,
					o.Text(), old.pid,
				)
			}
			r.ended(old)
			h.mu.Lock()
			defer h.mu.Unlock()
			for i, list := range h.lists {
				if i > 0 && !slices.Equal(list, []string{"t"}) {
					t.Errorf("the session had %v, want t in each list after the first", h.lists)
					break
				}
			}
		})
	}
}

// A version that does not come up leaves the one before it where it is.
func TestNewVersionThatFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, h := r.session("one")
	r.put("a", r.file("plain"))
	r.has(h, "t")
	p := r.child()
	r.put("a", r.file("start"))
	for r.child().mode != "start" {
	}
	if o := call(s, "t"); o.Failed() || !strings.HasPrefix(o.Text(), p.pid) {
		t.Errorf("the call: %s, want success and %q at its start", o.Text(), p.pid)
	}
	r.put("a", r.file("plain"))
	r.s.Reload()
	if !p.isAlive() {
		t.Error("the old version ended, want it to run on until the new one is bound")
	}
}

func TestSessionsFilter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.put("a", r.file("plain", `sessions = { label = "label-two", cwd = "/w/*", host = "test" }`))
	r.put("b", r.file("plain", `sessions = { host = "copilot" }`))
	s, _ := r.session("one")
	_, h := r.session("two")
	r.has(h, "t")
	if len(s.Tools()) > 0 {
		t.Errorf("the other session has %v, want none", s.Tools())
	}
	s.Update("label-two", "")
	r.child()
	r.child() // one for each
}

func TestConnect(t *testing.T) {
	r := newRig(t)
	s, h := r.session("one")
	r.put("ed", "kind = \"connect\"\nsessions = \"all\"\nprefix = \"ed_\"")
	r.s.Reload()
	file := filepath.Join(r.s.o.TokenDir, "ed.token")
	token := waitFile(t, r, file)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token file: %v, %v, want no error and 0o600", info, err)
	}
	c := connect(t, r, token)
	r.has(h, "ed_t")
	if o := call(s, "ed_t"); o.Failed() {
		t.Errorf("the call: %s, want success", o.Text())
	}
	r.put("ed", "kind = \"connect\"\nsessions = \"all\"\nprefix = \"x_\"")
	r.s.Reload()
	<-c // it is disconnected, and comes again with the token that it has
	c = connect(t, r, token)
	r.has(h, "x_t")
	// A file with a fault changes nothing, nor does one that does not count.
	r.put("ed", "kind = ")
	r.s.Reload()
	if waitFile(t, r, file) != token {
		t.Error("a fault in the file changed the token, want the one that was")
	}
	if err := os.Remove(filepath.Join(r.dir, "ed.toml")); err != nil {
		t.Fatal(err)
	}
	r.s.Reload()
	<-c
	r.has(h)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the token file is there still: %v, want no file", err)
	}
	r.put("ed", "kind = \"connect\"")
	r.s.Reload()
	if waitFile(t, r, file) == token {
		t.Error("the token of a file that was deleted is good again, want another")
	}
	r.put("ed", r.file("plain"))
	r.s.Reload()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the token file of a provider that the gateway starts: %v, want no file", err)
	}
}

// A provider that starts itself keeps its token over restarts of the gateway, until its file is
// deleted, even if another instance runs then. A file that does not hold a token of ours is
// ignored.
func TestConnectTokenSurvives(t *testing.T) {
	r := newRig(t)
	r.put("ed", "kind = \"connect\"\nsessions = \"all\"")
	r.s.Reload()
	file := filepath.Join(r.s.o.TokenDir, "ed.token")
	token := waitFile(t, r, file)
	again := func() {
		t.Helper()
		r.s.Close()
		r.g.Drain(t.Context())
		r.g = gateway.New(gateway.Options{})
		o := r.s.o
		o.Gateway = r.g
		r.s = New(o)
		t.Cleanup(r.s.Close)
		r.s.Open("ws://127.0.0.1:1")
	}
	proves := func(token string) bool {
		p := &refusals{}
		c := r.g.Connect(p, gateway.ConnOptions{})
		defer c.Closed()
		c.Receive(protocol.Append(nil, &protocol.Auth{Token: token}))
		return p.n == 0
	}
	again()
	if got := waitFile(t, r, file); got != token || !proves(token) {
		t.Errorf("after a restart: the same %v, good %v, want both", got == token, proves(token))
	}
	r.s.Close()
	if err := os.WriteFile(file, []byte("open sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	again()
	if got := waitFile(t, r, file); got == token || proves(token) || proves("open sesame") ||
		!proves(got) {
		t.Errorf(
			"after the token's file was broken it has %q, want a new token that proves, and no other", got)
	}
	r.s.Close()
	if err := os.Remove(filepath.Join(r.dir, "ed.toml")); err != nil {
		t.Fatal(err)
	}
	again()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("after the provider's file was deleted: %v, want no file", err)
	}
}

// refusals counts the errors that a provider gets.
type refusals struct{ n int }

func (r *refusals) Send(m protocol.Message) {
	if m.MessageType() == protocol.TypeError {
		r.n++
	}
}
func (r *refusals) Flush()                           {}
func (r *refusals) Close(protocol.CloseCode, string) {}

// A directory that is not there is named, and not the program.
func TestNoDirectory(t *testing.T) {
	err := runCommand(
		t.Context(),
		&Run{Workdir: t.TempDir(), Provider: &configs.Provider{Command: []string{os.Args[0]},
			CWD: "none"}},
	)
	if err == nil || !strings.HasPrefix(err.Error(), "cwd: there is no directory /") {
		t.Errorf(`the error: %v, want an error and "cwd: there is no directory /" at its start`,
			err)
	}
}
