package lsp

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The types of the language server protocol that the tools use, with their translation for a model.

type object = map[string]any

// position is a place in a text: lines from 0, characters in UTF-16 units.
type position struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

type span struct {
	Start position `json:"start"`
	End   position `json:"end"`
}

type location struct {
	URI   string `json:"uri"`
	Range span   `json:"range"`
}

type diagnostic struct {
	Range    span            `json:"range"`
	Severity int             `json:"severity"`
	Code     json.RawMessage `json:"code"`
	Source   string          `json:"source"`
	Message  string          `json:"message"`
}

// Place is a place in a file, as people and compilers count: line and column begin with 1. The file
// may have changed since the server answered.
type Place struct {
	Path string // absolute
	Line int    // from 1
	Col  int    // from 1, in UTF-16 units
}

// Problem is an error or a remark of a server about a place in a file. Message may have several
// lines.
type Problem struct {
	Place
	Severity string // error, warning, information or hint
	Message  string
	Source   string // program that found it, and its code for the problem
}

// Symbol is a named declaration, such as a function or a type, at the place where its server says
// that it is declared.
type Symbol struct {
	Place
	Name      string
	Kind      string // such as function; "": unknown
	Container string // name of the symbol or package that it belongs to
}

func (d diagnostic) problem(path string) Problem {
	severity := "error"
	if d.Severity >= 1 && d.Severity <= 4 {
		severity = []string{"error", "warning", "information", "hint"}[d.Severity-1]
	}
	source := d.Source
	var code any
	if json.Unmarshal(d.Code, &code) == nil && code != nil {
		source = strings.TrimSpace(source + " " + strings.Trim(string(d.Code), `"`))
	}
	return Problem{
		Place:    Place{path, d.Range.Start.Line + 1, d.Range.Start.Character + 1},
		Severity: severity, Message: d.Message, Source: source,
	}
}

// kinds are the names of the protocol's symbol kinds, from 1.
var kinds = []string{
	"", "file", "module", "namespace", "package", "class", "method", "property", "field",
	"constructor", "enum",
	"interface", "function", "variable", "constant", "string", "number", "boolean", "array",
	"object", "key", "null", "enum member", "struct", "event", "operator", "type parameter",
}

func kindOf(n int) string {
	if n < 0 || n >= len(kinds) {
		return ""
	}
	return kinds[n]
}

// uriOf is the URI of an absolute path.
func uriOf(path string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String()
}

// pathOf is the path of a file URI, "" for other URIs.
func pathOf(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" {
		return ""
	}
	return filepath.FromSlash(u.Path)
}

// findWord returns the first place of a name as a whole word in a text, at a line from 1 or below
// it; ok is false if there is no such place.
func findWord(text, name string, line int) (p position, ok bool) {
	begin := line - 1
	for n, line := range strings.Split(text, "\n") {
		for from := 0; n >= begin; {
			i := strings.Index(line[from:], name)
			if i < 0 {
				break
			}
			i += from
			if isBoundary(line, i) && isBoundary(line, i+len(name)) {
				return position{n, utf16Len(line[:i])}, true
			}
			from = i + 1
		}
	}
	return position{}, false
}

// isBoundary reports whether no word goes on across an offset.
func isBoundary(line string, i int) bool {
	before, _ := utf8.DecodeLastRuneInString(line[:i])
	after, _ := utf8.DecodeRuneInString(line[i:])
	return !isWordRune(before) || !isWordRune(after)
}

func isWordRune(r rune) bool {
	return r == '_' || r == '$' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r &&
		r <= 'Z' ||
		r > utf8.RuneSelf && r != utf8.RuneError
}

// utf16Len is the length of a text in UTF-16.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}
