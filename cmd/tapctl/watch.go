package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/visible"
)

// tapctl watch, which shows sessions, providers, pairings, questions and timelines while they
// change.

const (
	maxWatchLines = 15                     // timeline lines that a terminal shows
	watchPause    = 100 * time.Millisecond // the least time between two drawings
	watchAge      = 5 * time.Second        // how often "3s ago" is redrawn without changes
)

func watchCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "watch",
		Usage: "watch sessions, providers, pairings, questions and timelines",
		Description: `On a terminal it draws the view anew at each change. Elsewhere, and with --json, it prints
the timelines of all sessions, line by line.

Examples:
  tapctl watch
  tapctl watch --json | jq -r .message`,
		Action: longAction(0, func(c *command) error {
			ctx, cancel := context.WithCancel(c.ctx)
			w := newWatcher(c)
			err := w.run(ctx)
			cancel()
			w.reading.Wait()
			return ignoreInterrupt(c, err)
		}),
	}
}

// watchLine is a timeline line with its session.
type watchLine struct {
	Session string `json:"session"`
	timelineRow
}

// watcher shows the states of a gateway. One goroutine reads the states, and one for each
// session its timeline.
type watcher struct {
	*command
	states  chan client.State
	lines   chan watchLine
	failed  chan error
	reading sync.WaitGroup

	following map[string]bool // by session
	newest    []watchLine
	sessions  []adminapi.Session
	providers []adminapi.Provider
	pairings  []adminapi.Pairing
	questions []adminapi.Question
}

func newWatcher(c *command) *watcher {
	return &watcher{
		command: c, states: make(chan client.State), lines: make(chan watchLine),
		failed: make(chan error, 1), following: map[string]bool{},
	}
}

func (w *watcher) run(ctx context.Context) error {
	names := []string{adminapi.StateSessions}
	drawn := w.out.Terminal && !w.out.JSON
	age := &time.Ticker{} // never
	if drawn {
		names = append(names, adminapi.StateProviders, adminapi.StatePairings,
			adminapi.StateQuestions)
		age = time.NewTicker(watchAge)
		defer age.Stop()
	}
	w.reading.Go(func() { w.read(ctx, names) })
	var due <-chan time.Time // to draw; nil without news
	for {
		select {
		case s := <-w.states:
			if err := w.update(ctx, s); err != nil {
				return err
			}
		case l := <-w.lines:
			if err := w.line(l); err != nil {
				return err
			}
		case <-age.C:
		case <-due:
			due = nil
			if err := w.draw(); err != nil {
				return err
			}
			continue
		case err := <-w.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		if drawn && due == nil {
			due = time.After(watchPause)
		}
	}
}

// read sends the gateway's states to w.states.
func (w *watcher) read(ctx context.Context, names []string) {
	for s, err := range w.gw.Watch(ctx, names...) {
		if err != nil {
			w.failed <- err
			return
		}
		select {
		case w.states <- s:
		case <-ctx.Done():
			return
		}
	}
}

// update shows a state and follows the timelines of new sessions.
func (w *watcher) update(ctx context.Context, s client.State) error {
	into := map[string]any{
		adminapi.StateSessions: &w.sessions, adminapi.StateProviders: &w.providers,
		adminapi.StatePairings: &w.pairings, adminapi.StateQuestions: &w.questions,
	}[s.Name]
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(s.Data, into); err != nil {
		return cli.Failed("reading the gateway's %s: %v", s.Name, err)
	}
	if s.Name != adminapi.StateSessions {
		return nil
	}
	current := map[string]bool{}
	for _, session := range w.sessions {
		current[session.ID] = true
		if !w.following[session.ID] {
			w.reading.Go(func() { w.follow(ctx, session.ID) })
		}
	}
	w.following = current
	return nil
}

// follow sends a session's timeline to w.lines. It reports no error: the states show whether the
// session is still there.
func (w *watcher) follow(ctx context.Context, id string) {
	for l, err := range w.gw.Timeline(ctx, id, client.LogQuery{Follow: true}) {
		if err != nil {
			return
		}
		select {
		case w.lines <- watchLine{id, timelineRow{TimelineLine: l}}:
		case <-ctx.Done():
			return
		}
	}
}

func (w *watcher) line(l watchLine) error {
	if w.out.JSON || !w.out.Terminal {
		return w.command.line(l, w.text(l))
	}
	if w.newest = append(w.newest, l); len(w.newest) > maxWatchLines {
		w.newest = w.newest[1:]
	}
	return nil
}

func (w *watcher) text(l watchLine) string {
	return w.out.Paint(cli.Dim, cli.Shorten(l.Session, 9)) + "  " + timelineText(w.out,
		l.TimelineLine)
}

// draw clears the terminal and writes the whole picture at once, so that it does not flicker.
func (w *watcher) draw() error {
	var b strings.Builder
	o := *w.out
	o.W, o.Err = &b, &b
	if err := o.Table(sessionResource.table(w.sessions), client.NoSessions); err != nil {
		return err
	}
	b.WriteByte('\n')
	providers := providerResource.table(providerRows(w.providers, nil))
	if err := o.Table(providers, "no providers"); err != nil {
		return err
	}
	b.WriteByte('\n')
	for _, p := range w.pairings {
		fmt.Fprintf(&b, "%s   %s  type %s into %s\n", o.Paint(cli.Yellow, "pairing"),
			cli.Shorten(p.Session, 9), o.Paint(cli.Yellow, p.Code), cli.Clean(p.Provider))
	}
	for _, q := range w.questions {
		fmt.Fprintf(&b, "%s  %s  %s\n", o.Paint(cli.Yellow, "question"),
			cli.Shorten(q.Session, 9), cli.Shorten(cli.Clean(q.Message), 200))
		if q.Detail != "" {
			detail := strings.Join(strings.Fields(visible.Ends(visible.Text(q.Detail), 300, 6)),
				" ")
			fmt.Fprintf(&b,
				"          %s\n          all of it: tapctl sessions answer --question %s\n", detail,
				q.ID)
		}
	}
	for _, l := range w.newest {
		l.Message = cli.Shorten(strings.Join(strings.Fields(l.Message), " "), 200)
		b.WriteString(w.text(l) + "\n")
	}
	return w.out.Printf("\x1b[H\x1b[2J%s", b.String())
}
