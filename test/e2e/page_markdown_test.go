//go:build e2e && linux

package e2e_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/util"
	"golang.org/x/tools/txtar"
)

// commonMark is goldmark with the rules of GitHub, but without HTML: the page shows tags as text.
func commonMark() goldmark.Markdown {
	blocks := slices.DeleteFunc(parser.DefaultBlockParsers(), func(p util.PrioritizedValue) bool {
		return p.Value == parser.NewHTMLBlockParser()
	})
	inlines := slices.DeleteFunc(parser.DefaultInlineParsers(), func(p util.PrioritizedValue) bool {
		return p.Value == parser.NewRawHTMLParser()
	})
	return goldmark.New(
		goldmark.WithParser(parser.NewParser(parser.WithBlockParsers(blocks...),
			parser.WithInlineParsers(inlines...),
			parser.WithParagraphTransformers(parser.DefaultParagraphTransformers()...))),
		goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.TaskList,
			extension.Linkify),
		goldmark.WithRendererOptions(html.WithXHTML(), html.WithUnsafe()),
	)
}

// TestPageMarkdown compares how the page shows what models write with goldmark, element by element.
func TestPageMarkdown(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "markdown.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	differs := map[string]bool{}
	var names, texts []string
	for _, f := range archive.Files {
		if name, ok := strings.CutSuffix(f.Name, ".differs"); ok {
			differs[name] = true
			continue
		}
		names, texts = append(names, f.Name), append(texts, string(f.Data))
	}
	// Our own documentation is Markdown too.
	docs, err := filepath.Glob(filepath.Join(repo, "docs", "*.md"))
	if err != nil || len(docs) < 20 {
		t.Fatalf("there are %d documents: %v", len(docs), err)
	}
	for _, file := range docs {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names, texts = append(names, filepath.Base(file)), append(texts, string(text))
	}
	v := parts(t)
	// It comes in pieces, and whole it looks the same.
	const show = `import("/sources/markdown.js").then(({ render }) => ((text) => {
		const el = document.createElement("div"), whole = document.createElement("div");
		for (let i = 1; i < text.length; i += 1 + Math.floor(text.length / 2000)) render(el, text.slice(0, i));
		render(el, text);
		render(whole, text);
		return el.isEqualNode(whole) ? new XMLSerializer().serializeToString(el) : "";
	})(%s))`
	for i, name := range names {
		shown := eval[string](v.tab, show, texts[i])
		if shown == "" {
			t.Errorf("%s looks different when it came in pieces, want it to look the same", name)
			continue
		}
		var want bytes.Buffer
		if err := commonMark().Convert([]byte(texts[i]), &want); err != nil {
			t.Fatal(err)
		}
		got, expected := elements(t, shown), elements(t, "<div>"+want.String()+"</div>")
		if same := slices.Equal(got, expected); same == differs[name] {
			at := 0
			for at < min(len(got), len(expected)) && got[at] == expected[at] {
				at++
			}
			t.Errorf("%s: the page shows %q and goldmark %q, want them to differ: %v", name,
				got[max(0, min(at-4, len(got))):min(at+8, len(got))],
				expected[max(0, min(at-4, len(expected))):min(at+8, len(expected))], differs[name])
		}
	}
}

var spaces = regexp.MustCompile(`[ \t\n]+`)

// elements lists the elements and texts of a document in order, with what a reader sees of them.
func elements(t *testing.T, document string) []string {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(document))
	d.Strict, d.Entity = false, xml.HTMLEntity
	var all, open []string
	text := ""
	flush := func() {
		if slices.Contains(open, "pre") {
			text = strings.TrimRight(text, "\n")
		} else {
			text = strings.Trim(spaces.ReplaceAllString(text, " "), " ")
		}
		if text != "" {
			all = append(all, text)
		}
		text = ""
	}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("reading %.200s: %v", document, err)
		}
		switch e := token.(type) {
		case xml.CharData:
			text += string(e)
		case xml.StartElement:
			name, shown := element(e)
			if slices.Contains(open, "pre") {
				name, shown = "", ""
			}
			if shown != "" {
				flush()
				all = append(all, shown)
			}
			if e.Name.Local == "img" {
				text = e.Attr[slices.IndexFunc(e.Attr, func(a xml.Attr) bool {
					return a.Name.Local == "alt"
				})].Value
			}
			if name == "checked" || name == "open" {
				text = map[string]string{"checked": "☑ ", "open": "☐ "}[name]
				name = ""
			}
			open = append(open, name)
		case xml.EndElement:
			name := open[len(open)-1]
			if name == "skipped" {
				text = ""
			} else if name != "" {
				flush()
				all = append(all, "</"+name+">")
			}
			open = open[:len(open)-1]
		}
	}
}

// element returns the name by which elements closes an element, and what it shows of its beginning.
func element(e xml.StartElement) (name, shown string) {
	attr := map[string]string{}
	for _, a := range e.Attr {
		attr[a.Name.Local] = a.Value
	}
	_, checked := attr["checked"]
	name = e.Name.Local
	switch {
	case name == "button" || attr["class"] == "head":
		return "skipped", ""
	case name == "input" && checked:
		return "checked", ""
	case name == "input":
		return "open", ""
	case name == "img":
		return "a", "<a " + address(attr["src"]) + ">"
	case name == "a":
		return "a", "<a " + address(attr["href"]) + ">"
	case name == "span" && attr["class"] == "dead":
		return "a", "<a " + address(attr["title"]) + ">"
	case name == "div" || name == "span":
		return "", ""
	case regexp.MustCompile("^h[1-6]$").MatchString(name):
		return "heading", "<heading>"
	case name == "th":
		return name, "<" + name + strings.TrimPrefix(attr["align"]+attr["class"], "left") + ">"
	}
	return name, "<" + name + attr["start"] + ">"
}

// address spells an address in one of its ways.
func address(href string) string {
	if s, err := url.PathUnescape(href); err == nil {
		href = s
	}
	return strings.TrimPrefix(href, "mailto:")
}
