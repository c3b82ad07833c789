package library_docs //nolint:revive,staticcheck // see doc.go

import "strings"

// Section is the text from one "## " heading to the next.
type Section struct {
	Heading string
	Text    string // trimmed, with the line of the heading

	heading, text string // the same in lower case, for searches
}

func newSection(heading, text string) Section {
	return Section{
		Heading: heading, Text: text,
		heading: strings.ToLower(heading), text: strings.ToLower(text),
	}
}

// page is the content of one file of a library.
type page struct {
	title       string // the "# " heading; "" if it is missing
	description string // the paragraph after it, on one line
	sections    []Section
}

// parsePage splits a file at its "## " headings, except for lines in code blocks. A file
// without headings becomes one section with its title, or else with name, as heading.
func parsePage(name, text string) page {
	text = strings.TrimPrefix(strings.ReplaceAll(text, "\r\n", "\n"), "\ufeff")
	var p page
	var fence codeFence
	start, heading := 0, "" // of the current section; "": before the first heading
	at := 0
	addSection := func(end int) {
		if heading != "" {
			p.sections = append(p.sections, newSection(heading, strings.TrimSpace(text[start:end])))
		}
	}
	for line := range strings.Lines(text) {
		if !fence.read(line) {
			if h, ok := strings.CutPrefix(line, "## "); ok && strings.TrimSpace(h) != "" {
				addSection(at)
				start, heading = at, strings.TrimSpace(h)
			} else if h, ok := strings.CutPrefix(line, "# "); ok && p.title == "" && heading == "" {
				p.title = strings.TrimSpace(h)
				p.description = firstParagraph(text[at+len(line):])
			}
		}
		at += len(line)
	}
	addSection(len(text))
	if body := strings.TrimSpace(text); len(p.sections) == 0 && body != "" {
		if p.title != "" {
			name = p.title
		}
		p.sections = []Section{newSection(name, body)}
	}
	return p
}

// firstParagraph returns the paragraph at the beginning of a text, on one line, or "" if
// the text begins with a heading, a list or code.
func firstParagraph(text string) string {
	para, _, _ := strings.Cut(strings.TrimLeft(text, "\n"), "\n\n")
	if para == "" || strings.ContainsRune("#-*`~|>", rune(para[0])) {
		return ""
	}
	para, _, _ = strings.Cut(para, "\n#")
	return strings.Join(strings.Fields(para), " ")
}

// codeFence tracks the code blocks of a text. It is the run of ` or ~ that opened the
// current block, "" outside of a block.
type codeFence string

// read reads the next line and reports whether it belongs to a code block, fences
// included.
func (f *codeFence) read(line string) bool {
	line = strings.TrimSpace(line)
	if *f != "" {
		if strings.HasPrefix(line, string(*f)) && strings.Trim(line, string((*f)[:1])) == "" {
			*f = ""
		}
		return true
	}
	for _, c := range []string{"`", "~"} {
		info := strings.TrimLeft(line, c)
		if run := line[:len(line)-len(info)]; len(run) >= 3 && !strings.Contains(info, "`") {
			*f = codeFence(run)
			return true
		}
	}
	return false
}
