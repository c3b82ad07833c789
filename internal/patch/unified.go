package patch

import (
	"strconv"
	"strings"

	"tapgw/internal/lazyregexp"
)

// Unified diffs, of git and of other programs.

// rangeLine matches the first line of a hunk of a unified diff. Models may leave out the
// numbers; such a line does not match.
var rangeLine = lazyregexp.New(
	`^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))?(?: ?@@|\s*$)`)

// fileHeader holds the lines before the hunks of a file.
type fileHeader struct {
	// rest of "diff --git ", "--- " and "+++ "; "": no such line
	git, oldName, newName        string
	from, to                     string // paths of a rename or a copy
	isAdded, isDeleted, isCopied bool
	oldMode, newMode             string
}

// unified reads a unified diff.
func (p *parser) unified() (files []File, err error) {
	var f *File
	for !p.isDone() {
		line := p.peek(0)
		switch {
		case strings.HasPrefix(line, "diff --git "), p.atNames():
			file, err := p.fileHead()
			if err != nil {
				return nil, err
			}
			files = append(files, file)
			f = &files[len(files)-1]
		case strings.HasPrefix(line, "@@"):
			if f == nil {
				return nil,
					p.fault(
						`no file is named before this hunk: "--- a/file" and "+++ b/file" are missing`)
			}
			h, err := p.unifiedHunk()
			if err != nil {
				return nil, err
			}
			f.Hunks = append(f.Hunks, h)
		case strings.HasPrefix(line, "Binary files ") && f != nil, line == "GIT binary patch":
			return nil, p.fault("it changes a binary file: only texts can be patched")
		case f != nil && line != "" && strings.IndexByte("+-", line[0]) >= 0 && !isSignature(line):
			return nil, p.fault("%.80q belongs to no hunk: hunks begin with @@", line)
		default:
			p.at++
		}
	}
	for i := range files {
		if err := files[i].check(); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// isSignature reports whether a line begins the signature of a mailed patch.
func isSignature(line string) bool { return strings.TrimRight(line, " ") == "--" }

// atNames reports whether the next lines are "--- " and "+++ ".
func (p *parser) atNames() bool {
	return strings.HasPrefix(p.peek(0), "--- ") && strings.HasPrefix(p.peek(1), "+++ ")
}

// fileHead reads the lines before the hunks of a file.
func (p *parser) fileHead() (File, error) {
	var h fileHeader
	first := p.at
	if rest, ok := strings.CutPrefix(p.peek(0), "diff --git "); ok {
		h.git = rest
		p.at++
	}
	for h.oldName == "" && !p.isDone() {
		switch line := p.peek(0); {
		case p.atNames():
			h.oldName, h.newName = p.peek(0)[4:], p.peek(1)[4:]
			p.at++
		case h.git == "":
		case h.readExtended(line):
		default:
			return h.file(p, first)
		}
		p.at++
	}
	return h.file(p, first)
}

// readExtended reads one of git's lines between "diff --git" and the hunks. It returns
// false for other lines.
func (h *fileHeader) readExtended(line string) bool {
	word := func(prefix string, value *string) bool {
		rest, ok := strings.CutPrefix(line, prefix)
		if ok {
			*value = rest
		}
		return ok
	}
	var mode string
	switch {
	case word("new file mode ", &mode):
		h.isAdded, h.newMode = true, mode
	case word("deleted file mode ", &mode):
		h.isDeleted = true
	case word("old mode ", &h.oldMode), word("new mode ", &h.newMode),
		word("rename from ", &h.from), word("rename to ", &h.to):
	case word("copy from ", &h.from):
		h.isCopied = true
	case word("copy to ", &h.to):
	case strings.HasPrefix(line, "index "), strings.HasPrefix(line, "similarity index "),
		strings.HasPrefix(line, "dissimilarity index "):
	default:
		return false
	}
	return true
}

// file makes the file of a header that began at a line of the patch.
func (h *fileHeader) file(p *parser, line int) (f File, err error) {
	fault := func(format string, args ...any) (File, error) {
		p.at = line
		return File{}, p.fault(format, args...)
	}
	oldName, newName := fileName(h.oldName), fileName(h.newName)
	if h.oldName == "" {
		var ok bool
		if oldName, newName, ok = gitNames(h.git); !ok && h.from == "" {
			return fault("which file is meant cannot be told from %.120q", h.git)
		}
	}
	h.isAdded = h.isAdded || oldName == "/dev/null"
	h.isDeleted = h.isDeleted || newName == "/dev/null"
	oldName, newName = trimPrefixes(oldName, newName)
	switch {
	case h.isAdded && h.isDeleted:
		return fault("a file cannot be added and deleted at once")
	case strings.HasPrefix(h.newMode, "12"), strings.HasPrefix(h.newMode, "16"):
		return fault("it makes %s a symbolic link or a submodule: only texts can be patched",
			newName)
	case h.oldMode != "" && h.oldMode != h.newMode:
		return fault("it changes the mode of %s: only texts can be patched, use chmod", oldName)
	case h.isAdded:
		f = File{Op: Add, Path: newName, Exec: h.newMode == "100755"}
	case h.isDeleted:
		f = File{Op: Delete, Path: oldName}
	case h.from != "":
		f = File{Op: Update, Path: fileName(h.from), Target: fileName(h.to)}
		if h.isCopied {
			f.Op = Copy
		}
		if f.Target == "" {
			return fault("the new path of %s is missing", f.Path)
		}
	default: // of "--- file.orig" and "+++ file" the second is the file
		f = File{Op: Update, Path: newName}
	}
	if f.Path == "" {
		return fault("the path is missing")
	}
	return f, nil
}

// check checks the data of a file after all of its hunks were read.
func (f *File) check() error {
	for _, h := range f.Hunks {
		for _, l := range h.Lines {
			if f.Op == Add && l.Op != '+' || f.Op == Delete && l.Op != '-' {
				p := &parser{at: h.Line - 1}
				return p.fault("%s is added or deleted as a whole, but this hunk keeps some of it",
					f.Path)
			}
		}
	}
	if f.Op == Update && f.Target == "" && len(f.Hunks) == 0 {
		return (&parser{}).fault("%s is named, but no hunk of it follows", f.Path)
	}
	return nil
}

// fileName reads a name in a header: quoted as in C, or up to a tab.
func fileName(s string) string {
	if q, err := strconv.QuotedPrefix(s); err == nil && s[0] == '"' {
		if name, err := strconv.Unquote(q); err == nil {
			return name
		}
	}
	s, _, _ = strings.Cut(s, "\t")
	return strings.TrimRight(s, " ")
}

// gitNames reads the two names of a "diff --git" line. Without quotes it finds only
// equal names, because names may contain spaces.
func gitNames(s string) (oldName, newName string, ok bool) {
	if strings.HasPrefix(s, `"`) {
		q, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", false
		}
		return fileName(q), fileName(strings.TrimSpace(s[len(q):])), true
	}
	for i := range len(s) {
		if s[i] != ' ' {
			continue
		}
		oldName, newName = s[:i], s[i+1:]
		if a, b := trimPrefixes(oldName, newName); a == b {
			return oldName, newName, true
		}
	}
	return "", "", false
}

// trimPrefixes removes git's a/ and b/ from two names if both have them or are
// /dev/null.
func trimPrefixes(oldName, newName string) (string, string) {
	a, isA := strings.CutPrefix(oldName, "a/")
	b, isB := strings.CutPrefix(newName, "b/")
	if (isA || oldName == "/dev/null") && (isB || newName == "/dev/null") {
		return a, b
	}
	return oldName, newName
}

// unifiedHunk reads a hunk: as many lines as its first line says, or, if that number
// can't be right, all following lines of a hunk.
func (p *parser) unifiedHunk() (Hunk, error) {
	h := Hunk{Line: p.at + 1, At: -1}
	r := rangeLine.FindStringSubmatch(p.peek(0))
	p.at++
	body := p.bodyLines(-1, -1)
	if r != nil {
		h.At, _ = strconv.Atoi(r[1])
		if counted := p.bodyLines(lineCount(r[2]), lineCount(r[4])); counted > 0 {
			body = counted
		}
	}
	for _, line := range p.lines[p.at : p.at+body] {
		switch {
		case line[0] == '\\':
			if n := len(h.Lines); n > 0 {
				h.Lines[n-1].Text = strings.TrimRight(h.Lines[n-1].Text, "\r\n")
			}
		case strings.TrimRight(line, "\r\n") == "":
			h.Lines = append(h.Lines, Line{' ', line})
		default:
			h.Lines = append(h.Lines, Line{line[0], line[1:]})
		}
	}
	p.at += body
	return p.checkedUnified(h)
}

// checkedUnified is checked, but leaves the parser behind the hunk.
func (p *parser) checkedUnified(h Hunk) (Hunk, error) {
	at := p.at
	h, err := p.checked(h)
	if err == nil {
		p.at = at
	}
	return h, err
}

// lineCount reads the number of lines in a range; without one it is 1.
func lineCount(s string) int {
	if s == "" {
		return 1
	}
	n, _ := strconv.Atoi(s)
	return n
}

// bodyLines returns the number of lines of the hunk that begins here. It is 0 if the
// hunk does not have exactly oldCount old and newCount new lines; -1 means any number.
func (p *parser) bodyLines(oldCount, newCount int) (n int) {
	isCounted := oldCount >= 0
	for ; p.at+n < len(p.lines); n++ {
		line := p.peek(n)
		op := byte(' ')
		if line != "" {
			op = line[0]
		}
		if isCounted && oldCount == 0 && newCount == 0 && op != '\\' {
			if op == '+' || op == '-' && !isSignature(line) && !p.isNextFile(n) || op == ' ' &&
				line != "" {
				return 0
			}
			return n
		}
		switch {
		case !isCounted && p.isNextFile(n), strings.IndexByte(" +-\\", op) < 0:
			if isCounted {
				return 0
			}
			return n
		case op == ' ':
			oldCount, newCount = oldCount-1, newCount-1
		case op == '-':
			oldCount--
		case op == '+':
			newCount--
		}
		if isCounted && (oldCount < 0 || newCount < 0) {
			return 0
		}
	}
	if isCounted && (oldCount > 0 || newCount > 0) {
		return 0
	}
	return n
}

// isNextFile reports whether the header of another file begins n lines from here.
func (p *parser) isNextFile(n int) bool {
	return strings.HasPrefix(p.peek(n), "--- ") && strings.HasPrefix(p.peek(n+1), "+++ ") &&
		(strings.HasPrefix(p.peek(n+2), "@@") || p.peek(n+2) == "")
}
