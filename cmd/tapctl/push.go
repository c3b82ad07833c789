package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/cli"
)

func pushCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "push",
		Usage:     "push an event, or a prompt, into a session",
		ArgsUsage: "TEXT|-",
		Description: `Level keep stores the event; if there is no session, for the next one. Level surface also
shows it in the timeline. Level inject gives it to the session as a prompt. With --wait the
exit code is 0 once the turn that it started has ended, and 5 if it started no turn. With
--all it goes to all sessions of all gateways of the cluster, in a stream that lasts
(docs/cluster.md).

Examples:
  tapctl push 'deployed to staging'
  tapctl push --level inject --wait 'the build is broken'
  tail -f app.log | tapctl push --stream app --level keep --lines -
  tapctl push --all --stream deploys 'deployed to production'`,
		Flags: []ucli.Flag{
			sessionFlag(),
			&ucli.StringFlag{Name: "stream", Usage: "the `STREAM` to store it in", Value: "tapctl"},
			&ucli.StringFlag{
				Name: "provider", Usage: "the provider's `NAME` that it is shown to be from",
				Value: "tapctl",
			},
			&ucli.StringFlag{
				Name:  "level",
				Usage: "`keep|surface|inject`: store it, show it, or give it to the model",
				Value: "surface",
			},
			&ucli.BoolFlag{Name: "prompt",
				Usage: "the text is a prompt: it starts a turn at any level"},
			&ucli.BoolFlag{Name: "wait", Usage: "wait for the turn that it starts to end"},
			&ucli.BoolFlag{Name: "all", Usage: "to all sessions of all gateways of the cluster"},
			&ucli.BoolFlag{Name: "lines",
				Usage: "read stdin, and push each line as an event of its own"},
		},
		BashComplete: completeSessionFlag(),
		// --wait lasts as long as the turn, --lines as long as stdin.
		Action: shortAction(1, push, "wait", "lines"),
	}
}

func push(c *command) error {
	level, err := cli.OneOf(c.Context, "level", "keep", "surface", "inject")
	if err != nil {
		return err
	}
	arg := c.Args().First()
	switch {
	case c.NArg() == 0:
		return cli.Usage("push: needs a text, or - to read it from stdin")
	case c.Bool("lines") && arg != "-":
		return cli.Usage("flag --lines: reads stdin; give - as the text")
	}
	id := ""
	if !c.Bool("all") {
		id, err = c.findSession(c.String("session"))
		if err != nil && !c.waitsForSession(level, err) {
			return err
		}
	} else if c.Bool("wait") || c.IsSet("session") {
		return cli.Usage(
			"flag --all: goes neither with --session nor with --wait, which are about one session")
	}
	p := adminapi.Push{Provider: c.String("provider"), Stream: c.String("stream"), Level: level,
		Wait: c.Bool("wait")}
	if c.Bool("lines") {
		return c.pushLines(id, p)
	}
	text, err := cli.Text(c.Context, arg)
	if err != nil {
		return err
	}
	if strings.TrimSpace(text) == "" {
		return cli.Usage("push: the text is empty")
	}
	r, err := c.push(id, c.withText(p, text))
	if err != nil {
		return err
	}
	if err := c.printReceipt(r); err != nil {
		return err
	}
	return c.waitError(p, r)
}

// waitsForSession reports whether the push can wait for the next session: err says that no session
// runs.
func (c *command) waitsForSession(level string, err error) bool {
	return cli.AsError(err).Exit == cli.ExitNotFound && c.String("session") == "" &&
		level == "keep" && !c.Bool("prompt") && !c.Bool("wait")
}

// push pushes to a session, for "" to the next one, or with --all to all sessions.
func (c *command) push(id string, p adminapi.Push) (adminapi.Receipt, error) {
	if c.Bool("all") {
		return c.gw.Broadcast(c.ctx, adminapi.Broadcast{Provider: p.Provider, Stream: p.Stream,
			Level: p.Level, Event: p.Event, Prompt: p.Prompt})
	}
	if id == "" {
		k := adminapi.Keep{Provider: p.Provider, Stream: p.Stream, Event: p.Event}
		return c.gw.Keep(c.ctx, k)
	}
	return c.gw.Push(c.ctx, id, p)
}

// withText returns the push with the text as its event, or as its prompt with --prompt.
func (c *command) withText(p adminapi.Push, text string) adminapi.Push {
	if c.Bool("prompt") {
		p.Prompt = text
	} else {
		p.Event = text
	}
	return p
}

// printReceipt prints the fate of a push.
func (c *command) printReceipt(r adminapi.Receipt) error {
	text := fmt.Sprintf("%d %s", r.Seq, r.Fate)
	if r.Reason != "" {
		text += ": " + cli.Clean(r.Reason)
	}
	return c.line(r, text)
}

// waitError is the error of --wait, with exit code 5, if the push started no turn.
func (c *command) waitError(p adminapi.Push, r adminapi.Receipt) error {
	started := r.Fate == adminapi.FateDelivered && (p.Level == "inject" || c.Bool("prompt"))
	if !p.Wait || started {
		return nil
	}
	if !c.out.JSON {
		hint := ""
		if p.Level != "inject" && !c.Bool("prompt") {
			hint = "; --level inject starts one"
		}
		c.out.Notef("the push started no turn: it was %s%s", r.Fate, hint)
	}
	return cli.Reported(cli.ExitRefused)
}

// maxPushLine is the longest line that --lines reads.
const maxPushLine = 1 << 20

// pushLines pushes stdin line by line as it comes.
func (c *command) pushLines(id string, p adminapi.Push) error {
	lines := bufio.NewScanner(c.App.Reader)
	lines.Buffer(nil, maxPushLine)
	var waitError error
	for lines.Scan() {
		text := strings.TrimSuffix(lines.Text(), "\r")
		if strings.TrimSpace(text) == "" {
			continue
		}
		r, err := c.pushWithRetry(id, c.withText(p, text))
		if err != nil {
			return err
		}
		if err := c.printReceipt(r); err != nil {
			return err
		}
		if err := c.waitError(p, r); err != nil {
			waitError = err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return cli.Usage("stdin: a line is longer than %d bytes", maxPushLine)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading stdin: %w", err)
	}
	return waitError
}

// How long, and how often at most, --lines waits for the gateway's budget of pushes.
const (
	pushPause   = 100 * time.Millisecond
	pushRetries = 100
)

// pushWithRetry waits while the gateway's budget of pushes is used up, so that a fast producer is
// slowed down and loses no events.
func (c *command) pushWithRetry(id string, p adminapi.Push) (adminapi.Receipt, error) {
	for tries := 0; ; tries++ {
		r, err := c.push(id, p)
		if e, ok := errors.AsType[*cli.Error](err); !ok || e.Code != "RATE_LIMITED" ||
			tries == pushRetries {
			return r, err
		}
		if err := chans.Sleep(c.ctx, pushPause); err != nil {
			return r, err
		}
	}
}
