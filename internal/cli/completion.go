package cli

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/visible"
)

// Completion of command lines in the user's shell.

//go:embed completions
var completionScripts embed.FS

const (
	completionCommandName = "completion"
	// completeCommand is the command of the completion scripts. Its arguments are the words before
	// the cursor and the one under it, which may be "". It prints one candidate a line, with a tab
	// and its description after it.
	completeCommand = "__complete"
	// completeTimeout bounds a completion's requests to a gateway.
	completeTimeout = 2 * time.Second
)

func completionCommand(name string) *ucli.Command {
	return &ucli.Command{
		Name:      completionCommandName,
		Usage:     "print the completion script of a shell",
		ArgsUsage: "bash|zsh|fish",
		Description: strings.ReplaceAll(`Examples:
  source <(NAME completion bash)
  NAME completion zsh > "${fpath[1]}/_NAME"
  NAME completion fish > ~/.config/fish/completions/NAME.fish`, "NAME", name),
		Action: func(c *ucli.Context) error {
			shell := c.Args().First()
			if shell == "" {
				return Usage("completion: needs a shell: bash, zsh or fish")
			}
			if err := MaxArgs(c, 1); err != nil {
				return err
			}
			script, err := completionScripts.ReadFile("completions/" + shell)
			if err != nil {
				return Usage("completion: no script for %q, there are bash, zsh and fish", shell)
			}
			script = bytes.ReplaceAll(script, []byte("NAME"), []byte(name))
			_, err = c.App.Writer.Write(script)
			return err
		},
	}
}

type completingKey struct{}

// Completing tells a command's BashComplete which word to complete: it returns the name of the flag
// (without dashes) whose value stands at the cursor, or "" for an argument.
func Completing(c *ucli.Context) string {
	flag, _ := c.Context.Value(completingKey{}).(string)
	return flag
}

// Candidate prints a word that may stand where [Completing] says, and a description, which may be
// "". It leaves out a word with characters that can't be seen, which a shell would print as they
// are.
func Candidate(c *ucli.Context, word, description string) {
	if visible.Line(word) != word {
		return // a shell would print it unchanged
	}
	_, _ = fmt.Fprintf(c.App.Writer, "%s\t%s\n", word, OneLine(description))
}

// alternatives are values that a usage names: keep|surface|inject.
var alternatives = lazyregexp.New(`^[a-z]+(\|[a-z]+)+$`)

// completeWords prints the candidates for the word at the cursor. After a mistake in earlier words,
// or an error of the gateway, it prints no candidates and no message.
func completeWords(ctx context.Context, app *ucli.App, line []string) {
	line = joinEquals(line)
	if len(line) == 0 {
		return
	}
	before, current := line[:len(line)-1], line[len(line)-1]
	prefix := ""
	if name, value, ok := strings.Cut(current, "="); ok && strings.HasPrefix(name, "-") {
		before, prefix, current = append(slices.Clip(before), name), name+"=", value
	}
	// Bash hands over the part behind the "=" alone.
	if n := len(before); n > 0 && strings.HasPrefix(before[n-1], "-") &&
		strings.HasSuffix(before[n-1], "=") {
		before = append(before[:n-1:n-1], strings.TrimSuffix(before[n-1], "="))
	}
	w, err := sortWords(app, before)
	out := app.Writer
	offer := func(word, description string) {
		if strings.HasPrefix(word, current) {
			_, _ = fmt.Fprintf(out, "%s%s\t%s\n", prefix, word, description)
		}
	}
	switch {
	case w.pending != "":
		completeValue(ctx, app, w, offer)
	case err != nil && w.command() == nil || len(w.args) > 0 && len(w.subcommands(app)) > 0:
	case strings.HasPrefix(current, "-"):
		completeFlags(app, w, offer)
	case len(w.subcommands(app)) > 0:
		for _, c := range shown(w.subcommands(app)) {
			offer(c.Name, c.Usage)
		}
	case w.command() != nil && alternatives.MatchString(w.command().ArgsUsage):
		if len(w.args) == 0 {
			for word := range strings.SplitSeq(w.command().ArgsUsage, "|") {
				offer(word, "")
			}
		}
	default:
		completeByCommand(ctx, app, w, offer)
	}
}

func completeFlags(app *ucli.App, w *words, offer func(word, description string)) {
	lists := [][]ucli.Flag{app.Flags}
	for _, c := range w.path {
		lists = append(lists, c.Flags)
	}
	for _, list := range slices.Backward(lists) {
		for _, f := range describe(list) {
			long := slices.IndexFunc(f.names, func(name string) bool {
				return strings.HasPrefix(name, "--")
			})
			offer(f.names[max(long, 0)], f.usage)
		}
	}
}

func completeValue(
	ctx context.Context, app *ucli.App, w *words, offer func(word, description string),
) {
	if f, _ := w.definition(app, w.pending); f != nil {
		if doc, ok := f.(ucli.DocGenerationFlag); ok {
			if placeholder, _ := unquote(doc.GetUsage()); alternatives.MatchString(placeholder) {
				for word := range strings.SplitSeq(placeholder, "|") {
					offer(word, "")
				}
				return
			}
		}
	}
	completeByCommand(ctx, app, w, offer)
}

// completeByCommand runs the command with its BashComplete in place of its action.
func completeByCommand(
	ctx context.Context, app *ucli.App, w *words, offer func(word, description string),
) {
	c := w.command()
	if c == nil || c.BashComplete == nil {
		return
	}
	complete := c.BashComplete
	c.Action = func(cc *ucli.Context) error { complete(cc); return nil }
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	ctx = context.WithValue(ctx, completingKey{}, w.pending)
	var found bytes.Buffer
	app.Writer, app.ErrWriter = &found, io.Discard
	if err := app.RunContext(ctx, w.line(app)); err != nil {
		return
	}
	for line := range strings.Lines(found.String()) {
		word, description, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		offer(word, description)
	}
}

// joinEquals joins the words that bash splits at an equals sign: --flag = value becomes --flag=
// value, and the value stays the word under the cursor.
func joinEquals(line []string) []string {
	var joined []string
	for i, word := range line {
		n := len(joined)
		switch {
		case word == "=" && n > 0 && strings.HasPrefix(joined[n-1], "--") &&
			!strings.Contains(joined[n-1], "="):
			joined[n-1] += "="
			if i == len(line)-1 {
				joined = append(joined, "")
			}
		case n > 0 && i < len(line)-1 && line[i-1] == "=" && strings.HasSuffix(joined[n-1], "="):
			joined[n-1] += word
		default:
			joined = append(joined, word)
		}
	}
	return joined
}
