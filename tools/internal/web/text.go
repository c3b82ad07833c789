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

// The text of a page, for a model.

// removedElements are elements that have no part in a page's text.
var removedElements = []string{
	"nav", "footer", "aside", "form", "svg", "button", "select", "template", "dialog", "canvas",
	"audio", "video", "img", "picture",
}

var title = lazyregexp.New(`(?is)<title[^>]*>(.*?)</title>`)

// Content is the text of a page.
type Content struct {
	Text  string // Markdown if the page is HTML
	Title string // "" if the page has no title
	Cut   bool   // Text is only a part of the page
}

// convertTimeout is how long the conversion of a page to Markdown may take.
const convertTimeout = 5 * time.Second

// Content converts an HTML page to Markdown and returns other pages as they are. Its
// time and memory are bounded for every page. The error is one line for the model.
func (p Page) Content(ctx context.Context) (Content, error) {
	if p.Type != "text/html" && p.Type != "application/xhtml+xml" {
		return Content{Text: string(p.Body), Cut: p.Cut}, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, convertTimeout,
		fmt.Errorf("it takes longer than %v", convertTimeout))
	defer cancel()
	source, isCut := simplify(p.Body)
	c := Content{Cut: p.Cut || isCut}
	if m := title.FindStringSubmatch(string(source)); m != nil {
		c.Title = strings.Join(strings.Fields(html.UnescapeString(m[1])), " ")
	}
	doc, err := dom.Parse(&ctxReader{ctx, bytes.NewReader(source)})
	if err != nil {
		return Content{}, fmt.Errorf("reading the HTML of %s: %w", p.URL, err)
	}
	flatten(doc)
	conv := converter.NewConverter(converter.WithPlugins(base.NewBasePlugin(),
		commonmark.NewCommonmarkPlugin(),
		table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal))))
	for _, tag := range removedElements {
		conv.Register.TagType(tag, converter.TagTypeRemove, converter.PriorityEarly)
	}
	conv.Register.Renderer(
		func(_ converter.Context, w converter.Writer, _ *dom.Node) converter.RenderStatus {
			if b, ok := w.(interface{ Len() int }); ctx.Err() != nil || ok && b.Len() > maxText {
				c.Cut = true
				return converter.RenderSuccess // leaves the element out
			}
			return converter.RenderTryNext
		}, converter.PriorityEarly)
	conv.Register.UnEscaper(func(text []byte, at int) int {
		if ctx.Err() != nil || isUnclosedLink(text[at:]) {
			return 1 // keeps a backslash that may not be needed
		}
		return -1
	}, converter.PriorityEarly)
	domain := converter.WithDomain(p.URL)
	if countLinks(doc)*len(p.URL) > maxText { // each link may begin with the URL
		domain = converter.WithDomain("")
	}
	text, err := conv.ConvertNode(doc, domain)
	if err != nil {
		return Content{}, fmt.Errorf("reading the HTML of %s: %w", p.URL, err)
	}
	if ctx.Err() != nil && len(bytes.TrimSpace(text)) == 0 {
		return Content{}, fmt.Errorf("reading the HTML of %s: %w", p.URL, context.Cause(ctx))
	}
	if len(text) > maxText {
		text, c.Cut = text[:maxText], true
	}
	c.Text = strings.ToValidUTF8(string(text), "")
	return c, nil
}

// isUnclosedLink reports whether a text begins with a bracket that is not closed soon.
// A search for the end of each bracket would take quadratic time.
func isUnclosedLink(text []byte) bool {
	const near = 1000
	return text[0] == '[' && len(text) > near && bytes.IndexByte(text[:near], ']') < 0 &&
		bytes.IndexByte(text[:near], '\n') < 0
}

// section is a part of a text from one heading to the next, or a piece of a long part.
type section struct {
	at      int // index among the sections of the text
	heading string
	text    string
	score   int
}

// maxSection is the size of a section in bytes. Longer parts are split at paragraphs.
const maxSection = 2000

// Best returns the sections of a Markdown text that match a query best, in their order
// and in at most limit bytes. left is the number of sections that are left out. If
// no section has a word of the query, Best returns the beginning.
func Best(text, query string, limit int) (best string, left int) {
	if len(text) <= limit {
		return text, 0
	}
	all := sections(text)
	terms := queryTerms(query)
	for i := range all {
		all[i].score = score(all[i], terms)
	}
	ranked := slices.Clone(all)
	slices.SortStableFunc(ranked, func(a, b section) int { return b.score - a.score })
	var chosen []section
	for _, s := range ranked {
		if ranked[0].score > 0 && s.score == 0 {
			break
		}
		if cost := len(s.text) + len(gap); cost <= limit {
			chosen = append(chosen, s)
			limit -= cost
		}
	}
	slices.SortFunc(chosen, func(a, b section) int { return a.at - b.at })
	var b strings.Builder
	for i, s := range chosen {
		switch {
		case i == 0:
		case s.at > chosen[i-1].at+1:
			b.WriteString(gap)
		default:
			b.WriteString("\n\n")
		}
		b.WriteString(s.text)
	}
	return b.String(), len(all) - len(chosen)
}

// gap marks left out sections.
const gap = "\n\n[...]\n\n"

// sections splits a Markdown text at its headings, except for headings in code blocks.
func sections(text string) (all []section) {
	var lines []string
	heading, fence := "", ""
	end := func() {
		for _, piece := range pieces(strings.TrimSpace(strings.Join(lines, "\n"))) {
			all = append(all, section{at: len(all), heading: heading, text: piece})
		}
		lines = nil
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
		lines = append(lines, line)
	}
	end()
	return all
}

// pieces splits a long text, at empty lines if possible.
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

// maxTerms is how many words of a query count.
const maxTerms = 50

// queryTerms are the distinct words of a query, without short and common ones.
func queryTerms(query string) (terms []string) {
	isSeparator := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_'
	}
	for _, w := range strings.FieldsFunc(strings.ToLower(query), isSeparator) {
		if len(terms) < maxTerms && utf8.RuneCountInString(w) > 2 &&
			!slices.Contains(commonWords, w) && !slices.Contains(terms, w) {
			terms = append(terms, w)
		}
	}
	return terms
}

// commonWords are words that do not help to find the subject of a query.
var commonWords = strings.Fields(
	"the and for with how what does from this that are can use not you")

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
