package web

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strconv"

	dom "golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// A page of a few bytes can expand to gigabytes: a cell that spans 60,000 rows and
// columns, unclosed tags that a parser repeats in every paragraph, nested lists that
// each indent every line. The functions below bound such a page, before it is parsed
// and again before it is rendered.
const (
	maxText  = 4 << 20 // bytes of Markdown
	maxNodes = 300_000 // of a page
	maxCells = 20_000  // of a table
	maxDepth = 8       // of nested lists and quotations
	maxStart = 99_999  // the number that a list begins with
)

// keptAttributes are the attributes that have an effect on the text.
var keptAttributes = []string{"href", "title", "class", "colspan", "rowspan", "start", "align",
	"role"}

// formatting are the elements that a parser opens again, with all their attributes, in
// every following paragraph until they are closed.
var formatting = []atom.Atom{
	atom.A, atom.B, atom.Big, atom.Code, atom.Em, atom.Font, atom.I, atom.Nobr, atom.S, atom.Small,
	atom.Strike, atom.Strong, atom.Tt, atom.U,
}

// scopes are the elements whose end tags close no formatting element outside of them.
var scopes = []atom.Atom{atom.Td, atom.Th, atom.Caption, atom.Applet, atom.Object, atom.Marquee,
	atom.Template}

// simplify removes attributes without effect on the text. It cuts a page off before a
// parser would make more than maxNodes nodes of it.
func simplify(body []byte) (out []byte, isCut bool) {
	var b bytes.Buffer
	b.Grow(len(body))
	z := dom.NewTokenizer(bytes.NewReader(body))
	open, outside := 0, 0 // open formatting elements, in this scope and outside of it
	nodes := 0
	for {
		kind := z.Next()
		if kind == dom.ErrorToken {
			return b.Bytes(), false
		}
		// The parser may open each of these elements again for this token.
		if nodes += 1 + open + outside; nodes > maxNodes {
			return b.Bytes(), true
		}
		if kind != dom.StartTagToken && kind != dom.SelfClosingTagToken {
			b.Write(z.Raw())
			if kind == dom.EndTagToken {
				if name, _ := z.TagName(); slices.Contains(formatting, atom.Lookup(name)) &&
					open > 0 {
					open--
				}
			}
			continue
		}
		t := z.Token()
		switch {
		case slices.Contains(formatting, t.DataAtom):
			open++
		case slices.Contains(scopes, t.DataAtom):
			open, outside = 0, outside+open
		}
		var attr []dom.Attribute
		for _, a := range t.Attr {
			isRepeated := slices.ContainsFunc(attr, func(b dom.Attribute) bool {
				return a.Key == b.Key
			})
			if slices.Contains(keptAttributes, a.Key) && !isRepeated {
				attr = append(attr, a)
			}
		}
		t.Attr = attr
		b.WriteString(t.String())
	}
}

// ctxReader returns the error of ctx once that has ended.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

// Read is io.Reader's.
func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// flatten replaces elements that would become too large by plain ones: tables with too many cells,
// and lists and quotations that are nested too deep.
func flatten(doc *dom.Node) {
	var visit func(n *dom.Node, depth int)
	visit = func(n *dom.Node, depth int) {
		switch n.DataAtom {
		case atom.Ul, atom.Ol, atom.Blockquote:
			limitAttribute(n, "start", maxStart)
			if depth++; depth > maxDepth {
				n.Data, n.DataAtom = "div", atom.Div
			}
		case atom.Table:
			if isTooLarge(n) {
				// The converter treats such a table as layout.
				n.Attr = append(slices.DeleteFunc(n.Attr, func(a dom.Attribute) bool {
					return a.Key == "role"
				}),
					dom.Attribute{Key: "role", Val: "presentation"})
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			visit(c, depth)
		}
	}
	visit(doc, 0)
}

// intAttribute is the value of an attribute, fallback if it is missing or no number.
func intAttribute(n *dom.Node, key string, fallback int) int {
	for _, a := range n.Attr {
		if a.Key == key {
			if v, err := strconv.Atoi(a.Val); err == nil {
				return v
			}
		}
	}
	return fallback
}

// limitAttribute removes an attribute unless it is a number from 0 to limit.
func limitAttribute(n *dom.Node, key string, limit int) {
	if v := intAttribute(n, key, 0); v < 0 || v > limit {
		n.Attr = slices.DeleteFunc(n.Attr, func(a dom.Attribute) bool { return a.Key == key })
	}
}

// isTooLarge reports whether a table has more than maxCells cells, or nested rows or cells. It
// counts the cells that spans make and the cells that fill up short rows.
func isTooLarge(table *dom.Node) bool {
	var rows []int // cells, by row
	area, nested := 0, false
	grow := func(y, cells int) {
		for len(rows) <= y {
			rows = append(rows, 0)
		}
		rows[y] += cells
	}
	var visit func(n *dom.Node, row, inCell bool)
	y := -1
	visit = func(n *dom.Node, row, inCell bool) {
		switch name := n.Data; {
		case nested || area > maxCells || n.Type != dom.ElementNode:
		case name == "tr":
			nested, row = nested || row, true
			y++
			grow(y, 0)
		case name == "td" || name == "th":
			nested, inCell = nested || inCell, true
			width, height := max(intAttribute(n, "colspan", 1), 1),
				max(intAttribute(n, "rowspan", 1), 1)
			if width > maxCells || height > maxCells {
				area = maxCells + 1
				return
			}
			if area += width * height; area > maxCells {
				return
			}
			for dy := range height {
				grow(max(y, 0)+dy, width)
			}
		}
		for c := n.FirstChild; c != nil && !nested && area <= maxCells; c = c.NextSibling {
			visit(c, row, inCell)
		}
	}
	visit(table, false, false)
	// One row more, because the converter may add a header.
	return nested || area > maxCells || len(rows) > 0 && (len(rows)+1)*slices.Max(rows) > maxCells
}

// countLinks counts the links of a page.
func countLinks(n *dom.Node) (count int) {
	if n.DataAtom == atom.A {
		count++
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		count += countLinks(c)
	}
	return count
}
