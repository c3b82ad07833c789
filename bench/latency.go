package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// toolWatch is a session of a gateway that notes when each tool came into its list.
type toolWatch struct {
	*host
	mu   sync.Mutex
	seen map[string]time.Time
	sets int
	news chan struct{} // one token: something changed
}

func watch(ctx context.Context, m *middle, session string, live bool) (*toolWatch, error) {
	h, err := dialHost(ctx, m.url)
	if err != nil {
		return nil, err
	}
	w := &toolWatch{host: h, seen: make(map[string]time.Time), news: make(chan struct{}, 1)}
	h.toolsSet = func(names []string) {
		now := time.Now()
		w.mu.Lock()
		w.sets++
		for _, n := range names {
			if _, ok := w.seen[n]; !ok {
				w.seen[n] = now
			}
		}
		w.mu.Unlock()
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
	go h.read(ctx)
	return w, h.open(ctx, m.admin, session, live)
}

// wait waits for a tool and returns the time when it came into the list.
func (w *toolWatch) wait(ctx context.Context, tool string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		w.mu.Lock()
		at, ok := w.seen[tool]
		w.mu.Unlock()
		if ok {
			return at, nil
		}
		select {
		case <-w.news:
		case <-ctx.Done():
			return at, fmt.Errorf("waiting for tool %s in the session's list: %w", tool, ctx.Err())
		}
	}
}

// timedProvider is a provider in this process that notes the time of its hello.
type timedProvider struct {
	p        *provider
	c        *websocket.Conn
	said     time.Time
	acked    time.Time
	started  time.Time
	ackedSig chan struct{}
}

func joinOne(ctx context.Context, m *middle, k int) (*timedProvider, error) {
	j := &timedProvider{started: time.Now(), ackedSig: make(chan struct{})}
	j.p = &provider{name: fmt.Sprintf("p%d", k), token: m.token, tools: 1, index: k}
	j.p.said = func() { j.said = time.Now() }
	j.p.bound = func() { j.acked = time.Now(); close(j.ackedSig) }
	var err error
	if j.c, err = j.p.connect(ctx, m.url); err != nil {
		return nil, err
	}
	go func() { _ = j.p.serve(ctx, j.c) }()
	return j, nil
}

func (j *timedProvider) wait(ctx context.Context) error {
	select {
	case <-j.ackedSig:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Second):
		return fmt.Errorf("provider %s was not bound within 10 s", j.p.name)
	}
}

// latencies measures the time from hello to the tool in a session's list, and the number of refreshes after a burst of
// providers.
func latencies(ctx context.Context, o options, r *report) error {
	r.title("From `hello` to the tool in the host's list", "metric\t\ttapgw\tof target\tat most\t")
	m, err := startGateway(ctx, o.binary, nil)
	if err != nil {
		return err
	}
	defer m.stop()
	live, err := watch(ctx, m, "live", true)
	if err != nil {
		return err
	}
	var took []time.Duration
	for k := range 40 {
		j, err := joinOne(ctx, m, k)
		if err != nil {
			return err
		}
		at, err := live.wait(ctx, toolName(k, 0))
		if err != nil {
			return err
		}
		took = append(took, at.Sub(j.said))
		_ = j.c.Close(websocket.StatusNormalClosure, "")
	}
	slices.Sort(took)
	r.row("a host that takes tools live, median (10 ms)", "", fmt.Sprintf("%.2f ms", milliseconds(median(took))),
		milliseconds(median(took))/10, 1, false)
	slowest := milliseconds(took[len(took)-1])
	r.row("a host that takes tools live, slowest of 40 (10 ms)", "", fmt.Sprintf("%.2f ms", slowest), slowest/10, 1,
		false)
	_ = live.c.Close(websocket.StatusNormalClosure, "")
	return burstLatency(ctx, o, r)
}

// burstLatency measures the refreshes of a host that reloads its tools after a burst of providers.
func burstLatency(ctx context.Context, o options, r *report) error {
	m, err := startGateway(ctx, o.binary, nil)
	if err != nil {
		return err
	}
	defer m.stop()
	slow, err := watch(ctx, m, "reloads", false)
	if err != nil {
		return err
	}
	const burst = 20
	var last time.Time
	for k := range burst {
		j, err := joinOne(ctx, m, k)
		if err != nil {
			return err
		}
		if err := j.wait(ctx); err != nil {
			return err
		}
		last = j.acked
	}
	var all time.Time
	for k := range burst {
		at, err := slow.wait(ctx, toolName(k, 0))
		if err != nil {
			return err
		}
		if at.After(all) {
			all = at
		}
	}
	if err := waitUntilIdle(ctx); err != nil {
		return err
	}
	slow.mu.Lock()
	sets := slow.sets
	slow.mu.Unlock()
	r.row("a host that reloads: refreshes for a burst of 20 (1)", "", fmt.Sprint(sets), float64(sets), 1, false)
	after := milliseconds(all.Sub(last))
	r.row("a host that reloads: last ack to the list (250 ms)", "", fmt.Sprintf("%.0f ms", after), after/250, 1, false)
	return nil
}

func milliseconds(d time.Duration) float64 { return micros(int64(d)) / 1e3 }
