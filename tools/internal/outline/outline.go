// Package outline makes an overview of a source file: its language, its declarations and its
// introductory comment. It parses Go. In other languages it finds lines that look like
// declarations.
package outline

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"

	"tapgw/internal/lazyregexp"
)

// Symbol is a declaration in a file, such as a function or a type, or a heading of Markdown.
type Symbol struct {
	Line  int    // from 1
	Depth int    // how deep it is nested, by its indentation
	Text  string // the declaration without its body
}

// Outline is the overview of a file for a model that need not read it whole: the comment that
// introduces the file, and the declarations in their order.
type Outline struct {
	Doc     string // the comment that introduces it, or ""
	Symbols []Symbol
}

// language has the rules for the files of a language.
type language struct {
	name    string
	ends    []string           // endings of file names, or whole names
	symbols *lazyregexp.Regexp // matches lines that declare something; may be nil
	doc     func(lines []string) string
}

const modifiers = `(?:(?:public|private|protected|internal|static|final|abstract|sealed|virtual|override|async` +
	`|readonly|partial|open|data|inline|suspend|const|default|native|synchronized|unsafe|extern|export|declare` +
	`|lateinit|case|implicit|lazy)\s+)*`

var languages = []language{
	{"Go", []string{".go"}, nil, nil},
	{"Python", []string{".py", ".pyi"}, lazyregexp.New(`^\s*(?:async\s+def|def|class)\s+\w+`),
		docstring},
	{
		"TypeScript", []string{".ts", ".tsx", ".mts", ".cts"},
		scriptSymbols, blockComment,
	},
	{"JavaScript", []string{".js", ".jsx", ".mjs", ".cjs"}, scriptSymbols, blockComment},
	{
		"Java", []string{".java"},
		lazyregexp.New(`^\s*` + modifiers +
			`(?:(?:class|interface|enum|record|@interface)\s+\w+` +
			`|(?:<[^>]+>\s+)?[\w<>\[\],.?]+(?:\s+[\w<>\[\],.?]+)*\s+\w+\s*\([^;=]*(?:\{|,)?\s*$)`),
		blockComment,
	},
	{
		"C#", []string{".cs"},
		lazyregexp.New(`^\s*` + modifiers +
			`(?:(?:class|interface|enum|record|struct|namespace|delegate)\s+[\w.]+` +
			`|[\w<>\[\],.?]+\s+\w+\s*(?:<[^>]+>)?\([^;=]*\)?\s*(?:\{|=>.*)?$|[\w<>\[\],.?]+\s+\w+\s*\{\s*get)`),
		blockComment,
	},
	{"Kotlin", []string{".kt", ".kts"},
		lazyregexp.New(`^\s*` + modifiers +
			`(?:class|interface|object|enum\s+class|fun|typealias)\s+\S+`),
		blockComment},
	{"Scala", []string{".scala"},
		lazyregexp.New(`^\s*` + modifiers + `(?:class|trait|object|def|enum|type)\s+\S+`),
		blockComment},
	{"Swift", []string{".swift"},
		lazyregexp.New(
			`^\s*(?:@\w+\s+)*(?:(?:public|private|fileprivate|internal|open|static|final|override` +
				`|mutating|indirect)\s+)*(?:class|struct|enum|protocol|extension|func|actor|init|typealias)\b.*`),
		blockComment},
	{
		"Rust", []string{".rs"},
		lazyregexp.New(
			`^\s*(?:pub(?:\([^)]*\))?\s+)?(?:(?:async|unsafe|const|extern(?:\s+"[^"]*")?` +
				`|default)\s+)*(?:(?:fn|struct|enum|trait|mod|type|union)\s+\w+|impl\b.*|static\s+\w+|const\s+\w+\s*:` +
				`|macro_rules!\s*\w+)`), innerComment,
	},
	{"Ruby", []string{".rb", ".rake", "Rakefile", "Gemfile"},
		lazyregexp.New(`^\s*(?:class|module|def)\s+\S+`),
		hashComment},
	{"PHP", []string{".php"},
		lazyregexp.New(`^\s*` + modifiers +
			`(?:class|interface|trait|enum|function|namespace)\s+&?[\w\\]+`),
		blockComment},
	{
		"C", []string{".c", ".h"},
		cSymbols, blockComment,
	},
	{"C++", []string{".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"}, cSymbols, blockComment},
	{"Dart", []string{".dart"},
		lazyregexp.New(`^\s*(?:abstract\s+)?(?:class|mixin|enum|extension|typedef)\s+\w+` +
			`|^\s*(?:static\s+)?[\w<>?]+\s+\w+\s*\([^;]*\)\s*(?:async\s*)?(?:\{|=>)`),
		blockComment},
	{"Elixir", []string{".ex", ".exs"},
		lazyregexp.New(`^\s*(?:defmodule|defp?|defmacro|defstruct|defprotocol|defimpl)\b.*`), nil},
	{"shell", []string{".sh", ".bash", ".zsh"},
		lazyregexp.New(`^\s*(?:function\s+[\w:-]+|[\w:-]+\s*\(\))`),
		hashComment},
	{"SQL", []string{".sql"},
		lazyregexp.New(`(?i)^\s*create\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+)?(?:table|view` +
			`|materialized\s+view|index|unique\s+index|function|procedure|trigger|type)\s+.*`),
		nil},
	{"Protocol Buffers", []string{".proto"},
		lazyregexp.New(`^\s*(?:message|service|enum|rpc)\s+\w+`), blockComment},
	{"Markdown", []string{".md", ".markdown"}, lazyregexp.New(`^#{1,6}\s+\S`), nil},
	{"TOML", []string{".toml"}, lazyregexp.New(`^\s*\[+[^\]]+\]+`), hashComment},
	{"YAML", []string{".yaml", ".yml"}, lazyregexp.New(`^[\w"'][^#]*:(?:\s|$)`), hashComment},
	{"Makefile", []string{"Makefile", "makefile", ".mk"},
		lazyregexp.New(`^[\w./%$()-][^=:]*:(?:[^=]|$)`), hashComment},
	{"Dockerfile", []string{"Dockerfile"}, lazyregexp.New(`(?i)^from\s+\S+`), hashComment},
	{"JSON", []string{".json", ".jsonc"}, nil, nil},
	{"HTML", []string{".html", ".htm"}, nil, nil},
	{"CSS", []string{".css", ".scss", ".less"}, nil, nil},
	{"XML", []string{".xml"}, nil, nil},
	{"text", []string{".txt", "LICENSE"}, nil, nil},
}

