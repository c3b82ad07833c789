package main

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/visible"
)

const (
	watchKept  = 15                     // timeline lines that a terminal shows
	watchPause = 100 * time.Millisecond // between two drawings at least
	watchAge   = 5 * time.Second        // after which what is said to be so long ago is drawn anew
)

func watchCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "watch",
		Usage: "a live view of sessions, providers, pairings, questions and timelines",
		Description: `On a terminal the view is drawn anew as things change. Elsewhere, and with
--json, it is the timelines of all sessions, line by line.

Examples:
  tapctl watch
  tapctl watch --json | jq -r .message`,
		Action: long(0, func(k *call) error {
			ctx, cancel := context.WithCancel(k.ctx)
			w := newWatcher(k)
			err := w.run(ctx)
			cancel()
			w.reading.Wait()
			return followed(k, err)
		}),
	}
}

// watchLine is a timeline line and whose it is.
type watchLine struct {
	Session string `json:"session"`
	client.TimelineLine
}

// watcher shows what a gateway shows. A goroutine reads the states, and one for
// each session its timeline.
type watcher struct {
	*call
	states  chan client.State
	lines   chan watchLine
	failed  chan error
	reading sync.WaitGroup

	following map[string]bool // by session
	newest    []watchLine
	sessions  []client.Session
	providers []client.Provider
	pairings  []client.Pairing
	questions []client.Question
}

func newWatcher(k *call) *watcher {
	return &watcher{call: k, states: make(chan client.State), lines: make(chan watchLine), failed: make(chan error, 1), following: map[string]bool{}}
}

func (w *watcher) run(ctx context.Context) error {
	names := []string{client.StateSessions}
	drawn := w.out.Terminal && !w.out.JSON
	age := &time.Ticker{} // never
	if drawn {
		names = append(names, client.StateProviders, client.StatePairings, client.StateQuestions)
		age = time.NewTicker(watchAge)
		defer age.Stop()
	}
	w.reading.Go(func() { w.read(ctx, names) })
	var due <-chan time.Time // to draw; nil while nothing is new
	for {
		select {
		case s := <-w.states:
			if err := w.take(ctx, s); err != nil {
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

// read hands the gateway's states on.
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

// take takes a state over, and follows the sessions that there are.
func (w *watcher) take(ctx context.Context, s client.State) error {
	into := map[string]any{client.StateSessions: &w.sessions, client.StateProviders: &w.providers, client.StatePairings: &w.pairings, client.StateQuestions: &w.questions}[s.Name]
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(s.Data, into); err != nil {
		return cli.Failed("reading the gateway's %s: %v", s.Name, err)
	}
	if s.Name != client.StateSessions {
		return nil
	}
	there := map[string]bool{}
	for _, session := range w.sessions {
		there[session.ID] = true
		if !w.following[session.ID] {
			w.reading.Go(func() { w.follow(ctx, session.ID) })
		}
	}
	w.following = there
	return nil
}

// follow hands a session's timeline on. What ends it early shows in the states.
func (w *watcher) follow(ctx context.Context, id string) {
	for l, err := range w.gw.Timeline(ctx, id, client.LogQuery{Follow: true}) {
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
func (w *watcher) draw() error {
	var b strings.Builder
	o := *w.out
	o.W, o.Err = &b, &b
	if err := o.Table(sessionsTable(w.sessions), client.NoSessions); err != nil {
		return err
	}
	b.WriteByte('\n')
	if err := o.Table(providersTable(providerRows(w.providers, nil)), "no providers"); err != nil {
		return err
	}
	b.WriteByte('\n')
	for _, p := range w.pairings {
		b.WriteString(o.Paint(cli.Yellow, "pairing") + "   " + cli.Shorten(p.Session, 9) + "  type " + o.Paint(cli.Yellow, p.Code) + " into " + cli.Clean(p.Provider) + "\n")
	}
	for _, q := range w.questions {
		b.WriteString(o.Paint(cli.Yellow, "question") + "  " + cli.Shorten(q.Session, 9) + "  " + cli.Shorten(cli.Clean(q.Message), 200) + "\n")
		if q.Detail != "" {
			detail := strings.Join(strings.Fields(visible.Ends(visible.Text(q.Detail), 300, 6)), " ")
			b.WriteString("          " + detail + "\n          all of it: tapctl sessions answer --question " + q.ID + "\n")
		}
	}
	for _, l := range w.newest {
		l.Message = cli.Shorten(strings.Join(strings.Fields(l.Message), " "), 200)
		b.WriteString(w.text(l) + "\n")
	}
	return w.out.Printf("\x1b[H\x1b[2J%s", b.String())
}
