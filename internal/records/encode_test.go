package records

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/adminapi"
	"tapgw/internal/secrets"
)

// TestLineTime: the time of a line has the layout that searches compare by, with all its zeros.
func TestLineTime(t *testing.T) {
	t.Parallel()
	for _, when := range []time.Time{at, at.Add(time.Microsecond), at.Add(time.Second - 1),
		at.Add(120 * time.Millisecond).In(time.FixedZone("", 3600))} {
		if got, want := string(appendTime(nil, when)), lineTime(when); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestIDs: a text that is not searched for secrets has none, and a secret that looks like an id is
// replaced.
func TestIDs(t *testing.T) {
	t.Parallel()
	for range 10000 {
		id := uuid.New().String()
		digits := strings.ReplaceAll(id, "-", "")
		for _, text := range []string{id, digits, digits[:16]} {
			if got := secrets.Redact(text); !isID(text) || got != text {
				t.Fatalf("%s: isID is %t, redacted %s; want an id without a secret", text,
					isID(text), got)
			}
		}
	}
	key := "fc-0123456789abcdef0123456789abcdef"
	if line := string(appendRecord(nil, &adminapi.Record{ID: key})); strings.Contains(line, key) {
		t.Errorf("got %s, want no key", line)
	}
}

// BenchmarkRecord is the encoding of the records of calls. Their ids are random, because the
// processor predicts the bytes of a single record.
func BenchmarkRecord(b *testing.B) {
	list := make([]adminapi.Record, 256)
	for i := range list {
		id := uuid.New().String()
		list[i] = adminapi.Record{TS: at, Kind: adminapi.RecordCall, Session: id, ID: id,
			Trace: strings.ReplaceAll(id, "-", ""), Span: id[:8] + id[28:], Provider: "files",
			Tool: "write_file", Outcome: adminapi.OutcomeOK, DurationMs: 0.123}
	}
	var line []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		line = appendRecord(line[:0], &list[i%len(list)])
	}
}
