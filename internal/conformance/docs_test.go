package conformance

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of rules in docs/conformance.md anew")

// The document lists the rules as the code has them, each with a heading of docs/protocol.md.
func TestDocumentListsRules(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "conformance.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	want := replaceTable(t, got, ProviderRules())
	if *update && want != got {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != got {
		t.Errorf(
			"docs/conformance.md lists other rules than the code has: run go test ./internal/conformance "+
				"-run %s -update", t.Name())
	}
}

// replaceTable puts the table of rules between the document's marks.
func replaceTable(t *testing.T, document string, rules []Rule) string {
	t.Helper()
	const begin, end = "<!-- rules -->\n", "<!-- end -->\n"
	before, rest, found := strings.Cut(document, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("docs/conformance.md has no %q and %q, want both", begin, end)
	}
	var table strings.Builder
	table.WriteString("\n| Rule | Demanded by | It asks | Section |\n|---|---|---|---|\n")
	ids := map[string]bool{}
	for _, r := range rules {
		if ids[r.ID] {
			t.Errorf("two rules have the id %s, want one", r.ID)
		}
		ids[r.ID] = true
		fmt.Fprintf(&table, "| `%s` | %s | %s | [%s](protocol.md#%s) |\n", r.ID,
			cmp.Or(r.Spec, "advice"), r.Title, r.Section, anchor(r.Section))
	}
	return before + begin + table.String() + "\n" + end + after
}

var notInAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)

// anchor is the anchor of a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}
