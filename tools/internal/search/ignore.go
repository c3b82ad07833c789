package search

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The rules of .gitignore files.

// rule is a line of a .gitignore file, as gitignore(5) describes it.
type rule struct {
	isNegated bool // the line begins with !: matching files are not ignored
	dirsOnly  bool // the line ends in /: it matches directories only
	baseOnly  bool // it is compared with the last element of a path
	isSuffix  bool // the pattern is *literal
	literal   string
	re        *regexp.Regexp // nil: the pattern is literal
}

func parseRules(text string) (rules []rule) {
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\uFEFF"), "\n") {
		if r, ok := parseRule(strings.TrimSuffix(line, "\r")); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

// parseRule reads a line; ok is false if it has no rule.
func parseRule(line string) (r rule, ok bool) {
	for strings.HasSuffix(line, " ") && !endsInEscape(line[:len(line)-1]) {
		line = line[:len(line)-1]
	}
	if strings.HasPrefix(line, "#") {
		return r, false
	}
	line, r.isNegated = strings.CutPrefix(line, "!")
	line, r.dirsOnly = strings.CutSuffix(line, "/")
	if line == "" {
		return r, false
	}
	r.baseOnly = !strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	literal, isSuffix := strings.CutPrefix(line, "*")
	if !strings.ContainsAny(literal, `*?[\`) && (!isSuffix || r.baseOnly) {
		r.literal, r.isSuffix = literal, isSuffix
		return r, true
	}
	expr, ok := translate(line)
	if !ok {
		return r, false
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return r, false // an invalid class, such as [b-a], never matches
	}
	r.re = re
	return r, true
}

// endsInEscape reports whether s ends in a backslash that escapes the next character.
func endsInEscape(s string) bool {
	n := len(s) - len(strings.TrimRight(s, `\`))
	return n%2 == 1
}

func (r rule) match(p string, isDir bool) bool {
	if r.dirsOnly && !isDir {
		return false
	}
	if r.baseOnly {
		p = path.Base(p)
	}
	switch {
	case r.re != nil:
		return r.re.MatchString(p)
	case r.isSuffix:
		return strings.HasSuffix(p, r.literal)
	}
	return p == r.literal
}

// translate converts a pattern to a regular expression; ok is false for a pattern that can't match.
func translate(p string) (expr string, ok bool) {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for i := 0; i < len(p); i++ {
		switch c := p[i]; c {
		case '*':
			n := len(p[i:]) - len(strings.TrimLeft(p[i:], "*"))
			left, right := i == 0 || p[i-1] == '/', i+n == len(p) || p[i+n] == '/'
			switch {
			case n < 2 || !left || !right:
				b.WriteString(`[^/]*`)
			case i+n == len(p): // /**
				b.WriteString(`.+`)
			default: // **/
				b.WriteString(`(?:.*/)?`)
				n++
			}
			i += n - 1
		case '?':
			b.WriteString(`[^/]`)
		case '[':
			class, n := translateClass(p[i:])
			if n == 0 {
				return "", false
			}
			b.WriteString(class)
			i += n - 1
		case '\\':
			if i++; i == len(p) {
				return "", false
			}
			b.WriteString(regexp.QuoteMeta(p[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(p[i : i+1]))
		}
	}
	b.WriteString(`\z`)
	return b.String(), true
}

// translateClass converts the [class] at the beginning of p; n is its length, 0 if it
// has no end. A class never matches /.
func translateClass(p string) (expr string, n int) {
	var in [utf8.RuneSelf]bool // the ASCII characters of the class
	var more strings.Builder   // its other characters, as ranges of an expression
	add := func(from, to rune) {
		for c := from; c <= min(to, utf8.RuneSelf-1); c++ {
			in[c] = true
		}
		if to >= utf8.RuneSelf && from <= to {
			fmt.Fprintf(&more, `\x{%x}-\x{%x}`, max(from, utf8.RuneSelf), to)
		}
	}
	i := 1
	negated := i < len(p) && (p[i] == '!' || p[i] == '^')
	if negated {
		i++
	}
	for first := i; i < len(p); {
		if p[i] == ']' && i > first {
			return classExpr(in, more.String(), negated), i + 1
		}
		if name, _, ok := strings.Cut(p[i:], ":]"); ok && strings.HasPrefix(name, "[:") {
			is := posix[name[2:]]
			if is == nil {
				return "", 0
			}
			for c := range in {
				in[c] = in[c] || is(rune(c))
			}
			i += len(name) + 2
			continue
		}
		from, size := classRune(p[i:])
		to := from
		i += size
		if i+1 < len(p) && p[i] == '-' && p[i+1] != ']' {
			to, size = classRune(p[i+1:])
			i += 1 + size
		}
		add(from, to)
	}
	return "", 0
}

// classRune reads one character of a class, with or without a backslash before it.
func classRune(p string) (r rune, size int) {
	if p[0] == '\\' && len(p) > 1 {
		r, size = utf8.DecodeRuneInString(p[1:])
		return r, size + 1
	}
	return utf8.DecodeRuneInString(p)
}

func classExpr(in [utf8.RuneSelf]bool, more string, negated bool) string {
	var b strings.Builder
	in['/'] = negated
	for c, ok := range in {
		if ok {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	b.WriteString(more)
	switch {
	case negated:
		return "[^" + b.String() + "]"
	case b.Len() == 0:
		return `[^\x00-\x{10FFFF}]` // matches no character
	}
	return "[" + b.String() + "]"
}

// posix are the named classes, for ASCII only as in git.
var posix = map[string]func(rune) bool{
	"alnum":  func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) },
	"alpha":  unicode.IsLetter,
	"blank":  func(c rune) bool { return c == ' ' || c == '\t' },
	"cntrl":  unicode.IsControl,
	"digit":  unicode.IsDigit,
	"graph":  func(c rune) bool { return c > ' ' && c < 0x7f },
	"lower":  unicode.IsLower,
	"print":  func(c rune) bool { return c >= ' ' && c < 0x7f },
	"punct":  func(c rune) bool { return unicode.IsPunct(c) || unicode.IsSymbol(c) },
	"space":  unicode.IsSpace,
	"upper":  unicode.IsUpper,
	"xdigit": func(c rune) bool { return strings.ContainsRune("0123456789abcdefABCDEF", c) },
}
