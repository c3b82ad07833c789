package patch

import "strings"

// Lines of the envelope.
const (
	beginPatch = "*** Begin Patch"
	endPatch   = "*** End Patch"
	endOfFile  = "*** End of File"
	addFile    = "*** Add File: "
	deleteFile = "*** Delete File: "
	updateFile = "*** Update File: "
	moveTo     = "*** Move to: "
)

// envelope reads what stands between the first and the last line of a
// "*** Begin Patch" patch. Without the last line it was cut off, and is refused.
func (p *parser) envelope() (files []File, err error) {
	for !p.done() {
		line := strings.TrimSpace(p.peek(0))
		var f File
		switch {
		case line == endPatch:
			if len(files) == 0 {
				return nil, p.fault("the patch changes nothing")
			}
			return files, nil
		case line == "":
			p.at++
			continue
		case p.header(addFile, &f.Path):
			f.Op = Add
			err = p.content(&f)
		case p.header(deleteFile, &f.Path):
			f.Op = Delete
		case p.header(updateFile, &f.Path):
			p.header(moveTo, &f.Target)
			err = p.hunks(&f)
		default:
			err = p.fault("%.80q is not expected here: want %q, %q, %q or %q", line, addFile, updateFile, deleteFile,
				endPatch)
		}
		if err == nil && f.Path == "" {
			p.at--
			err = p.fault("the path is missing")
		}
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return nil, p.fault("%q is missing: the patch was cut off", endPatch)
}

// header reads a line that begins with a word of the envelope; value is the rest.
func (p *parser) header(word string, value *string) bool {
	rest, ok := strings.CutPrefix(p.peek(0)+" ", word)
	if ok {
		*value = strings.TrimSpace(rest)
		p.at++
	}
	return ok
}

// section reports whether the current line ends the hunks of a file.
func (p *parser) section() bool {
	line := p.peek(0)
	return strings.TrimRight(line, " \t") == endPatch || strings.HasPrefix(line+" ", addFile) ||
		strings.HasPrefix(line+" ", deleteFile) || strings.HasPrefix(line+" ", updateFile)
}

// content reads the lines of a file that is added.
func (p *parser) content(f *File) error {
	h := Hunk{Line: p.at + 1, At: -1}
	blank := 0 // lines that set off what follows, unless that is more of the file
	for ; !p.done() && !p.section(); p.at++ {
		line := p.lines[p.at]
		if strings.TrimSpace(line) == "" {
			blank++
			continue
		}
		if line[0] != '+' {
			return p.fault("every line of the new file %s begins with +, this one is %.80q", f.Path, p.peek(0))
		}
		for ; blank > 0; blank-- {
			h.Lines = append(h.Lines, Line{'+', "\n"})
		}
		h.Lines = append(h.Lines, Line{'+', line[1:]})
	}
	if len(h.Lines) > 0 {
		f.Hunks = []Hunk{h}
	}
	return nil
}

// hunks reads the hunks of a file that is updated.
func (p *parser) hunks(f *File) error {
	for !p.done() && !p.section() {
		if strings.TrimSpace(p.peek(0)) == "" {
			p.at++ // sets off what follows
			continue
		}
		h, err := p.hunk()
		if err != nil {
			return err
		}
		f.Hunks = append(f.Hunks, h)
	}
	if len(f.Hunks) == 0 && f.Target == "" {
		return p.fault("%s is updated, but no change of it follows", f.Path)
	}
	return nil
}

// hunk reads one hunk: its @@ lines, which the first of a file may do without, and
// its lines.
func (p *parser) hunk() (Hunk, error) {
	h := Hunk{Line: p.at + 1, At: -1}
	for strings.HasPrefix(p.peek(0), "@@") {
		anchor := strings.TrimSpace(strings.TrimPrefix(p.peek(0), "@@"))
		if rangeLine.MatchString(p.peek(0)) {
			anchor = "" // a unified diff's: where it says that it is, is not looked at
		}
		if anchor = strings.TrimSpace(strings.TrimSuffix(anchor, "@@")); anchor != "" {
			h.Anchors = append(h.Anchors, anchor)
		}
		p.at++
	}
	for ; !p.done() && !p.section(); p.at++ {
		line := p.lines[p.at]
		switch {
		case p.peek(0) == endOfFile:
			h.AtEnd = true
			p.at++
			return p.checked(h)
		case strings.HasPrefix(line, "@@"):
			return p.checked(h)
		case p.peek(0) == "":
			h.Lines = append(h.Lines, Line{' ', line})
		case strings.IndexByte(" +-", line[0]) >= 0:
			h.Lines = append(h.Lines, Line{line[0], line[1:]})
		default:
			return h, p.fault(`a line of a change begins with " ", + or -, this one is %.80q`, p.peek(0))
		}
	}
	return p.checked(h)
}

// checked takes blank lines off the end of a hunk, which set it off from what
// follows, and refuses one that changes nothing.
func (p *parser) checked(h Hunk) (Hunk, error) {
	for n := len(h.Lines); n > 0 && h.Lines[n-1].Op == ' ' && strings.TrimSpace(h.Lines[n-1].Text) == "" &&
		!h.AtEnd; n-- {
		h.Lines = h.Lines[:n-1]
	}
	for _, l := range h.Lines {
		if l.Op != ' ' {
			return h, nil
		}
	}
	p.at = h.Line - 1
	return h, p.fault("this hunk has no line that begins with + or -: it changes nothing")
}
