package records

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
)

// TestCalls: the calls of one session since a time, and why they can't be read.
func TestCalls(t *testing.T) {
	t.Parallel()
	l := start(t, Options{})
	for i, r := range []adminapi.Record{
		{Kind: adminapi.RecordCall, Session: "s", Command: "make test", ExitCode: new(2)},
		{Kind: adminapi.RecordCall, Session: "other", Command: "make test", ExitCode: new(0)},
		{Kind: adminapi.RecordCall, Session: "s",
			Command: `echo '"session":"other","kind":"gate"'`},
		{Kind: adminapi.RecordGate, Session: "s"},
		{Kind: adminapi.RecordCall, Session: "s", Command: strings.Repeat("x", maxName) + " more",
			ExitCode: new(0)},
	} {
		r.TS, r.ID = at.Add(time.Duration(i)*time.Second), fmt.Sprint(i)
		l.Record(r)
	}
	for since, want := range map[time.Time]string{{}: "0 2 4", at.Add(time.Second): "2 4",
		at.Add(time.Hour): ""} {
		found, err := l.Calls(t.Context(), "s", since)
		var ids []string
		for _, r := range found {
			ids = append(ids, r.ID)
			if r.ID == "4" && (len(r.Command) != maxName+len("…") || *r.ExitCode != 0) {
				t.Errorf("a long command has %d bytes and exit code %d, want it cut, and 0",
					len(r.Command), *r.ExitCode)
			}
		}
		if got := strings.Join(ids, " "); got != want || err != nil {
			t.Errorf("since %s: got %q, %v, want %q", since, got, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := l.Calls(ctx, "s", time.Time{}); err == nil {
		t.Errorf("after the end of ctx: %d calls, want an error", len(found))
	}
	l.Configure(Options{Off: true})
	if found, err := l.Calls(t.Context(), "s", time.Time{}); err == nil {
		t.Errorf("while records are off: %d calls, want an error", len(found))
	}
}
