package configs

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"sync"
	"unicode"

	"github.com/bmatcuk/doublestar/v4"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/shellrule"
	"tapgw/internal/weburl"
)

// A pattern that can't match is a fault, because it looks as if it protected the user and does not.
// To find such a pattern, the checks make a command, path or URL from it and ask the matcher that
// sessions use.

// foreignRule matches NAME(TEXT), in which other agents write their rules.
var foreignRule = lazyregexp.New(`^([A-Za-z_][A-Za-z0-9_-]*)\s*\((.*)\)$`)

// Kinds of patterns, as faults name them.
const (
	forTools    = "tools"
	forCommands = "commands"
	forPaths    = "paths"
	forURLs     = "URLs"
)

// notations maps the names in rules of other agents to the agent and to the kind of pattern.
var notations = sync.OnceValue(func() map[string][2]string {
	return map[string][2]string{
		"Bash": {"Claude Code's", forCommands}, "Read": {"Claude Code's", forPaths},
		"Edit": {"Claude Code's", forPaths}, "Write": {"Claude Code's", forPaths},
		"MultiEdit": {"Claude Code's", forPaths}, "Glob": {"Claude Code's", forPaths},
		"Grep": {"Claude Code's", forPaths}, "NotebookEdit": {"Claude Code's", forPaths},
		"WebFetch": {"Claude Code's", forURLs}, "shell": {"the Copilot CLI's", forCommands},
		"write": {"the Copilot CLI's", forPaths}, "read": {"the Copilot CLI's", forPaths},
		"url": {"the Copilot CLI's", forURLs}, "Shell": {"Cursor's", forCommands},
		"run_shell_command": {"Gemini CLI's", forCommands},
		"ShellTool":         {"Gemini CLI's", forCommands}, "read_file": {"Gemini CLI's", forPaths},
		"write_file": {"Gemini CLI's", forPaths}, "replace": {"Gemini CLI's", forPaths},
		"web_fetch": {"Gemini CLI's", forURLs}, "prefix_rule": {"Codex's", forCommands},
		"bash": {"opencode's", forCommands}, "edit": {"opencode's", forPaths},
		"webfetch": {"opencode's", forURLs},
	}
})

// foreignNotation is the fault of a pattern in the notation of another agent, with the form for a
// list of kind.
func foreignNotation(s, kind string) error {
	s = strings.TrimSpace(s)
	match := foreignRule.FindStringSubmatch(s)
	if match == nil {
		if before, ok := strings.CutSuffix(s, ":*"); ok && kind == forCommands {
			return fmt.Errorf("%q is Claude Code's or the Copilot CLI's notation; write %q", s,
				before)
		}
		if note, ok := notations()[s]; ok && s != strings.ToLower(s) {
			return fmt.Errorf("%q is %s name of a tool, and this is a list of %s", s, note[0], kind)
		}
		return nil
	}
	note, ok := notations()[match[1]]
	if !ok {
		if kind == forPaths { // a file may be called so
			return nil
		}
		return fmt.Errorf("%q is the notation of another program; write %q", s,
			ownForm(match[2], kind))
	}
	if note[1] != kind {
		return fmt.Errorf("%q is %s notation for %s; this is a list of %s: write %q in that of %s",
			s, note[0], note[1], kind, ownForm(match[2], note[1]), note[1])
	}
	return fmt.Errorf("%q is %s notation; write %q", s, note[0], ownForm(match[2], kind))
}

// ownForm is the text of another agent's rule as our pattern.
func ownForm(text, kind string) string {
	text = strings.Trim(strings.TrimSpace(text), `"'`)
	all := "**"
	switch kind {
	case forCommands:
		text, all = strings.TrimSuffix(strings.TrimSuffix(text, ":*"), " *"), "*"
	case forPaths:
		text = strings.Replace(text, "//", "/", 1)
		if strings.HasSuffix(text, "/") {
			text += "**"
		}
		if text != "" {
			text = path.Clean(text)
		}
	case forURLs:
		text, all = strings.TrimPrefix(text, "domain:"), "*.example"
	}
	if text == "" {
		return all
	}
	return text
}

// programWord matches the first word of a command, in which * is the only wildcard.
var programWord = lazyregexp.New(`^[\p{L}\p{N}_.,/+@:%~=!*\[-]+$`)

