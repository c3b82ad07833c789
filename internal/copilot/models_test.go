package copilot

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/scriptmodel"
)

func TestModelsOfAnEndpoint(t *testing.T) {
	model, err := scriptmodel.Start("127.0.0.1:0", scriptmodel.Calls)
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	tests := map[string]struct {
		o    Options
		want string
		err  string
	}{
		"as configured": {Options{ProviderURL: model.URL, Models: []string{"a", "b"}}, "a b", ""},
		"as it says":    {Options{ProviderURL: model.URL}, scriptmodel.ModelID, ""},
		"no such list": {
			Options{ProviderURL: model.URL + "/none"},
			"",
			"name them in models in [copilot] of tapgw.toml): GET",
		},
		"nobody there": {Options{ProviderURL: "http://127.0.0.1:1/v1"}, "", "connection refused"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			models, err := New(tt.o).Models(t.Context())
			var ids []string
			for _, m := range models {
				ids = append(ids, m.ID)
			}
			if got := strings.Join(ids, " "); got != tt.want || (err == nil) != (tt.err == "") {
				t.Errorf("%q, %v, want %q, and an error: %v", got, err, tt.want, tt.err != "")
			}
			if err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error: %v, want %q in it", err, tt.err)
			}
		})
	}
}

// A request that can't be served names its field, and starts nothing.
func TestBadRequests(t *testing.T) {
	tests := map[string]struct {
		o    Options
		req  gateway.StartRequest
		want string
	}{
		"no model": {
			Options{ProviderURL: "http://127.0.0.1:1/v1"},
			gateway.StartRequest{},
			"model: missing; with a model endpoint of one's own (provider_url) name a model that it serves: its list can't be read: ",
		},
		"no model, list": {
			Options{ProviderURL: "http://127.0.0.1:1/v1", Models: []string{"a", "b"}},
			gateway.StartRequest{},
			"name one of those that it has: a, b",
		},
		"unknown model": {
			Options{ProviderURL: "http://127.0.0.1:1/v1", Models: []string{"a", "b"}},
			gateway.StartRequest{Model: "c"},
			`model: there is no model "c"; there are a, b`,
		},
		"no URL": {
			Options{},
			gateway.StartRequest{ProviderURL: "localhost:1234", Model: "m"},
			`providerUrl: "localhost:1234" is not an http or https URL`,
		},
		"secret in URL": {
			Options{},
			gateway.StartRequest{ProviderURL: "ftp://me:secret@host/", Model: "m"},
			"is not an http or https URL",
		},
		"list of config": {
			Options{ProviderURL: "http://127.0.0.1:1/v1", Models: []string{"a"}},
			gateway.StartRequest{ProviderURL: "http://127.0.0.1:2/v1"},
			"model: missing; with a model endpoint of one's own",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := New(tt.o)
			err := r.start(t.Context(), tt.req, nil)
			var coded *protocol.Error
			if !errors.As(err, &coded) || coded.Code != protocol.CodeInvalidJSON ||
				!strings.Contains(coded.Message, tt.want) {
				t.Errorf("error: %v, want %v with %q in it", err, protocol.CodeInvalidJSON, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error is %v, want no password in it", err)
			}
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOnlyModel: with one model there is nothing to name.
func TestOnlyModel(t *testing.T) {
	model, err := scriptmodel.Start("127.0.0.1:0", scriptmodel.Calls)
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	several := Options{ProviderURL: "http://127.0.0.1:1/v1", Models: []string{"a", "b"}}
	for name, tt := range map[string]struct {
		o    Options
		req  gateway.StartRequest
		want string
	}{
		"of the config": {Options{
			ProviderURL: "http://127.0.0.1:1/v1", Models: []string{"a"},
		}, gateway.StartRequest{}, "a"},
		"of the list": {Options{ProviderURL: model.URL}, gateway.StartRequest{},
			scriptmodel.ModelID},
		"of the request's own": {several, gateway.StartRequest{ProviderURL: model.URL},
			scriptmodel.ModelID},
		"named": {several, gateway.StartRequest{Model: "b"}, "b"},
		"named, not asked for": {Options{ProviderURL: "http://127.0.0.1:1/v1"},
			gateway.StartRequest{Model: "c"}, "c"},
		"GitHub's": {Options{}, gateway.StartRequest{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(tt.o)
			tt.req.CWD = t.TempDir()
			s, err := r.newSession(t.Context(), "0", tt.req)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := s.chosenModel(); got != tt.want || s.newSpec("").Model != tt.want {
				t.Errorf("model %q, want %q", got, tt.want)
			}
			s.end()
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	r := New(Options{})
	now := time.Unix(1000, 0)
	for _, at := range []struct {
		seconds time.Duration
		want    int // those before 61 seconds ago are forgotten
	}{{0, 1}, {10, 2}, {20, 3}, {30, 4}, {65, 4}, {71, 4}, {72, 5}} {
		if got := r.countFailure(now.Add(at.seconds * time.Second)); got != at.want {
			t.Errorf("failures %d s in: %d, want %d", at.seconds, got, at.want)
		}
	}
	var waits []time.Duration
	for n := range maxFailures {
		waits = append(waits, backOff(n))
	}
	for i := 2; i < len(waits); i++ {
		if waits[i] <= waits[i-1] {
			t.Errorf("the waits are %v, want each longer than the one before", waits)
		}
	}
	if err := r.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestQueue(t *testing.T) {
	q := newQueue[int]()
	got := make(chan int)
	go func() {
		defer close(got)
		for {
			items, ok := q.receiveAll()
			if !ok {
				return
			}
			for _, i := range items {
				got <- i
			}
		}
	}()
	for i := range 1000 { // nothing receives them yet, and push does not block
		q.push(i)
	}
	q.close()
	q.push(1000)
	n := 0
	for i := range got {
		if i != n {
			t.Fatalf("item %d came as number %d, want them in order", i, n)
		}
		n++
	}
	if n != 1000 {
		t.Errorf("%d items, want 1000", n)
	}
}
