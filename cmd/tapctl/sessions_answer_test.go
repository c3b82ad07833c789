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
		ID: "q-1", Session: "s", Kind: adminapi.QuestionPermission, Message: "May it?",
		Detail: "git log " + strings.Repeat("x", 9000) + "; rm END",
	}
	short := questionText(o, q, false)
	for _, want := range []string{
		"git log x", "x; rm END\n", "of 9016 bytes are left out",
		"all of it: tapctl sessions answer --question q-1",
	} {
		if !strings.Contains(short, want) {
			t.Errorf("a long question: got\n%s\nwant …%s…", short, want)
		}
	}
	if strings.Contains(short, q.Detail) {
		t.Errorf("a long question: got\n%s\nwant it cut", short)
	}
	if got := questionText(o, q, true); !strings.Contains(got, q.Detail) ||
		strings.Contains(got, "left out") {
		t.Errorf("asked for whole: got\n%s\nwant all of its detail", got)
	}
	q.Detail = "a" + strings.Repeat("\n", 100) + "rm END"
	if got := questionText(o, q, false); !strings.Contains(got, "left out") ||
		!strings.Contains(got, "rm END") {
		t.Errorf("a question of many lines: got\n%s\nwant it cut, with its end", got)
	}
	q.Detail = "ls \x1b[8m; rm x\x1b[0m \u202e\r"
	if got := questionText(o, q, false); !strings.Contains(got,
		`ls \x1b[8m; rm x\x1b[0m \u202e\x0d`) {
		t.Errorf("a question with escapes: got %q, want them spelt out", got)
	}
}

// TestQueryPrintsQuestions shows that a query prints each question of its session once, and no
// question of another session.
func TestQueryPrintsQuestions(t *testing.T) {
	printed := &lockedBuffer{wrote: make(chan struct{}, 1)}
	c := newTestCommand(t, printed, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/events" || r.URL.Query().Get("name") != "questions" {
			http.NotFound(w, r)
			return
		}
		for range 2 {
			_, _ = fmt.Fprintf(w, "event: questions\ndata: %s\nid: 1\n\n",
				`[{"id":"q-1","session":"mine","kind":"permission","message":"May it?","detail":"rm x"},{"id":"q-2","session":"other","kind":"input","message":"Which?"}]`)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c.out.Err = printed
	stop := c.printQuestions("mine")
	guard := time.After(patience)
	for !strings.Contains(printed.String(), "once|session|deny --question q-1") {
		select {
		case <-printed.wrote:
		case <-guard:
			t.Fatalf("got %q, want how to answer q-1", printed.String())
		}
	}
	stop()
	if got := printed.String(); strings.Count(got, "q-1  permission of session mine") != 1 ||
		strings.Contains(got, "q-2") {
		t.Errorf("got\n%s\nwant q-1 once, and nothing of q-2", got)
	}
}
