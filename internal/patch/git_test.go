package patch

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gitDiff is git's diff of two texts.
func gitDiff(t *testing.T, old, newText string, context int) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"old": old, "new": newText} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("git", "diff", "--no-index", "--no-color", "--no-ext-diff",
		"--src-prefix=a/", "--dst-prefix=b/", fmt.Sprintf("-U%d", context), "old", "new")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("git diff: %v: %s", err, stderr.String())
	}
	return string(out)
}

// randomText has few different lines, so that many places are equal.
func randomText(r *rand.Rand) string {
	pieces := []string{"a\n", "b\n", "\n", "  a\n", "}\n", "-- x\n", "++ y\n", " \n", "c\r\n",
		"@@ -1 +1 @@\n", "--- a/f\n"}
	var b strings.Builder
	for range r.IntN(40) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	if r.IntN(3) == 0 {
		b.WriteString("tail")
	}
	return b.String()
}

// changedText changes some lines of a text.
func changedText(r *rand.Rand, text string) string {
	var b strings.Builder
	for _, line := range splitLines(text) {
		switch r.IntN(8) {
		case 0:
		case 1:
			b.WriteString(line + randomText(r)[:0] + "new\n")
		case 2:
			b.WriteString("changed\n")
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}

// A diff of git, applied to the old text, gives the new one.
func TestGitDiffs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 150 {
		old := randomText(r)
		newText := changedText(r, old)
		if old == newText {
			continue
		}
		context := []int{0, 1, 3, 10}[i%4]
		diff := gitDiff(t, old, newText, context)
		got, err := patched(t, diff, old)
		if err != nil || got != newText {
			t.Fatalf("%q\n-> %q\ndiff -U%d:\n%s\ngot %q, %v, want the new text", old, newText,
				context, diff, got, err)
		}
	}
}

// If the numbers of a diff are wrong, as in models' diffs, the result is either right or
// an error.
func TestMiscountedDiffs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	applied := 0
	for range 100 {
		var b strings.Builder
		for n := range 30 {
			fmt.Fprintf(&b, "line %d\n", n)
		}
		old := b.String()
		newText := changedText(r, old)
		diff := gitDiff(t, old, newText, 3)
		lines := strings.SplitAfter(diff, "\n")
		for i, l := range lines {
			if strings.HasPrefix(l, "@@ -") {
				lines[i] = fmt.Sprintf("@@ -%d,%d +%d,%d @@\n", r.IntN(40), r.IntN(12), r.IntN(40),
					r.IntN(12))
			}
		}
		got, err := patched(t, strings.Join(lines, ""), old)
		if err == nil && got != newText {
			t.Fatalf("%s\ngot %q, want %q", strings.Join(lines, ""), got, newText)
		}
		if err == nil {
			applied++
		}
	}
	if applied < 90 {
		t.Errorf("%d of 100 diffs with wrong numbers were applied, want nearly all", applied)
	}
}

// No patch and no text cause a panic, and the numbers of lines add up.
func FuzzPatch(f *testing.F) {
	f.Add(update("@@ class B:\n         x = 1\n-        return x\n+        return -x\n"), twins)
	f.Add(update("@@\n+fig\n*** End of File\n"), fruit)
	f.Add(update("@@\n+\n"), "0")
	f.Add(diff("@@ -2,3 +2,3 @@\n banana\n-cherry\n+citrus\n date\n"), fruit)
	f.Add(diff("@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"), "a")
	f.Add(diff("@@ -2,0 +3 @@\n+blueberry\n"), fruit)
	f.Add(
		"*** Begin Patch\n*** Add File: a\n+x\n*** Delete File: b\n*** Update File: c\n*** Move to: d\n*** End "+
			"Patch\n", "")
	f.Add(
		"diff --git a/x b/z\nsimilarity index 90%\nrename from x\nrename to z\n--- a/x\n+++ b/z\n@@ -1 +1 "+
			"@@\n-a\r\n+b\r\n-- \n2.1\n", "a\r\nb\r\n")
	f.Add("diff --git \"a/\\303\\244\" \"b/\\303\\244\"\ndeleted file mode 100644\n", "\\\n")
	f.Add("--- a\n+++ b\n@@ -1,9 +0 @@\n-\\\n+--- x\n", "x")
	f.Add("--- a\n+++ a\n@@ -0,0 +1 @@\n+\n\\ No newline at end of file\n", "")
	f.Add("--- a\n+++ a\n@@ -1 +1,2 @@\n a\n+\n\\ No newline at end of file\n", "a\n")
	f.Fuzz(func(t *testing.T, patch, text string) {
		files, err := Parse(patch)
		if err != nil {
			return
		}
		for _, file := range files {
			if file.Path == "" {
				t.Errorf("a file without a path: %+v, want a path", file)
			}
			if file.Op == Add {
				_ = file.Content()
				continue
			}
			got, err := Apply("f", text, file.Hunks)
			if err != nil {
				continue
			}
			added := 0
			for _, h := range file.Hunks {
				for _, l := range h.Lines {
					switch l.Op {
					case '+':
						added++
					case '-':
						added--
					case ' ':
					default:
						t.Errorf("a line with the mark %q, want a space, + or -", l.Op)
					}
				}
			}
			was, is := len(splitLines(text)), len(splitLines(got))
			open := text != "" && !strings.HasSuffix(text, "\n") || strings.Contains(patch, "\n\\")
			if open && is == was+added-1 {
				is++ // an empty line at an end without newline
			}
			if is != was+added {
				t.Errorf("%q became %q: %d lines and %+d make %d, want %d", text, got, was, added,
					is, was+added)
			}
		}
	})
}
