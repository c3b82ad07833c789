// Package patch reads patches as models write them and applies them to texts: the "*** Begin Patch"
// envelope, and unified diffs of git or other programs.
//
// Line numbers and counts in a model's diff are often wrong, so a hunk's place is found by its
// lines. A hunk that fits in several places is refused: the package never guesses, skips a hunk, or
// applies a part of it.
package patch

import (
	"errors"
	"fmt"
	"strings"
)

// Op is the kind of a change of a file. The zero value is [Update].
type Op int

// The actions of a patch on a file: change the places of its hunks, create it, remove it, or copy
// it to another path.
const (
	Update Op = iota
	Add
	Delete
	Copy // to File.Target
)

// File is the part of a patch about one file. Paths are as the patch has them: the caller checks
// that they lie where it may write.
type File struct {
	Op     Op
	Path   string // as in the patch
	Target string // new path of a Copy, or of an Update that also moves; else ""
	Exec   bool   // an added file is executable
	Hunks  []Hunk // of Add: at most one, with added lines only
}

// Hunk is the change of one place in a file. Lines holds the old lines (' ' and '-') and the new
// ones (' ' and '+') in the order of the patch; [Apply] finds the place by the old ones.
type Hunk struct {
	Line    int      // of the patch, from 1
	Anchors []string // lines of the file before the place, in their order
	At      int      // line of the file where it begins, or behind which it inserts; -1: unknown
	Lines   []Line
	AtEnd   bool // its last line is the last line of the file
}

// Line is one line of a hunk. Text includes the line ending, unless it is the last line
// of a file without one there.
type Line struct {
	Op   byte // ' ', '-' or '+'
	Text string
}

// maxSize is the size of the largest patch in bytes.
const maxSize = 4 << 20

// Parse reads a patch of either form, of at most 4 MB, and ignores text around it. It checks no
// file. The error names the line of the patch and tells the model the right form; a text without a
// patch is an error too.
func Parse(text string) ([]File, error) {
	if len(text) > maxSize {
		return nil, fmt.Errorf("the patch has %d bytes, %d MB is the most: make several of it",
			len(text), maxSize>>20)
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
		return nil, errors.New("there is no patch in the input: send a unified diff " +
			`("--- a/file", "+++ b/file", "@@ ...") or "*** Begin Patch" ... "*** End Patch"`)
	}
	return files, nil
}

// parser reads the lines of a patch.
type parser struct {
	lines []string // with their endings
	at    int      // index of the current line
}

// peek returns the n-th line from here without its ending, "" past the end.
func (p *parser) peek(n int) string {
	if p.at+n >= len(p.lines) {
		return ""
	}
	return strings.TrimRight(p.lines[p.at+n], "\r\n")
}

func (p *parser) isDone() bool { return p.at >= len(p.lines) }

// fault is an error about the current line.
func (p *parser) fault(format string, args ...any) error {
	return fmt.Errorf("line %d of the patch: %s", p.at+1, fmt.Sprintf(format, args...))
}

// files reads the patch in whichever form it has.
func (p *parser) files() ([]File, error) {
	for i := range p.lines {
		if strings.TrimRight(p.lines[i], " \t\r\n") == beginPatch {
			p.at = i + 1
			return p.envelope()
		}
	}
	return p.unified()
}
