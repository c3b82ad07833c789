package deps

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTestsExist holds lists of tests against the code. A promise of SECURITY.md whose test
// was renamed can't be checked, and a test of ci/long that was renamed runs in make test again.
func TestNamedTestsExist(t *testing.T) {
	root := filepath.Join("..", "..")
	grep := exec.Command("git", "grep", "--untracked", "-hoE", `^func (Test|Fuzz)\w+`, "--",
		"*_test.go")
	grep.Dir = root
	out, err := grep.Output()
	if err != nil {
		t.Fatalf("listing the tests: %v", err)
	}
	there := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		there[strings.TrimPrefix(strings.TrimSpace(line), "func ")] = true
	}
	for file, pattern := range map[string]string{
		"SECURITY.md": "`((?:Test|Fuzz)\\w+)`",
		"ci/long":     `(?m)^((?:Test|Fuzz)[^/\n]*)`,
	} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			// Test(A|B) names two tests.
			before, group, _ := strings.Cut(m[1], "(")
			for end := range strings.SplitSeq(strings.TrimSuffix(group, ")"), "|") {
				names = append(names, before+end)
			}
		}
		if len(names) < 40 {
			t.Fatalf("%s names %d tests, want at least 40", file, len(names))
		}
		for _, name := range names {
			if !there[name] {
				t.Errorf("%s names %s, want such a test", file, name)
			}
		}
	}
}
