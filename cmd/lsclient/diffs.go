package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"tapgw/internal/cli"
	"tapgw/internal/diff"
	"tapgw/internal/visible"
)

// How much of a long diff is shown unless somebody wants all of it.
const (
	shownLines   = 40
	shownColumns = 500
	maxDiffJSON  = 256 << 10 // bytes of a diff in an event of --json
)

// diffView says how diffs are shown to a person.
type diffView struct {
	color bool
	all   bool   // whole diffs, however long
	more  string // how to see all of a diff that is cut; "": nothing shows more
}

// view returns how diffs are shown on w.
func (c *command) diffView(w io.Writer) diffView {
	v := diffView{color: cli.Color(w), all: c.out.Verbose, more: "-v shows all"}
	if c.Command.Name == "chat" {
		v.more = "/diff shows all"
	}
	return v
}

// print writes a diff with a line end. The text is safe, so it needs no check for control characters.
func (v diffView) print(w io.Writer, d *diff.Diff) { _, _ = io.WriteString(w, v.show(d)+"\n") }

// show returns a diff for people, with all characters that can't be seen spelt out: a line with the file and the size
// of the change, and below it the hunks. It ends without a line end.
func (v diffView) show(d *diff.Diff) string {
	var b strings.Builder
	b.WriteString(v.paint(cli.Bold, heading(d)))
	total, lines := 0, 0
	for i := range d.Hunks {
		total += 1 + len(d.Hunks[i].Lines)
	}
	for i := range d.Hunks {
		h := &d.Hunks[i]
		if v.isFull(lines) {
			break
		}
		b.WriteString("\n  " + v.paint(cli.Blue, h.Heading()))
		lines++
		for _, l := range h.Lines {
			if v.isFull(lines) {
				break
			}
			lines++
			b.WriteString("\n  " + v.line(d, l))
		}
	}
	if lines < total {
		b.WriteString("\n  " + v.paint(cli.Dim, joinNotes(fmt.Sprintf("… %d more lines", total-lines), v.more)))
	}
	return b.String()
}

func (v diffView) isFull(lines int) bool { return !v.all && lines >= shownLines }

func joinNotes(what, more string) string {
	if more == "" {
		return what
	}
	return what + "; " + more
}

// line returns a line of a hunk.
func (v diffView) line(d *diff.Diff, l diff.Line) string {
	text := l.Text
	if d.CRLF() {
		text = strings.TrimSuffix(text, "\r")
	}
	if !v.all && len(text) > shownColumns {
		end := shownColumns
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = visible.Text(text[:end]) + fmt.Sprintf(" … %d more bytes", len(text)-end)
	} else {
		text = visible.Text(text)
	}
	if l.NoEOL {
		text += " (no line end)"
	}
	text = string(l.Kind) + text
	switch l.Kind {
	case diff.Insert:
		return v.paint(cli.Green, text)
	case diff.Delete:
		return v.paint(cli.Red, text)
	}
	return text
}

func (v diffView) paint(ink cli.Ink, text string) string {
	if !v.color {
		return text
	}
	return string(ink) + text + "\x1b[0m"
}

// heading returns a line about a change: "changed x.go +3 -1".
func heading(d *diff.Diff) string {
	verb := "changed "
	switch {
	case d.Created:
		verb = "created "
	case d.Deleted:
		verb = "deleted "
	}
	return verb + visible.Line(d.Name) + " " + size(d)
}

// size returns the size of a change: "+3 -1".
func size(d *diff.Diff) string {
	if d.Note != "" {
		return "(" + d.Note + ")"
	}
	return fmt.Sprintf("+%d -%d", d.Added, d.Removed)
}

// diffText returns diffs as the events of --json have them: unified, and at most 256 KiB long.
func diffText(diffs []diff.Diff) string {
	var b strings.Builder
	for i := range diffs {
		b.WriteString(diffs[i].String())
	}
	text := b.String()
	if len(text) <= maxDiffJSON {
		return text
	}
	end := strings.LastIndexByte(text[:maxDiffJSON], '\n') + 1
	return text[:end] + fmt.Sprintf("… %d more bytes\n", len(text)-end)
}
