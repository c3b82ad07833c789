package proc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The test binary is the child, too: these are the programs that it can be.
var programs = map[string]func(args []string) int{
	"lines": func(args []string) int {
		for _, a := range args {
			fmt.Fprintln(os.Stdout, a)
		}
		fmt.Fprintln(os.Stderr, "oops")
		return 3
	},
	"env": func([]string) int {
		for _, pair := range os.Environ() {
			fmt.Fprintln(os.Stdout, pair)
		}
		return 0
	},
	// echoes stdin, and ends with it
	"cat": func([]string) int {
		_, _ = io.Copy(os.Stdout, os.Stdin)
		return 0
	},
	// says so when SIGTERM comes, and ends
	"polite": func([]string) int {
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGTERM)
		fmt.Fprintln(os.Stdout, "ready")
		<-ch
		fmt.Fprintln(os.Stdout, "bye")
		return 0
	},
	"stubborn": func([]string) int {
		signal.Ignore(syscall.SIGTERM)
		fmt.Fprintln(os.Stdout, "ready")
		select {}
	},
	// starts a stubborn child of its own, tells its pid and ends
	"parent": func([]string) int {
		cmd := child("stubborn")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			return 1
		}
		fmt.Fprintln(os.Stdout, "pid", cmd.Process.Pid)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	},
	// starts a child by this package, tells its pid and waits to be killed
	"owner": func([]string) int {
		p, err := Start(command("stubborn"))
		if err != nil {
			return 1
		}
		fmt.Fprintln(os.Stdout, "pid", p.PID())
		select {}
	},
	// runs a parent by this package, tells the pid of the parent's child once that is ready, and
	// waits to be killed
	"guarded": func([]string) int {
		c := command("parent")
		seen := make(chan string, 2)
		go func() {
			told := []string{<-seen, <-seen}
			slices.Sort(told) // "pid" and "ready"
			fmt.Fprintln(os.Stdout, told[0])
		}()
		c.Whole, c.OnLine = true, func(_ Stream, line string) { seen <- line }
		ended := command("lines")
		ended.Whole = true
		for _, c := range []Command{ended, c, ended} {
			p, err := Start(c)
			if err != nil {
				return 1
			}
			if c.OnLine == nil {
				<-p.Done()
			}
		}
		select {}
	},
	"lock": func(args []string) int {
		l, err := TryLock(args[0])
		fmt.Fprintln(os.Stdout, l != nil, err)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	},
}

const programVar = "PROC_TEST_PROGRAM"

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

func command(program string, args ...string) Command {
	return Command{Path: self(), Args: args, Env: environ(program)}
}

// environ makes this program another one. Under the race detector a program
// takes a second to end unless told not to.
func environ(program string) []string {
	return Environ(map[string]string{programVar: program, "GORACE": "atexit_sleep_ms=0"})
}

func child(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(self(), args...)
	cmd.Env = environ(program)
	return cmd
}

// start starts a program and hands its lines over.
func start(t *testing.T, c Command) (*Process, <-chan string) {
	t.Helper()
	lines := make(chan string, 1000)
	c.OnLine = func(from Stream, line string) { lines <- string(from) + " " + line }
	p, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p, lines
}

// What nobody else reads of stdout is there for its reader, whole, also after the child's end.
func TestReadStdout(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	c := command("lines", "1", long)
	c.ReadStdout = true
	p, lines := start(t, c)
	if got := next(t, lines); got != "stderr oops" {
		t.Errorf("the first line is %q, want that of stderr", got)
	}
	<-p.Done()
	got, err := io.ReadAll(p.Stdout())
	if want := "1\n" + long + "\n"; err != nil || string(got) != want {
		t.Errorf("stdout has %d bytes (%v), want %d", len(got), err, len(want))
	}
	if err := p.Stdout().Close(); err != nil {
		t.Errorf("closing stdout: %v, want no error", err)
	}
}

func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(20 * time.Second):
		t.Fatal("no line came, want one")
		return ""
	}
}

