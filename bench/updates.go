package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/protocol"
)

// updateKinds are the updates to measure. Each update changes something.
var updateKinds = []struct {
	metric string
	target bool
	update func(n int) map[string]any
}{
	{"tools.update, a delta of one tool", true, func(n int) map[string]any {
		return map[string]any{"type": "tools.update", "tools": toolList(1, n), "remove": []string{}}
	}},
	{"tools.update, a list of 20", false, func(n int) map[string]any {
		return map[string]any{"type": "tools.update", "tools": toolList(20, n)}
	}},
	{"hooks.update, 3 rules", true, func(n int) map[string]any {
		return map[string]any{"type": "hooks.update", "onPreToolUse": rules(10 + n%10)[7:10]}
	}},
	{"hooks.update, 50 rules", true, func(int) map[string]any {
		return map[string]any{"type": "hooks.update", "onPreToolUse": rules(protocol.MaxHookRules)}
	}},
	{"context.update, 4 KiB", true, func(n int) map[string]any {
		return map[string]any{"type": "context.update",
			"context": fmt.Sprintf("%d %s", n, bytes.Repeat([]byte("context "), 512))}
	}},
	{"filter.set, 3 rules", true, func(n int) map[string]any {
		return map[string]any{"type": "filter.set", "stream": fmt.Sprintf("s%d", n%10), "rules": streamFilter}
	}},
}

// updates measures the time from sending an update to its ack, on a real gateway whose host accepts each new list
// of tools.
func updates(ctx context.Context, o options, r *report) error {
	r.title("From an update to its ack, over a WebSocket on loopback, p50", "metric\t\ttapgw\tof target\tat most\t")
	m, err := startGateway(ctx, o.binary, nil)
	if err != nil {
		return err
	}
	defer m.stop()
	h, err := watch(ctx, m, "updates", true)
	if err != nil {
		return err
	}
	defer func() { _ = h.c.CloseNow() }()
	u, err := newUpdater(ctx, m)
	if err != nil {
		return err
	}
	defer func() { _ = u.c.CloseNow() }()

	took := make([][]time.Duration, len(updateKinds))
	for n := range 301 {
		for i, k := range updateKinds {
			d, err := u.update(ctx, k.update(n))
			if err != nil {
				return fmt.Errorf("%s: %w", k.metric, err)
			}
			if n > 0 { // the first warms up
				took[i] = append(took[i], d)
			}
		}
	}
	for i, k := range updateKinds {
		p50, _ := quantiles(took[i])
		if ms := fmt.Sprintf("%.3f ms", p50); k.target {
			r.row(k.metric+" (1 ms)", "", ms, p50, 1, false)
		} else { // nearly all of it is compiling schemas
			r.inform(k.metric, "", ms, p50)
		}
	}
	return nil
}

// toolList returns n tools. Lists of different versions differ.
func toolList(n, version int) []map[string]any {
	list := make([]map[string]any, n)
	for j := range list {
		list[j] = map[string]any{"name": toolName(0, j), "description": fmt.Sprintf("Version %d.", version),
			"parameters": json.RawMessage(toolSchema)}
	}
	return list
}

// updater is a bound provider that sends updates one after the other.
type updater struct {
	c  *websocket.Conn
	in bytes.Buffer
	n  int
}

func newUpdater(ctx context.Context, m *middle) (*updater, error) {
	p := &provider{name: "updater", token: m.token, tools: 1}
	c, err := p.connect(ctx, m.url)
	if err != nil {
		return nil, err
	}
	u := &updater{c: c}
	bound := false
	p.bound = func() { bound = true }
	for !bound {
		if err := readFrame(ctx, c, &u.in); err != nil {
			return nil, err
		}
		var f callFrame
		if err := json.Unmarshal(u.in.Bytes(), &f); err != nil {
			return nil, fmt.Errorf("reading a frame: %w", err)
		}
		answer, err := p.answer(&f)
		if err != nil {
			return nil, err
		}
		if answer != nil {
			if err := c.Write(ctx, websocket.MessageText, answer); err != nil {
				return nil, err
			}
		}
	}
	return u, nil
}

// update sends an update and waits for its ack.
func (u *updater) update(ctx context.Context, m map[string]any) (time.Duration, error) {
	u.n++
	id := fmt.Sprintf("u%d", u.n)
	m["requestId"] = id
	frame, err := json.Marshal(m)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := u.c.Write(ctx, websocket.MessageText, frame); err != nil {
		return 0, err
	}
	for {
		if err := readFrame(ctx, u.c, &u.in); err != nil {
			return 0, err
		}
		took := time.Since(began)
		var f struct{ Type, RequestID, Code, Message string }
		if err := json.Unmarshal(u.in.Bytes(), &f); err != nil {
			return 0, fmt.Errorf("reading a frame: %w", err)
		}
		switch {
		case f.Type == "error":
			return 0, fmt.Errorf("%s: %s", f.Code, f.Message)
		case f.Type == "ack" && f.RequestID == id:
			return took, nil
		}
	}
}
