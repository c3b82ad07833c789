package copilot

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCapabilitiesAreProven holds the tables of README.md and the first one of docs/copilot.md,
// which says what a repository brings, to capabilities: a row says what offers a capability, and
// capabilities names tests that exist and show it, or the row says "nothing" and why.
func TestCapabilitiesAreProven(t *testing.T) {
	root := filepath.Join("..", "..")
	document, err := os.ReadFile(filepath.Join(root, "docs", "copilot.md"))
	if err != nil {
		t.Fatal(err)
	}
	// another table, with its own test
	ofRepository, _, _ := strings.Cut(string(document), "\n## Events\n")
	inventory, err := os.ReadFile("README.md")
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
	section, rows, shown := "1", map[string]int{}, 0
	for line := range strings.Lines(ofRepository + string(inventory)) {
		line = strings.TrimSpace(line)
		if number, _, ok := strings.Cut(strings.TrimPrefix(line, "## "), ". "); ok &&
			strings.HasPrefix(line, "## ") {
			section = number
		}
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") ||
			strings.HasPrefix(line, "| Capability |") {
			continue
		}
		rows[section]++
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 2 {
			t.Errorf("%d cells in %s, want 2", len(cells), line)
			continue
		}
		capability, offer := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1])
		if section == "1" {
			capability, _, _ = strings.Cut(capability, ": ") // the files follow, which bring it
		}
		proofs := strings.Fields(capabilities[section][capability])
		if len(proofs) > 0 {
			shown++
		} else if !strings.HasPrefix(offer, "nothing: ") {
			t.Errorf("capabilities has no test for %q of section %s, want one, or nothing: and why",
				capability, section)
		}
		for _, name := range proofs {
			if !tests[name] {
				t.Errorf("capabilities names %s for %q, want a test of that name", name, capability)
			}
		}
	}
	listed := 0
	for _, section := range capabilities {
		listed += len(section)
	}
	if shown != listed {
		t.Errorf("%d of %d capabilities are rows of the documents, want all", shown, listed)
	}
	for s := range strings.FieldsSeq("2 3 4 5 6 7 8 9 10 11 12 13") {
		if rows[s] == 0 {
			t.Errorf("section %s has no rows, want at least one", s)
		}
	}
}
