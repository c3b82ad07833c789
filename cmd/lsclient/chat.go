package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
	"tapgw/internal/protocol"
)

func chatCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "chat",
		Usage: "talk with an agent, turn by turn",
		Description: `Alt-Enter begins a new line, Tab completes commands and @files, which go along with the
prompt. Ctrl-C ends the turn that runs, or clears the prompt. Ctrl-D, Ctrl-C twice,
/quit or exit ends the chat. /help lists the other commands and keys. With --plain,
ACCESSIBLE or TERM=dumb nothing is redrawn. Without a terminal each line of stdin is a
prompt.

If a gateway runs, the chat is a session there, and a prompt that a provider injects
gets a turn as soon as no other runs.

Examples:
  lsclient chat --ask
  lsclient chat --continue
  lsclient chat -w ~/src/app --model gpt-4.1
  printf 'read go.mod\nwhat is it for?\n' | lsclient chat`,
		Flags: slices.Concat([]ucli.Flag{
			&ucli.BoolFlag{Name: "no-tools", Usage: "only talk: the model gets no tools"},
			plainFlag(),
		}, turnFlags(), resumeFlags()),
		BashComplete: completeResume,
		Action:       action(0, 0, runChat),
	}
}

// errLeave ends a chat.
var errLeave = errors.New("leave")

// chat is a conversation with a person.
type chat struct {
	cmd     *command
	v       *conversation
	printer *turnPrinter
	lines   lineReader
	mode    langserver.Mode
	stop    chan os.Signal // Ctrl-C in a turn
}

func runChat(cmd *command) error {
	if err := cmd.turnOptions(); err != nil {
		return err
	}
	debug.SetGCPercent(50) // a chat has little to collect
	c := &chat{cmd: cmd, mode: langserver.Agent, stop: make(chan os.Signal, 1)}
	if cmd.Bool("no-tools") {
		c.mode = langserver.Ask
	}
	// Ctrl-C ends turns, so it must not end the context of the command.
	signal.Notify(c.stop, syscall.SIGINT)
	defer signal.Stop(c.stop)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(cmd.ctx))
	defer cancel(nil)
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(terminated)
	go func() {
		select {
		case <-terminated:
			cancel(cli.Reported(cli.ExitFailed))
		case <-ctx.Done():
		}
	}()

	c.lines = cmd.newLineReader(c.interrupt, c.candidates)
	defer c.lines.close()
	cmd.todoList = c.lines.isInteractive()
	if err := c.start(ctx); err != nil {
		return err
	}
	defer c.v.close(context.WithoutCancel(ctx))
	debug.FreeOSMemory() // see work
	c.showEarlier()
	err := c.talk(ctx)
	if err == errLeave { //nolint:errorlint // an error that wraps it has an exit code
		return nil
	}
	return err
}

// exitInterrupted is the exit code after a Ctrl-C that ends the program, as shells have it.
const exitInterrupted = 130

// start starts the conversation. Ctrl-C ends the chat meanwhile.
func (c *chat) start(ctx context.Context) (err error) {
	starting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started := make(chan struct{})
	defer close(started)
	go func() {
		select {
		case <-c.stop:
			cancel(cli.Reported(exitInterrupted))
		case <-started:
		}
	}()
	defer c.cmd.working("")
	c.v, err = c.cmd.converse(starting, c.mode)
	if err != nil && ctx.Err() == nil && starting.Err() != nil {
		return context.Cause(starting)
	}
	c.printer = &turnPrinter{cmd: c.cmd, v: c.v}
	return err
}

// interrupt is Ctrl-C on the terminal that the chat has for itself, where it is no signal.
func (c *chat) interrupt() {
	select {
	case c.stop <- os.Interrupt:
	default: // there is one already
	}
}

