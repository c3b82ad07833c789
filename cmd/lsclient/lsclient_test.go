package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	ucli "github.com/urfave/cli/v2"
)

func TestEveryCommandHasExamples(t *testing.T) {
	var walk func(path string, commands []*ucli.Command)
	walk = func(path string, commands []*ucli.Command) {
		for _, c := range commands {
			name := path + " " + c.Name
			if c.Usage == "" || !strings.Contains(c.Description, "Examples:\n") {
				t.Errorf(
					"%s has the usage %q and the description %q, want a usage, and examples in the description",
					name, c.Usage, c.Description)
			}
			walk(name, c.Subcommands)
		}
	}
	walk("lsclient", newApp().Commands)
}

// A flag whose value is one of several, `a|b`, loses it from its text in the help: the text must
// read well without it.
func TestHelpReadsWell(t *testing.T) {
	for _, line := range []string{"", "agent", "chat", "orchestrate"} {
		var out bytes.Buffer
		if exit := run(append([]string{"lsclient"}, strings.Fields(line+" --help")...), nil, &out,
			&out); exit != 0 {
			t.Errorf("lsclient %s --help: got exit code %d, want 0", line, exit)
		}
		if gap := regexp.MustCompile(`(?m)^ +-.* (of|to|as|the) *(,|$).*`).FindString(
			out.String()); gap != "" {
			t.Errorf("lsclient %s --help has %q, want no text that lacks a word", line, gap)
		}
	}
}
