package patch

import "strings"

// The form "*** Begin Patch" of a patch.

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

// envelope reads a patch behind its line "*** Begin Patch". It refuses a patch without
// "*** End Patch", which was cut off.
func (p *parser) envelope() (files []File, err error) {
	for !p.isDone() {
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
			err = p.fault("%.80q is not expected here: want %q, %q, %q or %q",
				line, addFile, updateFile, deleteFile, endPatch)
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

// header reads a line that begins with word; value becomes the rest. It returns false
// for other lines.
func (p *parser) header(word string, value *string) bool {
	rest, ok := strings.CutPrefix(p.peek(0)+" ", word)
	if ok {
		*value = strings.TrimSpace(rest)
		p.at++
	}
	return ok
}

// atHeader reports whether the current line begins another file or ends the patch.
func (p *parser) atHeader() bool {
	line := p.peek(0)
	return strings.TrimRight(line, " \t") == endPatch || strings.HasPrefix(line+" ", addFile) ||
		strings.HasPrefix(line+" ", deleteFile) || strings.HasPrefix(line+" ", updateFile)
}

// content reads the lines of an added file.
func (p *parser) content(f *File) error {
	h := Hunk{Line: p.at + 1, At: -1}
	blank := 0 // blank lines that belong to the file only if more of its lines follow
	for ; !p.isDone() && !p.atHeader(); p.at++ {
		line := p.lines[p.at]
		if strings.TrimSpace(line) == "" {
			blank++
			continue
		}
		if line[0] != '+' {
			return p.fault("every line of the new file %s begins with +, this one is %.80q", f.Path,
				p.peek(0))
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

// hunks reads the hunks of an updated file.
func (p *parser) hunks(f *File) error {
	for !p.isDone() && !p.atHeader() {
		if strings.TrimSpace(p.peek(0)) == "" {
			p.at++ // a separator
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

// hunk reads one hunk: its @@ lines, which the first hunk of a file may leave out, and
// its lines.
func (p *parser) hunk() (Hunk, error) {
	h := Hunk{Line: p.at + 1, At: -1}
	for strings.HasPrefix(p.peek(0), "@@") {
		anchor := strings.TrimSpace(strings.TrimPrefix(p.peek(0), "@@"))
		if rangeLine.MatchString(p.peek(0)) {
			anchor = "" // line numbers of a unified diff, which are ignored here
		}
		if anchor = strings.TrimSpace(strings.TrimSuffix(anchor, "@@")); anchor != "" {
			h.Anchors = append(h.Anchors, anchor)
		}
		p.at++
	}
	for ; !p.isDone() && !p.atHeader(); p.at++ {
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
			return h, p.fault(`a line of a change begins with " ", + or -, this one is %.80q`,
				p.peek(0))
		}
	}
	return p.checked(h)
}

// checked removes blank lines at the end of a hunk, which separate it from the next one. It refuses
// a hunk without a change.
func (p *parser) checked(h Hunk) (Hunk, error) {
	isBlank := func(l Line) bool { return l.Op == ' ' && strings.TrimSpace(l.Text) == "" }
	for n := len(h.Lines); n > 0 && isBlank(h.Lines[n-1]) && !h.AtEnd; n-- {
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
