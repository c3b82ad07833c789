package configs

import (
	"strings"
	"testing"
)

// Patterns that no command, path or URL can match are faults that name the right form, and no
// others are.
func TestPatternsThatNeverMatch(t *testing.T) {
	for _, tt := range []struct {
		check    func(string) error
		patterns map[string]string // to a part of the fault; "" for none
	}{
		{isDeniedCommand, map[string]string{
			"shell(rm:*)":               `the Copilot CLI's notation; write "rm"`,
			"Bash(rm:*)":                `Claude Code's notation; write "rm"`,
			"Bash(git push *)":          `write "git push"`,
			"run_shell_command(rm -rf)": `Gemini CLI's notation; write "rm -rf"`,
			"Read(./.env)":              `Claude Code's notation for paths; this is a list of commands: write ".env" in that of paths`,
			"rm:*":                      `write "rm"`,
			"Bash":                      "name of a tool",
			"^rm":                       "never matches",
			"rm(x)":                     `write "x"`,
			"rm?":                       "never matches",
			"git push .*":               `write "git push"`,
			"/usr/bin/":                 "it is a directory",
			"-rf":                       "never matches",
			"rm\u200b":                  "never matches",
			"'rm x'":                    "is not the words",
			" ":                         "is not the words",
			`C:\\rm.exe`:                "is not the words",

			"rm": "", "git push": "", "/bin/rm": "", "mkfs*": "", "npm * --force": "", "./x": "",
			"curl *": "", "*": "", "FOO=1 make": "", "[": "", "g++": "", "sudo rm": "",
			"git -C . push": "",
		}},
		{isHookMatch, map[string]string{
			"Bash(rm:*)": `Claude Code's notation for commands; this is a list of tools`,
			"edit|write": "no tool's name has '|'",
			"db *":       "no tool's name has ' '",
			"":           "is not a tool's name",

			"shell": "", "db_*": "", "*": "", "mcp:files/read": "",
		}},
		{isToolPattern, map[string]string{
			"shell(rm:*)": "this is a list of tools",
			"db_*":        "write a tool's whole name",
			"mcp__files":  "",
			"mcp:*":       "", "custom:greet": "", "bash": "", "*": "",
			"tool:bash": "never matches",
			"":          "never matches",
		}},
		{isToolGlob, map[string]string{
			"Read(./.env)": "this is a list of tools",
			"[":            "is not a glob",

			"get_*": "", "read.file": "", "{a}": "",
		}},
		{isMatchingPath, map[string]string{
			"Read(./.env)": `Claude Code's notation; write ".env"`,
			"write(src/)":  `write "src/**"`,
			"Bash(rm:*)":   `write "rm" in that of commands`,
			"./.env":       `write ".env"`,
			"secret/":      `write "secret/**"`,
			"/a//b":        `write "/a/b"`,
			"a/./b":        `write "a/b"`,
			".":            `write "**"`,
			"~":            `write "~/**"`,
			"~root/x":      "your own home only",
			"$HOME/x":      "variables are not replaced",
			`C:\\x`:        "write / between",
			`a\\b`:         "write / between",
			"!.env":        "takes back",
			"^.env":        "not a glob",
			".env$":        "not a glob",
			"(a|b)":        "not a glob",
			" .env":        "begins or ends with a space",
			"../x":         "leads out",
			"file:///x":    "it is a URL",
			"":             "is not a glob",

			".env": "", "**/.env": "", "~/x/*.md": "", "/etc/**": "", "a[bc]?{d,e}": "",
			"/": "", "[!a]": "", "a (1).txt": "",
			"**": "", "~/.ssh/**": "", `a\*b`: "",
		}},
		{isMatchingURL, map[string]string{
			"WebFetch(domain:a.example)": `Claude Code's notation; write "a.example"`,
			"url(https://a.example)":     `the Copilot CLI's notation; write "https://a.example"`,
			"domain:a.example":           `write "a.example"`,
			".a.example":                 "never matches",
			"a.example$":                 "never matches",
			"(a).example":                "never matches",
			"a..example":                 "never matches",

			"a.example": "", "*.a.example": "", "https://a.example/v1": "", "[::1]:80": "",
			"127.1":               "",
			"localhost":           "",
			"b\u00fccher.example": "", "http://a.example:8080/x": "",
		}},
		{isTerminalRule, map[string]string{
			"Bash(rm:*)": "notation", "FOO=1 make *": "allows nothing", "go test *": "",
			"go vet ./... | head": "",
			"echo $(date)":        "",
		}},
	} {
		for pattern, want := range tt.patterns {
			pattern = strings.ReplaceAll(pattern, `\\`, `\`)
			err := tt.check(pattern)
			switch {
			case want == "" && err != nil:
				t.Errorf("%q: %v, want no fault", pattern, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
				strings.Contains(err.Error(), "\n")):
				t.Errorf("%q: %v, want a line with %q", pattern, err, want)
			}
		}
	}
}

// A directory's own signs of globs are no wildcards: rules hold in it.
func TestPathGlob(t *testing.T) {
	for _, tt := range [][4]string{
		{"x", "/", "/home", "/x"}, {"x", "/a[1]", "/home", `/a\[1\]/x`},
		{"~/x", "/a", "/h{o}", `/h\{o\}/x`}, {"/x", "/a", "", "/x"},
	} {
		if got := PathGlob(tt[0], tt[1], tt[2]); got != tt[3] {
			t.Errorf("%q in %s: %s, want %s", tt[0], tt[1], got, tt[3])
		}
	}
}
