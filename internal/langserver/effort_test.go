//go:build runtime

package langserver

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// A turn's reasoning effort reaches the model, and one that the model does not take is refused
// before the turn.
func TestEffort(t *testing.T) {
	r := shared(t)
	for _, tt := range []struct {
		model, effort string
		want          string // in the model's request
		known         []string
	}{
		{"reasoner", "high", "high", nil},
		{"reasoner", "", "medium", nil}, // the server's choice
		{"reasoner", "xhigh", "", []string{"low", "medium", "high"}},
		{"scripted", "low", "", nil},
		{"scripted", "", "", nil},
	} {
		n := r.requestCount()
		v := r.NewConversation(ConversationOptions{Model: tt.model, Effort: tt.effort})
		_, err := v.Turn(within(t), "hello", nil)
		if tt.effort != "" && tt.want == "" {
			refused, ok := errors.AsType[*EffortError](err)
			if !ok || refused.Model != tt.model || !slices.Equal(refused.Known, tt.known) ||
				r.requestCount() != n {
				t.Errorf("%s with effort %q: got %v, want an error with %v and no request",
					tt.model, tt.effort, err, tt.known)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s with effort %q: got %v, want no error", tt.model, tt.effort, err)
			continue
		}
		var body struct {
			Effort string `json:"reasoning_effort"`
		}
		if err := json.Unmarshal(r.requestsAfter(n)[0].Body, &body); err != nil ||
			body.Effort != tt.want {
			t.Errorf("%s with effort %q: the model got %q, want %q", tt.model, tt.effort,
				body.Effort, tt.want)
		}
	}
}

// A conversation's effort and model change between turns, if they fit each other.
func TestSetEffort(t *testing.T) {
	r := shared(t)
	v := r.NewConversation(ConversationOptions{Model: "reasoner"})
	if err := v.SetEffort(within(t), "lots"); err == nil {
		t.Error("setting an effort that the model does not take: got no error, want one")
	}
	if err := v.SetEffort(within(t), "low"); err != nil {
		t.Fatal(err)
	}
	err := v.SetModel(within(t), "scripted")
	if _, ok := errors.AsType[*EffortError](err); !ok {
		t.Errorf("setting a model without efforts: got %v, want an EffortError", err)
	}
	n := r.requestCount()
	if _, err := v.Turn(within(t), "hello", nil); err != nil {
		t.Fatal(err)
	}
	if req := r.requestsAfter(n)[0]; req.Model != "reasoner" ||
		!strings.Contains(string(req.Body), `"reasoning_effort":"low"`) {
		t.Errorf("the model %s got %s, want effort low at reasoner", req.Model, req.Body)
	}
	if err := v.SetEffort(within(t), ""); err != nil {
		t.Error(err)
	}
}