// isDeniedCommand accepts a pattern that can deny some command.
func isDeniedCommand(s string) error {
	if err := isCommandPattern(s); err != nil {
		return err
	}
	words := strings.Fields(s)
	isHidden := func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' }
	switch last := words[len(words)-1]; {
	case strings.HasSuffix(words[0], "/"):
		return fmt.Errorf("%q never matches: it is a directory; write the program, such as %q", s,
			words[0]+"rm")
	case strings.HasPrefix(words[0], "-"), !programWord.MatchString(words[0]):
		return fmt.Errorf("%q never matches: no program is called %q; * is the only wildcard, "+
			"and a pattern is the words that a command begins with", s, words[0])
	case last == ".*" || last == ".+":
		return fmt.Errorf("%q is a regular expression; write %q, which denies whatever follows", s,
			strings.Join(words[:len(words)-1], " "))
	case strings.ContainsFunc(s, isHidden):
		return fmt.Errorf("%q never matches: it has characters that nobody sees", s)
	}
	if !shellrule.Denies([]string{s}, strings.ReplaceAll(s, "*", "x")) {
		return fmt.Errorf(
			"%q never matches: no command has these words; write the words that it begins with, "+
				`such as "git push"`, s)
	}
	return nil
}

// Forms of paths that globs of ours do not have.
var (
	variablePath = lazyregexp.New(`\$[A-Za-z_{]|%[A-Za-z]+%`)
	windowsPath  = lazyregexp.New(`^[A-Za-z]:[\\/]|^\\\\|\\[A-Za-z0-9]`)
	regexpPath   = lazyregexp.New(`^\^|\$$|\([^)]*\||[@!+?*]\(`)
	schemePath   = lazyregexp.New(`^[A-Za-z][A-Za-z0-9+.-]*://`)
)

// isComparablePath accepts a glob that is written as paths are compared: without ., empty parts and
// a / at its end.
func isComparablePath(s string) error {
	clean := path.Clean(s)
	switch {
	case strings.TrimSpace(s) != s:
		return fmt.Errorf("%q never matches: it begins or ends with a space; write %q", s,
			strings.TrimSpace(s))
	case schemePath.MatchString(s):
		return fmt.Errorf("%q never matches: it is a URL; write the path alone", s)
	case windowsPath.MatchString(s):
		return fmt.Errorf(
			"%q never matches: write / between directories, and paths from / or ~/ or the "+
				"session's directory", s)
	case variablePath.MatchString(s):
		return fmt.Errorf(
			"%q never matches: variables are not replaced; write the path, or ~/ for your home", s)
	case strings.HasPrefix(s, "!"):
		return fmt.Errorf("%q never matches: no pattern takes back another one", s)
	case regexpPath.MatchString(s):
		return fmt.Errorf(`%q never matches: it is not a glob; write alternatives as "{a,b}"`, s)
	case s == "~" || s == "~/":
		return fmt.Errorf(`%q never matches: write "~/**"`, s)
	case strings.HasPrefix(s, "~") && !strings.HasPrefix(s, "~/"):
		return fmt.Errorf("%q never matches: ~ is your own home only; write the other user's path",
			s)
	case clean == "." || clean == "/" && s != "/":
		return fmt.Errorf("%q never matches: write %q", s, strings.TrimPrefix(clean, ".")+"**")
	case strings.HasSuffix(s, "/") && s != "/":
		return fmt.Errorf("%q never matches: write %q for all in a directory", s, clean+"/**")
	case clean != s:
		return fmt.Errorf("%q never matches: write %q", s, clean)
	}
	return nil
}

// PathGlob returns the glob that matches absolute paths for a pattern of [Permissions]. A relative
// pattern is relative to dir, and ~/ is home. Characters of globs in the names of both directories
// match themselves.
func PathGlob(pattern, dir, home string) string {
	if rest, ok := strings.CutPrefix(pattern, "~/"); ok {
		return globBelow(home, rest)
	}
	if path.IsAbs(pattern) {
		return pattern
	}
	return globBelow(dir, pattern)
}

func globBelow(dir, pattern string) string {
	return strings.TrimSuffix(globSigns.Replace(dir), "/") + "/" + pattern
}

var globSigns = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `{`,
	`\{`, `}`, `\}`)

// hostWord matches hosts that exist: names and addresses.
var hostWord = lazyregexp.New(`^[a-z0-9_]([a-z0-9._-]*[a-z0-9])?$|:`)

