package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestQueryTellsQuestions: who waits for a turn is told what the session asks, once,
// and nothing of what others ask.
func TestQueryTellsQuestions(t *testing.T) {
	told := &lockedBuffer{wrote: make(chan struct{}, 1)}
	k := stand(t, told, func(w http.ResponseWriter, r *http.Request) {
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
	k.out.Err = told
	stop := k.tellQuestions("mine")
	guard := time.After(patience)
	for !strings.Contains(told.String(), "once|session|deny --question q-1") {
		select {
		case <-told.wrote:
		case <-guard:
			t.Fatalf("nothing was told: %q", told.String())
		}
	}
	stop()
	if got := told.String(); strings.Count(got, "q-1  permission of session mine") != 1 || strings.Contains(got, "q-2") {
		t.Errorf("told:\n%s", got)
	}
}
