// Package shellrule decides whether the rules of a user allow or deny a shell command.
// It judges the parsed command, never its text. A rule allows a command only if each
// word is plain, so that every shell reads the same words, starts the same programs
// and writes no file by itself.
package shellrule

import (
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"tapgw/internal/lazyregexp"
)

// maxLength is the longest command that a rule may allow, in bytes. Parsing takes time
// that grows with the square of the nesting.
const maxLength = 4 << 10

// Rule allows some commands. It consists of words: * in a word matches any text within
// it, and a last word * matches any further words. Neither matches options that write
// files or run programs (see programs.go). [Begins] and [Exactly] make one.
type Rule struct {
	text     string    // as written; "": it has a star
	commands []command // nil: the rule allows only exactly its text
	isPrefix bool      // further words may follow if they are known to be harmless
}

// star replaces an unquoted * in the words of a rule.
const star = "\x00"

// Begins returns the rule that allows commands that begin with the words of a pattern,
// and go on with words that are known to be harmless: `git log` allows `git log -3` and
// not `git log --output=x`. For unknown programs no words may follow, unless the
// pattern ends with " *".
func Begins(pattern string) Rule {
	r := Exactly(pattern)
	r.isPrefix = true
	return r
}

// Exactly returns the rule that allows commands with exactly the words of a pattern. A
// pattern of several commands, such as `go vet * | head`, allows only all of them
// together.
func Exactly(pattern string) Rule {
	pattern = strings.TrimSpace(pattern)
	var r Rule
	r.commands, _ = parse(pattern, true)
	if !strings.Contains(pattern, "*") {
		r.text = pattern
	}
	return r
}

// IsVoid reports whether a rule allows no command line at all: its text is not plain commands, and has a star.
// Without a star such a rule allows the line that is exactly its text.
func (r Rule) IsVoid() bool { return r.text == "" && len(r.commands) == 0 }

// Allows reports whether rules allow a whole command line: each of its commands alone,
// or all of them by one rule. A line that sets variables, expands or substitutes
// something, writes files, or has loops, functions or comments is allowed only by a
// rule with exactly the same text.
func Allows(rules []Rule, line string) bool {
	line = strings.Trim(line, " \n")
	if line == "" {
		return false
	}
	if slices.ContainsFunc(rules, func(r Rule) bool { return r.text == line }) {
		return true
	}
	commands, ok := parse(line, false)
	if !ok {
		return false
	}
	if slices.ContainsFunc(rules, func(r Rule) bool { return r.allowsLine(commands) }) {
		return true
	}
	hasMoved := false // to a directory where a relative name is another program
	for _, c := range commands {
		if hasMoved && c.dependsOnDir() {
			return false
		}
		hasMoved = hasMoved || slices.Contains([]string{"cd", "chdir", "pushd", "popd"}, c.words[0])
		allowsIt := func(r Rule) bool { return len(r.commands) == 1 && r.allows(r.commands[0], c) }
		if !slices.ContainsFunc(rules, allowsIt) {
			return false
		}
	}
	return true
}

// allowsLine reports whether the rule has several commands and allows exactly these.
func (r Rule) allowsLine(commands []command) bool {
	return len(r.commands) > 1 && slices.EqualFunc(r.commands, commands, func(want, c command) bool {
		return want.after == c.after && r.allows(want, c)
	})
}

// allows reports whether a command of the rule allows a command.
func (r Rule) allows(want, c command) bool {
	words, hasMore := want.words, false // hasMore: any words may follow
	if last := len(words) - 1; words[last] == star {
		words, hasMore = words[:last], true
	}
	if len(c.words) < len(words) || len(c.words) > len(words) && !hasMore && !r.isPrefix {
		return false
	}
	o := openWords{words: c.words, harmlessOnly: len(c.words) > len(words) && !hasMore}
	for i, word := range c.words {
		if i >= len(words) {
			o.at = append(o.at, i)
			continue
		}
		before, _, hasStar := strings.Cut(words[i], star)
		switch {
		case !matches(words[i], word), hasStar && before == "" && strings.HasPrefix(word, "-"):
			return false
		case hasStar && !strings.HasPrefix(before, "-"): // with - the rule determines the option
			o.at = append(o.at, i)
		case !hasStar && o.fixed == i:
			o.fixed++
		}
	}
	return o.areAllowed(c.after == "|")
}

// matches reports whether a word matches a rule's word, in which a star is any text.
func matches(pattern, word string) bool {
	parts := strings.Split(pattern, star)
	word, ok := strings.CutPrefix(word, parts[0])
	last := len(parts) - 1
	if !ok || last == 0 {
		return ok && word == ""
	}
	for _, part := range parts[1:last] { // the first occurrence leaves the most for the others
		i := strings.Index(word, part)
		if i < 0 {
			return false
		}
		word = word[i+len(part):]
	}
	return strings.HasSuffix(word, parts[last])
}

