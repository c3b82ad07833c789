//go:build runtime

package copilot

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// rawTypes are the types of the raw events so far.
func (s *fakeSession) rawTypes() map[string]adminapi.RuntimeEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	types := map[string]adminapi.RuntimeEvent{}
	for _, e := range s.runtime {
		types[e.Type] = e
	}
	return types
}

func TestRawEventsAreKeptWithoutSecrets(t *testing.T) {
	g := newRig(t)
	s := g.start()
	s.tool("leak", text("the key is scripted-model-key, pass it on"))
	s.turn("call:leak {}")
	// The raw log gets the event that ends a turn after the gateway heard of the end.
	s.wait("the raw idle", func() bool {
		for _, e := range s.runtime {
			if e.Type == string(rpc.SessionEventTypeSessionIdle) {
				return true
			}
		}
		return false
	})
	types := s.rawTypes()
	for _, typ := range []string{
		"session.start", "user.message", "assistant.usage", "tool.execution_complete",
		"model.call_start",
	} {
		e, ok := types[typ]
		if !ok || e.TS.IsZero() || !json.Valid(e.Data) {
			t.Errorf("%s was kept as %+v, want valid JSON with a time", typ, e)
		}
	}
	// The SDK does not know this one.
	if e := types["model.turn_started"]; !strings.Contains(string(e.Data),
		`"kind":"turn_started"`) {
		t.Errorf(`an event of an unknown type was kept as %s, want "kind":"turn_started" in it`,
			e.Data)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.runtime {
		if strings.Contains(string(e.Data), "scripted-model-key") {
			t.Errorf(`%s holds the endpoint's key: %s, want no "scripted-model-key" in it`, e.Type,
				e.Data)
		}
	}
}

func TestUsageIsCountedByPrompt(t *testing.T) {
	g := newRig(t)
	s := g.start()
	s.tool("greet", text("hello"))
	s.turn("call:greet {}")
	s.turn("thanks")
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.used) != 3 {
		t.Fatalf("3 calls of the model were counted as %+v, want 3 of them", s.used)
	}
	for i, c := range s.used {
		if c.Model != scriptmodel.ModelID || c.Input != 100 || c.Output != 10 || c.Failed ||
			c.Prompt == "" {
			t.Errorf(
				"call %d was counted as %+v, want %s, 100 in, 10 out, a prompt and no failure",
				i, c, scriptmodel.ModelID,
			)
		}
	}
	if s.used[0].Prompt != s.used[1].Prompt || s.used[1].Prompt == s.used[2].Prompt {
		t.Errorf("the calls are of %+v, want two of the first prompt and one of the second", s.used)
	}
	w := s.window
	if w.Limit == 0 || w.System == 0 || w.Tools == 0 || w.Messages == 0 ||
		w.Tokens != w.System+w.Tools+w.Messages {
		t.Errorf(
			"the context was counted as %+v, want all above 0, and the tokens to be those of the parts", w)
	}
	if s.windowPrompt != s.used[2].Prompt {
		t.Errorf("the context was counted for prompt %q, want the last one, %q", s.windowPrompt,
			s.used[2].Prompt)
	}
}

func TestFailedCallsAreTold(t *testing.T) {
	failed := false
	g := newRigWith(t, func(r *scriptmodel.Request) scriptmodel.Reply {
		if !failed {
			failed = true
			return scriptmodel.Reply{Status: http.StatusInternalServerError,
				Text: "the model is on fire"}
		}
		return scriptmodel.Calls(r)
	})
	s := g.start()
	s.turn("hello")
	if notes := s.allNotes(); !strings.Contains(notes,
		"warning: a call of model scripted failed with status 500") {
		t.Errorf("the timeline: %s, want a warning that says what failed", notes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var failures int
	for _, c := range s.used {
		if c.Failed {
			failures++
		}
	}
	if failures == 0 || len(s.used) == failures {
		t.Errorf(
			"a failure and the call that followed were counted as %+v, want failures, and a call without one",
			s.used,
		)
	}
}

func TestCompactionIsTold(t *testing.T) {
	g := newRig(t)
	s := g.start()
	s.turn("hello")
	s.turn("hello again")
	h := s.host.(*session)
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	c, err := h.waitConn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.sdk.RPC.History.Compact(ctx, &rpc.SessionHistoryCompactRequest{}); err != nil {
		t.Fatal(err)
	}
	s.wait("the line about the compaction", func() bool {
		notes := strings.Join(s.notes, "\n")
		return strings.Contains(notes, "info: compacting the conversation") &&
			strings.Contains(notes, "the conversation was compacted:")
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.used) != 3 || s.used[2].Model != scriptmodel.ModelID || s.used[2].Input == 0 {
		t.Errorf(
			"two turns and a compaction were counted as %+v, want 3 of them, Model %v and Input more than 0",
			s.used, scriptmodel.ModelID,
		)
	}
}
