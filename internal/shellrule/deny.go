package shellrule

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"tapgw/internal/lazyregexp"
)

// Denies reports whether one of the patterns matches a command of a command line, or
// one of the further commands that the caller found in it. In doubt it denies: it
// splits the text wherever a command could begin, ignores quotes, variables and
// directories, and looks behind programs that run others. It does not stop someone who
// may run any program, because such a program can run a denied one by another name.
func Denies(patterns []string, line string, commands ...string) bool {
	return Denial(patterns, line, commands...) != ""
}

// Denial returns the pattern by which [Denies] denies, or "".
func Denial(patterns []string, line string, commands ...string) string {
	if len(patterns) == 0 {
		return ""
	}
	split := make([][]string, len(patterns))
	for i, p := range patterns {
		split[i] = strings.Fields(p)
		if last := len(split[i]) - 1; last > 0 && split[i][last] == "*" {
			split[i] = split[i][:last] // zero or more further words match anyway
		}
	}
	isSeparator := func(r rune) bool { return strings.ContainsRune(";&|()<>{}`\n", r) }
	for _, text := range append(commands, line) {
		// Match the text unchanged, because a prefix may contain a command, and twice without
		// prefixes: once with quoted texts as further commands, once with each as one word.
		bare := prefixes.ReplaceAllString(strings.ReplaceAll(text, "\\\n", ""), "$1 ")
		text = quotes.Replace(text) + "\n" + quotes.Replace(bare) + "\n" +
			quoted.ReplaceAllStringFunc(bare, oneWord)
		for piece := range strings.FieldsFuncSeq(text, isSeparator) {
			words := strings.Fields(piece)
			if i := slices.IndexFunc(split, func(p []string) bool {
				return denies(p, words)
			}); i >= 0 {
				return patterns[i]
			}
		}
	}
	return ""
}

// quotes removes the signs that shells remove.
var quotes = strings.NewReplacer("\\\n", "", `$'`, "", `$"`, "", `"`, "", `'`, "", `\`, "")

// quoted matches text in which a shell sees neither blanks nor operators.
var quoted = lazyregexp.New(`(?s)\$?"(?:[^"\\]|\\.)*"|\$?'[^']*'|\\.`)

// oneWord replaces the blanks and operators that would divide a quoted text.
func oneWord(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || strings.ContainsRune(";&|()<>{}`", r) {
			return '_'
		}
		return r
	}, quotes.Replace(text))
}

// prefixes match the words that may come before a command: redirections, and assignments of quoted
// values.
var prefixes = lazyregexp.New("(^|[\\s;&|(){}`])" +
	`(?:[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=|(?:\d+|\{\w+\})?&?[<>]+[&|]?[ ]*)` +
	`(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s;&|()<>"'\\])*`)

// assignment matches a variable that is set before a command: VARIABLE=value.
var assignment = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*\+?=`)

// keywords of the shell come before a command.
const keywords words = "! do elif else if in then until while"

// denies reports whether a command begins with the words of a pattern, directly or
// behind a program that runs other programs.
func denies(pattern, words []string) bool {
	runsOthers := false // a word so far runs the words behind it
	for i, word := range words {
		if beginsWith(words[i:], pattern) || runsOthers && valueBegins(words[i:], pattern) {
			return true
		}
		program := path.Base(word)
		if families.has(program) {
			window := words[i:min(len(words), i+maxOptions+len(pattern)+2)]
			if deniesBehindOptions(pattern, withoutNeutral(window)) {
				return true
			}
			runsOthers = runsOthers || slices.ContainsFunc(words[i+1:min(len(words), i+4)],
				nested.MatchString)
		}
		runsOthers = runsOthers || runners.has(program) || interpreters.has(program)
		if !runsOthers && !assignment.MatchString(word) && !keywords.has(word) {
			return false
		}
	}
	return false
}

// valueBegins reports whether the value of an option, such as --split-string=rm, begins a command
// that a pattern matches.
func valueBegins(words, pattern []string) bool {
	at := strings.LastIndexByte(words[0], '=')
	return at > 0 && strings.HasPrefix(words[0], "-") &&
		beginsWith(append([]string{words[0][at+1:]}, words[1:]...), pattern)
}

// maxOptions bounds the number of options before a command that are looked at. With more
// of them, a pattern denies, because the command is not known.
const maxOptions = 100

// deniesBehindOptions reports whether a pattern matches a program and one of its commands.
// Options of the program, with or without values, may come before the command.
func deniesBehindOptions(pattern, words []string) bool {
	isOption := func(i int) bool { return strings.HasPrefix(words[i], "-") }
	if beginsWith(words, pattern) {
		return true
	}
	for i := 1; i < len(words) && (isOption(i) || isOption(i-1)); i++ {
		behind := append(words[:1:1], words[i+1:min(len(words), i+len(pattern))]...)
		if i > maxOptions && beginsWith(words[:1], pattern[:min(1, len(pattern))]) ||
			beginsWith(behind, pattern) {
			return true
		}
	}
	return false
}

// beginsWith reports whether words begin with the words of a pattern, in which * matches any text
// within a word. The directory of the program does not count.
func beginsWith(words, pattern []string) bool {
	if len(pattern) == 0 || len(words) < len(pattern) {
		return false
	}
	for i, p := range pattern {
		word := words[i]
		if i == 0 {
			p, word = path.Base(p), path.Base(word)
		}
		if !matchesWord(strings.ReplaceAll(p, "*", star), word) {
			return false
		}
	}
	return true
}
