package deps

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// documents returns the repository's Markdown files by their path from its root.
func documents(t *testing.T, root string) map[string]string {
	t.Helper()
	list := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing the documents: %v", err)
	}
	texts := map[string]string{}
	for file := range strings.Lines(string(out)) {
		file = strings.TrimSpace(file)
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	return texts
}

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestDocumentsLinkToWhatExists follows every link between documents: the file is
// there, and so is the heading.
func TestDocumentsLinkToWhatExists(t *testing.T) {
	root := filepath.Join("..", "..")
	texts := documents(t, root)
	anchors := map[string]map[string]bool{}
	for file, text := range texts {
		anchors[file] = map[string]bool{}
		for _, h := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			name := notAnchor.ReplaceAllString(strings.ToLower(h[1]), "")
			anchors[file][strings.ReplaceAll(name, " ", "-")] = true
		}
	}
	links := 0
	for file, text := range texts {
		for _, l := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			if strings.Contains(l[1], "://") || strings.HasPrefix(l[1], "mailto:") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(l[1], "#")
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: there is no %s, want a file", file, l[1], target)
			} else if anchor != "" && !anchors[target][anchor] {
				t.Errorf("%s links to %s, want a heading of that name in %s", file, l[1], target)
			}
		}
	}
	if links < 100 {
		t.Errorf("the documents have %d links between them, want at least 100", links)
	}
}

// TestDecisionsAreShort holds each decision to the size in which somebody reads it, and wants to
// know whether it still holds.
func TestDecisionsAreShort(t *testing.T) {
	const maxLines, maxWidth = 40, 100
	for file, text := range documents(t, filepath.Join("..", "..")) {
		if !strings.HasPrefix(file, "docs/adr/") {
			continue
		}
		if !regexp.MustCompile(`(?m)^Status: (accepted|withdrawn)\.`).MatchString(text) {
			t.Errorf("%s has no line that begins Status: accepted. or Status: withdrawn.", file)
		}
		if n := strings.Count(text, "\n"); n > maxLines {
			t.Errorf("%s has %d lines, want at most %d", file, n, maxLines)
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > maxWidth &&
				!strings.HasPrefix(line, "|") {
				t.Errorf("%s has a line of %d columns, want at most %d: %s", file, n, maxWidth,
					line)
			}
		}
	}
}

// TestVersionsAreShort holds each version in CHANGELOG.md to what somebody who upgrades reads.
func TestVersionsAreShort(t *testing.T) {
	const maxLines = 60
	text, err := os.ReadFile(filepath.Join("..", "..", "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, versions, _ := strings.Cut(string(text), "\n## ")
	for version := range strings.SplitSeq(versions, "\n## ") {
		title, body, _ := strings.Cut(version, "\n")
		if n := strings.Count(strings.TrimSpace(body), "\n") + 1; n > maxLines {
			t.Errorf("CHANGELOG.md has %d lines for %s, want at most %d", n, title, maxLines)
		}
		if !regexp.MustCompile(`^\[(Unreleased|\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d$)`).MatchString(
			title) {
			t.Errorf("CHANGELOG.md has the heading %q, want [Unreleased], or [VERSION] - DATE",
				title)
		}
	}
}

// TestTroubleshootingNamesRealMessages holds the messages that troubleshooting.md
// lists against the programs: somebody who looks for one finds it as it is printed.
func TestTroubleshootingNamesRealMessages(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	messages := regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(string(text), -1)
	if len(messages) < 10 {
		t.Fatalf("troubleshooting.md lists %d messages, want at least 10", len(messages))
	}
	for _, m := range messages {
		for part := range strings.SplitSeq(m[1], "…") {
			if part = strings.TrimSpace(part); len(part) < 3 {
				continue
			}
			grep := exec.Command("git", "grep", "--untracked", "-qF", "-e", part, "--", "*.go",
				":!*_test.go")
			grep.Dir = root
			if err := grep.Run(); err != nil {
				t.Errorf("troubleshooting.md lists %q: no program says %q, want it in the source",
					m[1], part)
			}
		}
	}
}
