package deps

import (
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// The widest line, a tab counting as four columns.
const maxColumns = 100

// TestLinesAreShort holds the lines of Go to a width at which two files fit side by
// side. Long literals in tests and long raw strings everywhere, struct tags among
// them, may exceed it, because a line break would change or hide their text. So may
// the JSON that an example prints.
func TestLinesAreShort(t *testing.T) {
	root := filepath.Join("..", "..")
	list := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing the Go files: %v", err)
	}
	for file := range strings.Lines(string(out)) {
		file = strings.TrimSpace(file)
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		literals := literalLines(text, !strings.HasSuffix(file, "_test.go"))
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    ")
			if strings.HasPrefix(line, "    // {") && strings.HasSuffix(file, "_test.go") {
				continue
			}
			if n := utf8.RuneCountInString(line); n > maxColumns && !literals[number] {
				t.Errorf("%s:%d has %d columns, want at most %d", file, number, n, maxColumns)
			}
		}
	}
}

// literalLines returns the lines that a long string literal stands on, with rawOnly
// only those of raw strings.
func literalLines(text []byte, rawOnly bool) map[int]bool {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind != token.STRING || len(literal) < maxColumns/4 || rawOnly && literal[0] != '`' {
			continue
		}
		first := file.Line(at)
		for i := range strings.Count(literal, "\n") + 1 {
			lines[first+i] = true
		}
	}
}