// isMatchingURL accepts a pattern that some URL can match.
func isMatchingURL(s string) error {
	if err := foreignNotation(s, forURLs); err != nil {
		return err
	}
	if rest, ok := strings.CutPrefix(s, "domain:"); ok {
		return fmt.Errorf("%q is Claude Code's notation; write %q", s, rest)
	}
	p, err := weburl.ParsePattern(s)
	if err != nil {
		return err
	}
	u, err := weburl.Parse(p.Example())
	switch {
	case err == nil && strings.HasPrefix(strings.TrimPrefix(u.Host, "x."), "."):
		return fmt.Errorf("%q never matches: write %q for all hosts below", s,
			"*"+strings.TrimPrefix(u.Host, "x."))
	case err != nil || !hostWord.MatchString(u.Host) || strings.Contains(u.Host, "..") ||
		!p.Denies(u) || !p.Allows(u):
		return fmt.Errorf(
			`%q never matches: no URL has it; write a host, such as "docs.example" or "*.docs.example"`, s)
	}
	return nil
}

// isOutsideToolNames reports whether neither a tool's name nor a pattern of one may hold r.
func isOutsideToolNames(r rune) bool {
	isLetter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !isLetter && !strings.ContainsRune("_-*./:", r)
}

// isHookMatch accepts the name of a tool, in which * is the only wildcard.
func isHookMatch(s string) error {
	if err := foreignNotation(s, forTools); err != nil {
		return err
	}
	if at := strings.IndexFunc(s, isOutsideToolNames); at >= 0 {
		return fmt.Errorf("%q never matches: no tool's name has %q, and * is the only wildcard; "+
			"write a [[hooks]] for each name", s, []rune(s[at:])[0])
	}
	if s == "" {
		return fmt.Errorf(`%q is not a tool's name, which may hold *, such as "shell" or "db_*"`, s)
	}
	return nil
}

// sourcedTool matches [SOURCE:]NAME, as the Copilot runtime takes it in lists of tools: * stands
// for all names alone.
var sourcedTool = lazyregexp.New(`^((builtin|mcp|custom):)?(\*|[A-Za-z0-9_-]+)$`)

// isToolPattern accepts the tools of a session that the runtime can find by their name or source.
func isToolPattern(s string) error {
	if err := foreignNotation(s, forTools); err != nil {
		return err
	}
	if !sourcedTool.MatchString(s) {
		return fmt.Errorf(
			`%q never matches: write a tool's whole name or all of a source, such as "bash", `+
				`"custom:greet" or "mcp:*"`, s)
	}
	return nil
}

// isToolGlob accepts a glob of names that a provider gives its tools.
func isToolGlob(s string) error {
	if err := foreignNotation(s, forTools); err != nil {
		return err
	}
	if _, err := path.Match(s, ""); err != nil || s == "" {
		return fmt.Errorf(`%q is not a glob of tools' names, such as "get_*"`, s)
	}
	return nil
}

// isMatchingPath accepts a glob that some path can match.
func isMatchingPath(s string) error {
	if err := cmp.Or(foreignNotation(s, forPaths), isPathPattern(s),
		isComparablePath(s)); err != nil {
		return err
	}
	glob := PathGlob(s, "/dir", "/home")
	sample := samplePath(glob)
	if ok, _ := doublestar.Match(glob, sample); !ok || path.Clean(sample) != sample {
		return fmt.Errorf("%q never matches: no path has this form", s)
	}
	return nil
}

// samplePath makes a path from a glob: a letter for each wildcard, and the first of alternatives.
func samplePath(glob string) string {
	var b strings.Builder
	depth, skip := 0, false // skip: behind the first alternative
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
			skip = skip && depth > 0
		case c == ',' && depth > 0:
			skip = true
		case skip:
			if c == '\\' {
				i++
			}
		case c == '*':
			for i+1 < len(glob) && glob[i+1] == '*' {
				i++
			}
			b.WriteByte('x')
		case c == '?':
			b.WriteByte('x')
		case c == '[':
			in, n := classMember(glob[i:])
			b.WriteString(in)
			i += n - 1
		case c == '\\' && i+1 < len(glob):
			i++
			b.WriteByte(glob[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// classMember finds a character that the class at the beginning of a glob matches, and the class's
// length.
func classMember(glob string) (string, int) {
	for n := 2; n <= len(glob); n++ {
		if !doublestar.ValidatePattern(glob[:n]) || glob[n-1] != ']' {
			continue
		}
		for c := byte(' '); c < 127; c++ {
			if ok, _ := doublestar.Match(glob[:n], string(rune(c))); ok && c != '/' {
				return string(rune(c)), n
			}
		}
		return "", n
	}
	return "", len(glob)
}
