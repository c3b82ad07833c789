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

// A page of a few bytes can ask for gigabytes: a cell that spans 60,000 rows and
// columns, unclosed tags that a parser repeats in every paragraph, lists in lists,
// each of which indents every line. What follows takes such a page apart into one
// of ordinary size, before it is parsed and again before it is rendered.
const (
	maxText  = 4 << 20 // bytes of Markdown
	maxNodes = 300_000 // of a page
	maxCells = 20_000  // of a table
	maxDepth = 8       // of lists and quotations in each other
	maxStart = 99_999  // the number that a list begins with
)

// kept are the attributes that a text is made of.
var kept = []string{"href", "title", "class", "colspan", "rowspan", "start", "align", "role"}

// formatting are the elements that a parser opens again, with all their attributes,
// in every paragraph that follows while they are not closed.
var formatting = []atom.Atom{
	atom.A, atom.B, atom.Big, atom.Code, atom.Em, atom.Font, atom.I, atom.Nobr, atom.S, atom.Small, atom.Strike,
	atom.Strong, atom.Tt, atom.U,
}

// scopes are the elements in which an end tag closes no formatting element outside.
var scopes = []atom.Atom{atom.Td, atom.Th, atom.Caption, atom.Applet, atom.Object, atom.Marquee, atom.Template}

// simplify leaves out attributes that say nothing, and the end of a page of which a
// parser would make more than maxNodes nodes.
func simplify(body []byte) (out []byte, cut bool) {
	var b bytes.Buffer
	b.Grow(len(body))
	z := dom.NewTokenizer(bytes.NewReader(body))
	open, outside, nodes := 0, 0, 0 // formatting elements that are open, in this scope and outside
	for {
		kind := z.Next()
		if kind == dom.ErrorToken {
			return b.Bytes(), false
		}
		// Each of them may be opened again for this one.
		if nodes += 1 + open + outside; nodes > maxNodes {
			return b.Bytes(), true
		}
		if kind != dom.StartTagToken && kind != dom.SelfClosingTagToken {
			b.Write(z.Raw())
			if kind == dom.EndTagToken {
				if name, _ := z.TagName(); slices.Contains(formatting, atom.Lookup(name)) && open > 0 {
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
			known := slices.ContainsFunc(attr, func(b dom.Attribute) bool { return a.Key == b.Key })
			if slices.Contains(kept, a.Key) && !known {
				attr = append(attr, a)
			}
		}
		t.Attr = attr
		b.WriteString(t.String())
	}
}

// timedReader ends when its context does.
type timedReader struct {
	ctx context.Context
	r   io.Reader
}

// Read is io.Reader's.
func (t *timedReader) Read(p []byte) (int, error) {
	if err := t.ctx.Err(); err != nil {
		return 0, err
	}
	return t.r.Read(p)
}

// flatten makes what would grow beyond measure plain: tables with too many cells,
// and lists and quotations that are too deep in each other.
func flatten(doc *dom.Node) {
	var visit func(n *dom.Node, depth int)
	visit = func(n *dom.Node, depth int) {
		switch n.DataAtom {
		case atom.Ul, atom.Ol, atom.Blockquote:
			limit(n, "start", maxStart)
			if depth++; depth > maxDepth {
				n.Data, n.DataAtom = "div", atom.Div
			}
		case atom.Table:
			if tooLarge(n) {
				// The converter takes it for what only places things.
				n.Attr = append(slices.DeleteFunc(n.Attr, func(a dom.Attribute) bool { return a.Key == "role" }),
					dom.Attribute{Key: "role", Val: "presentation"})
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			visit(c, depth)
		}
	}
	visit(doc, 0)
}

// number is an attribute's, fallback where it is none.
func number(n *dom.Node, key string, fallback int) int {
	for _, a := range n.Attr {
		if a.Key == key {
			if v, err := strconv.Atoi(a.Val); err == nil {
				return v
			}
		}
	}
	return fallback
}

// limit removes an attribute that is not a number from 0 to most.
func limit(n *dom.Node, key string, most int) {
	if v := number(n, key, 0); v < 0 || v > most {
		n.Attr = slices.DeleteFunc(n.Attr, func(a dom.Attribute) bool { return a.Key == key })
	}
}

// tooLarge reports whether a table has more than maxCells cells, those that spans
// make and that fill up short rows included, or rows or cells in each other.
func tooLarge(table *dom.Node) bool {
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
			width, height := max(number(n, "colspan", 1), 1), max(number(n, "rowspan", 1), 1)
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
	// The row with the header may come twice, and is always there.
	return nested || area > maxCells || len(rows) > 0 && (len(rows)+1)*slices.Max(rows) > maxCells
}

// links counts the links of a page.
func links(n *dom.Node) (count int) {
	if n.DataAtom == atom.A {
		count++
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		count += links(c)
	}
	return count
}
