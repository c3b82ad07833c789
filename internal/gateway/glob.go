package gateway

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"tapgw/internal/protocol"
)

// compileGlob makes a pattern of a glob for files: * and ? stay within a part of
// the path, ** does not, [ab] and {a,b} are alternatives. It is matched as a
// regular expression, since those can be stopped: braces alone make a glob of a
// hundred bytes that would be tried for ever.
func compileGlob(glob string) (*pattern, error) {
	if len(glob) > protocol.MaxPattern {
		return nil, fmt.Errorf("must be at most %d bytes", protocol.MaxPattern)
	}
	expr, err := globExpr(strings.TrimPrefix(glob, "/"))
	if err != nil {
		return nil, fmt.Errorf("%q is not a glob: %w", glob, err)
	}
	return newPattern("(?:^|/)" + expr + "$")
}

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

// stars is the expression for the stars at a place of a glob, and how much of it
// they are.
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

// charClass is the expression for the [...] that a glob begins with, and how
// much of it that is; 0 when it does not end.
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

// file is a file that a call names.
type file struct{ path, name subject }

func newFile(name string) file {
	name = path.Clean(strings.ReplaceAll(name, `\`, "/"))
	return file{subject{text: name}, subject{text: path.Base(name)}}
}

// matchFile matches a glob without a slash against the file's name, one with a
// slash against its path or an end of it.
func (r *rule) matchFile(f *file) verdict {
	if strings.Contains(r.Match.File, "/") {
		return r.file.match(&f.path)
	}
	return r.file.match(&f.name)
}

// toolGlob is a name of tools in which * stands for any text: the parts between
// the stars.
type toolGlob []string

func newToolGlob(glob string) toolGlob { return strings.Split(glob, "*") }

func (g toolGlob) match(tool string) bool {
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
