// Package diff compares two versions of a text line by line, and writes the difference as a unified diff. It takes
// bounded time and memory on any input: where two versions have little in common, it replaces whole passages.
package diff

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind says what a [Line] of a diff is.
type Kind byte

// Kinds of lines, as the first character of a line of a unified diff.
const (
	Equal  Kind = ' '
	Delete Kind = '-'
	Insert Kind = '+'
)

// Line is a line of a [Hunk]. Text has no line end; NoEOL means that the file has none there either.
type Line struct {
	Kind  Kind
	Text  string
	NoEOL bool
}

// Hunk is a changed passage with the lines around it. OldStart and NewStart are line numbers from 1, or 0 if there are
// no lines on that side.
type Hunk struct {
	OldStart, OldLines int
	NewStart, NewLines int
	Lines              []Line
}

// Heading is the line of a unified diff that begins the hunk: "@@ -1,3 +1,4 @@".
func (h *Hunk) Heading() string {
	return fmt.Sprintf("@@ -%s +%s @@", span(h.OldStart, h.OldLines), span(h.NewStart, h.NewLines))
}

func span(start, lines int) string {
	if lines == 1 {
		return strconv.Itoa(start)
	}
	return fmt.Sprintf("%d,%d", start, lines)
}

// Diff is the difference of two versions of a file. If Note is not empty, they were not compared line by line, and it
// says why; then there are no hunks and no counts.
type Diff struct {
	Name     string // relative path, or any name
	Created  bool   // there was no file before
	Deleted  bool   // there is none any more
	Added    int    // lines
	Removed  int
	Hunks    []Hunk
	Note     string
	sameCRLF bool
}

// Limits of what is compared line by line.
const (
	maxLines = 200_000 // of one version
	probe    = 8000    // bytes that decide whether a file is binary, as in git
	context  = 3       // lines around a change
)

// New compares two versions of the file name; nil means that there is no file. Binary files, and files of more than
// 200,000 lines, get a Note.
func New(name string, was, now *string) Diff {
	d := Diff{Name: name, Created: was == nil && now != nil, Deleted: now == nil && was != nil}
	old, fresh := text(was), text(now)
	switch {
	case isBinary(old) || isBinary(fresh):
		d.Note = fmt.Sprintf("a binary file, %d bytes before and %d now", len(old), len(fresh))
		return d
	case strings.Count(old, "\n") > maxLines || strings.Count(fresh, "\n") > maxLines:
		d.Note = fmt.Sprintf("too many lines to compare, %d before and %d now",
			strings.Count(old, "\n"), strings.Count(fresh, "\n"))
		return d
	}
	a, b := split(old), split(fresh)
	changes := compare(a, b)
	for _, c := range changes {
		d.Removed += c.aEnd - c.a
		d.Added += c.bEnd - c.b
	}
	d.Hunks = hunks(a, b, changes)
	d.sameCRLF = allCRLF(a) && allCRLF(b)
	return d
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func isBinary(s string) bool { return strings.IndexByte(s[:min(len(s), probe)], 0) >= 0 }

// split returns the lines of a text with their ends.
func split(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	return lines[:len(lines)-1+min(1, len(lines[len(lines)-1]))]
}

func allCRLF(lines []string) bool {
	for _, l := range lines {
		if !strings.HasSuffix(l, "\r\n") {
			return false
		}
	}
	return true
}

// CRLF reports whether all lines of both versions end in CR LF. Then the carriage returns at the ends of lines say
// nothing about the change.
func (d *Diff) CRLF() bool { return d.sameCRLF }

// hunks groups the changes into passages, with the lines around them.
func hunks(a, b []string, changes []change) (list []Hunk) {
	for i := 0; i < len(changes); {
		end := i + 1
		for end < len(changes) && changes[end].a-changes[end-1].aEnd <= 2*context {
			end++
		}
		group := changes[i:end]
		from := max(0, group[0].a-context)
		to := min(len(a), group[len(group)-1].aEnd+context)
		h := Hunk{OldStart: from + 1, OldLines: to - from, NewStart: group[0].b - (group[0].a - from) + 1}
		at := from
		for _, c := range group {
			h.add(Equal, a[at:c.a])
			h.add(Delete, a[c.a:c.aEnd])
			h.add(Insert, b[c.b:c.bEnd])
			at = c.aEnd
		}
		h.add(Equal, a[at:to])
		for _, l := range h.Lines {
			if l.Kind != Delete {
				h.NewLines++
			}
		}
		if h.OldLines == 0 {
			h.OldStart--
		}
		if h.NewLines == 0 {
			h.NewStart--
		}
		list = append(list, h)
		i = end
	}
	return list
}

func (h *Hunk) add(kind Kind, lines []string) {
	for _, l := range lines {
		line, ended := strings.CutSuffix(l, "\n")
		h.Lines = append(h.Lines, Line{kind, line, !ended})
	}
}

// noEOL is how a unified diff marks a last line without a line end.
const noEOL = `\ No newline at end of file`

// String returns the unified diff as git writes it, without colours and with the bytes of the file as they are. It is
// "" if the versions are the same and the file existed.
func (d *Diff) String() string {
	var b strings.Builder
	old, fresh := quoted("a/"+d.Name), quoted("b/"+d.Name)
	if d.Created {
		old = "/dev/null"
	}
	if d.Deleted {
		fresh = "/dev/null"
	}
	switch {
	case d.Note != "":
		return fmt.Sprintf("Files %s and %s differ: %s\n", old, fresh, d.Note)
	case len(d.Hunks) > 0 || d.Created || d.Deleted:
		fmt.Fprintf(&b, "--- %s\n+++ %s\n", old, fresh)
	}
	for i := range d.Hunks {
		b.WriteString(d.Hunks[i].Heading() + "\n")
		for _, l := range d.Hunks[i].Lines {
			b.WriteByte(byte(l.Kind))
			b.WriteString(l.Text)
			b.WriteByte('\n')
			if l.NoEOL {
				b.WriteString(noEOL + "\n")
			}
		}
	}
	return b.String()
}

// quoted returns a name as git writes it in a diff: quoted if a character of it would be misread.
func quoted(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r == 0x7f }) {
		return strconv.Quote(name)
	}
	return name
}
