// Package markdown renders Markdown for a terminal, also while it comes: [Stream] gives out each
// block as soon as it is complete. The text may be hostile: control characters do not reach the
// terminal, and an incomplete block takes a bounded time and memory.
package markdown

import (
	"html"
	"strconv"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// Styles, where the terminal has colours.
const (
	reset     = "\x1b[0m"
	bold      = "\x1b[1m"
	dim       = "\x1b[2m"
	italic    = "\x1b[3m"
	underline = "\x1b[4m"
	strike    = "\x1b[9m"
	cyan      = "\x1b[36m"
)

// maxDepth is how deeply blocks are rendered within each other. Deeper blocks are shown as their
// source.
const maxDepth = 12

// minWidth is how narrow text becomes at most.
const minWidth = 10

// Renderer renders Markdown in lines of at most Width columns, except code, which is not wrapped.
// Without Color it uses no escape sequences.
type Renderer struct {
	Width int // in columns; less than 10 counts as 10
	Color bool
}

var parser = goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough,
	extension.TaskList)).Parser()

// Render renders a whole document without a line end after the last line.
func (r Renderer) Render(source string) string {
	src := []byte(clean(source))
	w := writer{r, src}
	return strings.Join(w.blocks(parser.Parse(text.NewReader(src)), max(r.Width, minWidth), 0,
		false), "\n")
}

// clean removes the characters that a terminal obeys, and the characters that change the direction
// of text.
func clean(s string) string {
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

// writer renders one document.
type writer struct {
	Renderer
	src []byte
}

// blocks returns the lines of the blocks in n, with an empty line between two unless they are
// tight.
func (w writer) blocks(n ast.Node, width, depth int, tight bool) (lines []string) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		block := w.block(c, max(width, minWidth), depth)
		if len(block) == 0 {
			continue
		}
		if len(lines) > 0 && !tight {
			lines = append(lines, "")
		}
		lines = append(lines, block...)
	}
	return lines
}

func (w writer) block(n ast.Node, width, depth int) []string {
	if depth > maxDepth {
		return []string{"…"}
	}
	switch n := n.(type) {
	case *ast.Heading:
		return wrap(w.paint(bold, strings.Repeat("#", n.Level)+" "+w.inline(n, bold)), width)
	case *ast.ThematicBreak:
		return []string{w.paint(dim, strings.Repeat("─", min(width, 40)))}
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		return w.code(n.Lines())
	case *ast.HTMLBlock:
		return strings.Split(strings.TrimRight(w.lines(n.Lines()), "\n"), "\n")
	case *ast.Blockquote:
		return indent(w.blocks(n, width-2, depth+1, false), w.paint(dim, "│")+" ",
			w.paint(dim, "│")+" ")
	case *ast.List:
		return w.list(n, width, depth)
	case *extast.Table:
		return w.table(n, width)
	case *ast.LinkReferenceDefinition:
		return nil
	}
	return wrap(w.inline(n), width)
}

// code returns the lines of a code block, indented and not wrapped.
func (w writer) code(segments *text.Segments) (lines []string) {
	for line := range strings.Lines(w.lines(segments)) {
		lines = append(lines, codeLine(strings.TrimSuffix(line, "\n")))
	}
	return lines
}

func codeLine(line string) string { return strings.TrimRight("    "+line, " ") }

func (w writer) lines(segments *text.Segments) string {
	var b strings.Builder
	for i := range segments.Len() {
		segment := segments.At(i)
		b.Write(segment.Value(w.src))
	}
	return b.String()
}

func (w writer) list(n *ast.List, width, depth int) (lines []string) {
	number := n.Start
	for item := n.FirstChild(); item != nil; item = item.NextSibling() {
		mark := "• "
		if n.IsOrdered() {
			mark = strconv.Itoa(number) + ". "
			number++
		}
		if !n.IsTight && len(lines) > 0 {
			lines = append(lines, "")
		}
		space := strings.Repeat(" ", ansi.StringWidth(mark))
		lines = append(lines, indent(w.blocks(item, width-len(space), depth+1, n.IsTight), mark,
			space)...)
	}
	return lines
}

