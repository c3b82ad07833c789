package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/agent/consent"
	"tapgw/internal/cli"
	"tapgw/internal/diff"
	"tapgw/internal/terminal"
	"tapgw/internal/visible"
	"tapgw/tools"
)

// showMore is the choice that shows all of a question.
const showMore = "whole"

// question is a question in the words in which a person reads it.
type question struct {
	worker, text, whole string
	choices             []consent.Choice
}

// newQuestion draws a question. Of long diffs it shows the beginning.
func newQuestion(q consent.Question, view diffView) question {
	if len(q.Edits) > 0 {
		q.Text, q.Whole = editText(q.Edits, q.Diffs, view)
	}
	return question{worker: q.Worker, text: q.Text, whole: q.Whole, choices: q.Choices}
}

// editText returns the text of a question about edits, and all of it if it is shortened.
func editText(list []tools.FileEdit, diffs []diff.Diff, view diffView) (text, whole string) {
	write := func(view diffView) string {
		lines := []string{"change files:"}
		for _, e := range list {
			if e.Dir {
				lines = append(lines, "make the directory "+visible.Line(e.Name))
			}
		}
		for i := range diffs {
			lines = append(lines, view.show(&diffs[i]))
		}
		return strings.Join(lines, "\n")
	}
	view.all, view.more = false, "w shows all"
	text = write(view)
	view.all = true
	if whole = write(view); whole == text {
		whole = ""
	}
	return text, whole
}

// ask is the text of the question. Its lines are indented, so that none of them looks like our own question.
func (q *question) ask() string {
	from := ""
	if q.worker != "" {
		from = "[" + q.worker + "] "
	}
	return "\n" + from + "The model wants to " + strings.ReplaceAll(q.text, "\n", "\n  ")
}

// prompt is the line below the text that lists the choices: "Allow it? [y]es, [N]o or why not: ".
func (q *question) prompt() string {
	var b strings.Builder
	b.WriteString("Allow it? ")
	choices := q.choices
	if q.whole != "" {
		choices = append(slices.Clip(choices), consent.Choice{Answer: showMore})
	}
	for _, c := range choices {
		fmt.Fprintf(&b, "[%s]%s", c.Answer[:1], c.Answer[1:])
		if c.Covers != "" {
			b.WriteString(" (" + c.Covers + ")")
		}
		b.WriteString(", ")
	}
	return b.String() + "[N]o or why not: "
}

// read reads a person's line. Anything that is no choice is a no, and its text is the reason.
func (q *question) read(line string) consent.Answer {
	line = strings.TrimSpace(line)
	word := strings.ToLower(line)
	for _, known := range []string{consent.Once, consent.Session, consent.Always, showMore} {
		if word != known && word != known[:1] {
			continue
		}
		offered := known == showMore && q.whole != "" ||
			slices.ContainsFunc(q.choices, func(c consent.Choice) bool { return c.Answer == known })
		if offered {
			return consent.Answer{Word: known}
		}
		return consent.Answer{}
	}
	for _, no := range []string{"no", "n"} {
		if rest, ok := strings.CutPrefix(word, no); ok && strings.TrimLeft(rest, ":,; \t") != rest || word == no {
			return consent.Answer{Reason: strings.TrimLeft(line[len(no):], ":,; \t")}
		}
	}
	return consent.Answer{Reason: line}
}

// interruptTime is how long Ctrl-C may take to end what asks.
const interruptTime = time.Second

// screenAsker asks on the terminal that a chat has for itself.
type screenAsker struct {
	screen *terminal.Terminal
	view   diffView
}

