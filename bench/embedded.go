package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
)

// sessionOnly is a host without an agent. The bench calls the tools of its session from Go.
type sessionOnly struct{}

func (sessionOnly) SetTools(context.Context, uint64, []gateway.Tool) error { return nil }
func (sessionOnly) Send(context.Context, gateway.Prompt) error             { return nil }
func (sessionOnly) Log(adminapi.LogLevel, string)                          {}
func (sessionOnly) Interrupt(context.Context, string) ([]string, error)    { return nil, nil }
func (sessionOnly) Close(context.Context, string) error                    { return nil }

// runEmbedded runs a gateway with the caller in the same process. It prints URL and token, waits for -n providers,
// and then makes calls as a host does.
func runEmbedded(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("embedded", flag.ContinueOnError)
	n := flags.Int("n", 1, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	g := gateway.New(gateway.Options{})
	s, err := g.Register(gateway.SessionSpec{Label: "bench", CWD: "/"},
		gateway.HostInfo{Kind: "local", LiveTools: true}, sessionOnly{})
	if err != nil {
		return err
	}
	srv := server.New(server.Options{Gateway: g})
	if err := srv.Listen("127.0.0.1:0"); err != nil {
		return err
	}
	go func() { _ = srv.Serve() }()
	fmt.Println(srv.URL())
	fmt.Println(g.InstanceToken())
	for len(s.Tools()) < *n {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	err = obey(func(workers, calls int) Load {
		return load(workers, calls, *n, func(k int) error { return callDirectly(ctx, s, k) })
	})
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = srv.Shutdown(end)
	return err
}

func callDirectly(ctx context.Context, s *gateway.Session, k int) error {
	args, err := json.Marshal(toolArgs)
	if err != nil {
		return err
	}
	o := s.CallTool(ctx, gateway.Call{Name: toolName(k, 0), Args: protocol.Raw(args)})
	if o.Failed() {
		return fmt.Errorf("%s: %s", o.ErrorCode, o.Error)
	}
	return nil
}

// startEmbedded starts runEmbedded for n providers.
func startEmbedded(ctx context.Context, o options, pin []string, n int) (*middle, error) {
	p, err := start(ctx, nil, pin, o.self, "embedded", "-n", strconv.Itoa(n))
	if err != nil {
		return nil, err
	}
	m := &middle{process: p}
	if m.url, err = p.line(); err != nil {
		return nil, err
	}
	m.token, err = p.line()
	return m, err
}

// javascript are figures of the JavaScript gateway in this topology on a machine of this size, with providers on Node:
// medians of several runs, by number of providers. Durations are in microseconds.
type javascript struct {
	providers          int
	p50, p99           float64 // sequential
	rate, p99At64, cpu float64 // 64 at once
}

var (
	javascriptFree = []javascript{
		{1, 173, 283, 43000, 4500, 20},
		{10, 86, 246, 27600, 8600, 24},
		{50, 163, 252, 20300, 7800, 30},
	}
	javascriptPinned = []javascript{
		{1, 78.5, 181, 31600, 6000, 18},
		{10, 83, 203, 23600, 8200, 24},
		{50, 86, 186, 15500, 10100, 35},
	}
)

// ownTopology compares our figures with the JavaScript gateway's: the caller is inside the gateway's process, the
// providers are outside.
func ownTopology(ctx context.Context, o options, r *report) error {
	r.title("Caller inside the gateway, as the JavaScript gateway was measured",
		"metric\tJavaScript\ttapgw\tratio\ttarget\t")
	for _, pin := range []struct {
		how     string
		argv    []string
		figures []javascript
	}{
		{"", nil, javascriptFree},
		{", all on one core", oneCore, javascriptPinned},
	} {
		for _, js := range pin.figures {
			if err := besideJavaScript(ctx, o, r, js, pin.argv, fmt.Sprintf("%d provider(s)%s", js.providers,
				pin.how)); err != nil {
				return err
			}
		}
	}
	return connects(ctx, o, r)
}

func besideJavaScript(ctx context.Context, o options, r *report, js javascript, pin []string, how string) error {
	m, err := startEmbedded(ctx, o, pin, js.providers)
	if err != nil {
		return err
	}
	defer m.stop()
	p, err := start(ctx, nil, pin, o.self, "provider", "-url", m.url, "-token", m.token, "-n",
		strconv.Itoa(js.providers))
	if err != nil {
		return err
	}
	defer p.stop()
	if err := p.expect("connected"); err != nil {
		return err
	}
	if err := m.expect("ready"); err != nil {
		return err
	}
	s := &system{middle: m, host: m.process}
	if _, err := s.sample(8, 2000); err != nil { // warm
		return err
	}
	var p50, p99, rate, p99At64, cpu []float64
	for range 9 {
		one, err := s.sample(1, 2000)
		if err != nil {
			return err
		}
		many, err := s.sample(64, 12000)
		if err != nil {
			return err
		}
		p50 = append(p50, micros(one.P50))
		p99 = append(p99, micros(one.P99))
		rate = append(rate, perSecond(many.Load))
		p99At64 = append(p99At64, micros(many.P99))
		cpu = append(cpu, micros(int64(many.cpu)))
	}
	beside := func(metric string, theirs, ours float64, atLeast bool) {
		r.row(metric+", "+how, fmt.Sprintf("%.0f", theirs), fmt.Sprintf("%.0f", ours), ours/theirs, 1, atLeast)
	}
	beside("sequential p50 us", js.p50, median(p50), false)
	beside("sequential p99 us", js.p99, median(p99), false)
	beside("calls/s, 64 at once", js.rate, median(rate), true)
	beside("p99 us, 64 at once", js.p99At64, median(p99At64), false)
	beside("CPU us a call, 64 at once", js.cpu, median(cpu), false)
	if pin == nil && js.providers == 50 {
		mem, err := m.memory()
		if err != nil {
			return err
		}
		r.row("resident after 100,000 calls, MiB, "+how, "90", fmt.Sprintf("%.0f", float64(mem.resident)/(1<<20)),
			float64(mem.resident)/(90<<20), 1, false)
	}
	return nil
}

// connects measures the time from dialling to hello.ack.
func connects(ctx context.Context, o options, r *report) error {
	m, err := startEmbedded(ctx, o, nil, 1000) // never ready: it only takes connections
	if err != nil {
		return err
	}
	defer func() { _ = m.cmd.Process.Kill(); m.stop() }()
	took := make([]time.Duration, 0, 100)
	for k := range cap(took) {
		j, err := joinOne(ctx, m, k)
		if err != nil {
			return err
		}
		if err := j.wait(ctx); err != nil {
			return err
		}
		took = append(took, j.acked.Sub(j.started))
		_ = j.c.Close(websocket.StatusNormalClosure, "")
	}
	beside := func(metric string, theirs, ours float64) {
		r.row(metric, fmt.Sprintf("%.1f", theirs), fmt.Sprintf("%.1f", ours), ours/theirs, 1, false)
	}
	p50, p99 := quantiles(took)
	beside("connect to hello.ack, one at a time, p50 ms", 1.3, p50)
	beside("connect to hello.ack, one at a time, p99 ms", 4.9, p99)

	var (
		wg   sync.WaitGroup
		all  = make([]*timedProvider, 50)
		errs = make([]error, 50)
	)
	began := time.Now()
	for k := range all {
		wg.Go(func() {
			if all[k], errs[k] = joinOne(ctx, m, k); errs[k] == nil {
				errs[k] = all[k].wait(ctx)
			}
		})
	}
	wg.Wait()
	took = took[:0]
	var last time.Duration
	for k, j := range all {
		if errs[k] != nil {
			return errs[k]
		}
		took = append(took, j.acked.Sub(j.started))
		last = max(last, j.acked.Sub(began))
	}
	p50, _ = quantiles(took)
	beside("50 connects at once, p50 ms", 37, p50)
	beside("50 connects at once, all bound, ms", 48, micros(int64(last))/1e3)
	return nil
}
