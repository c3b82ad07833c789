package patch

import (
	"strconv"
	"strings"

	"tapgw/internal/lazyregexp"
)

// rangeLine is the first line of a hunk of a unified diff; models leave out the
// numbers.
var rangeLine = lazyregexp.New(`^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))?(?: ?@@|\s*$)`)

// names are what a header says about a file.
type names struct {
	git, old, new    string // the "diff --git", "--- " and "+++ " lines' rest; "" if there is none
	from, to         string // of a rename or a copy
	added, deleted   bool
	copied           bool
	oldMode, newMode string
}

// unified reads a unified diff.
func (p *parser) unified() (files []File, err error) {
	var f *File
	for !p.done() {
		line := p.peek(0)
		switch {
		case strings.HasPrefix(line, "diff --git "), p.fileLines():
			head, err := p.head()
			if err != nil {
				return nil, err
			}
			files = append(files, head)
			f = &files[len(files)-1]
		case strings.HasPrefix(line, "@@"):
			if f == nil {
				return nil, p.fault(`no file is named before this hunk: "--- a/file" and "+++ b/file" are missing`)
			}
			h, err := p.unifiedHunk()
			if err != nil {
				return nil, err
			}
			f.Hunks = append(f.Hunks, h)
		case strings.HasPrefix(line, "Binary files ") && f != nil, line == "GIT binary patch":
			return nil, p.fault("it changes a binary file: only texts can be patched")
		case f != nil && line != "" && strings.IndexByte("+-", line[0]) >= 0 && !signature(line):
			return nil, p.fault("%.80q belongs to no hunk: hunks begin with @@", line)
		default:
			p.at++
		}
	}
	for i := range files {
		if err := files[i].complete(); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// signature is the line that ends a mailed patch.
func signature(line string) bool { return strings.TrimRight(line, " ") == "--" }

// fileLines reports whether "--- " and "+++ " are next, with a hunk or nothing
// behind.
func (p *parser) fileLines() bool {
	return strings.HasPrefix(p.peek(0), "--- ") && strings.HasPrefix(p.peek(1), "+++ ")
}

// head reads what stands before the hunks of a file.
func (p *parser) head() (File, error) {
	var n names
	first := p.at
	if rest, ok := strings.CutPrefix(p.peek(0), "diff --git "); ok {
		n.git = rest
		p.at++
	}
	for n.old == "" && !p.done() {
		switch line := p.peek(0); {
		case p.fileLines():
			n.old, n.new = p.peek(0)[4:], p.peek(1)[4:]
			p.at++
		case n.git == "":
		case n.extended(line):
		default:
			return n.file(p, first)
		}
		p.at++
	}
	return n.file(p, first)
}

// extended reads one of git's lines between "diff --git" and the hunks.
func (n *names) extended(line string) bool {
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
		n.added, n.newMode = true, mode
	case word("deleted file mode ", &mode):
		n.deleted = true
	case word("old mode ", &n.oldMode), word("new mode ", &n.newMode),
		word("rename from ", &n.from), word("rename to ", &n.to):
	case word("copy from ", &n.from):
		n.copied = true
	case word("copy to ", &n.to):
	case strings.HasPrefix(line, "index "), strings.HasPrefix(line, "similarity index "),
		strings.HasPrefix(line, "dissimilarity index "):
	default:
		return false
	}
	return true
}

// file makes a file of its names.
func (n *names) file(p *parser, line int) (f File, err error) {
	fault := func(format string, args ...any) (File, error) {
		p.at = line
		return File{}, p.fault(format, args...)
	}
	old, new := fileName(n.old), fileName(n.new)
	if n.old == "" {
		var ok bool
		if old, new, ok = gitNames(n.git); !ok && n.from == "" {
			return fault("which file is meant cannot be told from %.120q", n.git)
		}
	}
	n.added = n.added || old == "/dev/null"
	n.deleted = n.deleted || new == "/dev/null"
	old, new = unprefixed(old, new)
	switch {
	case n.added && n.deleted:
		return fault("a file cannot be added and deleted at once")
	case strings.HasPrefix(n.newMode, "12"), strings.HasPrefix(n.newMode, "16"):
		return fault("it makes %s a symbolic link or a submodule: only texts can be patched", new)
	case n.oldMode != "" && n.oldMode != n.newMode:
		return fault("it changes the mode of %s: only texts can be patched, use chmod", old)
	case n.added:
		f = File{Op: Add, Path: new, Exec: n.newMode == "100755"}
	case n.deleted:
		f = File{Op: Delete, Path: old}
	case n.from != "":
		f = File{Op: Update, Path: fileName(n.from), Target: fileName(n.to)}
		if n.copied {
			f.Op = Copy
		}
		if f.Target == "" {
			return fault("the new path of %s is missing", f.Path)
		}
	default: // "--- file.orig", "+++ file": the new one is the file's
		f = File{Op: Update, Path: new}
	}
	if f.Path == "" {
		return fault("the path is missing")
	}
	return f, nil
}

// complete checks a file whose hunks are all there.
func (f *File) complete() error {
	for _, h := range f.Hunks {
		for _, l := range h.Lines {
			if f.Op == Add && l.Op != '+' || f.Op == Delete && l.Op != '-' {
				return (&parser{at: h.Line - 1}).fault("%s is added or deleted as a whole, but this hunk keeps some "+
					"of it", f.Path)
			}
		}
	}
	if f.Op == Update && f.Target == "" && len(f.Hunks) == 0 {
		return (&parser{}).fault("%s is named, but no hunk of it follows", f.Path)
	}
	return nil
}

// fileName reads a name of a header: quoted as in C, or up to a tab.
func fileName(s string) string {
	if q, err := strconv.QuotedPrefix(s); err == nil && s[0] == '"' {
		if name, err := strconv.Unquote(q); err == nil {
			return name
		}
	}
	s, _, _ = strings.Cut(s, "\t")
	return strings.TrimRight(s, " ")
}

// gitNames reads the two names of a "diff --git" line. Without quotes only names
// that are the same can be told apart.
func gitNames(s string) (old, new string, ok bool) {
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
		old, new = s[:i], s[i+1:]
		if a, b := unprefixed(old, new); a == b {
			return old, new, true
		}
	}
	return "", "", false
}

