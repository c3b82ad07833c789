package schemadoc

import (
	"fmt"
	"strings"

	"tapgw/internal/lazyregexp"
)

// section is the part of the document about a message or a part of one.
type section struct {
	about  string         // its first paragraph
	fields map[string]row // by name
}

// row is a line of a table of fields.
type row struct{ typ, meaning string }

// parse returns the sections with a table of fields, by name.
func parse(doc []byte) (map[string]*section, error) {
	sections := map[string]*section{}
	var name, about string
	var current *section // the section of the table that the line is in
	for i, line := range strings.Split(string(doc), "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
			name, about, current = strings.Trim(strings.TrimLeft(line, "# "), "`"), "", nil
		case strings.HasPrefix(line, "| Field | Type |"):
			if sections[name] != nil {
				return nil, fmt.Errorf("docs/protocol.md:%d: %s is described twice", i+1, name)
			}
			current = &section{about: about, fields: map[string]row{}}
			sections[name] = current
		case current != nil && strings.HasPrefix(line, "| `"):
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			if len(cells) != 3 {
				return nil, fmt.Errorf("docs/protocol.md:%d: the row must have three cells", i+1)
			}
			field := strings.Trim(cells[0], "`")
			if _, twice := current.fields[field]; twice {
				return nil, fmt.Errorf("docs/protocol.md:%d: %s.%s is described twice", i+1, name,
					field)
			}
			current.fields[field] = row{withoutMarks(cells[1]), cells[2]}
		case line == "":
			current = nil
		case about == "" && current == nil:
			about = line
		}
	}
	return sections, nil
}

var link = lazyregexp.New(`\[([^\]]*)\]\([^)]*\)`)

// withoutMarks removes links and code marks from Markdown.
func withoutMarks(s string) string {
	return strings.ReplaceAll(link.ReplaceAllString(s, "$1"), "`", "")
}
