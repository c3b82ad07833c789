package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func pushCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "push",
		Usage:     "push an event, or a prompt, into a session",
		ArgsUsage: "TEXT|-",
		Description: `keep stores the event (where no session is there, for the next one), surface shows it in the timeline too, inject gives it to
the session as a prompt. With --wait the exit code tells what came of it: 0 when
the turn that it started has ended, 5 when it started none.

Examples:
  tapctl push 'deployed to staging'
  tapctl push --level inject --wait 'the build is broken'
  tail -f app.log | tapctl push --stream app --level keep --lines -`,
		Flags: []ucli.Flag{
			sessionFlag(),
			&ucli.StringFlag{Name: "stream", Usage: "the `STREAM` to store it in", Value: "tapctl"},
			&ucli.StringFlag{Name: "provider", Usage: "the provider's `NAME` that it is shown with", Value: "tapctl"},
			&ucli.StringFlag{Name: "level", Usage: "`keep|surface|inject`: how far it goes", Value: "surface"},
			&ucli.BoolFlag{Name: "prompt", Usage: "the text is a prompt: it starts a turn whatever the level says"},
			&ucli.BoolFlag{Name: "wait", Usage: "wait for the turn that it starts to end"},
			&ucli.BoolFlag{Name: "lines", Usage: "read stdin, and push each line by itself"},
		},
		BashComplete: completeSessionFlag(),
		// --wait lasts as long as the turn, --lines as long as stdin.
		Action: func(c *ucli.Context) error {
			if c.Bool("wait") || c.Bool("lines") {
				return long(1, push)(c)
			}
			return short(1, push)(c)
		},
	}
}

func push(k *call) error {
	level, err := cli.OneOf(k.Context, "level", "keep", "surface", "inject")
	if err != nil {
		return err
	}
	arg := k.Args().First()
	switch {
	case k.NArg() == 0:
		return cli.Usage("push: needs a text, or - to read it from stdin")
	case k.Bool("lines") && arg != "-":
		return cli.Usage("flag --lines: reads stdin; give - as the text")
	}
	id, err := k.session(k.String("session"))
	if err != nil && !k.keeps(level, err) {
		return err
	}
	p := client.Push{Provider: k.String("provider"), Stream: k.String("stream"), Level: level, Wait: k.Bool("wait")}
	if k.Bool("lines") {
		return k.pushLines(id, p)
	}
	text, err := cli.Text(k.Context, arg)
	if err != nil {
		return err
	}
	if strings.TrimSpace(text) == "" {
		return cli.Usage("push: the text is empty")
	}
	r, err := k.push(id, k.carrying(p, text))
	if err != nil {
		return err
	}
	if err := k.receipt(r); err != nil {
		return err
	}
	return k.verdict(p, r)
}

// keeps reports whether an event waits for the next session, where there is none.
func (k *call) keeps(level string, err error) bool {
	return cli.AsError(err).Exit == cli.ExitNotFound && k.String("session") == "" && level == "keep" && !k.Bool("prompt") && !k.Bool("wait")
}

// push pushes to a session; "" is the next one.
func (k *call) push(id string, p client.Push) (client.Receipt, error) {
	if id == "" {
		return k.gw.Keep(k.ctx, p)
	}
	return k.gw.Push(k.ctx, id, p)
}

// carrying puts the text into the push as an event or a prompt.
func (k *call) carrying(p client.Push, text string) client.Push {
	if k.Bool("prompt") {
		p.Prompt = text
	} else {
		p.Event = text
	}
	return p
}

// receipt prints what became of a push.
func (k *call) receipt(r client.Receipt) error {
	if k.out.JSON {
		return k.out.Line(r)
	}
	text := fmt.Sprintf("%d %s", r.Seq, r.Fate)
	if r.Reason != "" {
		text += ": " + cli.Clean(r.Reason)
	}
	return k.out.Printf("%s\n", text)
}

// verdict is the exit code of --wait.
func (k *call) verdict(p client.Push, r client.Receipt) error {
	started := r.Fate == client.FateDelivered && (p.Level == "inject" || k.Bool("prompt"))
	if !p.Wait || started {
		return nil
	}
	if !k.out.JSON {
		why := ""
		if p.Level != "inject" && !k.Bool("prompt") {
			why = ": level " + p.Level + " starts none, --level inject does"
		}
		k.out.Notef("it started no turn%s", why)
	}
	return cli.Reported(cli.ExitRefused)
}

// maxPushLine is the longest line that --lines takes.
const maxPushLine = 1 << 20

// pushLines pushes stdin line by line as it comes.
func (k *call) pushLines(id string, p client.Push) error {
	lines := bufio.NewScanner(k.App.Reader)
	lines.Buffer(nil, maxPushLine)
	var verdict error
	for lines.Scan() {
		text := strings.TrimSuffix(lines.Text(), "\r")
		if strings.TrimSpace(text) == "" {
			continue
		}
		r, err := k.pushPatiently(id, k.carrying(p, text))
		if err != nil {
			return err
		}
		if err := k.receipt(r); err != nil {
			return err
		}
		if err := k.verdict(p, r); err != nil {
			verdict = err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return cli.Usage("stdin: a line is longer than %d bytes", maxPushLine)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading stdin: %w", err)
	}
	return verdict
}

// Pace of --lines when the gateway's budget of pushes is used up.
const (
	pushPause   = 100 * time.Millisecond
	pushRetries = 100
)

// pushPatiently waits while the budget is used up, so that a fast producer is
// slowed down and loses nothing.
func (k *call) pushPatiently(id string, p client.Push) (client.Receipt, error) {
	for tries := 0; ; tries++ {
		r, err := k.push(id, p)
		if e, ok := errors.AsType[*cli.Error](err); !ok || e.Code != "RATE_LIMITED" || tries == pushRetries {
			return r, err
		}
		if err := pause(k.ctx, pushPause); err != nil {
			return r, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
