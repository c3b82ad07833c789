//go:build e2e && linux

// Package e2e_test runs what users run: the real binaries, the real Copilot
// runtime, provider programs in other processes, signals. Only the model is
// scripted. Every test has a home directory of its own and a port that the
// system picks, so that all of them run at the same time.
package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tapgw/internal/copilot"
)

// What TestMain finds and makes; fixed before the first test.
var (
	repo   string // the repository's root
	root   string // holds every file of this run, and marks its processes
	tapgw  string // the binaries under test
	tapctl string
)

// programVariable makes the test binary one of its own [programs].
const programVariable = "TAPGW_E2E_PROGRAM"

func TestMain(m *testing.M) {
	if name := os.Getenv(programVariable); name != "" {
		os.Exit(runProgram(name, os.Args[1:]))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	complain := func(err error) int {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	wd, err := os.Getwd()
	if err != nil {
		return complain(err)
	}
	repo = filepath.Dir(filepath.Dir(wd))
	if copilot.Installed(repo) == "" {
		return complain(fmt.Errorf("no Copilot runtime in %s: run make runtime",
			filepath.Join(repo, ".runtime")))
	}
	if root, err = os.MkdirTemp("", "tapgw-e2e-"); err != nil {
		return complain(err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	if err := os.Setenv("TMPDIR", root); err != nil { // for t.TempDir
		return complain(err)
	}
	if err := build(); err != nil {
		return complain(err)
	}
	setParallel()
	code := m.Run()
	if left := orphans(); len(left) > 0 {
		code = complain(fmt.Errorf("these processes are left over:\n\t%s",
			strings.Join(left, "\n\t")))
		for _, process := range left {
			var pid int
			if _, err := fmt.Sscan(process, &pid); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	if err := goleak.Find(); err != nil && code == 0 {
		code = complain(err)
	}
	return code
}

// setParallel runs more tests at once than there are processors, unless the
// command line says how many: they wait far more than they compute.
func setParallel() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(max(2, 4/slowdown)*runtime.GOMAXPROCS(0)))
	}
}

// build makes the binaries, with the race detector where the tests have it. The
// runtime stands where `make build` and `make runtime` leave it: above them.
func build() error {
	bin := filepath.Join(root, "bin")
	tapgw, tapctl = filepath.Join(bin, "tapgw"), filepath.Join(bin, "tapctl")
	args := []string{"build", "-o", bin + "/"}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/tapgw", "./cmd/tapctl")...)
	cmd.Dir = repo
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the binaries: %w\n%s", err, out)
	}
	return os.Symlink(filepath.Join(repo, ".runtime"), filepath.Join(root, ".runtime"))
}

// orphans waits for the processes of this run to end and returns those that do
// not: all of them have our directory in their environment or command line.
func orphans() []string {
	deadline := time.Now().Add(patience)
	for {
		left := processesOf(root)
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		<-time.After(20 * time.Millisecond)
	}
}

// processesOf lists the processes, but ourselves, that have a text in their
// environment or command line.
func processesOf(mark string) []string {
	var found []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid := filepath.Base(dir)
		if pid == fmt.Sprint(os.Getpid()) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if strings.Contains(string(command), mark) || strings.Contains(string(environment), mark) {
			found = append(found,
				pid+" "+strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " ")))
		}
	}
	return found
}
