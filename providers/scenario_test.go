package providers_test

import (
	"context"
	"testing"

	"tapgw/internal/conformance"
)

// startSample starts a sample of an SDK. stop makes it end; done gets the error of its end.
type startSample func(t *testing.T, name, url, token string) (stop func(), done <-chan error)

// TestScenarios plays the scenarios with the samples in Go.
func TestScenarios(t *testing.T) {
	playAll(t, func(t *testing.T, name, url, token string) (func(), <-chan error) {
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
		t.Cleanup(func() { cancel(); <-returned })
		return cancel, done
	})
}

// playAll plays each scenario with the samples of one SDK.
func playAll(t *testing.T, start startSample) {
	all, err := conformance.Scenarios()
	if err != nil || len(all) == 0 {
		t.Fatalf("the scenarios: %d, %v, want some", len(all), err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			err := s.Play(t.Context(), func(name, url, token string) (conformance.Program, error) {
				stop, done := start(t, name, url, token)
				return conformance.Program{Stop: stop, Kill: func() {}, Done: done}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
