package shellrule

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"tapgw/internal/lazyregexp"
)

// shownName matches names of programs, files and commands of programs that a refusal may repeat.
var shownName = lazyregexp.New(`^[A-Za-z0-9_.,/:@%+-]{1,80}$`)

// title names a command: its program, and the command of a program that has many.
func (c command) title() string {
	program := c.words[0]
	if !shownName.MatchString(program) {
		program = "a program"
	}
	if len(c.words) > 1 && families.has(path.Base(program)) && commandName.MatchString(c.words[1]) {
		program += " " + c.words[1]
	}
	return program
}

// commandName matches the name of a command of a program, such as log in git log.
var commandName = lazyregexp.New(`^[a-z][a-z-]{0,20}$`)

// part names the word of the command that rules refuse. It is the command itself if no rule
// matches it (-1), or if a rule must not cover its program (0).
func (c command) part(at int) string {
	switch {
	case at < 0 && len(c.words) > 1 && families.has(path.Base(c.words[0])) &&
		strings.HasPrefix(c.words[1], "-"):
		return fmt.Sprintf("the option %q before the command of %q", c.optionName(1), c.title())
	case at < 0:
		return fmt.Sprintf("the command %q", c.title())
	case at == 0:
		return fmt.Sprintf("%q behind a pipe, from which it would read what to run", c.title())
	case strings.HasPrefix(c.words[at], "-") && len(c.words[at]) > 1:
		return fmt.Sprintf("the option %q of %q", c.optionName(at), c.title())
	}
	return fmt.Sprintf("argument %d of %q", at, c.title())
}

// optionName returns the name of an option without its value, which for most programs may
// stand directly behind a letter.
func (c command) optionName(at int) string {
	name, _, _ := strings.Cut(c.words[at], "=")
	isLong := strings.HasPrefix(name, "--") ||
		slices.Contains([]string{"find", "go"}, path.Base(c.words[0]))
	switch {
	case isLong && shownName.MatchString(name), len(name) <= 2:
		return name
	}
	letter, _ := utf8.DecodeRuneInString(name[1:])
	return "-" + string(letter) + "…"
}

// redirectionText is a redirection without a target that is more than a file's name.
func redirectionText(r *syntax.Redirect) string {
	text := r.Op.String()
	if r.N != nil {
		text = r.N.Value + text
	}
	if r.Op == syntax.WordHdoc {
		return text // its word is input, not a file
	}
	if target := r.Word.Lit(); shownName.MatchString(target) {
		text += " " + target
	}
	return text
}

// firstSpecial returns the first character of an unquoted text that some shell expands.
func firstSpecial(text string) string {
	for _, char := range text {
		if !plainChars.MatchString(string(char)) {
			return string(char)
		}
	}
	return text[:1] // ~, ^ or = at the beginning
}

var plainChars = lazyregexp.New(`^[A-Za-z0-9_./,:@%+=~^` + star + `-]$`)

// expansion names a part of a word that a shell replaces.
func expansion(part syntax.WordPart) string {
	switch p := part.(type) {
	case *syntax.ParamExp:
		if p.Param != nil {
			return fmt.Sprintf("the variable %q", "$"+p.Param.Value)
		}
	case *syntax.CmdSubst:
		return `the substitution "$(…)"`
	case *syntax.ProcSubst:
		return fmt.Sprintf("the substitution %q", p.Op.String()+"…)")
	case *syntax.ArithmExp:
		return `the calculation "$((…))"`
	}
	return "an expansion of the shell in an argument"
}
