package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
)

// tapctl sessions query, which gives a session a prompt and shows its turn.

func sessionsQueryCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "query",
		Usage:     "give a session a prompt and stream its answer",
		ArgsUsage: "[ID] PROMPT|-",
		Description: `The answer goes to stdout, tool activity to stderr. With --json each callback of the turn
is a line, and the last line is {"done":true}. It shows only the turn of this prompt, even
if other prompts are queued. The session may read attached files. Ctrl-C interrupts the
turn; if the turn has not begun, or belongs to other prompts too, tapctl leaves it running
and says how to stop it. A second Ctrl-C ends tapctl at once.

Examples:
  tapctl sessions query 'what changed since yesterday?'
  git diff | tapctl sessions query 3f2a -
  tapctl sessions query 'what is wrong here?' --attach main.go:10-20 --attach error.png
  tapctl sessions query 'no, the other branch' --mode immediate
  tapctl sessions query 'call:hello {"name":"you"}' --json`,
		Flags: []ucli.Flag{
			&ucli.BoolFlag{Name: "detach", Usage: "do not wait for the answer"},
			&ucli.StringSliceFlag{Name: "attach", Aliases: []string{"a"},
				Usage: "a file, a directory, an image or lines of a file: " +
					"`FILE|DIR|FILE:LINE-LINE` (repeatable)"},
			&ucli.StringSliceFlag{Name: "header",
				Usage: "`NAME:VALUE`, for the requests to the model that the prompt makes " +
					"(repeatable)"},
			&ucli.StringFlag{Name: "mode", Value: adminapi.ModeEnqueue,
				Usage: "`enqueue|immediate`: behind the turn that runs, or into it"},
		},
		BashComplete: completeArgument((*command).suggestSessions),
		Action:       longAction(2, querySession),
	}
}

func querySession(c *command) error {
	id, q, err := c.query()
	if err != nil {
		return err
	}
	if c.Bool("detach") {
		if err := c.gw.Send(c.ctx, id, q); err != nil {
			return err
		}
		return c.doneTo(id, "sent to")
	}
	if !c.out.JSON {
		defer c.printQuestions(id)()
	}
	turn := &turn{out: c.out, shared: q.Mode == adminapi.ModeImmediate}
	if s, err := c.gw.Session(c.ctx, id); err == nil && s.Host != "copilot" && s.State == "busy" {
		turn.shared = true // this host does not report which prompt a callback belongs to
	}
	return c.followTurn(id, q, turn)
}

// query reads the session and the prompt from the arguments and flags.
func (c *command) query() (id string, q adminapi.Query, err error) {
	if q.Mode, err = cli.OneOf(c.Context, "mode", adminapi.ModeEnqueue,
		adminapi.ModeImmediate); err != nil {
		return "", q, err
	}
	text := c.Args().First()
	switch c.NArg() {
	case 0:
		return "", q, cli.Usage("sessions query: needs a prompt, or - to read it from stdin")
	case 2:
		id, text = text, c.Args().Get(1)
	}
	if id, err = c.findSession(id); err != nil {
		return "", q, err
	}
	if q.Prompt, err = cli.Text(c.Context, text); err != nil {
		return "", q, err
	}
	if strings.TrimSpace(q.Prompt) == "" {
		return "", q, cli.Usage("sessions query: the prompt is empty")
	}
	if q.Attachments, err = readAttachments(c); err != nil {
		return "", q, err
	}
	q.Headers, err = readHeaders(c)
	return id, q, err
}

