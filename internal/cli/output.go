package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"unicode"

	"github.com/mattn/go-isatty"
	ucli "github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/visible"
)

// Output is where a command prints its result and its messages. It makes control characters
// visible, so that a text of another program can't change the terminal. Its methods take no lock.
type Output struct {
	W, Err   io.Writer
	JSON     bool // --json
	Color    bool // W shows colour
	Terminal bool // W is a terminal
	Verbose  bool // -v

	failure *atomic.Pointer[error] // the first of writing to W; nil: not kept
}

// Failure returns the first error of printing to stdout, for commands that go on after one, such as
// an agent whose reader has gone. It is nil if all was printed.
func (o *Output) Failure() error {
	if o.failure == nil || o.failure.Load() == nil {
		return nil
	}
	return *o.failure.Load()
}

// write writes to stdout and keeps the first error.
func (o *Output) write(s string) error {
	if _, err := io.WriteString(o.W, s); err != nil {
		err = fmt.Errorf("writing stdout: %w", err)
		if o.failure != nil {
			o.failure.CompareAndSwap(nil, &err)
		}
		return err
	}
	return nil
}

// Out returns the output of a command: the writers of its app, the values of --json and -v, and the
// abilities of stdout.
func Out(c *ucli.Context) *Output {
	return &Output{
		W: c.App.Writer, Err: c.App.ErrWriter,
		JSON: c.Bool(jsonFlag), Verbose: c.Bool("verbose"),
		Color: Color(c.App.Writer), Terminal: Terminal(c.App.Writer),
		failure: new(atomic.Pointer[error]),
	}
}

// Document prints v as one JSON document, indented if stdout is a terminal and else on one line.
// Control characters in strings are escaped. The error says that encoding or writing failed.
func (o *Output) Document(v any) error { return o.writeJSON(v, o.Terminal) }

// Line prints v as one JSON object on a line of its own, for commands that print a stream. It never
// indents, so that scripts can read line by line.
func (o *Output) Line(v any) error { return o.writeJSON(v, false) }

// own matches the terminal sequences that our own commands write: inks, and a cleared screen.
var own = lazyregexp.New("\x1b\\[(?:[03][0-9]?m|H\x1b\\[2J)")

// harmless makes control characters visible, such as an escape in a file's name, and leaves
// our own colours.
func harmless(s string) string {
	if visible.Controls(s) == s {
		return s
	}
	var b strings.Builder
	from := 0
	for _, at := range own.FindAllStringSubmatchIndex(s, -1) {
		b.WriteString(visible.Controls(s[from:at[0]]) + s[at[0]:at[1]])
		from = at[1]
	}
	return b.String() + visible.Controls(s[from:])
}

// Printf prints part of the result for people to stdout. Control characters in the text become
// visible, except line ends, tabs and the sequences of our own colours. The error says that writing
// failed.
func (o *Output) Printf(format string, args ...any) error {
	return o.write(harmless(fmt.Sprintf(format, args...)))
}

// Notef prints a note for people on stderr and adds a line end. With --json it prints no note. A
// write error is ignored, because a note is no part of the result.
func (o *Output) Notef(format string, args ...any) {
	if !o.JSON {
		_, _ = io.WriteString(o.Err, harmless(fmt.Sprintf(format, args...))+"\n")
	}
}

// Report prints a state: with --json the line on stdout, else a note for people, as [Output.Notef]
// does.
func (o *Output) Report(line map[string]any, format string, args ...any) {
	if o.JSON {
		_ = o.Line(line)
		return
	}
	o.Notef(format, args...)
}

// Show prints a result: v as with [Output.Document] if --json is set, else what text prints.
func (o *Output) Show(v any, text func() error) error {
	if o.JSON {
		return o.Document(v)
	}
	return text()
}

// Result prints a result of one text: v as with [Output.Document] if --json is set, else the text
// as with [Output.Printf].
func (o *Output) Result(v any, format string, args ...any) error {
	return o.Show(v, func() error { return o.Printf(format, args...) })
}

// Done reports that something was done: v as with [Output.Document] if --json is set, else a note.
func (o *Output) Done(v any, format string, args ...any) error {
	return o.Show(v, func() error {
		o.Notef(format, args...)
		return nil
	})
}

// List prints a list: v as with [Output.Document] if --json is set, else the table as with
// [Output.Table].
func (o *Output) List(v any, t *Table, empty string) error {
	return o.Show(v, func() error { return o.Table(t, empty) })
}

func (o *Output) writeJSON(v any, indent bool) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	return o.write(escapeJSON(b.String()))
}

