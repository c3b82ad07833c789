package library_docs //nolint:revive,staticcheck // see doc.go

import "strings"

// Section is what stands between one "## " heading and the next.
type Section struct {
	Heading string
	Text    string // the heading's line included, trimmed

	// For the search: both above in lower case.
	heading, text string
}

func newSection(heading, text string) Section {
	return Section{
		Heading: heading, Text: text,
		heading: strings.ToLower(heading), text: strings.ToLower(text),
	}
}

// page is one file of a library, taken apart.
type page struct {
	title       string // of the "# " heading; empty: there is none
	description string // the paragraph after it, on one line
	sections    []Section
}

// parsePage splits a file at its "## " headings. Lines in code fences are no
// headings. A file without any is one section, under its title or else name.
func parsePage(name, text string) page {
	text = strings.TrimPrefix(strings.ReplaceAll(text, "\r\n", "\n"), "\ufeff")
	var p page
	var open fence
	start, heading := 0, "" // of the section being read; none before the first heading
	at := 0
	flush := func(end int) {
		if heading != "" {
			p.sections = append(p.sections, newSection(heading, strings.TrimSpace(text[start:end])))
		}
	}
	for line := range strings.Lines(text) {
		if !open.line(line) {
			if h, ok := strings.CutPrefix(line, "## "); ok && strings.TrimSpace(h) != "" {
				flush(at)
				start, heading = at, strings.TrimSpace(h)
			} else if h, ok := strings.CutPrefix(line, "# "); ok && p.title == "" && heading == "" {
				p.title = strings.TrimSpace(h)
				p.description = firstParagraph(text[at+len(line):])
			}
		}
		at += len(line)
	}
	flush(len(text))
	if body := strings.TrimSpace(text); len(p.sections) == 0 && body != "" {
		if p.title != "" {
			name = p.title
		}
		p.sections = []Section{newSection(name, body)}
	}
	return p
}

// firstParagraph returns the paragraph that text begins with, on one line;
// nothing when it begins with a heading, a list or code.
func firstParagraph(text string) string {
	para, _, _ := strings.Cut(strings.TrimLeft(text, "\n"), "\n\n")
	if para == "" || strings.ContainsRune("#-*`~|>", rune(para[0])) {
		return ""
	}
	para, _, _ = strings.Cut(para, "\n#")
	return strings.Join(strings.Fields(para), " ")
}

// fence follows the code fences of a text: it is the run of ` or ~ that opened
// the current one, empty outside.
type fence string

// line takes the next line and reports whether it belongs to a code block, the
// fences themselves included.
func (f *fence) line(line string) bool {
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
			*f = fence(run)
			return true
		}
	}
	return false
}
