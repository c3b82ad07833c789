package main

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The clock that stops patterns lives on for a second.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

// TestEndsMatchThroughRelay runs both ends as the benchmark does, in one process.
func TestEndsMatchThroughRelay(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	middle := &relay{}
	srv := httptest.NewServer(middle)
	defer srv.Close()
	url := "ws" + strings.TrimPrefix(srv.URL, "http")

	const providers = 3
	served := make(chan error, providers)
	for k := range providers {
		p := &provider{name: "p", token: "x", tools: 1, index: k}
		c, err := p.connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		// A context that ends between two reads leaves the connection open.
		go func() {
			err := p.serve(ctx, c)
			_ = c.CloseNow()
			served <- err
		}()
	}
	h, err := dialHost(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		h.read(ctx)
		_ = h.c.CloseNow()
	}()
	if err := h.open(ctx, "x", "s", false); err != nil {
		t.Fatal(err)
	}
	if err := h.await(ctx, providers); err != nil {
		t.Fatal(err)
	}
	l := load(8, 300, providers, func(k int) error { return h.callTool(ctx, k) })
	if l.Error != "" || l.Calls != 300 || l.P50 <= 0 || l.P99 < l.P50 {
		t.Errorf(`load measured %+v, want Error "", Calls 300, P50 more than 0 and P99 at least %v`, l, l.P50)
	}
	cancel()
	<-read
	for range providers {
		if err := <-served; err == nil {
			t.Error("a provider ended without being told to, want its error")
		}
	}
	if err := h.callTool(ctx, 0); err == nil {
		t.Error("a call after the connection ended: no error, want one")
	}
	middle.serving.Wait() // both ends have hung up
}
