package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// watched is a session on a gateway that notes when each tool came into its list.
type watched struct {
	*host
	mu   sync.Mutex
	seen map[string]time.Time
	sets int
	news chan struct{} // one token: something changed
}

func watch(ctx context.Context, m *middle, session string, live bool) (*watched, error) {
	h, err := dialHost(ctx, m.url)
	if err != nil {
		return nil, err
	}
	w := &watched{host: h, seen: make(map[string]time.Time), news: make(chan struct{}, 1)}
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

// wait returns when the tool came into the list.
func (w *watched) wait(ctx context.Context, tool string) (time.Time, error) {
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

// joined is a provider of this process that noted its hello.
type joined struct {
	p        *provider
	c        *websocket.Conn
	said     time.Time
	acked    time.Time
	started  time.Time
	ackedSig chan struct{}
}

func joinOne(ctx context.Context, m *middle, k int) (*joined, error) {
	j := &joined{started: time.Now(), ackedSig: make(chan struct{})}
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

func (j *joined) wait(ctx context.Context) error {
	select {
	case <-j.ackedSig:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Second):
		return fmt.Errorf("provider %s was not bound within 10 s", j.p.name)
	}
}

// latencies measures from hello to the tool in a session's list, and how many
// refreshes a burst of providers costs.
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
	ms := func(d time.Duration) float64 { return micros(int64(d)) / 1e3 }
	r.row("a host that takes tools live, median (10 ms)", "", fmt.Sprintf("%.2f ms", ms(median(took))),
		ms(median(took))/10, 1, false)
	r.row("a host that takes tools live, slowest of 40 (10 ms)", "", fmt.Sprintf("%.2f ms", ms(took[len(took)-1])),
		ms(took[len(took)-1])/10, 1, false)
	_ = live.c.Close(websocket.StatusNormalClosure, "")

	m2, err := startGateway(ctx, o.binary, nil)
	if err != nil {
		return err
	}
	defer m2.stop()
	slow, err := watch(ctx, m2, "reloads", false)
	if err != nil {
		return err
	}
	const burst = 20
	var last time.Time
	for k := range burst {
		j, err := joinOne(ctx, m2, k)
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
	if err := settle(ctx); err != nil {
		return err
	}
	slow.mu.Lock()
	sets := slow.sets
	slow.mu.Unlock()
	r.row("a host that reloads: refreshes for a burst of 20 (1)", "", fmt.Sprint(sets), float64(sets), 1, false)
	after := ms(all.Sub(last))
	r.row("a host that reloads: last ack to the list (250 ms)", "", fmt.Sprintf("%.0f ms", after), after/250, 1, false)
	return nil
}