var (
	scriptSymbols = lazyregexp.New(
		`^\s*(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:(?:abstract\s+)?class\s+\w+` +
			`|(?:async\s+)?function\b\s*\*?\s*\w*\s*\(|(?:interface|enum|const\s+enum|namespace|module)\s+\w+` +
			`|type\s+\w+[^=]*=|(?:const|let|var)\s+\w+(?:\s*:[^=]+)?\s*=\s*(?:async\s*)?(?:\([^)]*\)` +
			`|\w+)\s*(?::[^=]+)?=>|(?:const|let|var)\s+\w+\s*=\s*(?:async\s+)?function\b)` +
			`|^\s+(?:(?:public|private|protected|static|async|get|set|readonly|override` +
			`|abstract)\s+)*[*#]?\w+\s*(?:<[^>]+>)?\([^;]*\)\s*(?::[^;{]+)?\{\s*$`)
	cSymbols = lazyregexp.New(`^(?:typedef\s+)?(?:struct|class|enum|union|namespace)\s+\w+[^;]*$` +
		`|^[A-Za-z_][\w\s*&:<>,~]*\([^;]*\)?[^;=]*\{?\s*$|^#define\s+\w+`)

	// control matches the beginning of statements that look like declarations.
	control = lazyregexp.New(
		`^\s*(?:\}\s*)?(?:if|else|for|foreach|while|switch|catch|return|throw|new|do|try|using` +
			`|lock|await|yield|super|function)\b\s*\(?`)
	named = lazyregexp.New(`\bfunction\s*\*?\s*\w`)
)

