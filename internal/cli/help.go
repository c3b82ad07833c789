package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	ucli "github.com/urfave/cli/v2"
)

// printHelp shows a command's purpose, its flags, its commands and examples. A command's
// Description has the prose and, after a line "Examples:", the examples.
func printHelp(out io.Writer, app *ucli.App, w *words) error {
	var b strings.Builder
	name, usage, description := w.name(app), app.Usage, app.Description
	argsUsage, commands, flags := app.ArgsUsage, app.Commands, []ucli.Flag(nil)
	if c := w.command(); c != nil {
		usage, description, argsUsage, commands, flags = c.Usage, c.Description, c.ArgsUsage,
			c.Subcommands, c.Flags
	}
	if usage != "" {
		fmt.Fprintf(&b, "%s\n\n", sentence(usage))
	}
	b.WriteString("Usage:\n  " + name)
	switch {
	case len(shown(commands)) == 0:
	case len(w.path) == 0:
		b.WriteString(" command")
	default:
		b.WriteString(" [command]")
	}
	b.WriteString(" [flags]")
	if argsUsage != "" {
		b.WriteString(" " + argsUsage)
	}
	b.WriteByte('\n')
	prose, examples := splitDescription(description)
	if prose != "" {
		fmt.Fprintf(&b, "\n%s\n", prose)
	}
	if cs := shown(commands); len(cs) > 0 {
		b.WriteString("\nCommands:\n")
		t := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
		for _, c := range cs {
			_, _ = fmt.Fprintf(t, "  %s\t%s\n", strings.Join(c.Names(), ", "), c.Usage)
		}
		_ = t.Flush()
	}
	writeFlags(&b, "Flags", flags)
	writeFlags(&b, "Common flags", app.Flags)
	if examples != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", examples)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// splitDescription takes prose and examples apart.
func splitDescription(description string) (prose, examples string) {
	prose, examples, _ = strings.Cut(description, "Examples:\n")
	return strings.TrimSpace(prose), strings.Trim(examples, "\n")
}

func shown(commands []*ucli.Command) []*ucli.Command {
	var list []*ucli.Command
	for _, c := range commands {
		if !c.Hidden {
			list = append(list, c)
		}
	}
	return list
}

func writeFlags(b *strings.Builder, title string, flags []ucli.Flag) {
	if len(flags) == 0 {
		return
	}
	b.WriteString("\n" + title + ":\n")
	t := tabwriter.NewWriter(b, 0, 8, 3, ' ', 0)
	for _, f := range describe(flags) {
		left := strings.Join(f.names, ", ")
		if len(f.names[0]) > 2 {
			left = "    " + left
		}
		if f.value != "" {
			left += " " + f.value
		}
		_, _ = fmt.Fprintf(t, "  %s\t%s\n", left, f.usage)
	}
	_ = t.Flush()
}

// flagText is a flag as help and manual pages show it.
type flagText struct {
	names []string // with their dashes, the short one first
	value string   // the placeholder for its value, "" without a value
	usage string   // with the default
}

// describe puts the visible ones of the flags into words.
func describe(flags []ucli.Flag) []flagText {
	var list []flagText
	for _, f := range flags {
		doc, ok := f.(ucli.DocGenerationFlag)
		if v, isVisible := f.(ucli.VisibleFlag); !ok || isVisible && !v.IsVisible() {
			continue
		}
		var text flagText
		var placeholder string
		placeholder, text.usage = unquote(doc.GetUsage())
		for _, n := range f.Names() {
			if len(n) == 1 {
				text.names = append([]string{"-" + n}, text.names...)
			} else {
				text.names = append(text.names, "--"+n)
			}
		}
		if doc.TakesValue() {
			text.value = placeholder
			if d := doc.GetDefaultText(); d != "" && d != `""` && d != "0s" && d != "0" {
				text.usage += " (default: " + strings.Trim(d, `"`) + ")"
			}
		}
		list = append(list, text)
	}
	return list
}

// unquote takes the name of a flag's value out of its usage, where it stands
// in backquotes: `DIR`, or all that it may be: `keep|surface|inject`.
func unquote(usage string) (placeholder, plain string) {
	before, rest, opened := strings.Cut(usage, "`")
	placeholder, after, closed := strings.Cut(rest, "`")
	switch {
	case !opened || !closed:
		return "VALUE", usage
	case strings.Contains(placeholder, "|"):
		return placeholder, strings.TrimSpace(before + strings.TrimLeft(after, " :"))
	}
	return placeholder, before + placeholder + after
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
