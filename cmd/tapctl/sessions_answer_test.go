package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

// TestQuestionText: a long question shows its ends, its size and how to see it whole;
// what a terminal obeys is spelt out.
func TestQuestionText(t *testing.T) {
	o := &cli.Output{}
	q := adminapi.Question{
		ID:      "q-1",
		Session: "s",
		Kind:    adminapi.QuestionPermission,
		Message: "May it?",
		Detail:  "git log " + strings.Repeat("x", 9000) + "; rm END",
	}
	if got := questionText(o, q, false); !strings.Contains(got, "git log x") || !strings.Contains(got, "x; rm END\n") || strings.Contains(got, q.Detail) ||
		!strings.Contains(got, "of 9016 bytes are left out") ||
		!strings.Contains(got, "all of it: tapctl sessions answer --question q-1") {
		t.Errorf("a long one:\n%s", got)
	}
	if got := questionText(o, q, true); !strings.Contains(got, q.Detail) || strings.Contains(got, "left out") {
		t.Errorf("whole:\n%s", got)
	}
	q.Detail = "a" + strings.Repeat("\n", 100) + "rm END"
	if got := questionText(o, q, false); !strings.Contains(got, "left out") || !strings.Contains(got, "rm END") {
		t.Errorf("one of many lines:\n%s", got)
	}
	q.Detail = "ls \x1b[8m; rm x\x1b[0m \u202e\r"
	if got := questionText(o, q, false); !strings.Contains(got, `ls \x1b[8m; rm x\x1b[0m \u202e\x0d`) {
		t.Errorf("one with sequences: %q", got)
	}
}

// TestQueryTellsQuestions: who waits for a turn is told what the session asks, once,
// and nothing of what others ask.
func TestQueryTellsQuestions(t *testing.T) {
	told := &lockedBuffer{wrote: make(chan struct{}, 1)}
	c := newTestCommand(t, told, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/events" || r.URL.Query().Get("name") != "questions" {
			http.NotFound(w, r)
			return
		}
		for range 2 {
			_, _ = fmt.Fprintf(
				w,
				"event: questions\ndata: %s\nid: 1\n\n",
				`[{"id":"q-1","session":"mine","kind":"permission","message":"May it?","detail":"rm x"},{"id":"q-2","session":"other","kind":"input","message":"Which?"}]`,
			)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c.out.Err = told
	stop := c.printQuestions("mine")
	guard := time.After(patience)
	for !strings.Contains(told.String(), "once|session|deny --question q-1") {
		select {
		case <-told.wrote:
		case <-guard:
			t.Fatalf("nothing was told: %q", told.String())
		}
	}
	stop()
	if got := told.String(); strings.Count(got, "q-1  permission of session mine") != 1 ||
		strings.Contains(got, "q-2") {
		t.Errorf("told:\n%s", got)
	}
}