// Language returns the name of a file's language, such as "Go", "" if it is unknown. Only the name
// of the file counts: its ending, or the whole of it.
func Language(file string) string {
	if l := find(file); l != nil {
		return l.name
	}
	return ""
}

func find(file string) *language {
	base := path.Base(file)
	i := slices.IndexFunc(languages, func(l language) bool {
		return slices.Contains(l.ends, strings.ToLower(path.Ext(base))) ||
			slices.Contains(l.ends, base)
	})
	if i < 0 {
		return nil
	}
	return &languages[i]
}

// Of returns the outline of a file with a text; the file's name decides on the language. Go is
// parsed, other languages are read line by line with patterns. It is empty for unknown languages
// and for Go that can't be parsed at all.
func Of(file, text string) Outline {
	l := find(file)
	if l == nil {
		return Outline{}
	}
	if l.name == "Go" {
		if o, ok := goOutline(text); ok {
			return o
		}
		return Outline{}
	}
	var o Outline
	lines := strings.Split(strings.ReplaceAll(strings.TrimPrefix(text, "\uFEFF"), "\r\n", "\n"),
		"\n")
	if l.doc != nil {
		o.Doc = l.doc(lines)
	}
	if l.symbols == nil {
		return o
	}
	isFenced := false // in a code block of Markdown
	for i, line := range lines {
		if l.name == "Markdown" &&
			(strings.HasPrefix(line, "```") || strings.HasPrefix(line, "~~~")) {
			isFenced = !isFenced
		}
		if isFenced || len(line) > maxLine || !l.symbols.MatchString(line) ||
			control.MatchString(line) && !named.MatchString(line) {
			continue
		}
		o.Symbols = append(o.Symbols, Symbol{i + 1, depth(l.name, line), declaration(line)})
	}
	return o
}

// maxLine is the longest line that counts as source code, in bytes.
const maxLine = 500

func depth(lang, line string) int {
	if lang == "Markdown" {
		return len(line) - len(strings.TrimLeft(line, "#")) - 1
	}
	n := 0
	for _, c := range line {
		switch c {
		case '\t':
			n += 4
		case ' ':
			n++
		default:
			return (n + 2) / 4
		}
	}
	return 0
}

// declaration is a line without the sign that begins the body.
func declaration(line string) string {
	line = strings.TrimSpace(line)
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(strings.TrimRight(line, "{:")),
		"=>"))
}

// goOutline makes the outline of Go source, also if a part of it can't be parsed.
func goOutline(text string) (o Outline, ok bool) {
	fset := token.NewFileSet()
	f, _ := parser.ParseFile(fset, "", text, parser.ParseComments|parser.SkipObjectResolution)
	if f == nil || f.Name == nil {
		return o, false
	}
	o.Doc = strings.TrimSpace(f.Doc.Text())
	add := func(pos token.Pos, text string) {
		o.Symbols = append(o.Symbols, Symbol{Line: fset.Position(pos).Line, Text: text})
	}
	source := func(n ast.Node) string {
		from, to := fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset
		if from < 0 || to > len(text) || from >= to { // not parsed as a whole: use its first line
			from = min(max(from, 0), len(text))
			line, _, _ := strings.Cut(text[from:], "\n")
			return strings.TrimSpace(line)
		}
		return strings.Join(strings.Fields(text[from:to]), " ")
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			head := *d
			head.Body, head.Doc = nil, nil
			add(d.Pos(), source(&head))
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add(s.Pos(), "type "+s.Name.Name+" "+typeWord(s.Type, source))
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.Name != "_" {
							add(name.Pos(), d.Tok.String()+" "+name.Name)
						}
					}
				}
			}
		}
	}
	return o, true
}

// typeWord is a type in short form.
func typeWord(t ast.Expr, source func(ast.Node) string) string {
	switch t.(type) {
	case *ast.StructType:
		return "struct"
	case *ast.InterfaceType:
		return "interface"
	}
	return source(t)
}
