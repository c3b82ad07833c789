package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"tapgw/providers"
)

const (
	freshFor  = 10 * time.Second // a report that a gate or a tool takes without asking
	gateWait  = 3 * time.Second  // how long a gate waits for a newer one; the gateway waits five
	mostLogs  = 3                // in one event
	pushLines = 40               // of a log in an event
	most      = 10               // reviews in one event
)

// watcher watches the CI of one session's directory at a time.
type watcher struct {
	p      *providers.Provider
	opts   options
	logger *slog.Logger

	looking chan struct{} // holds the right to use source and the fields down to mu
	source  source
	dir     string
	known   map[string]bool // checks and reviews that were reported
	wasSeen bool            // the first report is done
	wasRed  bool
	context string

	mu     sync.Mutex // guards the fields below; never held while something waits
	last   report
	lastAt time.Time // zero before the first look
	err    error     // of the last look
}

func newWatcher(o options) *watcher {
	return &watcher{opts: o, logger: slog.Default(), looking: make(chan struct{}, 1)}
}

// watch looks again and again, until the session ends. Failures that are there at first are shown;
// later ones go as far as the options say.
func (w *watcher) watch(ctx context.Context, b providers.Binding) {
	if err := w.open(ctx, b.CWD); err != nil {
		return
	}
	complaint := ""
	for {
		err := w.look(ctx, 0)
		if err != nil && ctx.Err() == nil && err.Error() != complaint {
			complaint = err.Error()
			w.logger.Warn("the state of CI is unknown", "error", complaint)
		}
		if err == nil {
			complaint = ""
		}
		timer := time.NewTimer(w.pause())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// open makes the source of a directory. It remains when the provider comes back to that directory.
func (w *watcher) open(ctx context.Context, dir string) error {
	if err := w.acquire(ctx); err != nil {
		return err
	}
	defer w.release()
	if w.source != nil && w.dir == dir {
		return nil
	}
	w.source, w.dir, w.known = w.opts.newSource(dir), dir, map[string]bool{}
	w.wasSeen, w.wasRed = false, false
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.lastAt, w.err = report{}, time.Time{}, nil
	return nil
}

func (w *watcher) acquire(ctx context.Context) error {
	select {
	case w.looking <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *watcher) release() { <-w.looking }

// pause is how long to wait for the next look: the interval, or longer if GitHub says so.
func (w *watcher) pause() time.Duration {
	w.looking <- struct{}{}
	defer w.release()
	if g, is := w.source.(*github); is {
		return max(w.opts.interval, time.Until(g.blocked))
	}
	return w.opts.interval
}

// look reads the state, unless it is younger than fresh, and reports the news in it.
func (w *watcher) look(ctx context.Context, fresh time.Duration) error {
	if err := w.acquire(ctx); err != nil {
		return err
	}
	defer w.release()
	if w.source == nil {
		return errors.New("no session is bound")
	}
	w.mu.Lock()
	young := fresh > 0 && time.Since(w.lastAt) < fresh && w.err == nil
	w.mu.Unlock()
	if young {
		return nil
	}
	r, err := w.source.read(ctx)
	w.mu.Lock()
	if w.err = err; err == nil {
		w.last, w.lastAt = r, time.Now()
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.report(ctx, r)
}

// report pushes the news. News that the gateway did not take are new again at the next look.
func (w *watcher) report(ctx context.Context, r report) error {
	first := !w.wasSeen
	red := r.failed()
	if err := w.setContext(ctx, r, len(red)); err != nil {
		return err
	}
	if err := w.reportFailures(ctx, r, red, first); err != nil {
		return err
	}
	if len(red) > 0 {
		w.wasRed = true
	} else if w.wasRed && r.state() == passed {
		if err := w.push(ctx, providers.Surface, fmt.Sprintf("CI is green on %s.", r.where()),
			r); err != nil {
			return err
		}
		w.wasRed = false
	}
	if err := w.reportReviews(ctx, r, first); err != nil {
		return err
	}
	w.wasSeen = true
	return nil
}

func (w *watcher) setContext(ctx context.Context, r report, red int) error {
	text := ""
	if red > 0 {
		text = fmt.Sprintf("CI is red on %s: %d checks failed. ci_status lists them.", r.where(),
			red)
	}
	if text == w.context {
		return nil
	}
	if _, err := w.p.SetContext(ctx, text); err != nil {
		return err
	}
	w.context = text
	return nil
}

func (w *watcher) reportFailures(ctx context.Context, r report, red []check, first bool) error {
	var fresh []check
	for _, c := range red {
		if !w.known[c.ID] {
			fresh = append(fresh, c)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "CI is red on %s. Failed: %s.", r.where(), names(fresh))
	for _, c := range fresh[:min(mostLogs, len(fresh))] {
		text, err := w.source.log(ctx, c)
		if err != nil {
			text = "the log could not be read: " + err.Error()
		}
		fmt.Fprintf(&b, "\n\nThe end of the log of %q. %s", clean(c.Name), quote(text, pushLines))
	}
	level := w.opts.failures
	if first {
		level = providers.Surface
	}
	if err := w.push(ctx, level, b.String(), r); err != nil {
		return err
	}
	for _, c := range fresh {
		w.known[c.ID] = true
	}
	return nil
}

func (w *watcher) reportReviews(ctx context.Context, r report, first bool) error {
	var fresh []review
	for _, c := range r.Reviews {
		if !w.known[c.ID] {
			fresh = append(fresh, c)
		}
	}
	if len(fresh) > 0 && !first {
		text := fmt.Sprintf("%d new review comments on %s.\n%s", len(fresh), r.where(),
			showReviews(fresh, most))
		if err := w.push(ctx, w.opts.reviews, text, r); err != nil {
			return err
		}
	}
	for _, c := range fresh {
		w.known[c.ID] = true
	}
	return nil
}

// showReviews shows the first comments as data.
func showReviews(all []review, most int) string {
	var b strings.Builder
	for _, c := range all[:min(most, len(all))] {
		fmt.Fprintf(&b, "%s on %s:\n%s\n\n", c.Author, c.Place, c.Text)
	}
	if len(all) > most {
		fmt.Fprintf(&b, "(%d more)\n", len(all)-most)
	}
	return quote(b.String(), 200)
}

func (w *watcher) push(ctx context.Context, level providers.Level, text string, r report) error {
	_, err := w.p.Push(ctx, providers.Event{Text: text, Level: level, Stream: name,
		Metadata: map[string]any{"state": r.state(), "commit": clean(r.Commit)}})
	return err
}

// now returns the newest report, and its age. The error says why there is no newer one.
func (w *watcher) now(ctx context.Context) (r report, age time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, gateWait)
	defer cancel()
	err = w.look(ctx, freshFor)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lastAt.IsZero() {
		if err == nil {
			err = errors.New("CI was not looked at yet")
		}
		return report{}, 0, err
	}
	return w.last, time.Since(w.lastAt), w.err
}
