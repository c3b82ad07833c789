package main

import (
	"context"
	"testing"

	"tapgw/providers"
)

func TestGreet(t *testing.T) {
	g := startGateway(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- newProvider(&providers.Options{URL: g.url, Token: gatewayToken}).Run(ctx)
	}()

	for args, want := range map[string]string{
		`{"name":"Ada"}`: `"Hello, Ada!"`,
		`{}`:             `"Hello, world!"`,
	} {
		if got := g.call(t, "greet_hello", args); got != want {
			t.Errorf("greet_hello %s: got %s, want %s", args, got, want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the provider ended with %v, want no error", err)
	}
}