func TestOutputAndExitCode(t *testing.T) {
	c := command("lines", "1", "2", strings.Repeat("x", 3*maxLine), "4")
	c.Keep = 2
	p, lines := start(t, c)
	exit, ok := errors.AsType[*exec.ExitError](p.Err())
	if !ok || exit.ExitCode() != 3 {
		t.Errorf("ended with %v, want exit code 3", p.Err())
	}
	var out []string
	for range 4 {
		if line := next(t, lines); strings.HasPrefix(line, "stdout ") {
			out = append(out, strings.TrimPrefix(line, "stdout "))
		}
	}
	for len(lines) > 0 {
		out = append(out, strings.TrimPrefix(<-lines, "stdout "))
	}
	out = slices.DeleteFunc(out, func(s string) bool { return s == "stderr oops" })
	if len(out) != 4 || out[0] != "1" || out[1] != "2" || len(out[2]) != maxLine || out[3] != "4" {
		t.Errorf(`stdout: %d lines, third of %d bytes, want 4, "1", "2", %d and "4"`, len(out),
			len(out[2]), maxLine)
	}
	if tail := p.Tail(); len(tail) != 2 || !slices.Contains(tail, "4") &&
		!slices.Contains(tail, "oops") {
		t.Errorf("tail: %q, want two, with the last line of one stream", tail)
	}
}

func TestTailKeepsTheLastInOrder(t *testing.T) {
	r := Tail{Most: 3}
	for i := range 8 {
		r.Add(strconv.Itoa(i))
	}
	if got := r.Lines(); !slices.Equal(got, []string{"5", "6", "7"}) {
		t.Errorf(`kept %q, want ["5" "6" "7"]`, got)
	}
}

func TestStartErrorNamesTheProgram(t *testing.T) {
	if _, err := Start(Command{Path: "no-such-program"}); err == nil ||
		!strings.Contains(err.Error(), "no-such-program") {
		t.Errorf(`error %v, want an error and "no-such-program" in it`, err)
	}
}

// A child's output as it comes: whole, in its order, and read to its end when the
// writer refuses it.
func TestOutputToWriters(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	var both, out bytes.Buffer
	c := command("lines", long, "2")
	c.Stdout, c.Stderr = &both, &both
	p, _ := start(t, c)
	if p.Err() == nil || both.String() != long+"\n2\noops\n" || len(p.Tail()) != 0 {
		t.Errorf("both: %d bytes, tail %q", both.Len(), p.Tail())
	}
	c = command("lines", "1", "2")
	c.Stdout = &out
	p, lines := start(t, c)
	if p.Err() == nil || out.String() != "1\n2\n" || next(t, lines) != "stderr oops" {
		t.Errorf("stdout %q", &out)
	}
	c = command("lines", long, long)
	c.Stdout = refusing{}
	p, _ = start(t, c)
	if exit, ok := errors.AsType[*exec.ExitError](p.Err()); !ok || exit.ExitCode() != 3 {
		t.Errorf("ended with %v, want exit code 3", p.Err())
	}
}

type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, errors.New("no") }

func TestStopClosesStdin(t *testing.T) {
	p, lines := start(t, command("cat"))
	if _, err := io.WriteString(p.Stdin(), "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line := next(t, lines); line != "stdout hello" {
		t.Errorf(`echoed %q, want "stdout hello"`, line)
	}
	p.Stop()
}

func TestStopAsksFirst(t *testing.T) {
	p, lines := start(t, command("polite"))
	next(t, lines)
	p.Stop()
	if line := next(t, lines); line != "stdout bye" || p.Err() != nil {
		t.Errorf("last line %q, ended with %v", line, p.Err())
	}
}

func TestStopKillsInTheEnd(t *testing.T) {
	c := command("stubborn")
	c.Grace = 20 * time.Millisecond
	p, lines := start(t, c)
	next(t, lines)
	var all sync.WaitGroup
	for range 3 {
		all.Go(p.Stop)
	}
	all.Wait()
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf(`ended with %v, want an error and "killed" in it`, err)
	}
}

// What a child leaves behind in its group goes with it.
func TestGroupEndsWithTheChild(t *testing.T) {
	p, lines := start(t, command("parent"))
	pid := pidIn(t, lines)
	if err := p.Stdin().Close(); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	gone(t, pid)
}

func pidIn(t *testing.T, lines <-chan string) int {
	t.Helper()
	for {
		if _, rest, ok := strings.Cut(next(t, lines), "pid "); ok {
			pid, err := strconv.Atoi(rest)
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
}

// gone waits until a process has ended, reaped or not.
func gone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %d still runs, want its end", pid)
		}
	}
}

