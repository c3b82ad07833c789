package providers_test

import (
	"context"
	"testing"

	"tapgw/internal/conformance"
)

// TestScenarios plays the scenarios with the samples in Go, in this process.
func TestScenarios(t *testing.T) {
	all, err := conformance.Scenarios()
	if err != nil || len(all) == 0 {
		t.Fatalf("the scenarios: %d, %v, want some", len(all), err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if err := s.Play(t.Context(), startSample); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// startSample starts a sample.
func startSample(name, url, token string) (conformance.Program, error) {
	p, before := sample(name, url, token)
	ctx, cancel := context.WithCancel(context.Background())
	done, returned := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(returned)
		err := before(ctx)
		if err == nil {
			err = p.Run(ctx)
		}
		done <- err
	}()
	return conformance.Program{Stop: cancel, Kill: func() { cancel(); <-returned }, Done: done}, nil
}
