// Package shellrule decides whether the rules of a user allow or deny a shell command.
// It judges the parsed command, never its text. A rule allows a command only if each
// word is plain, so that every shell reads the same words, starts the same programs
// and writes no file by itself.
package shellrule

import (
	"fmt"
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

// IsVoid reports whether a rule allows no command line at all: its text is not plain commands, and
// has a star. Without a star such a rule allows the line that is exactly its text.
func (r Rule) IsVoid() bool { return r.text == "" && len(r.commands) == 0 }

// Allows reports whether rules allow a whole command line: each of its commands alone,
// or all of them by one rule. A line that sets variables, expands or substitutes
// something, writes files, or has loops, functions or comments is allowed only by a
// rule with exactly the same text.
func Allows(rules []Rule, line string) bool { return NotAllowed(rules, line) == "" }

// NotAllowed returns the first part of a command line that no rule allows, in words that
// go on after "no rule allows": `the option "--output" of "git log"`. It is "" if the
// rules allow the whole line. It repeats names, options and files that a redirection
// names, but no argument, which may be a secret.
func NotAllowed(rules []Rule, line string) string {
	line = strings.Trim(line, " \n")
	if line == "" {
		return "an empty line"
	}
	if slices.ContainsFunc(rules, func(r Rule) bool { return r.text == line }) {
		return ""
	}
	commands, unreadable := parse(line, false)
	if unreadable != "" {
		return unreadable
	}
	if slices.ContainsFunc(rules, func(r Rule) bool { return r.allowsLine(commands) }) {
		return ""
	}
	hasMoved := false // to a directory where a relative name is another program
	for i, c := range commands {
		part := notAllowed(rules, c)
		if part == "" && hasMoved && c.dependsOnDir() {
			part = fmt.Sprintf("%q behind cd, where its words may mean other files", c.title())
		}
		switch {
		case part != "" && len(commands) > 1:
			return fmt.Sprintf("%s (command %d of %d)", part, i+1, len(commands))
		case part != "":
			return part
		}
		hasMoved = hasMoved || slices.Contains([]string{"cd", "chdir", "pushd", "popd"}, c.words[0])
	}
	return ""
}

// notAllowed returns the part of a command that no rule allows, "" if one allows all.
func notAllowed(rules []Rule, c command) string {
	most := -1 // the refused word that is reached last, so by the rule that fits best
	for _, r := range rules {
		if len(r.commands) != 1 {
			continue
		}
		refused, matches := r.judge(r.commands[0], c)
		if matches && refused < 0 {
			return ""
		}
		if matches {
			most = max(most, refused)
		}
	}
	return c.part(most)
}

// allowsLine reports whether the rule has several commands and allows exactly these.
func (r Rule) allowsLine(commands []command) bool {
	return len(r.commands) > 1 &&
		slices.EqualFunc(r.commands, commands, func(want, c command) bool {
			refused, matches := r.judge(want, c)
			return want.after == c.after && matches && refused < 0
		})
}

// judge compares a command with one of the rule's. If all words of the rule match, refused
// is the index of the first further word that the rule must not cover, 0 for the program
// itself, or -1: the rule allows the command.
func (r Rule) judge(want, c command) (refused int, matches bool) {
	words, hasMore := want.words, false // hasMore: any words may follow
	if last := len(words) - 1; words[last] == star {
		words, hasMore = words[:last], true
	}
	if len(c.words) < len(words) {
		return 0, false
	}
	o := openWords{words: c.words, harmlessOnly: len(c.words) > len(words) && !hasMore}
	for i, word := range c.words {
		if i >= len(words) {
			o.at = append(o.at, i)
			continue
		}
		before, _, hasStar := strings.Cut(words[i], star)
		switch {
		case !matchesWord(words[i], word), hasStar && before == "" && strings.HasPrefix(word, "-"):
			return 0, false
		case hasStar && !strings.HasPrefix(before, "-"): // with - the rule determines the option
			o.at = append(o.at, i)
		case !hasStar && o.fixed == i:
			o.fixed++
		}
	}
	if o.harmlessOnly && !r.isPrefix {
		return len(words), true
	}
	return o.refused(c.after == "|"), true
}

// matchesWord reports whether a word matches a rule's word, in which a star is any text.
func matchesWord(pattern, word string) bool {
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

// parse splits a line into its commands. If some shell could read the line differently, or
// do more than run these programs with these words, unreadable is the part that no rule
// can allow, in words. With withStars, an unquoted * becomes [star].
func parse(text string, withStars bool) (commands []command, unreadable string) {
	switch {
	case len(text) > maxLength:
		return nil, fmt.Sprintf("a line of more than %d bytes", maxLength)
	case !isPlain(text):
		return nil,
			`a "!", a control character, an unusual space or a backslash at the end of a line`
	}
	for i, shell := range []syntax.LangVariant{syntax.LangBash, syntax.LangPOSIX, syntax.LangZsh} {
		parser := syntax.NewParser(syntax.Variant(shell), syntax.KeepComments(true))
		file, err := parser.Parse(strings.NewReader(text), "")
		if err != nil {
			return nil, "a line that not every shell can read"
		}
		r := reader{withStars: withStars}
		syntax.Walk(file, func(n syntax.Node) bool {
			// for bash; an interactive zsh runs it as a command
			if _, isComment := n.(*syntax.Comment); isComment {
				r.fail("a comment")
			}
			return true
		})
		r.statements(file.Stmts, "")
		switch {
		case r.failure != "":
			return nil, r.failure
		case len(r.commands) == 0:
			return nil, "a line without a command"
		case i == 0:
			commands = r.commands
		case !reflect.DeepEqual(commands, r.commands):
			return nil, "a line that shells read differently"
		}
	}
	return commands, ""
}

// isPlain reports whether a text is free of the characters that shells treat differently: controls
// and unusual spaces, the ! of histories, and a backslash at the end of a line.
func isPlain(text string) bool {
	return utf8.ValidString(text) && !strings.Contains(text, "\\\n") &&
		!strings.ContainsFunc(text, func(r rune) bool {
			switch r {
			case ' ', '\n':
				return false
			case '!', utf8.RuneError:
				return true
			}
			return unicode.IsControl(r) || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r)
		})
}

// reader collects the commands of a syntax tree. failure is the first part that is more
// than a plain command, in words.
type reader struct {
	withStars bool
	commands  []command
	failure   string
}

func (r *reader) fail(format string, args ...any) {
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
	}
}

