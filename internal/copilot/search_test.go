package copilot

import (
	"testing"

	"tapgw/internal/protocol"
)

// TestWasAsked: a call is the one that the hooks were asked about, also where a terminal writes its
// arguments in another way than the SDK. It counts once.
func TestWasAsked(t *testing.T) {
	asked := map[string]any{"b": "<ü>", "a": []any{1.0, 2e3}}
	for _, args := range []string{
		string(rawJSON(asked)), `{"b":"<ü>","a":[1,2000]}`,
		`{ "b" : "\u003c\u00fc>", "a" : [1.0, 2e3] }`,
	} {
		var s session
		s.noteAsked("greet", rawJSON(asked))
		if !s.wasAsked("greet", protocol.Raw(args)) {
			t.Errorf("%s: not asked about, want the same call as %s", args, rawJSON(asked))
		}
		if s.wasAsked("greet", protocol.Raw(args)) || len(s.asked) > 0 {
			t.Errorf("%s: asked about twice; %v are left, want none", args, s.asked)
		}
	}
	var s session
	s.noteAsked("greet", rawJSON(asked))
	for _, args := range []string{`{"b":"<ü>","a":[2000,1]}`, `{"b":"<ü>"}`, `{}`, ``} {
		if s.wasAsked("greet", protocol.Raw(args)) {
			t.Errorf("%s: asked about, want another call", args)
		}
	}
}
