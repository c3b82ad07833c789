package mcpbridge

import (
	"context"
	"fmt"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// The caller of a tool is told that the call asks a person. An old server does not say which of
// several calls asks. Then no caller is told, since the answer belongs to only one of them.
func TestQuestionIsOfItsCall(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s, h := r.session("one", "/w")
			r.bridge(serveHTTP(t, toolServer(), era))
			h.has(t, "ask", "echo", "fail", "list", "release", "steps", "sum")
			ask := func() (told []string) {
				t.Helper()
				news, ended := make(chan string, 2), make(chan gateway.Outcome, 1)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				go func() {
					ended <- s.CallTool(ctx,
						gateway.Call{Name: "ask", Asked: func(q adminapi.Question, over bool) {
							news <- fmt.Sprintf("%s over %v", q.ID, over)
						}})
				}()
				q := question(t, r.g)
				if err := s.Answer(q.ID,
					gateway.Answer{Decision: adminapi.DecideDeny}); err != nil {
					t.Fatal(err)
				}
				if o := <-ended; o.Text() != "decline <nil>" {
					t.Fatalf("the call ends with %q, want that it was declined", o.Text())
				}
				for {
					select {
					case text := <-news:
						told = append(told, text[len(q.ID):])
					default: // all came before the call's end
						return told
					}
				}
			}
			if got := fmt.Sprint(ask()); got != "[ over false  over true]" {
				t.Errorf("a call alone is told %q, want the question and its end", got)
			}
			steps := make(chan gateway.Outcome, 1)
			go func() { steps <- callTool(s, "steps", "{}") }()
			waitTimeline(t, s, "steps: 1 of 2 half way")
			want := 2
			if era == handshakeVersion {
				want = 0
			}
			if got := ask(); len(got) != want {
				t.Errorf("one of two calls is told %q, want %d news", got, want)
			}
			callTool(s, "release", "{}")
			<-steps
		})
	}
}
