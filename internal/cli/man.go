package cli

import (
	"fmt"
	"strings"

	ucli "github.com/urfave/cli/v2"
)

const manCommandName = "man"

// manCommand prints the manual page, for packages and for `NAME man | man -l -`.
func manCommand() *ucli.Command {
	return &ucli.Command{
		Name:   manCommandName,
		Hidden: true,
		Usage:  "print the manual page",
		Action: func(c *ucli.Context) error { return Out(c).Printf("%s", manPage(c.App)) },
	}
}

// manPage is the help of an app and all its commands as man(7) has it. urfave/cli
// can write one, but without descriptions, examples and arguments.
func manPage(app *ucli.App) string {
	m := &man{}
	m.macro("TH", strings.ToUpper(app.Name), "1", "", app.Name+" "+Version(), "")
	m.WriteString(".nh\n.ad l\n") // names of files and flags stay whole
	m.macro("SH", "NAME")
	m.line(roff(app.Name) + ` \- ` + roff(app.Usage))
	m.macro("SH", "SYNOPSIS")
	m.line(`\fB` + roff(app.Name) + `\fR command [flags] [arguments]`)
	prose, examples := splitDescription(app.Description)
	m.macro("SH", "DESCRIPTION")
	m.prose(prose)
	m.macro("SH", "COMMANDS")
	m.commands(app.Name, app.Commands)
	m.macro("SH", "COMMON FLAGS")
	m.line("They stand before or after a command and its arguments.")
	m.flags(app.Flags)
	m.macro("SH", "EXAMPLES")
	m.example(examples)
	return m.String()
}

// man writes the lines of a manual page.
type man struct{ strings.Builder }

// line writes a line of text that is roff already. It escapes a leading dot, which would begin a
// macro.
func (m *man) line(text string) {
	if text == "" {
		return // an empty line is a break that pages do not use
	}
	if text[0] == '.' {
		text = `\&` + text
	}
	m.WriteString(text + "\n")
}

func (m *man) macro(name string, args ...string) {
	m.WriteString("." + name)
	for _, a := range args {
		m.WriteString(` "` + strings.ReplaceAll(roff(a), `"`, `\(dq`) + `"`)
	}
	m.WriteByte('\n')
}

func (m *man) prose(text string) {
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			m.macro("PP")
		}
		for line := range strings.Lines(paragraph) {
			m.line(roff(strings.TrimSpace(line)))
		}
	}
}

func (m *man) example(text string) {
	m.macro("EX")
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); line == "" {
			line = " "
		}
		m.line(roff(line))
	}
	m.macro("EE")
}

func (m *man) commands(above string, commands []*ucli.Command) {
	for _, c := range shown(commands) {
		name := above + " " + c.Name
		m.macro("SS", strings.TrimSpace(name+" "+c.ArgsUsage))
		if c.Usage != "" {
			m.line(roff(sentence(c.Usage)) + ".")
		}
		if len(c.Aliases) > 0 {
			m.line("Also: " + roff(strings.Join(c.Aliases, ", ")) + ".")
		}
		prose, examples := splitDescription(c.Description)
		if prose != "" {
			m.macro("PP")
			m.prose(prose)
		}
		m.flags(c.Flags)
		if examples != "" {
			m.macro("PP")
			m.line("Examples:")
			m.macro("PP")
			m.example(examples)
		}
		m.commands(name, c.Subcommands)
	}
}

func (m *man) flags(flags []ucli.Flag) {
	for _, f := range describe(flags) {
		m.macro("TP")
		names := make([]string, len(f.names))
		for i, n := range f.names {
			names[i] = `\fB` + roff(n) + `\fR`
		}
		value := ""
		if f.value != "" {
			value = ` \fI` + roff(f.value) + `\fR`
		}
		m.line(strings.Join(names, ", ") + value)
		m.line(roff(f.usage))
	}
}

// roff escapes a text: characters that roff or a terminal's font would change
// stay as they are, so that examples can be copied.
func roff(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch r {
		case '\\':
			b.WriteString(`\e`)
		case '-':
			b.WriteString(`\-`)
		case '\'':
			b.WriteString(`\(aq`)
		case '`':
			b.WriteString(`\(ga`)
		case '^':
			b.WriteString(`\(ha`)
		case '~':
			b.WriteString(`\(ti`)
		default:
			if r > '~' {
				fmt.Fprintf(&b, `\[u%04X]`, r)
			} else {
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}
