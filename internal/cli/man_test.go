package cli

import (
	"strings"
	"testing"

	ucli "github.com/urfave/cli/v2"
)

func TestManPage(t *testing.T) {
	exit, page, errs := run(t, "man")
	if exit != 0 || errs != "" {
		t.Fatalf(`%d %s, want 0 and ""`, exit, errs)
	}
	for _, want := range []string{
		".TH \"TAP\" \"1\" \"\" \"tap " + roff(Version()) + "\" \"\"\n",
		".SH \"NAME\"\ntap \\- try things\n",
		".SS \"tap push TEXT|\\-\"\nPush an event.\n.PP\nProse.\n",
		".TP\n\\fB\\-s\\fR, \\fB\\-\\-session\\fR \\fIID\\fR\ninto ID\n",
		".TP\n\\fB\\-\\-level\\fR \\fIkeep|surface|inject\\fR\nhow far it goes (default: surface)\n",
		"Examples:\n.PP\n.EX\n  tap push hi\n.EE\n",
		".SS \"tap sessions\"\nList sessions.\nAlso: ls.\n",
		".SS \"tap sessions stop ID\"\n",
		".SS \"tap completion bash|zsh|fish\"\n",
		"\\fB\\-w\\fR, \\fB\\-\\-workdir\\fR",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "tap man") || strings.Contains(page, completeCommand) {
		t.Error("the page has hidden commands, want none")
	}
}

// What roff would take for its own, or print as another character, is escaped.
func TestManEscapes(t *testing.T) {
	app := testApp()
	app.Commands = []*ucli.Command{{
		Name: "odd", Usage: "say \"it\"", ArgsUsage: `"A" [FILE…]`,
		Description: ".config is read\n'quoted' at a line's beginning, \\n and `x`\n\nExamples:\n  tap odd 'a b' --x ~/y^2\n\n  .hidden",
	}}
	page := manPage(app)
	for _, want := range []string{
		".SS \"tap odd \\(dqA\\(dq [FILE\\[u2026]]\"\n",
		"\n\\&.config is read\n\\(aqquoted\\(aq at a line\\(aqs beginning, \\en and \\(gax\\(ga\n",
		"\n  tap odd \\(aqa b\\(aq \\-\\-x \\(ti/y\\(ha2\n \n  .hidden\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	for line := range strings.Lines(page) {
		if line == "\n" || strings.HasPrefix(line, "'") {
			t.Errorf("line %q, want no empty line and no request of roff", line)
		}
	}
}