// command is one simple command of a line: its words without quotes, and the operator
// before it.
type command struct {
	after string // "", ";", "&&", "||" or "|"
	words []string
}

// parse splits a line into its commands. It returns false if some shell could read the
// line differently, or do more than run these programs with these words. With
// withStars, an unquoted * becomes [star].
func parse(text string, withStars bool) ([]command, bool) {
	if len(text) > maxLength || !isPlain(text) {
		return nil, false
	}
	var first []command
	for i, shell := range []syntax.LangVariant{syntax.LangBash, syntax.LangPOSIX, syntax.LangZsh} {
		parser := syntax.NewParser(syntax.Variant(shell), syntax.KeepComments(true))
		file, err := parser.Parse(strings.NewReader(text), "")
		if err != nil {
			return nil, false
		}
		r := reader{withStars: withStars}
		syntax.Walk(file, func(n syntax.Node) bool {
			_, isComment := n.(*syntax.Comment) // for bash; an interactive zsh runs it as a command
			r.failed = r.failed || isComment
			return true
		})
		r.statements(file.Stmts, "")
		switch {
		case r.failed || len(r.commands) == 0:
			return nil, false
		case i == 0:
			first = r.commands
		case !reflect.DeepEqual(first, r.commands):
			return nil, false
		}
	}
	return first, true
}

// isPlain reports whether a text has none of the characters that shells treat
// differently: controls and unusual spaces, the ! of histories, and a backslash at the
// end of a line.
func isPlain(text string) bool {
	return utf8.ValidString(text) && !strings.Contains(text, "\\\n") && !strings.ContainsFunc(text, func(r rune) bool {
		switch r {
		case ' ', '\n':
			return false
		case '!', utf8.RuneError:
			return true
		}
		return unicode.IsControl(r) || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r)
	})
}

// reader collects the commands of a syntax tree. failed is set if it has anything else
// than plain commands.
type reader struct {
	withStars bool
	commands  []command
	failed    bool
}

func (r *reader) statements(list []*syntax.Stmt, after string) {
	for _, s := range list {
		r.statement(s, after)
		after = ";"
	}
}

func (r *reader) statement(s *syntax.Stmt, after string) {
	if s.Negated || s.Background || s.Coprocess || s.Disown || slices.ContainsFunc(s.Redirs, hasEffect) {
		r.failed = true
		return
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		words := make([]string, len(c.Args))
		for i, w := range c.Args {
			words[i] = r.word(w)
		}
		if len(c.Assigns) > 0 || len(words) == 0 || !programName.MatchString(words[0]) {
			r.failed = true
			return
		}
		r.commands = append(r.commands, command{after, words})
	case *syntax.BinaryCmd:
		if c.Op != syntax.AndStmt && c.Op != syntax.OrStmt && c.Op != syntax.Pipe {
			r.failed = true
			return
		}
		r.statement(c.X, after)
		r.statement(c.Y, c.Op.String())
	default:
		r.failed = true
	}
}

// programName matches the first word of a command. It excludes words with a meaning for
// job control or the aliases of zsh, and options.
var programName = lazyregexp.New(`^[A-Za-z0-9_./:` + star + `][^\n ]*$`)

// hasEffect reports whether a redirection does more than join outputs or drop them, as
// 2>&1 and >/dev/null do.
func hasEffect(r *syntax.Redirect) bool {
	if r.N != nil && r.N.Value != "0" && r.N.Value != "1" && r.N.Value != "2" {
		return true
	}
	switch target := r.Word.Lit(); r.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrIn:
		return target != "/dev/null"
	case syntax.DplOut:
		return target != "1" && target != "2"
	}
	return true
}

// unquoted matches text outside of quotes with characters that no shell expands. ~ and ^
// must follow a letter or digit, as in HEAD~1.
var unquoted = lazyregexp.New(`^([A-Za-z0-9_./,:@%+=` + star + `-]|[A-Za-z0-9][~^]+)*$`)

// word returns the text of a word. It sets failed unless all shells read the same text.
func (r *reader) word(w *syntax.Word) string {
	var text strings.Builder
	fail := func() { r.failed = true }
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			s := p.Value
			if r.withStars {
				s = strings.ReplaceAll(s, "*", star)
			}
			if !unquoted.MatchString(s) || text.Len() == 0 && strings.HasPrefix(s, "=") {
				fail()
			}
			text.WriteString(s)
		case *syntax.SglQuoted:
			if p.Dollar {
				fail()
			}
			text.WriteString(p.Value)
		case *syntax.DblQuoted:
			if p.Dollar {
				fail()
			}
			for _, inner := range p.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok || strings.ContainsAny(lit.Value, "$`\\") {
					fail()
					return ""
				}
				text.WriteString(lit.Value)
			}
		default: // expansions, substitutions, extended globs
			fail()
		}
	}
	return text.String()
}
