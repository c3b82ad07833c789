package console

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"tapgw/internal/checkpoint"
	"tapgw/internal/cli"
	"tapgw/internal/diff"
	"tapgw/internal/visible"
)

// Diffs as a person sees them before and after an edit.

// How much of a long diff is shown unless the user asks for all of it.
const (
	shownLines   = 40
	shownColumns = 500
	maxDiffJSON  = 256 << 10 // bytes of a diff in an event of --json
)

// diffView says how diffs are shown to a person.
type diffView struct {
	color bool
	all   bool   // whole diffs, however long
	more  string // how to see all of a diff that is cut; "": there is no way
}

// view returns how diffs are shown on stderr.
func (c *Console) view() diffView {
	return diffView{color: cli.Color(c.Stderr), all: c.Out.Verbose, more: c.More}
}

// PrintDiff shows all of a diff on stderr.
func (c *Console) PrintDiff(d *diff.Diff) {
	view := c.view()
	view.all = true
	view.print(c.Out.Err, d)
}

// print writes a diff with a line end. The text is safe, so it needs no check for control
// characters.
func (v diffView) print(w io.Writer, d *diff.Diff) { _, _ = io.WriteString(w, v.show(d)+"\n") }

// show returns a diff for people, with all characters that can't be seen spelt out: a line with the
// file and the size of the change, and below it the hunks. It ends without a line end.
func (v diffView) show(d *diff.Diff) string {
	lines := []string{v.paint(cli.Bold, heading(d))}
	for i := range d.Hunks {
		lines = append(lines, v.paint(cli.Blue, d.Hunks[i].Heading()))
		for _, l := range d.Hunks[i].Lines {
			lines = append(lines, v.line(d, l))
		}
	}
	if left := len(lines) - 1 - shownLines; left > 0 && !v.all {
		rest := fmt.Sprintf("… %d more lines", left)
		if v.more != "" {
			rest += "; " + v.more
		}
		lines = append(lines[:1+shownLines], v.paint(cli.Dim, rest))
	}
	return strings.Join(lines, "\n  ")
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
	verb, size := "changed ", fmt.Sprintf(" +%d -%d", d.Added, d.Removed)
	switch {
	case d.Created:
		verb = "created "
	case d.Deleted:
		verb = "deleted "
	}
	if d.Note != "" {
		size = " (" + d.Note + ")"
	}
	return verb + visible.Line(d.Name) + size
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

// UndoLines names the files that an undo or redo changed. Directories count only if there are no
// files in them.
func UndoLines(out checkpoint.Outcome) (lines []string) {
	for _, name := range out.Changed {
		lines = append(lines, "changed "+visible.Line(name))
	}
	if len(lines) == 0 {
		for _, name := range out.Dirs {
			lines = append(lines, "changed "+visible.Line(name)+"/")
		}
	}
	return lines
}

// NoteUndo says on stderr which turns an undo or redo was about, and which files it left.
func (c *Console) NoteUndo(out checkpoint.Outcome) {
	for _, l := range out.Left {
		c.Out.Notef("left %s: %s", visible.Line(l.Name), l.Reason)
	}
	if len(out.Changed)+len(out.Dirs)+len(out.Left) == 0 {
		c.Out.Notef("the files hold that already")
	}
}

// Clock is a time as people read it.
func Clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }
