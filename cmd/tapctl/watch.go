package main

import (
	"context"
	"strings"
	"sync"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
)

// watchPeriod is how often the lists are asked for.
const watchPeriod = time.Second

// watchKept is how many timeline lines a terminal shows.
const watchKept = 15

func watchCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "watch",
		Usage: "a live view of sessions, providers and timelines",
		Description: `On a terminal the view is drawn anew as things change. Elsewhere, and with
--json, it is the timelines of all sessions, line by line.

Examples:
  tapctl watch
  tapctl watch --json | jq -r .message`,
		Action: long(0, func(k *call) error {
			ctx, cancel := context.WithCancel(k.ctx)
			w := &watcher{call: k, lines: make(chan watchLine), following: map[string]bool{}}
			err := w.run(ctx)
			cancel()
			w.followers.Wait()
			return followed(k, err)
		}),
	}
}

// watchLine is a timeline line and whose it is.
type watchLine struct {
	Session string `json:"session"`
	client.TimelineLine
}

// watcher asks for the lists in its own goroutine, and has one for each session
// that reads the timeline.
type watcher struct {
	*call
	lines     chan watchLine
	followers sync.WaitGroup
	following map[string]bool
	newest    []watchLine
}

func (w *watcher) run(ctx context.Context) error {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		sessions, err := w.gw.Sessions(ctx)
		if err != nil {
			return err
		}
		for _, s := range sessions {
			if !w.following[s.ID] {
				w.following[s.ID] = true
				w.followers.Go(func() { w.follow(ctx, s.ID) })
			}
		}
		if w.out.Terminal && !w.out.JSON {
			if err := w.draw(ctx, sessions); err != nil {
				return err
			}
		}
		for waiting := true; waiting; {
			select {
			case l := <-w.lines:
				if err := w.line(l); err != nil {
					return err
				}
			case <-tick.C:
				waiting = false
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// follow hands a session's timeline on. What ends it early shows when the lists
// are asked for.
func (w *watcher) follow(ctx context.Context, id string) {
	for l, err := range w.gw.Timeline(ctx, id, true) {
		if err != nil {
			return
		}
		select {
		case w.lines <- watchLine{id, l}:
		case <-ctx.Done():
			return
		}
	}
}

func (w *watcher) line(l watchLine) error {
	switch {
	case w.out.JSON:
		return w.out.Line(l)
	case w.out.Terminal:
		if w.newest = append(w.newest, l); len(w.newest) > watchKept {
			w.newest = w.newest[1:]
		}
		return nil
	}
	return w.out.Printf("%s\n", w.text(l))
}

func (w *watcher) text(l watchLine) string {
	return w.out.Paint(cli.Dim, cli.Shorten(l.Session, 9)) + "  " + timelineText(w.out, l.TimelineLine)
}

// draw clears the terminal and shows everything at once, so that it does not
// flicker.
func (w *watcher) draw(ctx context.Context, sessions []client.Session) error {
	providers, err := w.gw.Providers(ctx)
	if err != nil {
		return err
	}
	var b strings.Builder
	o := *w.out
	o.W, o.Err = &b, &b
	if err := o.Table(sessionsTable(sessions), client.NoSessions); err != nil {
		return err
	}
	b.WriteByte('\n')
	if err := o.Table(providersTable(providers), "no providers"); err != nil {
		return err
	}
	b.WriteByte('\n')
	for _, l := range w.newest {
		b.WriteString(w.text(l) + "\n")
	}
	return w.out.Printf("\x1b[H\x1b[2J%s", b.String())
}
