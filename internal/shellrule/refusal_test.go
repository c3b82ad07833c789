package shellrule

import (
	"strings"
	"testing"
)

// A refusal names what of the line no rule allows, and repeats no argument.
func TestNotAllowed(t *testing.T) {
	rules := append(testRules, begin("git diff", "mysql", "sed")...)
	rules = append(rules, exactly("curl *")...)
	for line, want := range map[string]string{
		"git status": "",
		" ":          "an empty line",

		"rm -rf /secret":            `the command "rm"`,
		"/opt/x y":                  `the command "/opt/x"`,
		"git push https://u:p@host": `the command "git push"`,
		"git log | rm x":            `the command "rm" (command 2 of 2)`,
		"git log && ls && git push": `the command "git push" (command 3 of 3)`,
		"git -c a=secret log":       `the option "-c" before the command of "git"`,
		"git --git-dir=secret log":  `the option "--git-dir" before the command of "git"`,
		"git log --output=secret":   `the option "--output" of "git log"`,
		"git --no-pager log -O/x":   `the option "-O…" of "git log"`,
		"mysql -psecret":            `the option "-p…" of "mysql"`,
		"git diff a /etc/passwd":    `argument 3 of "git diff"`,
		"curl x --output=y":         `the option "--output" of "curl"`,
		"find . -delete":            `the option "-delete" of "find"`,
		"make -f/secret test-short": `the command "make"`,
		"mytool secret":             `argument 1 of "mytool"`,
		"mytool --token secret":     `the option "--token" of "mytool"`,
		"'a secret' x":              "a command whose first word is no program's name",
		"\"$$secret\" x":            "the variable \"$$\"",
		"a\\;secret x":              "the unquoted \"\\\\\" in an argument",
		"'a;secret' x":              `the command "a program"`,
		"ls | sed":                  `"sed" behind a pipe, from which it would read what to run (command 2 of 2)`,
		"cd x && ./build.sh":        `"./build.sh" behind cd, where its words may mean other files (command 2 of 2)`,
		"cd x && git diff a b":      `"git diff" behind cd, where its words may mean other files (command 2 of 2)`,

		"echo x > redirected.txt":     `the redirection "> redirected.txt"`,
		"git status <<< SECRET":       `the redirection "<<<"`,
		"ls 2>>'a secret'":            `the redirection "2>>"`,
		"wc < x":                      `the redirection "< x"`,
		"ls $HOME":                    `the variable "$HOME"`,
		`ls "${x}"`:                   `the variable "$x"`,
		"ls $(secret)":                `the substitution "$(…)"`,
		"ls <(secret)":                `the substitution "<(…)"`,
		"ls $((1))":                   `the calculation "$((…))"`,
		"ls *.go":                     `the unquoted "*" in an argument`,
		"ls ~/x":                      `the unquoted "~" in an argument`,
		"TOKEN=secret git status":     "the assignment of TOKEN",
		"git status &":                "a command in the background",
		"! git status":                `a "!", a control character, an unusual space or a backslash at the end of a line`,
		"for i in a; do ls; done":     "a loop, group, function or other command of the shell",
		"ls |& wc":                    `the operator "|&"`,
		"ls # secret":                 "a comment",
		"ls 'secret":                  "a line that not every shell can read",
		strings.Repeat("x", 5000):     "a line of more than 4096 bytes",
		"git status\x00":              `a "!", a control character, an unusual space or a backslash at the end of a line`,
		"ls $'a'":                     "the quotes $'…'",
		"-x":                          "a command whose first word is no program's name",
		"git status; A=1 ls > x":      `the redirection "> x"`,
		"ls \"a\\b\"":                 "the $, ` or backslash between double quotes",
		"cd 'a secret' && ./build.sh": `"./build.sh" behind cd, where its words may mean other files (command 2 of 2)`,
	} {
		if got := NotAllowed(rules, line); got != want {
			t.Errorf("%.80q: no rule allows %s, want %s", line, got, want)
		}
	}
}

// A refusal is one line that repeats no argument, whatever the line.
func FuzzNotAllowed(f *testing.F) {
	f.Add("git push SECRET", "x")
	f.Add("ls > SECRET\x00", "-p")
	f.Add("a=SECRET b", "")
	rules := begin("git log", "ls")
	f.Fuzz(func(t *testing.T, line, word string) {
		got := NotAllowed(rules, line)
		if (got == "") != Allows(rules, line) || strings.ContainsAny(got, "\n\x00\x1b") ||
			len(got) > 300 {
			t.Errorf("%q: refused by %q, want one short line", line, got)
		}
		line = "git log '" + strings.ReplaceAll(word, "'", "") + "SECRET'"
		if got := NotAllowed(rules, line); strings.Contains(got, "SECRET") &&
			!strings.Contains(word, "-") {
			t.Errorf("%q: the refusal %q repeats an argument", line, got)
		}
	})
}