// escapeJSON escapes the control characters that JSON allows and terminals obey.
func escapeJSON(s string) string {
	if visible.Controls(s) == s {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Terminal reports whether w is a terminal: a file of the system, such as stdout, that is not
// redirected. Any other writer, such as a buffer, is not a terminal.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// Foreground reports whether w is a terminal that this program may draw on: a program in the
// background of a shell leaves the terminal to the shell's prompt.
func Foreground(w io.Writer) bool {
	if !Terminal(w) {
		return false
	}
	group, err := unix.IoctlGetInt(int(w.(*os.File).Fd()), unix.TIOCGPGRP)
	// an error: a terminal that is not the controlling one
	return err != nil || group == unix.Getpgrp()
}

// Color reports whether to colour the output on w: yes if w is a terminal whose TERM is not dumb,
// or if CLICOLOR_FORCE is set and not 0. NO_COLOR always means no.
func Color(w io.Writer) bool {
	if os.Getenv("NO_COLOR") != "" {
		return false
	}
	if force := os.Getenv("CLICOLOR_FORCE"); force != "" && force != "0" {
		return true
	}
	return os.Getenv("TERM") != "dumb" && Terminal(w)
}

// Ink is a colour. All inks have equally many bytes, so that coloured cells of a table still
// line up.
type Ink string

// The inks. Plain is the terminal's own colour; Dim and Bold change only the weight.
const (
	Plain  Ink = "\x1b[39m"
	Red    Ink = "\x1b[31m"
	Green  Ink = "\x1b[32m"
	Yellow Ink = "\x1b[33m"
	Blue   Ink = "\x1b[34m"
	Dim    Ink = "\x1b[02m"
	Bold   Ink = "\x1b[01m"
)

func (i Ink) paint(s string) string { return string(i) + s + "\x1b[0m" }

// On returns a text coloured for w, or the text itself if w shows no colour (see [Color]). It is
// for writers that have no [Output].
func (i Ink) On(w io.Writer, s string) string {
	if !Color(w) {
		return s
	}
	return i.paint(s)
}

// Paint returns a text coloured for stdout, or the text itself if stdout shows no colour. The
// result goes into [Output.Printf], which lets these colours through.
func (o *Output) Paint(i Ink, s string) string {
	if !o.Color {
		return s
	}
	return i.paint(s)
}

// Table is a table for people: headings, and rows of as many cells. [Output.Table] prints it with
// aligned columns and two spaces between them. The zero value with Columns is ready for rows.
type Table struct {
	Columns []string
	// Ink gives the colour of a cell of the column Inked, by its text; "" is [Plain]. It is nil if
	// no cell has a colour.
	Ink   func(text string) Ink
	Inked int
	rows  [][]string
}

// Row adds a row with a cell for each column. A cell may be any value; [OneLine] makes its text one
// line, and an empty cell shows as a dash.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		if row[i] = OneLine(fmt.Sprint(c)); row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// DropEmpty removes each of the named columns, which must be in Columns, that has no cell with a
// text in the rows so far. It is for columns that only some lists need, such as the gateway of a
// cluster.
func (t *Table) DropEmpty(columns ...string) {
	t.Columns = slices.Clone(t.Columns)
	for _, name := range columns {
		at := slices.Index(t.Columns, name)
		if slices.ContainsFunc(t.rows, func(row []string) bool { return row[at] != "-" }) {
			continue
		}
		t.Columns = slices.Delete(t.Columns, at, at+1)
		for i, row := range t.rows {
			t.rows[i] = slices.Delete(row, at, at+1)
		}
	}
}

// Table prints a table to stdout. If the table has no rows, it prints the text empty as a note on
// stderr instead. The error says that writing failed.
func (o *Output) Table(t *Table, empty string) error {
	if len(t.rows) == 0 {
		o.Notef("%s", empty)
		return nil
	}
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	line := func(cells []string, ink func(column int, text string) Ink) {
		painted := make([]string, len(cells))
		for i, c := range cells {
			if painted[i] = c; o.Color {
				painted[i] = ink(i, c).paint(c)
			}
		}
		_, _ = fmt.Fprintln(tw, strings.Join(painted, "\t"))
	}
	line(t.Columns, func(int, string) Ink { return Bold })
	for _, r := range t.rows {
		line(r, func(column int, text string) Ink {
			if t.Ink == nil || column != t.Inked {
				return Plain
			}
			return cmp.Or(t.Ink(text), Plain)
		})
	}
	_ = tw.Flush()
	return o.Printf("%s", b.String())
}

// sequences matches the sequences that control terminals.
var sequences = lazyregexp.New("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)?)")

// Clean removes terminal sequences, control characters and the characters that reverse the
// direction of text from a text of another program. Line ends and tabs stay.
func Clean(s string) string {
	s = sequences.ReplaceAllString(s, "")
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, s)
}

// Shorten cuts a text to its first line and at most n characters, which must be at least 1. If
// something was cut off, the text ends in an ellipsis.
func Shorten(s string, n int) string {
	s, _, cut := strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(s); len(r) > n {
		s, cut = string(r[:n-1]), true
	}
	if cut {
		s += "…"
	}
	return s
}
