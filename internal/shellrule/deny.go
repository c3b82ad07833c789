package shellrule

import (
	"path"
	"slices"
	"strings"

	"tapgw/internal/lazyregexp"
)

// Denies reports whether one of the patterns matches a command of a command line, or
// one of the further commands that the caller found in it. In doubt it denies: it
// splits the text wherever a command could begin, ignores quotes, variables and
// directories, and looks behind programs that run others. It does not stop someone who
// may run any program, because such a program can run a denied one by another name.
func Denies(patterns []string, line string, commands ...string) bool {
	isSeparator := func(r rune) bool { return strings.ContainsRune(";&|()<>{}`\n", r) }
	for _, text := range append(commands, line) {
		// The text once as it is, because a prefix may contain a command, and once
		// without prefixes.
		text = quotes.Replace(text) + "\n" +
			quotes.Replace(prefixes.ReplaceAllString(strings.ReplaceAll(text, "\\\n", ""), "$1 "))
		for piece := range strings.FieldsFuncSeq(text, isSeparator) {
			words := strings.Fields(piece)
			if slices.ContainsFunc(patterns, func(p string) bool { return denies(strings.Fields(p), words) }) {
				return true
			}
		}
	}
	return false
}

// quotes removes the signs that shells remove.
var quotes = strings.NewReplacer("\\\n", "", `$'`, "", `$"`, "", `"`, "", `'`, "", `\`, "")

// prefixes match what may come before a command: redirections, and assignments of
// quoted values.
var prefixes = lazyregexp.New("(^|[\\s;&|(){}`])" +
	`(?:[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=|(?:\d+|\{\w+\})?&?[<>]+[&|]?[ ]*)` +
	`(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s;&|()<>"'\\])*`)

// assignment matches a variable that is set before a command: VARIABLE=value.
var assignment = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*\+?=`)

// keywords of the shell come before a command.
var keywords = strings.Fields("! do elif else if in then until while")

// denies reports whether a command begins with the words of a pattern, directly or
// behind a program that runs other programs.
func denies(pattern, words []string) bool {
	runsOthers := false // a word so far runs the words behind it
	if len(words) > 0 && slices.Contains(families, path.Base(words[0])) {
		// Options of the program, with or without values, may come before its command.
		for i := 1; i < len(words) && (strings.HasPrefix(words[i], "-") || strings.HasPrefix(words[i-1], "-")); i++ {
			if beginsWith(append(words[:1:1], words[i+1:min(len(words), i+len(pattern))]...), pattern) {
				return true
			}
		}
		runsOthers = slices.ContainsFunc(words[1:min(len(words), 4)], nested.MatchString)
	}
	for i, word := range words {
		if beginsWith(words[i:], pattern) {
			return true
		}
		program := path.Base(word)
		runsOthers = runsOthers || slices.Contains(runners, program) || slices.Contains(interpreters, program)
		if !runsOthers && !assignment.MatchString(word) && !slices.Contains(keywords, word) {
			return false
		}
	}
	return false
}

// beginsWith reports whether words begin with those of a pattern, in which * matches any
// text within a word. The directory of the program does not count.
func beginsWith(words, pattern []string) bool {
	if len(pattern) == 0 || len(words) < len(pattern) {
		return false
	}
	for i, p := range pattern {
		word := words[i]
		if i == 0 {
			p, word = path.Base(p), path.Base(word)
		}
		if !matches(strings.ReplaceAll(p, "*", star), word) {
			return false
		}
	}
	return true
}