// indent puts first before the first line and rest before the others.
func indent(lines []string, first, rest string) []string {
	if len(lines) == 0 {
		return []string{strings.TrimRight(first, " ")}
	}
	for i, line := range lines {
		switch {
		case i == 0:
			lines[i] = first + line
		case line == "":
			lines[i] = strings.TrimRight(rest, " ")
		default:
			lines[i] = rest + line
		}
	}
	return lines
}

// table returns a table with aligned columns, or with its cells below each other if it is too wide.
func (w writer) table(n *extast.Table, width int) (lines []string) {
	var rows [][]string
	var widths []int
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			text := w.inline(cell)
			if i := len(cells); i == len(widths) {
				widths = append(widths, 0)
			}
			widths[len(cells)] = max(widths[len(cells)], ansi.StringWidth(text))
			cells = append(cells, text)
		}
		rows = append(rows, cells)
	}
	total := 3 * (len(widths) - 1)
	for _, n := range widths {
		total += n
	}
	for i, cells := range rows {
		if total > width {
			lines = append(lines, wrap(strings.Join(cells, " │ "), width)...)
		} else {
			for j := range cells {
				cells[j] += strings.Repeat(" ", widths[j]-ansi.StringWidth(cells[j]))
			}
			lines = append(lines, strings.TrimRight(strings.Join(cells, " │ "), " "))
		}
		if i == 0 {
			lines = append(lines, w.paint(dim, strings.Repeat("─", min(total, width))))
		}
	}
	return lines
}

// inline returns the text of the inline nodes in n. outer are the styles around it, which come back
// after each inner one.
func (w writer) inline(n ast.Node, outer ...string) string {
	var b strings.Builder
	within := func(code string, n ast.Node) {
		b.WriteString(w.paint(code, w.inline(n, append(outer, code)...), outer...))
	}
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if len(outer) > maxDepth {
			b.WriteString("…")
			break
		}
		switch c := c.(type) {
		case *ast.Text:
			b.WriteString(entities(string(c.Value(w.src))))
			if c.HardLineBreak() {
				b.WriteByte('\n')
			} else if c.SoftLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(c.Value)
		case *ast.CodeSpan:
			within(cyan, c)
		case *ast.Emphasis:
			code := italic
			if c.Level > 1 {
				code = bold
			}
			within(code, c)
		case *extast.Strikethrough:
			within(strike, c)
		case *extast.TaskCheckBox:
			b.WriteString(map[bool]string{true: "☑ ", false: "☐ "}[c.IsChecked])
		case *ast.AutoLink:
			b.WriteString(w.paint(underline, string(c.URL(w.src)), outer...))
		case *ast.Link:
			w.link(&b, c, string(c.Destination), outer)
		case *ast.Image:
			w.link(&b, c, string(c.Destination), outer)
		case *ast.RawHTML:
			b.WriteString(w.lines(c.Segments))
		default:
			b.WriteString(w.inline(c, outer...))
		}
	}
	return b.String()
}

// link writes a link's text and its address, which people must see before they follow it.
func (w writer) link(b *strings.Builder, n ast.Node, address string, outer []string) {
	text := w.inline(n, append(outer, underline)...)
	b.WriteString(w.paint(underline, text, outer...))
	if address != text && address != "" {
		b.WriteString(w.paint(dim, " ("+clean(address)+")", outer...))
	}
}

// entities replaces character references such as &amp;, unless they stand for characters that a
// terminal obeys.
func entities(s string) string {
	if !strings.Contains(s, "&") {
		return s
	}
	if text := html.UnescapeString(s); clean(text) == text {
		return text
	}
	return s
}

// paint puts text in a style, and goes back to the outer ones after it.
func (r Renderer) paint(code, text string, outer ...string) string {
	if !r.Color || text == "" {
		return text
	}
	return code + text + reset + strings.Join(outer, "")
}

// wrap breaks text into lines of at most width columns.
func wrap(text string, width int) []string {
	if text == "" {
		return nil
	}
	return strings.Split(ansi.Wrap(text, width, ""), "\n")
}
