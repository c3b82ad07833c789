package shellrule

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sandbox has a directory of programs that only report that they ran, and a directory to
// run commands in, with files that a shell would find if it expanded something.
type sandbox struct{ bin, work string }

// programs are all programs on PATH. The first ones have rules.
var (
	allowedPrograms = []string{"git", "ls", "wc", "mytool"}
	otherPrograms   = []string{"rm", "touch", "evil", "id", "x", "sh", "env", "xargs", "cat",
		"status"}
	bait = []string{"evil.sh", "x/evil.sh", "x/git", "--output=x", "a b", "git;evil", "$(evil)",
		"x $(evil)", "-exec"}
)

func newSandbox(t testing.TB) sandbox {
	t.Helper()
	s := sandbox{t.TempDir(), t.TempDir()}
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	// File 3 is the report. What is dangerous in an argument, these programs do.
	program := func(name string) string {
		options := map[string]string{
			// Before its command git takes harmless options only, behind it none of these.
			"git": `,-P|,--no-pager|,--no-optional-locks|,--no-replace-objects|,--no-lazy-fetch|,--no-advice` +
				`|,--*-pathspecs) ;; ,-*|?,--outp*|?,--exec*|?,--upload*|?,--ext*|?,-O*|?,--no-in*|?,--conten*` +
				`|?,--show-s*|?,--format=*%G*|?,--pretty=*%G*|?,--format=evil|?,--pretty=evil`,
			"mytool": "*,--outp*|*,-o*|*,-exec*|*,--exec*|*,-c*"}[name]
		if options == "" {
			return "#!/bin/sh\necho " + name + " >&3\n"
		}
		return "#!/bin/sh\necho " + name + " >&3\nfor a; do case $command,$a in " + options +
			") echo option $a >&3;; ,*) command=x;; esac; done\n"
	}
	for _, name := range append(slices.Clone(allowedPrograms), otherPrograms...) {
		write(filepath.Join(s.bin, name), program(name))
	}
	for _, name := range bait {
		write(filepath.Join(s.work, name), program("bait"))
	}
	return s
}

// run runs a command line in a shell without input, and returns the programs that ran. The
// shell can't write anything into files.
func (s sandbox) run(t testing.TB, shell, line string) []string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell, "-c", "ulimit -t 2; ulimit -f 0; exec "+shell+` -c "$0"`,
		line) //nolint:gosec // the test's own
	cmd.Dir = s.work
	cmd.Env = []string{"PATH=" + s.bin, "HOME=" + s.work}
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(r)
	_ = cmd.Wait()
	return strings.Split(string(bytes.TrimSuffix(said, []byte("\n"))), "\n")
}

// check runs an allowed line in real shells and fails if anything ran without a rule.
func (s sandbox) check(t testing.TB, shells []string, line string) {
	t.Helper()
	for _, shell := range shells {
		for _, ran := range s.run(t, shell, line) {
			if ran != "" && !slices.Contains(allowedPrograms, ran) {
				t.Errorf("%q is allowed and runs %q in %s", line, ran, shell)
			}
		}
		var found []string
		_ = filepath.WalkDir(s.work, func(path string, d os.DirEntry, err error) error {
			if rel, _ := filepath.Rel(s.work, path); err == nil && !d.IsDir() {
				found = append(found, rel)
			}
			return err
		})
		want := slices.Sorted(slices.Values(bait))
		if slices.Sort(found); !slices.Equal(found, want) {
			t.Fatalf("%q is allowed and leaves %q in %s, want %q", line, found, shell, want)
		}
	}
}

func realShells(t testing.TB) (shells []string) {
	t.Helper()
	for _, name := range []string{"bash", "dash"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%s is needed: install it (Debian: apt install %s), want no error", name, name)
		}
		shells = append(shells, path)
	}
	return shells
}

// sandboxRules are rules of all forms for the programs of a sandbox.
var sandboxRules = append(begin("git status", "git log", "git diff", "ls", "wc", "cd", "echo"),
	exactly("mytool *", "wc | wc *")...)

