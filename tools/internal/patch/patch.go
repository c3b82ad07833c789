// Package patch reads patches as models write them and applies them to texts: the
// "*** Begin Patch" envelope, and unified diffs, git's or others'.
//
// Line numbers and counts in a model's diff are often wrong, so that hunks are
// found by what they hold. Where that fits several places, the hunk is refused
// rather than guessed at: nothing is skipped, dropped or applied in part.
package patch

import (
	"errors"
	"fmt"
	"strings"
)

// Op is what a patch does to a file.
type Op int

// What a patch does.
const (
	Update Op = iota
	Add
	Delete
	Copy // to Target
)

// File is what a patch does to one file.
type File struct {
	Op     Op
	Path   string // as it stands in the patch
	Target string // new path, of an Update that moves too or of a Copy; else ""
	Exec   bool   // a file that is added is executable
	Hunks  []Hunk // of Add: at most one, all of whose lines are added
}

// Hunk is one place of a file and its change.
type Hunk struct {
	Line    int      // of the patch, the first is 1
	Anchors []string // lines of the file, in this order, that it stands behind
	At      int      // line of the file that it begins at, or that it is inserted behind; -1: not said
	Lines   []Line
	AtEnd   bool // its last line is the file's
}

// Line is one line of a hunk. Text has its line ending, unless it is the last line
// of a file that doesn't end in one.
type Line struct {
	Op   byte // ' ', '-' or '+'
	Text string
}

// MaxSize is the size of the largest patch that is read.
const MaxSize = 4 << 20

// Parse reads a patch. Text around it is left out of account. The error names the
// line.
func Parse(text string) ([]File, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("the patch has %d bytes, %d MB is the most: make several of it", len(text), MaxSize>>20)
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	p := &parser{lines: strings.SplitAfter(text, "\n")}
	p.lines = p.lines[:len(p.lines)-1]
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New(`there is no patch in the input: send a unified diff ("--- a/file", "+++ b/file", "@@ ...") or "*** Begin Patch" ... "*** End Patch"`)
	}
	return files, nil
}

// parser goes through the lines of a patch.
type parser struct {
	lines []string // with their endings
	at    int
}

// peek returns the n-th line from here without its ending, "" past the end.
func (p *parser) peek(n int) string {
	if p.at+n >= len(p.lines) {
		return ""
	}
	return strings.TrimRight(p.lines[p.at+n], "\r\n")
}

func (p *parser) done() bool { return p.at >= len(p.lines) }

// fault is an error about the current line.
func (p *parser) fault(format string, args ...any) error {
	return fmt.Errorf("line %d of the patch: %s", p.at+1, fmt.Sprintf(format, args...))
}

// files reads the patch in the form that it has.
func (p *parser) files() ([]File, error) {
	for i := range p.lines {
		if strings.TrimRight(p.lines[i], " \t\r\n") == beginPatch {
			p.at = i + 1
			return p.envelope()
		}
	}
	return p.unified()
}
