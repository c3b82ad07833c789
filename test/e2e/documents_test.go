//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// TestDocumentCommands holds every command that the documents name, in a block, a line or a
// sentence, against the programs' help: the command and its flags exist. A block of shell that no
// guide runs says in its fence that it is a list of commands, or why it can't run.
func TestDocumentCommands(t *testing.T) {
	t.Parallel()
	list := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard",
		"*.md", ":!CHANGELOG.md", ":!docs/adr", ":!library_docs", ":!testdata")
	list.Dir = repo
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing the documents: %v", err)
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin+"/", "./cmd/...")
	build.Dir = repo
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the programs: %v\n%s", err, out)
	}
	help := helpTexts{bin: bin, texts: map[string]string{}}
	commands := 0
	for doc := range strings.Lines(string(out)) {
		doc = strings.TrimSpace(doc)
		text, err := os.ReadFile(filepath.Join(repo, doc))
		if os.IsNotExist(err) {
			continue // removed, and still in the index
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range guideBlocks.FindAllStringSubmatch(string(text), -1) {
			if language, remark := b[1], b[2]; language == "sh" && remark == "" && !isGuide(doc) {
				t.Errorf(
					"%s has a block that no test runs, want `list` or `not run: WHY` in its fence:\n%s",
					doc, b[4])
			}
		}
		for _, command := range documentCommands(string(text)) {
			commands++
			if fault := help.check(command); fault != "" {
				t.Errorf("%s: %s: %s", doc, strings.Join(command, " "), fault)
			}
		}
	}
	if commands < 300 {
		t.Errorf("the documents name %d commands, want at least 300", commands)
	}
}

// isGuide reports whether TestGuides runs the blocks of a document.
func isGuide(doc string) bool {
	return slices.ContainsFunc(guides, func(g guide) bool {
		return filepath.Join("docs", g.doc) == doc
	})
}

var (
	ourCommand  = regexp.MustCompile(`^(?:[A-Z_]+=\S* )*(?:tapgw|tapctl|lsclient) `)
	codeSpan    = regexp.MustCompile("`([^`\n]+)`")
	placeholder = regexp.MustCompile(`[|\[\]…<]`) // `tapgw config schema [tapgw|lsclient]`
	otherText   = regexp.MustCompile(`^tapgw (proof 1|is gone, so nothing judges this)$`)
)

// documentCommands returns the commands of our programs in a document, as words. A word that is
// not literal is "".
func documentCommands(text string) (commands [][]string) {
	for _, b := range guideBlocks.FindAllStringSubmatch(text, -1) {
		if b[1] == "sh" {
			commands = append(commands, shellCommands(b[4])...)
		}
	}
	text = codeFence.ReplaceAllString(text, "")
	for line := range strings.Lines(text) {
		if line, indented := strings.CutPrefix(line, "    "); indented &&
			ourCommand.MatchString(line) {
			commands = append(commands, shellCommands(line)...)
			continue
		}
		for _, span := range codeSpan.FindAllStringSubmatch(line, -1) {
			if ourCommand.MatchString(span[1]) && !placeholder.MatchString(span[1]) &&
				!otherText.MatchString(span[1]) {
				commands = append(commands, shellCommands(span[1])...)
			}
		}
	}
	return commands
}

var codeFence = regexp.MustCompile("(?ms)^```.*?^```$")

// shellCommands returns the calls of our programs in a shell text. It returns none if the text is
// no shell, such as a command with a line break behind a backslash that is on another line.
func shellCommands(text string) (commands [][]string) {
	file, err := syntax.NewParser().Parse(strings.NewReader(text), "")
	if err != nil {
		return nil
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		words := make([]string, len(call.Args))
		for i, arg := range call.Args {
			words[i] = arg.Lit()
		}
		if slices.Contains([]string{"tapgw", "tapctl", "lsclient"}, words[0]) {
			commands = append(commands, words)
		}
		return true
	})
	return commands
}

// helpTexts has what commands of the programs in bin print with --help, "" for a command that
// does not exist.
type helpTexts struct {
	bin   string
	texts map[string]string
}

// of returns the help of a program or one of its commands.
func (h helpTexts) of(command []string) string {
	name := strings.Join(command, " ")
	text, asked := h.texts[name]
	if !asked {
		args := append(slices.Clone(command[1:]), "--help")
		out, err := exec.Command(filepath.Join(h.bin, command[0]), args...).Output()
		if err == nil && strings.Contains(string(out), "\n  "+name) {
			text = string(out)
		}
		h.texts[name] = text
	}
	return text
}

var (
	helpCommands = regexp.MustCompile(`(?m)^Commands:$`)
	commandWord  = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// check says what is wrong with a command: "" if the command and its flags exist.
func (h helpTexts) check(words []string) string {
	path, rest := words[:1], words[1:]
	for len(rest) > 0 && commandWord.MatchString(rest[0]) {
		next := append(slices.Clone(path), rest[0])
		if h.of(next) == "" {
			break
		}
		path, rest = next, rest[1:]
	}
	text := h.of(path)
	name := strings.Join(path, " ")
	if len(rest) > 0 && commandWord.MatchString(rest[0]) && helpCommands.MatchString(text) {
		return fmt.Sprintf("%s has no command %s", name, rest[0])
	}
	for _, word := range rest {
		flag, _, _ := strings.Cut(word, "=")
		switch {
		case word == "--":
			return ""
		case !strings.HasPrefix(flag, "-") || len(flag) < 2:
		case !regexp.MustCompile(`(?m)^ .*(^|[ ,])` + regexp.QuoteMeta(flag) +
			`\b`).MatchString(text):
			return fmt.Sprintf("%s has no flag %s", name, flag)
		}
	}
	return ""
}