// talk reads prompts and runs their turns until the person, or stdin, ends the chat.
func (c *chat) talk(ctx context.Context) error {
	var injected <-chan struct{}
	if c.v.session != nil {
		injected = c.v.session.promptReady
	}
	var failed error // of the last turn; without a terminal it is the exit code
	read := c.lines.next()
	leaving := false // the next Ctrl-C ends the chat
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.v.server.Done():
			return cli.Failed("%v", c.v.server.Err())
		case <-c.stop: // no turn runs, and the terminal edits lines by itself, or nobody types
			if leaving || !c.lines.isInteractive() {
				return cli.Reported(exitInterrupted)
			}
			leaving = true
			c.cmd.out.Notef("\n(Ctrl-C again, or Ctrl-D, ends the chat)")
		case <-injected:
			if err := c.injected(ctx); err != nil {
				return err
			}
		case line := <-read:
			leaving = false
			if errors.Is(line.err, io.EOF) && c.lines.isInteractive() {
				return nil // the person has seen the errors
			}
			if errors.Is(line.err, io.EOF) {
				return failed
			}
			if line.err != nil {
				return line.err
			}
			if prompt := strings.TrimSpace(line.text); prompt != "" {
				failed = nil
				done, err := c.command(ctx, prompt)
				if !done {
					if err = c.prompt(ctx, prompt); err != nil {
						failed = cli.Reported(cli.AsError(err).Exit)
					}
				}
				if err != nil && !c.printError(err) {
					return err
				}
			}
			read = c.lines.next()
		}
	}
}

// injected runs the turns of prompts that providers have injected.
func (c *chat) injected(ctx context.Context) error {
	for p, ok := c.v.session.nextPrompt(); ok; p, ok = c.v.session.nextPrompt() {
		c.printer.injected(p.Prompt)
		// The person is typing, so no questions now.
		c.v.policy.SetBusy(true)
		err := c.turn(ctx, p)
		c.v.policy.SetBusy(false)
		if err != nil && !c.printError(err) {
			return err
		}
	}
	return nil
}

// printError prints an error, and reports whether the chat goes on after it.
func (c *chat) printError(err error) bool {
	if errors.Is(err, errLeave) {
		return false
	}
	if _, dead := errors.AsType[*langserver.DeadError](err); dead {
		return false
	}
	e := cli.AsError(err)
	if e.Message != "" {
		c.cmd.out.Notef("%s", cli.Red.On(c.cmd.App.ErrWriter, cli.Clean(e.Message)))
	}
	return e.Exit != cli.ExitRefused // not signed in: each turn would fail
}

// prompt runs the turn of a prompt that the person sent, with the files that it names.
func (c *chat) prompt(ctx context.Context, text string) error {
	return c.work(ctx, func(ctx context.Context) error {
		full, images, err := c.attach(ctx, text)
		switch {
		case ctx.Err() != nil:
			return workspace.ExitError(langserver.ErrCancelled)
		case err != nil:
			return cli.Failed("%v", err)
		}
		if err := c.v.Attach(ctx, images); err != nil {
			return workspace.ExitError(err)
		}
		return c.v.turn(ctx, full, "", c.printer)
	})
}

// turn runs a turn.
func (c *chat) turn(ctx context.Context, p protocol.HostPrompt) error {
	return c.work(ctx, func(ctx context.Context) error { return c.v.turn(ctx, p.Prompt, p.Source, c.printer) })
}

// work runs something that Ctrl-C ends, and shows that it runs. A chat waits for most of its life, so what the work
// needed goes back to the system.
func (c *chat) work(ctx context.Context, run func(context.Context) error) error {
	defer debug.FreeOSMemory()
	c.cmd.working("thinking")
	defer c.cmd.working("")
	return c.interruptible(ctx, run)
}

// interruptible runs something that Ctrl-C ends. A second Ctrl-C ends the chat if it goes on after the first.
func (c *chat) interruptible(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.forgetStop() // from before
	defer c.forgetStop()
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-c.stop:
		cancel()
		c.cmd.working("stopping; Ctrl-C again ends the chat")
	}
	select {
	case err := <-done:
		return err
	case <-c.stop:
		return &cli.Error{Exit: exitInterrupted, Code: cli.CodeCancelled, Err: errLeave}
	}
}

// forgetStop forgets a Ctrl-C that nothing has handled.
func (c *chat) forgetStop() {
	select {
	case <-c.stop:
	default:
	}
}