// TestShellsAgree proves that the sandbox detects programs and files.
func TestShellsAgree(t *testing.T) {
	s, shells := newSandbox(t), realShells(t)
	for _, shell := range shells {
		for line, want := range map[string]string{
			"git status && ls | wc -l":           "git ls wc",
			"cd x && ./evil.sh":                  "bait",
			`git status ${a="$"}$(touch x)`:      "touch git",
			"git log --output=x; evil":           "git option --output=x evil",
			"mytool 'a b' \"c\" HEAD~1 a^ x@y %": "mytool",
			"git --no-pager -P log -c -p":        "git",
			"git --no-pager -c a=b log":          "git option -c",
			"git -p --no-pager log":              "git option -p",
			"git diff --no-index a b":            "git option --no-index",
			"git log --pretty=%G?":               "git option --pretty=%G?",
		} {
			ran := strings.Join(s.run(t, shell, line), " ")
			if a, b := strings.Fields(ran), strings.Fields(want); !slices.Equal(
				slices.Sorted(slices.Values(a)),
				slices.Sorted(slices.Values(b))) {
				t.Errorf("%s: %q ran %q, want %q", shell, line, ran, want)
			}
		}
	}
	for _, line := range []string{"git status && ls 2>/dev/null | wc -l",
		"mytool 'a b' \"c\" HEAD~1 a^ x@y %",
		"cd x; git log -3\nls '$(evil)' \"`\"", "echo '\\ceee' | wc"} {
		if Allows(sandboxRules, line) {
			s.check(t, shells, line)
		} else if !strings.Contains(line, "`") {
			t.Errorf("%q is not allowed, want %q in it", line, "`")
		}
	}
}

// In real shells, an allowed line runs no program without a rule, has no option that
// writes a file or runs a program, and writes no file.
func FuzzAllows(f *testing.F) {
	for _, line := range []string{
		"git status", "git status && git log -3 | wc -l", "cd x; ls 'a b' 2>&1 >/dev/null",
		"mytool a=b --x 'c \\ d' \"e\"", "echo a\nls",
		`git status ${a="$"}${b="${a}(touch x)"}${b@P}`, "git\fstatus\fx/evil.sh",
		"git\vstatus\vx/evil.sh", "git\u00a0status x/evil.sh", "git status\u00a0; evil",
		`cd x* && ls "${PWD@P}"`, "git log --output=FILE", "git log --outp FILE", "ls *", "ls ~",
		"ls {a,b}",
		"ls $(evil)", "ls `evil`", "ls <(evil)", "PATH=x git status", "git status\\\n;evil",
		"git status # ;evil", "ls $'\\x3b'evil", "ls \"`evil`\"", "ls & evil", "! ls", "ls > out",
		"ls >> out",
		"git log *", "mytool *", "mytool [-]*", "mytool $(evil)", "mytool {--output=x,b}", "ls > x",
		"ls >&x",
		"ls &> x", "ls <<E\n$(evil)\nE", "ls '\n' evil", "mytool 'x'\\''y'", "ls\tevil", "ls 2>&1x",
		"ls ^x",
		"wc | wc -l", "cd x && ./git status", "ls 'é' é", "ls a^b~c", "ls;;evil", "ls |& evil",
		"f() { evil; }; f",
		"a=evil; $a", "mytool [a-z]", "mytool -c evil", "mytool ext::x", "echo -e '\\x'",
		"ls %1 +x @x ,x :x", "git log --format=%G?", "ls \"\\\nevil\"", "ls '' \"\"",
		"git --no-pager diff", "git --no-pager log --oneline -10",
		"git -P --no-optional-locks status", "git -p log",
		"git -c core.pager=evil log", "git -C x log", "git --git-dir=x log",
		"git --work-tree x status",
		"git --namespace=x log", "git --config-env=a=b log", "git --exec-path=x log",
		"git --paginate log",
		"git --no-pager -c core.pager=evil log", "git --literal-pathspecs --output=x log",
		"git --no-pager",
		"git log --pretty=%G?", "git log --pretty=evil",
		"git log --format=oneline --pretty=format:%h",
		"git log --show-signature", "git diff --no-index a b", "git diff a /x",
		"git log '--pretty=%+G?'",
	} {
		f.Add(line)
	}
	s, shells := newSandbox(f), realShells(f)
	f.Fuzz(func(t *testing.T, line string) {
		if Allows(sandboxRules, line) {
			s.check(t, shells, line)
		}
	})
}

// A text that is denied alone is also denied behind another command.
func FuzzDenies(f *testing.F) {
	f.Add("rm x")
	f.Add("env $'r'm")
	f.Fuzz(func(t *testing.T, line string) {
		if Denies([]string{"rm"}, line) && !Denies([]string{"rm"}, "ls\n"+line) {
			t.Errorf("%q is denied, and not behind ls", line)
		}
	})
}
