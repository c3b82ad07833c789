package patch

import (
	"errors"
	"slices"
	"strings"
	"unicode"

	"tapgw/internal/lazyregexp"
)

// Named returns the paths of the files that a patch of either form names; see [Names]. It is an
// error if programs may find others in it.
func Named(text string) ([]string, error) {
	read := Parse
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == beginPatch {
			read = ReadStrict
		}
	}
	files, err := read(text)
	if err != nil {
		return nil, err
	}
	return Names(files), nil
}

// Names returns the paths of all files that a patch reads, writes or removes, each once and in the
// patch's spelling. A file that moves counts with its old and its new path.
func Names(files []File) []string {
	var names []string
	for _, f := range files {
		for _, name := range []string{f.Path, f.Target} {
			if name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// ReadStrict reads the operations and paths of the "*** Begin Patch" form, without hunks, to decide
// about calls of other programs that apply the patch. A line that programs read in different ways
// is an error, so that the result names every file that the patch touches.
func ReadStrict(text string) ([]File, error) {
	if len(text) > maxSize {
		return nil, errors.New("the patch is too long: make several of it")
	}
	if otherBreak.MatchString(text) {
		return nil,
			errors.New(
				"it has a line break that is no newline (such as a lone carriage " +
					"return), where some " +
					"programs begin a line and others do not: change such a file in another way")
	}
	p := &parser{lines: strings.Split(strings.TrimSpace(text), "\n")}
	if strings.TrimSpace(p.peek(0)) != beginPatch {
		return nil, p.fault("want %q as the first line", beginPatch)
	}
	s := strict{parser: p}
	for p.at++; !p.isDone(); p.at++ {
		if err := s.line(strings.TrimRight(p.peek(0), " \t\r")); err != nil {
			return nil, err
		}
	}
	switch {
	case !s.isEnded:
		return nil, p.fault("%q is missing", endPatch)
	case len(s.files) == 0:
		return nil, p.fault("the patch changes nothing")
	}
	return s.files, nil
}

// otherBreak matches line breaks that not every program knows. A program that knows one would read
// the text after it as a new line, which may be a file's header.
var otherBreak = lazyregexp.New(`\r([^\n]|$)|[\v\f\x1c-\x1e\x{85}\x{2028}\x{2029}]`)

// headers are the lines with which a file's part of an envelope begins.
var headers = []struct {
	word string
	op   Op
}{{addFile, Add}, {deleteFile, Delete}, {updateFile, Update}}

// strict reads an envelope line by line.
type strict struct {
	*parser
	files   []File
	canMove bool // the line before begins an update
	isEnded bool
}

// line reads the current line. The line has no blanks at its end.
func (s *strict) line(line string) error {
	word := func(word string) (path string, ok bool) { return strings.CutPrefix(line+" ", word) }
	if line == "" {
		return nil
	}
	canMove := s.canMove
	s.canMove = false
	if s.isEnded {
		return s.fault("%.80q comes after the end of the patch", line)
	}
	if line == endPatch {
		s.isEnded = true
		return nil
	}
	if path, ok := word(moveTo); ok && canMove {
		return s.name(&s.files[len(s.files)-1].Target, path)
	}
	for _, h := range headers {
		if path, ok := word(h.word); ok {
			s.files = append(s.files, File{Op: h.op})
			s.canMove = h.op == Update
			return s.name(&s.files[len(s.files)-1].Path, path)
		}
	}
	return s.content(line)
}

// content reads a line that is part of a file.
func (s *strict) content(line string) error {
	isIn := func(op Op) bool { return len(s.files) > 0 && s.files[len(s.files)-1].Op == op }
	isNew := line[0] == '+'
	isOld := isNew || line[0] == '-' || strings.HasPrefix(line, "@@") || line == endOfFile ||
		line[0] == ' ' && !strings.HasPrefix(strings.TrimSpace(line), "***")
	if isNew && isIn(Add) || isOld && isIn(Update) {
		return nil
	}
	return s.fault("%.80q is not expected here", line)
}

// name sets a path of a file.
func (s *strict) name(to *string, path string) error {
	*to = strings.TrimSpace(path)
	if *to == "" || strings.ContainsFunc(*to, unicode.IsControl) {
		return s.fault("%q is no path", *to)
	}
	return nil
}
