// Package chat is the conversation that a person has with an agent, turn by turn.
package chat

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"tapgw/internal/agent"
	"tapgw/internal/agent/consent"
	"tapgw/internal/agent/console"
	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
)

// errLeave ends a chat.
var errLeave = errors.New("leave")

// chat is a conversation with a person.
type chat struct {
	console   *console.Console
	workspace *workspace.Workspace
	agent     *agent.Conversation
	lines     *console.Lines
	stop      chan os.Signal // Ctrl-C in a turn
}

// Run talks with a person until the person, or stdin, ends the chat. The agent shows its events on
// the console, and gets its policy once the console is open, because it may ask there.
func Run(ctx context.Context, c *console.Console, o agent.Options,
	policy func() (*consent.Policy, error)) error {
	debug.SetGCPercent(50) // a chat has little to collect
	h := &chat{console: c, workspace: o.Workspace, stop: make(chan os.Signal, 1)}
	// Ctrl-C ends turns, so it must not end the context of the command.
	signal.Notify(h.stop, syscall.SIGINT)
	defer signal.Stop(h.stop)
	ctx, cancel := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	h.lines = c.OpenLines(filepath.Join(workspace.StateDir(), "lsclient-history"), h.interrupt,
		h.candidates)
	defer h.lines.Close()
	o.TodoList = h.lines.Interactive
	var err error
	if o.Policy, err = policy(); err != nil {
		return err
	}
	if err = h.start(ctx, o); err != nil && ctx.Err() != nil {
		return cli.Reported(cli.ExitFailed)
	}
	if err != nil {
		return err
	}
	defer h.agent.Close(context.WithoutCancel(ctx))
	debug.FreeOSMemory() // see work
	h.showEarlier()
	err = h.talk(ctx)
	if err == errLeave { //nolint:errorlint // an error that wraps it has an exit code
		return nil
	}
	return err
}

// exitInterrupted is the exit code after a Ctrl-C that ends the program, as shells have it.
const exitInterrupted = 130

// start starts the conversation. Ctrl-C during the start ends the chat.
func (c *chat) start(ctx context.Context, o agent.Options) (err error) {
	starting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.stop:
			cancel(cli.Reported(exitInterrupted))
		case <-starting.Done():
		}
	}()
	defer c.console.Working("")
	c.agent, err = agent.Start(starting, o)
	if err != nil && ctx.Err() == nil && starting.Err() != nil {
		return context.Cause(starting)
	}
	return err
}

// interrupt is Ctrl-C on the terminal that the chat has for itself, where it is no signal.
func (c *chat) interrupt() {
	select {
	case c.stop <- os.Interrupt:
	default: // a stop is waiting already
	}
}

// talk reads prompts and runs their turns until the person, or stdin, ends the chat.
func (c *chat) talk(ctx context.Context) error {
	var failed error // of the last turn; without a terminal it is the exit code
	read := c.lines.Next()
	leaving := false // the next Ctrl-C ends the chat
	for {
		select {
		case <-ctx.Done():
			return cli.Reported(cli.ExitFailed)
		case <-c.agent.Server.Done():
			return cli.Failed("%v", c.agent.Server.Err())
		case <-c.stop: // Ctrl-C while no turn runs and no screen reads the keys
			if leaving || !c.lines.Interactive {
				return cli.Reported(exitInterrupted)
			}
			leaving = true
			c.console.Out.Notef("\n(Ctrl-C again, or Ctrl-D, ends the chat)")
		case <-c.agent.InjectedPrompts():
			if err := c.injected(ctx); err != nil {
				return err
			}
		case line := <-read:
			leaving = false
			if errors.Is(line.Err, io.EOF) && c.lines.Interactive {
				return nil // the person has seen the errors
			}
			if errors.Is(line.Err, io.EOF) {
				return failed
			}
			if line.Err != nil {
				return line.Err
			}
			if prompt := strings.TrimSpace(line.Text); prompt != "" {
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
			read = c.lines.Next()
		}
	}
}

// injected runs the turns of prompts that providers have injected.
func (c *chat) injected(ctx context.Context) error {
	for p, ok := c.agent.NextInjected(); ok; p, ok = c.agent.NextInjected() {
		c.console.Show(agent.Injected{Prompt: p.Prompt})
		// The person is typing, so no questions now.
		c.agent.Policy.SetBusy(true)
		err := c.work(ctx, func(ctx context.Context) error {
			return c.turn(ctx, p.Prompt, p.Source)
		})
		c.agent.Policy.SetBusy(false)
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
		c.console.Out.Notef("%s", c.console.Paint(cli.Red, cli.Clean(e.Message)))
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
		if err := c.agent.Attach(ctx, images); err != nil {
			return workspace.ExitError(err)
		}
		return c.turn(ctx, full, "")
	})
}

// turn runs a turn. Its error is reported already where errors are printed as JSON.
func (c *chat) turn(ctx context.Context, prompt, source string) error {
	return c.console.Reported(c.agent.Turn(ctx, prompt, source))
}

// work runs something that Ctrl-C ends, and shows that it runs. Afterwards it returns unused memory
// to the system, because a chat waits for most of its life.
func (c *chat) work(ctx context.Context, run func(context.Context) error) error {
	defer debug.FreeOSMemory()
	c.console.Working("thinking")
	defer c.console.Working("")
	return c.interruptible(ctx, run)
}

// interruptible runs something that Ctrl-C ends. A second Ctrl-C ends the chat if it goes on after
// the first.
func (c *chat) interruptible(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.forgetStop() // a Ctrl-C from before
	defer c.forgetStop()
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-c.stop:
		cancel()
		c.console.Working("stopping; Ctrl-C again ends the chat")
	}
	select {
	case err := <-done:
		return err
	case <-c.stop:
		return &cli.Error{Exit: exitInterrupted, Code: cli.CodeCancelled, Err: errLeave}
	}
}

// forgetStop discards a Ctrl-C that was not handled.
func (c *chat) forgetStop() {
	select {
	case <-c.stop:
	default:
	}
}