// followTurn gives a session the prompt and shows its turn. Ctrl-C interrupts the turn first; the
// connection stays until the turn has ended.
func (c *command) followTurn(id string, q adminapi.Query, turn *turn) error {
	following, leave := context.WithCancelCause(context.WithoutCancel(c.ctx))
	defer leave(nil)
	stopped := make(chan struct{})
	stopping := context.AfterFunc(c.ctx, func() {
		defer close(stopped)
		if !c.stopTurn(id, turn) {
			leave(context.Cause(c.ctx))
		}
	})
	defer stopping()
	for line, err := range c.gw.Query(following, id, q) {
		if err != nil && c.ctx.Err() != nil {
			return withInterruptHint(err, id)
		}
		if err != nil {
			return err
		}
		turn.begun.Store(line.End == nil)
		if line.End != nil && !stopping() {
			<-stopped // it prints the dropped prompts
		}
		if c.out.JSON {
			err = c.out.Line(line.Raw)
		} else {
			err = turn.show(line)
		}
		if err != nil {
			return err
		}
		if line.End != nil {
			return turn.end(c, line.End)
		}
	}
	return &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable,
		Message: "the gateway went away before the turn ended; see tapctl status"}
}

// stopTurn interrupts the turn of a prompt at Ctrl-C, and reports whether it did. It does not
// interrupt a turn that has not begun, or that belongs to other prompts too.
func (c *command) stopTurn(id string, t *turn) bool {
	if !t.begun.Load() || t.shared || errors.Is(c.ctx.Err(), context.DeadlineExceeded) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), shortTimeout)
	defer cancel()
	dropped, err := c.gw.Interrupt(ctx, id, "Ctrl-C in tapctl sessions query")
	if err != nil {
		c.out.Notef("interrupting the turn failed: %v", err)
		return false
	}
	c.printDropped(dropped)
	return true
}

// withInterruptHint adds to an error that the prompt is still with the session.
func withInterruptHint(err error, id string) error {
	e := *cli.AsError(err)
	e.Message += "; the session goes on with the prompt: to stop it, tapctl sessions interrupt " +
		id
	return &e
}

// turn shows a turn to people: the answer on stdout, the rest on stderr.
type turn struct {
	out      *cli.Output
	streamed string      // id of the message whose parts were shown
	midline  bool        // the last thing printed does not end a line
	begun    atomic.Bool // a line of the turn has come
	shared   bool        // the turn belongs to other prompts, too
}

func (t *turn) show(l client.LiveLine) error {
	switch l.Name {
	case "onMessage":
		t.streamed = text(l.MessageID)
		return t.print(text(l.Delta))
	case "onEndMessage":
		if id := text(l.MessageID); t.streamed != id || id == "" {
			if err := t.print(text(l.CompleteContent)); err != nil {
				return err
			}
		}
		return t.newline()
	case "onStartToolExecution":
		t.note("%s %s", text(l.ToolName), cli.Shorten(cli.Clean(text(l.ToolArguments)), 200))
	case "onEndToolExecution":
		if l.Error != nil {
			t.note("failed: %s",
				cli.Shorten(cli.Clean(strings.TrimSpace(l.Error.Code+" "+l.Error.Message)), 200))
		} else if l.Result != nil {
			t.note("= %s", cli.Shorten(cli.Clean(l.Result.Content), 200))
		}
	case "onGeneratedUserPrompt":
		t.note("prompt: %s", cli.Shorten(cli.Clean(text(l.Prompt)), 200))
	}
	return nil
}

func (t *turn) print(text string) error {
	if text == "" {
		return nil
	}
	t.midline = !strings.HasSuffix(text, "\n")
	return t.out.Printf("%s", cli.Clean(text))
}

func (t *turn) newline() error {
	if !t.midline {
		return nil
	}
	t.midline = false
	return t.out.Printf("\n")
}

func (t *turn) note(format string, args ...any) {
	_ = t.newline()
	t.out.Notef("  "+format, args...)
}

// end returns the error that the command ends with, nil after a turn that succeeded.
func (t *turn) end(c *command, last *adminapi.TurnEnd) error {
	stopped := c.ctx.Err() != nil
	if c.out.JSON {
		if last.Error != nil || stopped {
			return cli.Reported(cli.ExitFailed) // the last line has the error
		}
		return nil
	}
	err := t.newline()
	switch {
	case stopped:
		return &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled,
			Message: "cancelled: the turn was interrupted"}
	case err != nil || last.Error == nil:
		return err
	}
	return &cli.Error{Exit: cli.ExitFailed, Code: last.Error.Code,
		Message: "the turn failed: " + last.Error.Message}
}