func TestChildDiesWithUs(t *testing.T) { diesWith(t, "owner") }

// What a child has started dies too, if that was wanted.
func TestGroupDiesWithUs(t *testing.T) { diesWith(t, "guarded") }

// diesWith kills a program and waits until the process whose pid it told has ended.
func diesWith(t *testing.T, program string) {
	t.Helper()
	cmd := child(program)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "pid ")))
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	gone(t, pid)
}

func TestEnvironIsAnAllowList(t *testing.T) {
	t.Setenv("SECRET_TOKEN", "x")
	t.Setenv("MINE_A", "1")
	t.Setenv("LC_TEST", "2")
	t.Setenv("LANG", "old")
	c := command("env")
	c.Env = Environ(map[string]string{programVar: "env", "LANG": "new"}, "MINE_*")
	c.Keep = 1000
	p, _ := start(t, c)
	<-p.Done()
	env := p.Tail()
	for _, want := range []string{"MINE_A=1", "LC_TEST=2", "LANG=new",
		"PATH=" + os.Getenv("PATH")} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is missing, want %q among them", want, want)
		}
	}
	for _, pair := range env {
		if strings.HasPrefix(pair, "SECRET_TOKEN=") || pair == "LANG=old" {
			t.Errorf("%s was handed on, want it kept back", pair)
		}
	}
}

func TestDetached(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	d, err := Detach(self(), []string{"hello"}, environ("lines"), "/", log)
	if err != nil {
		t.Fatal(err)
	}
	if d.cmd.Process.Pid == 0 || d.Err() == nil {
		t.Errorf("pid %d, ended with %v", d.cmd.Process.Pid, d.Err())
	}
	data, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(data), "hello\n") ||
		!strings.Contains(string(data), "oops\n") {
		t.Errorf("log %q, %v, want no error, %q and %q in it", data, err, "hello\n", "oops\n")
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	p, lines := start(t, command("lock", path))
	if line := next(t, lines); line != "stdout true <nil>" {
		t.Fatalf(`the child says %q, want "stdout true <nil>"`, line)
	}
	if l, err := TryLock(path); l != nil || err != nil {
		t.Errorf("got a lock that another has: %v, %v", l, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := WaitLock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting ended with %v, want %v", err, context.DeadlineExceeded)
	}
	if held, err := Locked(path); !held || err != nil || LockHolder(path) != p.PID() {
		t.Errorf("held: %v, %v, by %d, want true, by %d", held, err, LockHolder(path), p.PID())
	}
	// The lock goes with its process, however that ends.
	_ = syscall.Kill(p.PID(), syscall.SIGKILL)
	l, err := WaitLock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := TryLock(path); other != nil || err != nil {
		t.Errorf("two locks in one process: %v, %v", other, err)
	}
	l.Unlock()
	if held, err := Locked(path); held || err != nil || LockHolder(path) != os.Getpid() {
		t.Errorf(
			"after unlocking, held: %v, %v, last by %d, want false, last by %d",
			held, err, LockHolder(path), os.Getpid(),
		)
	}
	if l, err = TryLock(path); l == nil || err != nil {
		t.Errorf("after unlocking: %v, %v", l, err)
	}
	l.Unlock()
	if _, err := TryLock(filepath.Join(path, "x")); err == nil ||
		!strings.Contains(err.Error(), "locking ") {
		t.Errorf(`no directory: %v, want an error and "locking " in it`, err)
	}
}

func TestPrivateFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "b")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := PrivateDir(dir); err != nil {
		t.Fatal(err)
	}
	mode(t, dir, 0o700)
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WritePrivate(file, []byte("mine")); err != nil {
		t.Fatal(err)
	}
	mode(t, file, 0o600)
	RemoveOwn(file, []byte("other"))
	mode(t, file, 0o600)
	RemoveOwn(file, []byte("mine"))
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if err := PrivateDir(filepath.Join(write(t, filepath.Join(dir, "f")), "d")); err == nil {
		t.Error("PrivateDir below a file: no error, want one")
	}
}

func write(t *testing.T, path string) string {
	t.Helper()
	if err := WritePrivate(path, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

func mode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != want {
		t.Errorf("%s has mode %v, %v; want %v", path, info.Mode().Perm(), err, want)
	}
}
