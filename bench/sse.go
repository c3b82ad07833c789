package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/server"
)

// sseEvents is the number of events of each table row.
const sseEvents = 2000

// sse measures the time from a host's event to the readers of the session's server-sent events, all in this
// process, over loopback.
func sse(ctx context.Context, _ options, r *report) error {
	r.title("From a host's event to a reader of its stream, in one process, over loopback",
		"metric\t\ttapgw\tof target\tat most\t")
	for _, readers := range []int{1, 50} {
		took, err := sseLatency(ctx, readers)
		if err != nil {
			return err
		}
		p50, p99 := quantiles(took)
		r.row(fmt.Sprintf("p50, %d readers (2 ms)", readers), "", fmt.Sprintf("%.3f ms", p50), p50/2, 1, false)
		r.inform(fmt.Sprintf("p99, %d readers", readers), "", fmt.Sprintf("%.3f ms", p99), p99)
	}
	return nil
}

// sseLatency sends events one after the other, each when all readers have the one before. It returns the latency of
// each event at each reader.
func sseLatency(ctx context.Context, readers int) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := gateway.New(gateway.Options{Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}}})
	srv := server.New(server.Options{Gateway: g, Status: func() adminapi.Status { return adminapi.Status{} }})
	if err := srv.Listen("127.0.0.1:0"); err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve() }()
	defer func() {
		_ = srv.Shutdown(context.WithoutCancel(ctx))
		<-served //nolint:errcheck // it was shut down
	}()
	s, err := g.Start(ctx, gateway.StartRequest{Host: gateway.HostLocal, CWD: "/"})
	if err != nil {
		return nil, err
	}
	web := &http.Client{Transport: &http.Transport{}}
	defer web.CloseIdleConnections()
	had := make(chan time.Time, readers)
	for range readers {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet,
			"http"+strings.TrimPrefix(srv.URL(), "ws")+"/api/v1/sessions/"+s.ID()+"/events", nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+g.AdminToken())
		response, err := web.Do(req)
		if err != nil {
			return nil, err
		}
		defer func() { _ = response.Body.Close() }()
		go func() {
			for lines := bufio.NewScanner(response.Body); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "data: ") {
					had <- time.Now()
				}
			}
		}()
	}
	took := make([]time.Duration, 0, sseEvents*readers)
	for n := range sseEvents/readers + 10 {
		begun := time.Now()
		s.Event(gateway.Event{Callback: gateway.OnMessage, ID: "m", Delta: "a word or two "})
		for range readers {
			select {
			case at := <-had:
				if n >= 10 { // the first warm up
					took = append(took, at.Sub(begun))
				}
			case <-time.After(10 * time.Second):
				return nil, fmt.Errorf("an event did not come to %d readers", readers)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return took, nil
}
