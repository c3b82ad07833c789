package web

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	dom "golang.org/x/net/html"

	"tapgw/internal/lazyregexp"
)

// around are the elements that stand around a page's content.
var around = []string{"nav", "footer", "aside", "form", "svg", "button", "select", "template", "dialog", "canvas",
	"audio", "video", "img", "picture"}

var title = lazyregexp.New(`(?is)<title[^>]*>(.*?)</title>`)

// Content is what a page says.
type Content struct {
	Text  string // Markdown where the page is HTML
	Title string // "" for none
	Cut   bool   // the page says more than was read
}

// maxReading is how long it may take to make Markdown of a page.
const maxReading = 5 * time.Second

// Content makes Markdown of a page; a page that is no HTML is what it is. It takes
// a bounded time and a bounded part of memory, whatever the page does.
func (p Page) Content(ctx context.Context) (Content, error) {
	if p.Type != "text/html" && p.Type != "application/xhtml+xml" {
		return Content{Text: string(p.Body), Cut: p.Cut}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxReading)
	defer cancel()
	source, simplified := simplify(p.Body)
	c := Content{Cut: p.Cut || simplified}
	if m := title.FindStringSubmatch(string(source)); m != nil {
		c.Title = strings.Join(strings.Fields(html.UnescapeString(m[1])), " ")
	}
	doc, err := dom.Parse(&timedReader{ctx, bytes.NewReader(source)})
	if err != nil {
		return Content{}, fmt.Errorf("reading the HTML of %s: %w", p.URL, err)
	}
	flatten(doc)
	conv := converter.NewConverter(converter.WithPlugins(base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(),
		table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal))))
	for _, tag := range around {
		conv.Register.TagType(tag, converter.TagTypeRemove, converter.PriorityEarly)
	}
	conv.Register.Renderer(func(_ converter.Context, w converter.Writer, _ *dom.Node) converter.RenderStatus {
		if b, ok := w.(interface{ Len() int }); ctx.Err() != nil || ok && b.Len() > maxText {
			c.Cut = true
			return converter.RenderSuccess // without a word of it
		}
		return converter.RenderTryNext
	}, converter.PriorityEarly)
	conv.Register.UnEscaper(func(text []byte, at int) int {
		if ctx.Err() != nil || farLink(text[at:]) {
			return 1 // a backslash too many
		}
		return -1
	}, converter.PriorityEarly)
	domain := converter.WithDomain(p.URL)
	if links(doc)*len(p.URL) > maxText { // each would begin with it
		domain = converter.WithDomain("")
	}
	text, err := conv.ConvertNode(doc, domain)
	if err != nil {
		return Content{}, fmt.Errorf("reading the HTML of %s: %w", p.URL, err)
	}
	if len(text) > maxText {
		text, c.Cut = text[:maxText], true
	}
	c.Text = strings.ToValidUTF8(string(text), "")
	return c, nil
}

// farLink reports whether a text begins with a bracket of which the end is far: to
// look for it takes a line of brackets the square of its length.
func farLink(text []byte) bool {
	const near = 1000
	return text[0] == '[' && len(text) > near && bytes.IndexByte(text[:near], ']') < 0 &&
		bytes.IndexByte(text[:near], '\n') < 0
}

// section is a part of a text, from one heading to the next, or a piece of a long
// one.
type section struct {
	at      int // its place in the text
	heading string
	text    string
	score   int
}

// maxSection is how many bytes a section has; a longer one is taken apart at its
// paragraphs.
const maxSection = 2000

// Best is the sections of a Markdown text that have most to do with a query, in
// their order, in at most room bytes, and how many were left out. Where nothing has
// to do with it, it is the beginning.
func Best(text, query string, room int) (best string, left int) {
	if len(text) <= room {
		return text, 0
	}
	all := sections(text)
	terms := words(query)
	for i := range all {
		all[i].score = score(all[i], terms)
	}
	ranked := slices.Clone(all)
	slices.SortStableFunc(ranked, func(a, b section) int { return b.score - a.score })
	var taken []section
	for _, s := range ranked {
		if ranked[0].score > 0 && s.score == 0 {
			break
		}
		if cost := len(s.text) + len(gap); cost <= room {
			taken = append(taken, s)
			room -= cost
		}
	}
	slices.SortFunc(taken, func(a, b section) int { return a.at - b.at })
	var b strings.Builder
	for i, s := range taken {
		switch {
		case i == 0:
		case s.at > taken[i-1].at+1:
			b.WriteString(gap)
		default:
			b.WriteString("\n\n")
		}
		b.WriteString(s.text)
	}
	return b.String(), len(all) - len(taken)
}

// gap stands where sections were left out.
const gap = "\n\n[...]\n\n"

// sections takes a Markdown text apart. Headings in code are none.
func sections(text string) (all []section) {
	var now []string
	heading, fence := "", ""
	end := func() {
		for _, piece := range pieces(strings.TrimSpace(strings.Join(now, "\n"))) {
			all = append(all, section{at: len(all), heading: heading, text: piece})
		}
		now = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence != "":
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
		case strings.HasPrefix(trimmed, "```"), strings.HasPrefix(trimmed, "~~~"):
			fence = trimmed[:3]
		case strings.HasPrefix(line, "#"):
			end()
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
		now = append(now, line)
	}
	end()
	return all
}

// pieces takes a long text apart, at empty lines as far as possible.
func pieces(text string) (all []string) {
	for len(text) > maxSection {
		cut := strings.LastIndex(text[:maxSection], "\n\n")
		if cut <= 0 {
			cut = strings.LastIndex(text[:maxSection], "\n")
		}
		if cut <= 0 {
			cut = maxSection
			for !utf8.RuneStart(text[cut]) {
				cut--
			}
		}
		all = append(all, text[:cut])
		text = strings.TrimLeft(text[cut:], "\n")
	}
	if text != "" {
		all = append(all, text)
	}
	return all
}

// maxTerms is how many words of a query are looked for.
const maxTerms = 50

// words are the words of a query that say something.
func words(query string) (terms []string) {
	for _, w := range strings.FieldsFunc(strings.ToLower(query),
		func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' }) {
		if len(terms) < maxTerms && utf8.RuneCountInString(w) > 2 && !slices.Contains(idle, w) &&
			!slices.Contains(terms, w) {
			terms = append(terms, w)
		}
	}
	return terms
}

// idle are words that stand everywhere.
var idle = []string{"the", "and", "for", "with", "how", "what", "does", "from", "this", "that", "are", "can", "use",
	"not", "you"}

// score counts the terms in a section, twice more for one in its heading.
func score(s section, terms []string) (n int) {
	text, heading := strings.ToLower(s.text), strings.ToLower(s.heading)
	for _, t := range terms {
		n += strings.Count(text, t)
		if strings.Contains(heading, t) {
			n += 2
		}
	}
	return n
}