func (a *screenAsker) Ask(ctx context.Context, q consent.Question) (consent.Answer, error) {
	shown := newQuestion(q, a.view)
	for {
		line, err := a.screen.Ask(ctx, shown.ask(), shown.prompt())
		if errors.Is(err, terminal.ErrInterrupted) { // it ends the turn as well; then the model is not to read a no
			select {
			case <-ctx.Done():
			case <-time.After(interruptTime):
			}
		}
		if ctx.Err() != nil {
			return consent.Answer{}, context.Cause(ctx)
		}
		if err != nil {
			return consent.Answer{}, nil //nolint:nilerr // Ctrl-C and a closed terminal are a no
		}
		reply := shown.read(line)
		if reply.Word != showMore {
			return reply, nil
		}
		shown.text, shown.whole = shown.whole, ""
	}
}

// lineAsker asks on a terminal whose lines the terminal itself edits.
type lineAsker struct {
	in      *bufio.Reader
	flush   func() // throws away what was typed and not read yet; nil: nobody types
	out     io.Writer
	view    diffView
	status  *terminal.Status // on the terminal that out is; nil: none
	pending chan string      // the line that a question before did not wait for; nil: none
}

func (a *lineAsker) Ask(ctx context.Context, q consent.Question) (consent.Answer, error) {
	shown := newQuestion(q, a.view)
	select {
	case <-a.pending: // a line from between the questions answers none
		a.pending = nil
	default:
	}
	for {
		if a.flush != nil { // what was typed before the question is no answer to it
			a.flush()
		}
		_, _ = fmt.Fprintf(a.out, "%s\n%s", shown.ask(), shown.prompt())
		line, err := a.readLine(ctx)
		if err != nil {
			_, _ = fmt.Fprintln(a.out)
			return consent.Answer{}, err
		}
		if a.status != nil {
			a.status.Entered()
		}
		reply := shown.read(line)
		if reply.Word != showMore {
			return reply, nil
		}
		shown.text, shown.whole = shown.whole, ""
	}
}

// readLine reads a line. If ctx ends first, the next call goes on waiting for the same line.
func (a *lineAsker) readLine(ctx context.Context) (string, error) {
	if a.pending == nil {
		line := make(chan string, 1)
		a.pending = line
		go func() { // ends with the line, or with the process
			text, _ := a.in.ReadString('\n')
			line <- text
		}()
	}
	select {
	case line := <-a.pending:
		a.pending = nil
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// lockedAsker holds a lock while a question waits for its answer.
type lockedAsker struct {
	consent.Asker
	mu *sync.Mutex
}

func (a lockedAsker) Ask(ctx context.Context, q consent.Question) (consent.Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Asker.Ask(ctx, q)
}

// policyFlags returns the flags about calls that lsclient.toml does not allow.
func policyFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "yes", Aliases: []string{"y"},
			Usage: "allow each command, file and server that a tool asks for, " +
				"but no write to protected places (.git, .tapgw)"},
		&ucli.BoolFlag{Name: "ask", Usage: "ask on the terminal before each edit, and before what lsclient.toml " +
			"does not allow"},
	}
}

// policy returns the policy that --yes and --ask choose.
func (c *command) policy() (*consent.Policy, error) {
	if !c.Bool("ask") {
		return consent.New(c.workspace.Config, c.Bool("yes"), nil), nil
	}
	if c.Bool("yes") {
		return nil, cli.Usage("flags --yes and --ask exclude each other: use one of them")
	}
	view := c.diffView(c.App.ErrWriter)
	var asker consent.Asker
	if c.screen != nil {
		asker = &screenAsker{c.screen, view}
	} else {
		tty, err := answers(c)
		if err != nil {
			return nil, cli.Usage("flag --ask: there is no terminal to ask on; use allow in lsclient.toml, or --yes")
		}
		asker = &lineAsker{in: bufio.NewReader(tty), flush: func() { flushInput(tty.Fd()) }, out: c.out.Err,
			view: view, status: c.status}
	}
	return consent.New(c.workspace.Config, false, lockedAsker{asker, &c.printing}), nil
}

// answers returns the reader of answers: stdin, or the controlling terminal if stdin is something else.
func answers(c *command) (*os.File, error) {
	if f, ok := c.App.Reader.(*os.File); ok && cli.Terminal(f) {
		return f, nil
	}
	return os.Open("/dev/tty")
}
