package console

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

	"tapgw/internal/agent/consent"
	"tapgw/internal/chans"
	"tapgw/internal/cli"
	"tapgw/internal/diff"
	"tapgw/internal/terminal"
	"tapgw/internal/terminal/status"
	"tapgw/internal/visible"
	"tapgw/tools"
)

// Questions to the person: on the chat's screen, or in lines of a terminal.

// showMore is the choice that shows all of a question.
const showMore = "whole"

// question is a question as a person reads it.
type question consent.Question

// newQuestion draws a question. Of long diffs it shows the beginning.
func newQuestion(q consent.Question, view diffView) question {
	if len(q.Edits) > 0 {
		q.Text, q.Whole = editText(q.Edits, q.Diffs, view)
	}
	return question(q)
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

// ask returns the text of the question. It indents the lines, so that no line looks like a question
// of our own.
func (q *question) ask() string {
	from := ""
	if q.Worker != "" {
		from = "[" + q.Worker + "] "
	}
	return "\n" + from + "The model wants to " + strings.ReplaceAll(q.Text, "\n", "\n  ")
}

// prompt is the line below the text that lists the choices: "Allow it? [y]es, [N]o or why not: ".
func (q *question) prompt() string {
	var b strings.Builder
	b.WriteString("Allow it? ")
	choices := q.Choices
	if q.Whole != "" {
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
		offered := known == showMore && q.Whole != "" ||
			slices.ContainsFunc(q.Choices, func(c consent.Choice) bool { return c.Answer == known })
		if offered {
			return consent.Answer{Word: known}
		}
		return consent.Answer{}
	}
	for _, no := range []string{"no", "n"} {
		if rest, ok := strings.CutPrefix(word, no); ok &&
			strings.TrimLeft(rest, ":,; \t") != rest || word == no {
			return consent.Answer{Reason: strings.TrimLeft(line[len(no):], ":,; \t")}
		}
	}
	return consent.Answer{Reason: line}
}

// asker asks a person on a terminal.
type asker struct {
	mu   *sync.Mutex // held while a question waits for its answer
	view diffView
	// read shows a question and reads a line. It returns an error only when ctx ends first.
	read func(ctx context.Context, text, prompt string) (string, error)
}

func (a *asker) Ask(ctx context.Context, q consent.Question) (consent.Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	shown := newQuestion(q, a.view)
	for {
		line, err := a.read(ctx, shown.ask(), shown.prompt())
		if err != nil {
			return consent.Answer{}, err
		}
		reply := shown.read(line)
		if reply.Word != showMore {
			return reply, nil
		}
		shown.Text, shown.Whole = shown.Whole, ""
	}
}

// Asker returns an asker on the chat's terminal, else on stdin, else on the terminal that controls
// the process. It returns an error if there is no way to ask.
func (c *Console) Asker() (consent.Asker, error) {
	if c.screen != nil {
		return &asker{&c.mu, c.view(), c.askOnScreen}, nil
	}
	tty, ok := c.Stdin.(*os.File)
	if !ok || !cli.Terminal(tty) {
		var err error
		if tty, err = os.Open("/dev/tty"); err != nil {
			return nil, err
		}
	}
	lines := &answers{in: bufio.NewReader(tty), flush: func() {
		flushInput(tty.Fd())
	}, out: c.Out.Err,
		status: c.status}
	return &asker{&c.mu, c.view(), lines.read}, nil
}

// interruptTime is how long Ctrl-C may take to end the turn that asks.
const interruptTime = time.Second

// askOnScreen asks on the terminal that a chat has for itself. Ctrl-C and a closed terminal are a
// no.
func (c *Console) askOnScreen(ctx context.Context, text, prompt string) (string, error) {
	line, err := c.screen.Ask(ctx, text, prompt)
	if errors.Is(err, terminal.ErrInterrupted) { // the turn ends too: the model must not read a no
		_ = chans.Sleep(ctx, interruptTime)
	}
	return line, context.Cause(ctx)
}

// answers reads answers from a terminal whose lines the terminal itself edits.
type answers struct {
	in      *bufio.Reader
	flush   func() // discards unread typed input; nil without a terminal
	out     io.Writer
	status  *status.Line // on the terminal that out is; nil without one
	pending chan string  // the line that the previous question did not await; may be nil
}

func (a *answers) read(ctx context.Context, text, prompt string) (string, error) {
	select {
	case <-a.pending: // discard a line that was typed between the questions
		a.pending = nil
	default:
	}
	if a.flush != nil { // input that was typed before the question is not an answer to it
		a.flush()
	}
	_, _ = fmt.Fprintf(a.out, "%s\n%s", text, prompt)
	line, err := a.readLine(ctx)
	if err != nil {
		_, _ = fmt.Fprintln(a.out)
	} else if a.status != nil {
		a.status.Entered()
	}
	return line, err
}

// readLine reads a line. If ctx ends first, the next call goes on waiting for the same line.
func (a *answers) readLine(ctx context.Context) (string, error) {
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
