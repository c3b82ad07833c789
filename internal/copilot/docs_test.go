package copilot

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every row of docs/copilot.md says what offers a capability and which test shows
// it, or why not; and every test that it names is there.
func TestCapabilitiesAreProven(t *testing.T) {
	root := filepath.Join("..", "..")
	data, err := os.ReadFile(filepath.Join(root, "docs", "copilot.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(source, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	section, rows := "", map[string]int{}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section, _, _ = strings.Cut(title, ". ")
		}
		if section == "Events" {
			break // of another shape, with a test of its own
		}
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") ||
			strings.HasPrefix(line, "| Capability |") {
			continue
		}
		rows[section]++
		cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, "/"), "|"), "|")
		if len(cells) != 3 {
			t.Errorf("%d cells in %s, want 3", len(cells), line)
			continue
		}
		for i, c := range cells {
			if cells[i] = strings.TrimSpace(c); cells[i] == "" {
				t.Errorf("an empty cell, want a text, in %s", line)
			}
		}
		proofs := named.FindAllStringSubmatch(cells[2], -1)
		if len(proofs) == 0 && !strings.HasPrefix(cells[2], "Not: ") {
			t.Errorf("got no test, want one or a reason (Not: …), in %s", line)
		}
		for _, m := range proofs {
			if !tests[m[1]] {
				t.Errorf("want a test %s, there is none; it stands in %s", m[1], line)
			}
		}
	}
	for s := range strings.FieldsSeq("2 3 4 5 6 7 8 9 10 11 12 13") {
		if rows[s] == 0 {
			t.Errorf("section %s has no rows, want at least one", s)
		}
	}
}
