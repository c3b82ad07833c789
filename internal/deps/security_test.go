package deps

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityNamesItsTests holds SECURITY.md against the code: each test that it
// names for a promise is there. A promise whose test was renamed is one that nobody
// can check.
func TestSecurityNamesItsTests(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	grep := exec.Command("git", "grep", "--untracked", "-hoE", `^func (Test|Fuzz)\w+`, "--", "*_test.go")
	grep.Dir = root
	out, err := grep.Output()
	if err != nil {
		t.Fatalf("listing the tests: %v", err)
	}
	there := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		there[strings.TrimPrefix(strings.TrimSpace(line), "func ")] = true
	}
	names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(text), -1)
	if len(names) < 40 {
		t.Fatalf("SECURITY.md names %d tests, want at least 40", len(names))
	}
	for _, name := range names {
		if !there[name[1]] {
			t.Errorf("SECURITY.md names %s, want such a test", name[1])
		}
	}
}
