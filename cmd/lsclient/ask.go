package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"tapgw/internal/terminal"
)

// asker asks a person. The terminal of a chat has its own.
type asker interface {
	// ask shows a question and returns the person's answer. Ctrl-C is the answer no. It returns an error only when
	// ctx ends first.
	ask(ctx context.Context, q question) (answer, error)
}

// question is a question to a person, safe to show. No is always a choice.
type question struct {
	worker  string // that asks, see runOrchestrate; "": there are none
	text    string // what the model wants to do; it may have several lines
	whole   string // all of it if text is shortened, else ""
	choices []choice
}

// choice is an answer other than no: its word, which begins with a letter of its own, and what it covers.
type choice struct{ word, covers string }

// answer is what a person has answered: the word of a choice, or "" for no. The reason of a no is for the model.
type answer struct{ word, reason string }

// The words of choices.
const (
	yesOnce  = "yes"
	always   = "always"
	session  = "session"
	showMore = "whole"
)

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
		choices = append(slices.Clip(choices), choice{word: showMore})
	}
	for _, c := range choices {
		fmt.Fprintf(&b, "[%s]%s", c.word[:1], c.word[1:])
		if c.covers != "" {
			b.WriteString(" (" + c.covers + ")")
		}
		b.WriteString(", ")
	}
	return b.String() + "[N]o or why not: "
}

// read reads a person's line. Anything that is no choice is a no, and its text is the reason.
func (q *question) read(line string) answer {
	line = strings.TrimSpace(line)
	word := strings.ToLower(line)
	for _, known := range []string{yesOnce, session, always, showMore} {
		if word != known && word != known[:1] {
			continue
		}
		offered := known == showMore && q.whole != "" ||
			slices.ContainsFunc(q.choices, func(c choice) bool { return c.word == known })
		if offered {
			return answer{word: known}
		}
		return answer{}
	}
	for _, no := range []string{"no", "n"} {
		if rest, ok := strings.CutPrefix(word, no); ok && strings.TrimLeft(rest, ":,; \t") != rest || word == no {
			return answer{reason: strings.TrimLeft(line[len(no):], ":,; \t")}
		}
	}
	return answer{reason: line}
}

// interruptTime is how long Ctrl-C may take to end what asks.
const interruptTime = time.Second

// screenAsker asks on the terminal that a chat has for itself.
type screenAsker struct{ screen *terminal.Terminal }

func (a *screenAsker) ask(ctx context.Context, q question) (answer, error) {
	for {
		line, err := a.screen.Ask(ctx, q.ask(), q.prompt())
		if errors.Is(err, terminal.ErrInterrupted) { // it ends the turn as well; then the model is not to read a no
			select {
			case <-ctx.Done():
			case <-time.After(interruptTime):
			}
		}
		if ctx.Err() != nil {
			return answer{}, context.Cause(ctx)
		}
		if err != nil {
			return answer{}, nil //nolint:nilerr // Ctrl-C and a closed terminal are a no
		}
		reply := q.read(line)
		if reply.word != showMore {
			return reply, nil
		}
		q.text, q.whole = q.whole, ""
	}
}

// lineAsker asks on a terminal whose lines the terminal itself edits.
type lineAsker struct {
	in      *bufio.Reader
	flush   func() // throws away what was typed and not read yet; nil: nobody types
	out     io.Writer
	status  *terminal.Status // on the terminal that out is; nil: none
	pending chan string      // the line that a question before did not wait for; nil: none
}

func (a *lineAsker) ask(ctx context.Context, q question) (answer, error) {
	select {
	case <-a.pending: // a line from between the questions answers none
		a.pending = nil
	default:
	}
	for {
		if a.flush != nil { // what was typed before the question is no answer to it
			a.flush()
		}
		_, _ = fmt.Fprintf(a.out, "%s\n%s", q.ask(), q.prompt())
		line, err := a.readLine(ctx)
		if err != nil {
			_, _ = fmt.Fprintln(a.out)
			return answer{}, err
		}
		if a.status != nil {
			a.status.Entered()
		}
		reply := q.read(line)
		if reply.word != showMore {
			return reply, nil
		}
		q.text, q.whole = q.whole, ""
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
