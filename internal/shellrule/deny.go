package shellrule

import (
	"path"
	"slices"
	"strings"

	"tapgw/internal/lazyregexp"
)

// Denies reports whether one of the patterns is about a command line or one of the
// commands that somebody else found in it. It errs on the side of a denial: it takes
// the text apart wherever a command could begin, without quotes, variables and
// directories, and looks behind programs that run others. That is a help and no
// wall: who may run any program can run a denied one by another name.
func Denies(patterns []string, line string, commands ...string) bool {
	for _, text := range append(commands, line) {
		// Once as it is, once without what may stand before a command: it may hold one.
		text = quotes.Replace(text) + "\n" +
			quotes.Replace(before.ReplaceAllString(strings.ReplaceAll(text, "\\\n", ""), "$1 "))
		for piece := range strings.FieldsFuncSeq(text,
			func(r rune) bool { return strings.ContainsRune(";&|()<>{}`\n", r) }) {
			if slices.ContainsFunc(patterns,
				func(p string) bool { return denies(strings.Fields(p), strings.Fields(piece)) }) {
				return true
			}
		}
	}
	return false
}

// quotes leaves out what shells do, too.
var quotes = strings.NewReplacer("\\\n", "", `$'`, "", `$"`, "", `"`, "", `'`, "", `\`, "")

// before are redirections, and assignments of values in quotes.
var before = lazyregexp.New(`(^|[\s;&|(){}` + "`" +
	`])(?:[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=|(?:\d+|\{\w+\})?&?[<>]+[&|]?[ ]*)` +
	`(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s;&|()<>"'\\])*`)

// assignment is what may stand before a command: VARIABLE=value.
var assignment = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*\+?=`)

// keywords stand before a command of their own.
var keywords = strings.Fields("! do elif else if in then until while")

// denies reports whether a command begins with the words of a pattern, by itself or
// behind a program that runs other programs.
func denies(pattern, words []string) bool {
	behind := false
	if len(words) > 0 && slices.Contains(families, path.Base(words[0])) {
		// Options of the program itself, with values or without, stand before its command.
		for i := 1; i < len(words) && (strings.HasPrefix(words[i], "-") || strings.HasPrefix(words[i-1], "-")); i++ {
			if begins(append(words[:1:1], words[i+1:min(len(words), i+len(pattern))]...), pattern) {
				return true
			}
		}
		behind = slices.ContainsFunc(words[1:min(len(words), 4)], nested.MatchString)
	}
	for i, word := range words {
		if begins(words[i:], pattern) {
			return true
		}
		program := path.Base(word)
		behind = behind || slices.Contains(runners, program) || slices.Contains(interpreters, program)
		if !behind && !assignment.MatchString(word) && !slices.Contains(keywords, word) {
			return false
		}
	}
	return false
}

// begins reports whether words begin with those of a pattern, in which * stands for
// anything within a word, whatever directory the program is in.
func begins(words, pattern []string) bool {
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
