// Package shellrule decides whether rules that a user wrote allow or deny a shell
// command. It judges the parsed command, never its text: a rule allows a command
// only where each word is plain, so that every shell reads the same words, starts
// the same programs and writes no file by itself.
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

// maxLength bounds the commands that rules allow, in bytes: the time that parsing
// takes grows with the square of what is nested.
const maxLength = 4 << 10

// Rule allows some commands. It consists of words: * in a word stands for any text
// within it, and a last word * for any further words. Both stop at options that
// write files or run programs (see programs.go). [Begins] and [Exactly] make one.
type Rule struct {
	text     string    // as it was written; "" where it has a star
	commands []command // nil: it holds for its very text alone
	begins   bool      // further words that are known to be harmless may follow
}

// star stands in a rule's words for an unquoted *.
const star = "\x00"

// Begins returns the rule that allows commands which begin with a pattern's words.
// What may follow are words that are known to be harmless: `git log` allows
// `git log -3` and not `git log --output=x`. Programs that are not known have no
// further words, unless the pattern ends with " *".
func Begins(pattern string) Rule {
	r := Exactly(pattern)
	r.begins = true
	return r
}

// Exactly returns the rule that allows precisely a pattern's words. A pattern of
// several commands, such as `go vet * | head`, allows them together only.
func Exactly(pattern string) Rule {
	pattern = strings.TrimSpace(pattern)
	var r Rule
	r.commands, _ = parse(pattern, true)
	if !strings.Contains(pattern, "*") {
		r.text = pattern
	}
	return r
}

// Allows reports whether rules allow a whole command line: each of its commands, or
// the line as one of the rules has it. Lines that set variables, expand or
// substitute anything, write files, or hold loops, functions or comments are never
// allowed but by a rule that is that very text.
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
	moved := false // to a directory where a relative name is another program
	for _, c := range commands {
		if moved && c.elsewhere() {
			return false
		}
		moved = moved || slices.Contains([]string{"cd", "chdir", "pushd", "popd"}, c.words[0])
		if !slices.ContainsFunc(rules,
			func(r Rule) bool { return len(r.commands) == 1 && r.allows(r.commands[0], c) }) {
			return false
		}
	}
	return true
}

// allowsLine reports whether the rule is one of several commands, and these.
func (r Rule) allowsLine(commands []command) bool {
	return len(r.commands) > 1 && slices.EqualFunc(r.commands, commands, func(want, c command) bool {
		return want.after == c.after && r.allows(want, c)
	})
}

// allows reports whether the words of a rule allow a command.
func (r Rule) allows(want, c command) bool {
	words, more := want.words, false
	if last := len(words) - 1; words[last] == star {
		words, more = words[:last], true
	}
	if len(c.words) < len(words) || len(c.words) > len(words) && !more && !r.begins {
		return false
	}
	o := open{words: c.words, harmlessOnly: len(c.words) > len(words) && !more}
	for i, word := range c.words {
		if i >= len(words) {
			o.at = append(o.at, i)
			continue
		}
		before, _, wild := strings.Cut(words[i], star)
		switch {
		case !matches(words[i], word), wild && before == "" && strings.HasPrefix(word, "-"):
			return false
		case wild && !strings.HasPrefix(before, "-"): // else the rule names the option
			o.at = append(o.at, i)
		case !wild && o.named == i:
			o.named++
		}
	}
	return o.allowed(c.after == "|")
}

// matches reports whether a word is of a rule's word, in which a star is any text.
func matches(pattern, word string) bool {
	parts := strings.Split(pattern, star)
	word, ok := strings.CutPrefix(word, parts[0])
	last := len(parts) - 1
	if !ok || last == 0 {
		return ok && word == ""
	}
	for _, part := range parts[1:last] { // where it is found first, most is left for the rest
		i := strings.Index(word, part)
		if i < 0 {
			return false
		}
		word = word[i+len(part):]
	}
	return strings.HasSuffix(word, parts[last])
}

// command is one simple command of a line: its words without quotes, and the
// operator before it.
type command struct {
	after string // "", ";", "&&", "||" or "|"
	words []string
}

// parse splits a line into its commands. False: some shell could read it in another
// way, or do something besides running these programs with these words. With stars,
// an unquoted * becomes [star].
func parse(text string, stars bool) ([]command, bool) {
	if len(text) > maxLength || !plain(text) {
		return nil, false
	}
	var first []command
	for i, shell := range []syntax.LangVariant{syntax.LangBash, syntax.LangPOSIX, syntax.LangZsh} {
		parser := syntax.NewParser(syntax.Variant(shell), syntax.KeepComments(true))
		file, err := parser.Parse(strings.NewReader(text), "")
		if err != nil {
			return nil, false
		}
		r := reader{stars: stars}
		syntax.Walk(file, func(n syntax.Node) bool {
			_, comment := n.(*syntax.Comment) // one of bash's, a command for an interactive zsh
			r.failed = r.failed || comment
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

// plain reports whether a text has none of the characters about which shells differ:
// controls and spaces that some take for separators, the ! of histories, and lines
// that go on in the next.
func plain(text string) bool {
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

// reader makes commands of a syntax tree.
type reader struct {
	stars    bool
	commands []command
	failed   bool
}

func (r *reader) statements(list []*syntax.Stmt, after string) {
	for _, s := range list {
		r.statement(s, after)
		after = ";"
	}
}

func (r *reader) statement(s *syntax.Stmt, after string) {
	if s.Negated || s.Background || s.Coprocess || s.Disown || slices.ContainsFunc(s.Redirs, writes) {
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

// programName is the first word of a command: not what job control, aliases of zsh
// or options make something else of.
var programName = lazyregexp.New(`^[A-Za-z0-9_./:` + star + `][^\n ]*$`)

// writes reports whether a redirection does more than joining outputs or dropping
// them: 2>&1, >/dev/null.
func writes(r *syntax.Redirect) bool {
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

// unquoted is what may stand outside quotes: characters that no shell expands. ~ and
// ^ follow a letter or digit, as in HEAD~1.
var unquoted = lazyregexp.New(`^([A-Za-z0-9_./,:@%+=` + star + `-]|[A-Za-z0-9][~^]+)*$`)

// word returns the text of a word that is the same for all shells.
func (r *reader) word(w *syntax.Word) string {
	var text strings.Builder
	fail := func() { r.failed = true }
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			s := p.Value
			if r.stars {
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