func (r *reader) statements(list []*syntax.Stmt, after string) {
	for _, s := range list {
		r.statement(s, after)
		after = ";"
	}
}

func (r *reader) statement(s *syntax.Stmt, after string) {
	for _, redirection := range s.Redirs {
		if hasEffect(redirection) {
			r.fail("the redirection %q", redirectionText(redirection))
		}
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		words := make([]string, len(c.Args))
		for i, w := range c.Args {
			words[i] = r.word(w)
		}
		switch {
		case len(c.Assigns) > 0:
			r.fail("the assignment of %s", c.Assigns[0].Name.Value)
		case len(words) == 0 || !programName.MatchString(words[0]):
			r.fail("a command whose first word is no program's name")
		default:
			r.commands = append(r.commands, command{after, withoutNeutral(words)})
		}
	case *syntax.BinaryCmd:
		if c.Op != syntax.AndStmt && c.Op != syntax.OrStmt && c.Op != syntax.Pipe {
			r.fail("the operator %q", c.Op.String())
		}
		r.statement(c.X, after)
		r.statement(c.Y, c.Op.String())
	default:
		r.fail("a loop, group, function or other command of the shell")
	}
	switch {
	case s.Negated:
		r.fail(`the "!" before a command`)
	case s.Background, s.Coprocess, s.Disown:
		r.fail("a command in the background")
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

// word returns the text of a word. It fails unless all shells read the same text.
func (r *reader) word(w *syntax.Word) string {
	var text strings.Builder
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			s := p.Value
			if r.withStars {
				s = strings.ReplaceAll(s, "*", star)
			}
			if !unquoted.MatchString(s) || text.Len() == 0 && strings.HasPrefix(s, "=") {
				r.fail("the unquoted %q in an argument", firstSpecial(s))
			}
			text.WriteString(s)
		case *syntax.SglQuoted:
			if p.Dollar {
				r.fail("the quotes $'…'")
			}
			text.WriteString(p.Value)
		case *syntax.DblQuoted:
			if p.Dollar {
				r.fail(`the quotes $"…"`)
			}
			for _, inner := range p.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok {
					r.fail("%s", expansion(inner))
					return ""
				}
				if strings.ContainsAny(lit.Value, "$`\\") {
					r.fail("the $, ` or backslash between double quotes")
				}
				text.WriteString(lit.Value)
			}
		default:
			r.fail("%s", expansion(p))
		}
	}
	return text.String()
}