// unprefixed takes git's a/ and b/ from two names. A name may have none, and may
// be absolute.
func unprefixed(old, new string) (string, string) {
	a, isA := strings.CutPrefix(old, "a/")
	b, isB := strings.CutPrefix(new, "b/")
	if (isA || old == "/dev/null") && (isB || new == "/dev/null") {
		return a, b
	}
	return old, new
}

// unifiedHunk reads a hunk: as many lines as its first line says, or if that
// cannot be, all that are lines of a hunk.
func (p *parser) unifiedHunk() (Hunk, error) {
	h := Hunk{Line: p.at + 1, At: -1}
	r := rangeLine.FindStringSubmatch(p.peek(0))
	p.at++
	body := p.body(-1, -1)
	if r != nil {
		h.At, _ = strconv.Atoi(r[1])
		if counted := p.body(count(r[2]), count(r[4])); counted > 0 {
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

// checkedUnified is checked, for a parser that goes on behind the hunk.
func (p *parser) checkedUnified(h Hunk) (Hunk, error) {
	at := p.at
	h, err := p.checked(h)
	if err == nil {
		p.at = at
	}
	return h, err
}

func count(s string) int {
	if s == "" {
		return 1
	}
	n, _ := strconv.Atoi(s)
	return n
}

// body counts the lines of a hunk that begins here. With old and new given it is
// those many, and 0 where that leaves a line of the hunk behind or takes one too
// many; -1 takes all.
func (p *parser) body(old, new int) (n int) {
	counted := old >= 0
	for ; p.at+n < len(p.lines); n++ {
		line := p.peek(n)
		op := byte(' ')
		if line != "" {
			op = line[0]
		}
		if counted && old == 0 && new == 0 && op != '\\' {
			if op == '+' || op == '-' && !signature(line) && !p.nextFile(n) || op == ' ' && line != "" {
				return 0
			}
			return n
		}
		switch {
		case !counted && p.nextFile(n), strings.IndexByte(" +-\\", op) < 0:
			if counted {
				return 0
			}
			return n
		case op == ' ':
			old, new = old-1, new-1
		case op == '-':
			old--
		case op == '+':
			new--
		}
		if counted && (old < 0 || new < 0) {
			return 0
		}
	}
	if counted && (old > 0 || new > 0) {
		return 0
	}
	return n
}

// nextFile reports whether the header of another file stands n lines from here.
func (p *parser) nextFile(n int) bool {
	return strings.HasPrefix(p.peek(n), "--- ") && strings.HasPrefix(p.peek(n+1), "+++ ") &&
		(strings.HasPrefix(p.peek(n+2), "@@") || p.peek(n+2) == "")
}
