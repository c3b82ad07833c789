package shellrule

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository makes a repository whose configuration names programs for all that git runs when it
// reads: gpg, a pager, a format. The program leaves the file ran. Its commit has a signature, so
// that formats about one ask gpg.
func repository(t *testing.T) (dir, ran string) {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	ran = filepath.Join(bin, "ran")
	program := filepath.Join(bin, "program")
	//nolint:gosec // a program
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	git := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %q: %v, want no error", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	git("", "init", "-q")
	for key, value := range map[string]string{"gpg.program": program, "pretty.evil": "%G?",
		"pretty.onelinex": "%G?",
		"core.pager":      program} {
		git("", "config", key, value)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	git("", "add", "file")
	commit := git("tree "+git("",
		"write-tree")+"\nauthor A <a@example> 1 +0000\ncommitter A <a@example> 1 +0000\n"+
		"gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\nfirst\n",
		"hash-object", "-t", "commit", "-w", "--stdin")
	git("", "update-ref", "HEAD", commit)
	return dir, ran
}

// Real git runs no program and reads no file outside the repository for a line that rules allow,
// and does so for lines that they refuse.
func TestGitReadsOnly(t *testing.T) {
	dir, ran := repository(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("hidden\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rules := begin("git status", "git log", "git diff", "git show", "git blame", "git grep",
		"git shortlog", "git rev-list", "git branch", "git tag")
	for line, allowed := range map[string]bool{
		"git --no-pager log --oneline -10":          true,
		"git -P log --pretty=fuller":                true,
		"git --no-optional-locks status --short":    true,
		"git --literal-pathspecs diff HEAD -- file": true,
		"git --no-replace-objects show --stat":      true,
		"git log '--format=%h %an %x47? %%G?'":      true,
		"git log --pretty=oneline":                  true,
		"git log '--pretty=format:%<(9)%s'":         true,
		"git rev-list --pretty=email HEAD":          true,
		"git branch '--format=%(refname)'":          true,

		"git log --pretty=%G?":                     false,
		"git log --pretty=evil":                    false,
		"git log --pretty=onelinex":                false,
		"git log --format=ev":                      false,
		"git log '--pretty=format:%h %GG'":         false,
		"git log '--format=tformat:%-G?'":          false,
		"git log '--format=% G?'":                  false,
		"git show --pretty=%GK":                    false,
		"git log --show-signature":                 false,
		"git grep -O text":                         false,
		"git grep --open-files-in-pager text":      false,
		"git diff --no-index file " + secret:       false,
		"git diff file " + secret:                  false,
		"git diff -- /dev/null " + secret:          false,
		"git blame --contents " + secret + " file": false,
		"git grep -nf " + secret + " HEAD":         false,
	} {
		if got := NotAllowed(rules, line); (got == "") != allowed {
			t.Errorf("%s: no rule allows %q, want allowed %v", line, got, allowed)
		}
		cmd := exec.Command("bash", "-c", line) //nolint:gosec // the test's own
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		_, err := os.Stat(ran)
		_ = os.Remove(ran)
		if leaves := err == nil || strings.Contains(string(out), "hidden"); allowed && leaves {
			t.Errorf("%s: ran a program %v, and printed %q, want none of both", line, err == nil,
				out)
		} else if !allowed && !leaves && !strings.Contains(line, " -nf ") {
			t.Errorf("%s: runs nothing and reads nothing, so it shows nothing: %q", line, out)
		}
	}
}
