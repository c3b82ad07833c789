package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"tapgw/internal/cli"
)

// TestRecordsSQLIsCancelled: Ctrl-C ends a query and the reading of new records, and the message
// says which.
func TestRecordsSQLIsCancelled(t *testing.T) {
	t.Setenv("COPILOT_HOME", t.TempDir())
	const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
	for name, tt := range map[string]struct {
		after time.Duration
		want  string
	}{
		"at once":      {0, "tapctl: records sql: reading new records: cancelled\n"},
		"in the query": {200 * time.Millisecond, ": cancelled\n"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if tt.after == 0 {
			cancel()
		}
		timer := time.AfterFunc(tt.after, cancel)
		var out, errs bytes.Buffer
		line := []string{"tapctl", "records", "sql", endless}
		exit := cli.RunContext(ctx, newApp(), line, strings.NewReader(""), &out, &errs)
		timer.Stop()
		cancel()
		if got := errs.String(); exit != cli.ExitFailed || !strings.HasSuffix(got, tt.want) ||
			!strings.HasPrefix(got, "tapctl: records sql: ") || out.Len() > 0 {
			t.Errorf("%s: got %d, %q and %q, want %d and %q", name, exit, out.String(), got,
				cli.ExitFailed, tt.want)
		}
	}
}
