package match

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"tapgw/internal/protocol"
)

// FileGlob is a compiled glob for files: * and ? stay within a part of the path, **
// does not, and [ab] and {a,b} are alternatives. It is safe for concurrent use.
type FileGlob struct {
	pattern *Pattern
	isPath  bool // matches a file's path, else its name
}

// File is a file that a call names, for several globs to be tried on.
type File struct{ path, name *Text }

// NewFile returns the file of a path as a call's arguments write it, with / or \.
func NewFile(name string) File {
	name = path.Clean(strings.ReplaceAll(name, `\`, "/"))
	return File{NewText(name), NewText(path.Base(name))}
}

// CompileFileGlob compiles a glob of at most [protocol.MaxPattern] bytes. The error describes the
// fault in one line.
func CompileFileGlob(glob string) (*FileGlob, error) {
	if len(glob) > protocol.MaxPattern {
		return nil, fmt.Errorf("must be at most %d bytes", protocol.MaxPattern)
	}
	expr, err := globExpr(strings.TrimPrefix(glob, "/"))
	if err != nil {
		return nil, fmt.Errorf("%q is not a glob: %w", glob, err)
	}
	// The engine for regular expressions can be stopped, and a glob needs that:
	// braces alone make a hundred bytes that would be tried forever.
	p, err := compile("(?:^|/)" + expr + "$")
	if err != nil {
		return nil, err
	}
	return &FileGlob{p, strings.Contains(glob, "/")}, nil
}

// Match tries a glob without a slash on the file's name, and one with a slash on
// its path or an end of it.
func (g *FileGlob) Match(f File) Result {
	if g.isPath {
		return g.pattern.Match(f.path)
	}
	return g.pattern.Match(f.name)
}

// MatchesNoneIn reports whether the glob certainly matches no file that a call's
// arguments name. args is the text of [ArgsText], indexed. It spares the caller
// reading the arguments.
func (g *FileGlob) MatchesNoneIn(args *Text) bool { return args.missing.overlaps(&g.pattern.pairs) }

// globExpr translates a glob to a regular expression.
func globExpr(glob string) (string, error) {
	var b strings.Builder
	depth := 0
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; c {
		case '*':
			expr, width := stars(glob, i)
			b.WriteString(expr)
			i += width - 1
		case '?':
			b.WriteString(`[^/]`)
		case '[':
			class, width := charClass(glob[i:])
			if width == 0 {
				return "", errors.New("a [ is not closed")
			}
			b.WriteString(class)
			i += width - 1
		case '{':
			depth++
			b.WriteString(`(?:`)
		case '}':
			if depth--; depth < 0 {
				return "", errors.New("a } was not opened")
			}
			b.WriteByte(')')
		case ',':
			if depth > 0 {
				c = '|'
			}
			b.WriteByte(c)
		case '\\':
			if i++; i == len(glob) {
				return "", errors.New(`a \ stands at the end`)
			}
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		}
	}
	if depth > 0 {
		return "", errors.New("a { is not closed")
	}
	return b.String(), nil
}

// stars translates the stars at a place of a glob; width is how many bytes of the
// glob the expression stands for.
func stars(glob string, at int) (expr string, width int) {
	if !strings.HasPrefix(glob[at:], "**") || (at > 0 && glob[at-1] != '/') {
		return `[^/]*`, 1
	}
	switch rest := glob[at+2:]; {
	case rest == "":
		return `[\s\S]*`, 2
	case rest[0] == '/':
		return `(?:[^/]*/)*`, 3
	}
	return `[^/]*`, 2
}

// charClass translates the [...] that a glob begins with; width is its length in
// bytes, 0 if no ] closes it.
func charClass(glob string) (expr string, width int) {
	body, not := glob[1:], ""
	if body != "" && (body[0] == '!' || body[0] == '^') {
		body, not = body[1:], "^"
	}
	end := strings.IndexByte(body, ']')
	if end < 1 {
		return "", 0
	}
	class := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `^`, `\^`).Replace(body[:end])
	return "[" + not + class + "]", len(glob) - len(body) + end + 1
}

// ToolGlob is a name of tools in which * stands for any text, as its parts between the stars. No
// other character is special.
type ToolGlob []string

// NewToolGlob returns the glob that a rule writes as match.tool.
func NewToolGlob(glob string) ToolGlob { return strings.Split(glob, "*") }

// Match reports whether the glob matches the whole of a tool's name.
func (g ToolGlob) Match(tool string) bool {
	last := len(g) - 1
	if last == 0 {
		return tool == g[0]
	}
	tool, ok := strings.CutPrefix(tool, g[0])
	for _, part := range g[1:last] {
		if !ok {
			break
		}
		_, tool, ok = strings.Cut(tool, part)
	}
	return ok && strings.HasSuffix(tool, g[last])
}
