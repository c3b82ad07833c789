// Package diff compares two versions of a text line by line, and writes the difference as a unified
// diff. It takes bounded time and memory on any input: where two versions have little in common, it
// replaces whole passages.
package diff

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Kind is the kind of a [Line]: common, added or removed.
type Kind byte

// Kinds of lines, as the first character of a line of a unified diff.
const (
	Equal  Kind = ' '
	Delete Kind = '-'
	Insert Kind = '+'
)

// Line is a line of a [Hunk]. Text has no line end; NoEOL means that the file has no line end there
// either.
type Line struct {
	Kind  Kind
	Text  string
	NoEOL bool
}

// Hunk is a changed passage with the lines around it. OldStart and NewStart are line numbers from
// 1, or 0 if there are no lines on that side.
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

// Diff is the difference of two versions of a file. If Note is not empty, they were not compared
// line by line, and it says why; then there are no hunks and no counts.
type Diff struct {
	Name     string // relative path, or any name
	Created  bool   // there was no file before
	Deleted  bool   // the file does not exist any more
	Added    int    // lines
	Removed  int
	Hunks    []Hunk
	Note     string
	sameCRLF bool
}

// Limits of the comparison line by line.
const (
	maxLines = 200_000 // of one version
	probe    = 8000    // bytes that decide whether a file is binary, as in git
)

// New compares two versions of the file name; nil means that there is no file. Binary files, and
// files of more than 200,000 lines, get a Note.
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
	d.compare(old, fresh)
	d.sameCRLF = allCRLF(old) && allCRLF(fresh)
	return d
}

// compare sets the hunks and the counts. It reads them from the library's unified diff, in which
// every line of a text follows the character of its kind.
func (d *Diff) compare(old, fresh string) {
	_, body, _ := bytes.Cut(diff.Diff("", []byte(old), "", []byte(fresh)), []byte("+++ \n"))
	var h *Hunk
	for line := range strings.Lines(string(body)) {
		kind := Kind(line[0])
		switch kind {
		case '@':
			d.Hunks = append(d.Hunks, Hunk{})
			h = &d.Hunks[len(d.Hunks)-1]
			_, _ = fmt.Sscanf(line, "@@ -%d,%d +%d,%d @@",
				&h.OldStart, &h.OldLines, &h.NewStart, &h.NewLines)
			continue
		case '\\':
			h.Lines[len(h.Lines)-1].NoEOL = true
			continue
		case Delete:
			d.Removed++
		case Insert:
			d.Added++
		case Equal:
		}
		h.Lines = append(h.Lines, Line{Kind: kind, Text: strings.TrimSuffix(line[1:], "\n")})
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func isBinary(s string) bool { return strings.IndexByte(s[:min(len(s), probe)], 0) >= 0 }

// allCRLF reports whether all lines of a text end in CR LF.
func allCRLF(s string) bool {
	return s == "" ||
		strings.HasSuffix(s, "\r\n") && strings.Count(s, "\n") == strings.Count(s, "\r\n")
}

// CRLF reports whether all lines of both versions end in CR LF. Then the carriage returns at the
// ends of lines are no part of the change.
func (d *Diff) CRLF() bool { return d.sameCRLF }

// noEOL is how a unified diff marks a last line without a line end.
const noEOL = `\ No newline at end of file`

// String returns the unified diff as git writes it, without colours and with the bytes of the file
// as they are. It is "" if the versions are the same and the file existed.
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
	if strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' || r == '"' || r == '\\' ||
			r == 0x7f
	}) {
		return strconv.Quote(name)
	}
	return name
}
