package assembly

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
)

// TestWebhookRecords: a flood of requests that make no event leaves few records, which say how many
// were left out.
func TestWebhookRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		w := webhookRecords{record: func(r adminapi.Record) {
			got = append(got, fmt.Sprint(r.Kind, " ", r.Provider, " ", r.Outcome, " ", r.Code, " ",
				r.Reason))
		}}
		w.add("ci", 202, "dropped")
		for range 1000 {
			w.add("ci", 401, "wrong")
		}
		if len(got) != webhookBurst {
			t.Fatalf("%d records, want %d", len(got), webhookBurst)
		}
		<-time.After(webhookEvery)
		w.add("ci", 401, "wrong")
		<-time.After(webhookEvery)
		w.add("ci", 503, "later")
		want := []string{"webhook ci ignored 202 dropped", "webhook ci refused 401 wrong",
			"webhook ci refused 401 wrong (981 requests before it have no record)",
			"webhook ci refused 503 later"}
		if g := strings.Join(append(got[:2:2], got[webhookBurst:]...),
			"\n"); g != strings.Join(want, "\n") {
			t.Errorf("records:\n%s\nwant:\n%s", g, strings.Join(want, "\n"))
		}
	})
}
