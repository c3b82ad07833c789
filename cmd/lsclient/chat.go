package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/langserver"
)

func chatCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "chat",
		Usage: "talk with an agent, turn by turn",
		Description: `Lines are edited and remembered as in a shell. Ctrl-C ends the turn that runs;
Ctrl-D, /quit or exit ends the chat. /help lists the other commands. Without a
terminal each line of stdin is a prompt.

Where a gateway runs, the chat is a session there, and what providers inject has a
turn as soon as none runs.

Examples:
  lsclient chat --ask
  lsclient chat -w ~/src/app --model gpt-4.1
  printf 'read go.mod\nwhat is it for?\n' | lsclient chat`,
		Flags: append([]ucli.Flag{
			&ucli.BoolFlag{Name: "no-tools", Usage: "only talk: the model gets no tools"},
		}, turnFlags()...),
		Action: action(0, 0, runChat),
	}
}

// errLeave ends a chat.
var errLeave = errors.New("leave")

// chat is a conversation that a person holds.
type chat struct {
	k     *call
	v     *conversation
	show  *shower
	lines lineReader
	mode  langserver.Mode
	stop  chan os.Signal // Ctrl-C in a turn
}

func runChat(k *call) error {
	if err := k.turnOptions(); err != nil {
		return err
	}
	c := &chat{k: k, mode: langserver.Agent, stop: make(chan os.Signal, 1)}
	if k.Bool("no-tools") {
		c.mode = langserver.Ask
	}
	// Ctrl-C is for turns: it must not end the context that all commands have.
	signal.Notify(c.stop, syscall.SIGINT)
	defer signal.Stop(c.stop)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(k.ctx))
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

	c.lines = newLineReader(k, c.stop)
	defer c.lines.close()
	v, err := k.converse(ctx, c.mode)
	if err != nil {
		return err
	}
	defer v.close(context.WithoutCancel(ctx))
	c.v, c.show = v, &shower{k: k, v: v}
	err = c.talk(ctx)
	if errors.Is(err, errLeave) {
		return nil
	}
	return err
}

// talk reads prompts and runs their turns until the person, or stdin, is done.
func (c *chat) talk(ctx context.Context) error {
	var injected <-chan struct{}
	if c.v.joined != nil {
		injected = c.v.joined.more
	}
	var failed error // of the last turn: without a terminal nobody else sees it
	for {
		read := c.lines.next()
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-c.stop: // at the prompt it means nothing
			case <-c.v.server.Done():
				return cli.Failed("%v", c.v.server.Err())
			case <-injected:
				for p, ok := c.v.joined.next(); ok; p, ok = c.v.joined.next() {
					c.show.injected(p.Prompt)
					// The person is typing something else: nobody to ask.
					c.v.policy.away(true)
					err := c.turn(ctx, p)
					c.v.policy.away(false)
					if err != nil && !c.tell(err) {
						return err
					}
				}
			case line := <-read:
				waiting = false
				if errors.Is(line.err, io.EOF) && c.lines.person() {
					return nil // who saw it fail
				}
				if errors.Is(line.err, io.EOF) {
					return failed
				}
				if line.err != nil {
					return line.err
				}
				prompt := strings.TrimSpace(line.text)
				if prompt == "" {
					continue
				}
				failed = nil
				if done, err := c.command(ctx, prompt); done {
					if err != nil && !c.tell(err) {
						return err
					}
					continue
				}
				if err := c.turn(ctx, client.HostPrompt{Prompt: prompt}); err != nil {
					if !c.tell(err) {
						return err
					}
					failed = cli.Reported(cli.AsError(err).Exit)
				}
			}
		}
	}
}

// tell shows an error that leaves the chat going, and reports whether it does.
func (c *chat) tell(err error) bool {
	if errors.Is(err, errLeave) {
		return false
	}
	if _, dead := errors.AsType[*langserver.DeadError](err); dead {
		return false
	}
	e := cli.AsError(err)
	if e.Message != "" {
		c.k.out.Notef("%s", cli.Red.On(c.k.App.ErrWriter, cli.Clean(e.Message)))
	}
	return e.Exit != cli.ExitRefused // nobody is signed in: no turn will do better
}

// turn runs a turn that Ctrl-C ends.
func (c *chat) turn(ctx context.Context, p client.HostPrompt) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	for len(c.stop) > 0 { // one that came before
		<-c.stop
	}
	go func() {
		select {
		case <-c.stop:
			cancel()
		case <-done:
		}
	}()
	return c.v.turn(ctx, p.Prompt, p.Source, c.show)
}

const chatHelp = `/model [ID]  show or change the model
/models      list the models
/tools       list the tools
/new         forget the conversation and begin another
/help        this list
/quit        leave (also exit, Ctrl-D); Ctrl-C ends the turn that runs`

// command runs a line that is no prompt.
func (c *chat) command(ctx context.Context, line string) (done bool, err error) {
	word, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "/quit", "/exit", "exit", "quit":
		if rest != "" {
			return false, nil
		}
		return true, errLeave
	case "/help":
		c.k.out.Notef("%s", chatHelp)
	case "/models":
		models, err := c.v.server.Models(ctx)
		if err != nil {
			return true, worded(err)
		}
		for _, m := range models {
			c.k.out.Notef("%s  %s", m.ID, m.Name)
		}
	case "/model":
		if rest == "" {
			c.k.out.Notef("%s", orDefault(c.k.model()))
			return true, nil
		}
		if err := c.v.SetModel(ctx, rest); err != nil {
			return true, worded(err)
		}
		c.k.chosen = rest
		c.k.out.Notef("the next turn is %s's", rest)
	case "/tools":
		all, _ := c.k.loadTools(ctx)
		for _, t := range all {
			c.k.out.Notef("%s  %s", t.Name, cli.Shorten(t.Description, 70))
		}
	case "/new":
		if err := c.v.Close(ctx); err != nil {
			return true, worded(err)
		}
		c.v.Conversation = c.v.server.NewConversation(langserver.ConversationOptions{Mode: c.mode, Model: c.k.model()})
		c.k.out.Notef("a new conversation")
	default:
		if strings.HasPrefix(word, "/") && !strings.Contains(word[1:], "/") {
			c.k.out.Notef("there is no %s; /help lists what there is", word)
			return true, nil
		}
		return false, nil
	}
	return true, nil
}

func orDefault(model string) string {
	if model == "" {
		return "the server's default"
	}
	return model
}
