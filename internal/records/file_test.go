package records

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tapgw/internal/adminapi"
)

func numbers(t *testing.T, dir string) (list []int) {
	t.Helper()
	segments, err := Segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range segments {
		list = append(list, s.Number)
	}
	return list
}

// TestRetentionBySize: the oldest files go, the newest records stay, and the directory keeps its
// size.
func TestRetentionBySize(t *testing.T) {
	t.Parallel()
	l := start(t, Options{MaxBytes: 64 << 10})
	for i := range 4000 {
		l.Record(adminapi.Record{TS: at, Kind: "call", ID: fmt.Sprint(i),
			Reason: strings.Repeat("x", 100)})
		if i%100 == 0 {
			l.Flush(t.Context())
		}
	}
	found := find(t, l, Query{})
	if n := len(found.Records); n < 200 || n > 600 || found.Records[n-1].ID != "3999" {
		t.Errorf("%d records, the last %s, want about 400 and 3999", n, found.Records[n-1].ID)
	}
	var total int64
	entries, _ := os.ReadDir(l.o.Dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			total += info.Size()
		}
	}
	if limit := int64(l.o.MaxBytes * 12 / 10); total > limit {
		t.Errorf("the files have %d bytes, want at most %d", total, limit)
	}
}

// TestRetentionByAge: files that are too old go when a gateway starts to write, but not while the
// clock is behind them.
func TestRetentionByAge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		ages []time.Duration // of files 1, 2, ...
		want string
		says string
	}{
		"old":   {[]time.Duration{50 * time.Hour, 30 * time.Hour, 2 * time.Hour}, "[3]", ""},
		"young": {[]time.Duration{3 * time.Hour, 2 * time.Hour}, "[1 2]", ""},
		"clock": {[]time.Duration{50 * time.Hour, -2 * time.Hour}, "[1 2]", "the clock went back"},
	} {
		dir := t.TempDir()
		for i, age := range c.ages {
			path := filepath.Join(dir, fmt.Sprintf("%08d.jsonl", i+1))
			text := appendRecord(nil, &adminapi.Record{TS: now.Add(-age), Kind: "call"})
			err := errors.Join(os.WriteFile(path, text, 0o600),
				os.Chtimes(path, time.Time{}, now.Add(-age)))
			if err != nil {
				t.Fatal(err)
			}
		}
		l := start(t, Options{Dir: dir, MaxAge: 24 * time.Hour})
		l.Record(adminapi.Record{TS: now, Kind: "call"})
		l.Flush(t.Context())
		if got := fmt.Sprint(numbers(t, dir)); got != c.want {
			t.Errorf("%s: files %s, want %s", name, got, c.want)
		}
		if got := l.Faults(); !strings.Contains(got, c.says) || c.says == "" && got != "" {
			t.Errorf("%s: faults %q, want %q", name, got, c.says)
		}
	}
}

// TestRetentionOfCopy: a copy of the records that has been unused for a day goes with the first
// file that goes.
func TestRetentionOfCopy(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		age   time.Duration // of the copy
		stays bool
	}{"asked": {time.Hour, true}, "forgotten": {25 * time.Hour, false}} {
		dir := t.TempDir()
		path := filepath.Join(dir, "00000001.jsonl")
		copied := filepath.Join(dir, CacheFile)
		for path, age := range map[string]time.Duration{path: 50 * time.Hour, copied: c.age,
			copied + "-wal": c.age} {
			if err := errors.Join(os.WriteFile(path, []byte("{}\n"), 0o600),
				os.Chtimes(path, time.Time{}, now.Add(-age))); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "00000002.jsonl"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l := start(t, Options{Dir: dir, MaxAge: 24 * time.Hour})
		l.Record(adminapi.Record{TS: now, Kind: "call"})
		l.Flush(t.Context())
		if got := fmt.Sprint(numbers(t, dir)); got != "[2]" {
			t.Errorf("%s: files %s, want [2]", name, got)
		}
		for _, path := range []string{copied, copied + "-wal"} {
			if _, err := os.Stat(path); (err == nil) != c.stays {
				t.Errorf("%s: %s: %v, want it there: %v", name, path, err, c.stays)
			}
		}
	}
}

// TestRotationByAge: a file that a quiet gateway writes for long ends, so that it can go.
func TestRotationByAge(t *testing.T) {
	t.Parallel()
	l := start(t, Options{MaxAge: 10 * time.Hour})
	for i := range 3 {
		l.Record(adminapi.Record{TS: at.Add(time.Duration(i) * 61 * time.Minute), Kind: "call"})
		l.Flush(t.Context())
	}
	if got := fmt.Sprint(numbers(t, l.o.Dir)); got != "[1 2 3]" {
		t.Errorf("files %s, want [1 2 3]", got)
	}
}

// TestClockBack: records keep their order when the clock goes back, and the status says so until it
// is right again.
func TestClockBack(t *testing.T) {
	t.Parallel()
	l := start(t, Options{})
	for i, c := range []struct {
		ts    time.Time
		fault bool
	}{{at, false}, {at.Add(-time.Hour), true}, {at.Add(-time.Second), true},
		{at.Add(time.Hour), false}} {
		l.Record(adminapi.Record{TS: c.ts, Kind: "call", ID: fmt.Sprint(i)})
		l.Flush(t.Context())
		if got := l.Faults(); (got != "") != c.fault {
			t.Errorf("record %d of %s: faults %q, want some: %v", i, c.ts, got, c.fault)
		}
	}
	for i, r := range find(t, l, Query{}).Records {
		if r.ID != fmt.Sprint(i) {
			t.Errorf("record %d is %s, want the order in which they came", i, r.ID)
		}
	}
}

// TestFaultyDirectory: without a place to write, callers don't wait, and the status reports it;
// records come again with it.
func TestFaultyDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "records")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	told := 0
	l := start(t, Options{Dir: dir, FaultsChanged: func() { mu.Lock(); told++; mu.Unlock() }})
	l.Record(adminapi.Record{TS: at, Kind: "call", ID: "1"})
	l.Flush(t.Context())
	if got := l.Faults(); !strings.HasPrefix(got,
		"1 record since the start could not be written: ") {
		t.Errorf("faults: %q, want a record that could not be written", got)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	l.Record(adminapi.Record{TS: at, Kind: "call", ID: "2"})
	if got := find(t, l, Query{}).Records; len(got) != 1 || got[0].ID != "2" {
		t.Errorf("found %+v, want the second record", got)
	}
	l.writing.Wait()
	mu.Lock()
	defer mu.Unlock()
	if told != 1 {
		t.Errorf("told %d times of a fault, want once", told)
	}
}

// TestFullDisk: a write that stops in the middle of a record loses no other record.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	l := start(t, Options{})
	l.Record(adminapi.Record{TS: at, Kind: "call", ID: "1"})
	l.Flush(t.Context())
	// A full disk leaves part of a record, and an error.
	if _, err := l.file.f.WriteString(`{"ts":"2026`); err != nil {
		t.Fatal(err)
	}
	l.file.isTorn = true
	full, err := os.Open(os.DevNull) // can't be written
	if err != nil {
		t.Fatal(err)
	}
	good := l.file.f
	l.file.f = full
	l.Record(adminapi.Record{TS: at, Kind: "call", ID: "2"})
	l.Flush(t.Context())
	if got := l.Faults(); !strings.Contains(got, "1 record") {
		t.Errorf("faults: %q, want 1 record", got)
	}
	if err := full.Close(); err != nil {
		t.Fatal(err)
	}
	l.file.f = good
	l.Record(adminapi.Record{TS: at, Kind: "call", ID: "3"})
	found := find(t, l, Query{})
	if len(found.Records) != 2 || found.Records[1].ID != "3" || found.Unreadable != 1 {
		t.Errorf("found %+v, want records 1 and 3 and one line that is none", found)
	}
}

// TestBoundedQueue: while the disk does not move, the queue takes records up to its bound, and the
// rest is counted.
func TestBoundedQueue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		record adminapi.Record
		room   int
	}{
		"many": {adminapi.Record{TS: at, Kind: "call"}, maxQueued},
		"large": {adminapi.Record{TS: at, Kind: "push", Event: strings.Repeat("x", 1<<20)},
			maxQueuedBytes >> 20},
	} {
		l := start(t, Options{})
		l.fileMu.Lock() // the disk stands still
		for range 2*c.room + 10 {
			l.Record(c.record)
		}
		l.mu.Lock()
		accepted, full := int(l.accepted), l.faults.full
		l.mu.Unlock()
		l.fileMu.Unlock()
		if accepted < c.room || accepted > 2*c.room || accepted+full != 2*c.room+10 {
			t.Errorf("%s: %d accepted and %d dropped, want %d to %d of %d", name, accepted, full,
				c.room, 2*c.room, 2*c.room+10)
		}
		if got := l.Faults(); !strings.Contains(got, "too slow") {
			t.Errorf("%s: faults %q, want that the disk is too slow", name, got)
		}
		if found := find(t, l, Query{Last: 1}); len(found.Records) != 1 {
			t.Errorf("%s: %d records, want the last one", name, len(found.Records))
		}
	}
}

// TestOff: a log that is off makes no file; one that is turned off and on again goes on.
func TestOff(t *testing.T) {
	t.Parallel()
	o := Options{Dir: filepath.Join(t.TempDir(), "records"), MaxBytes: 1 << 20, Off: true}
	l := start(t, o)
	l.Record(adminapi.Record{TS: at, Kind: "call"})
	if found := find(t, l, Query{}); len(found.Records) != 0 {
		t.Errorf("found %+v, want nothing", found)
	}
	if _, err := os.Stat(o.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory: %v, want that there is none", err)
	}
	o.Off = false
	l.Configure(o)
	l.Record(adminapi.Record{TS: at, Kind: "call", ID: "1"})
	l.Flush(t.Context())
	o.Off = true
	l.Configure(o)
	l.Record(adminapi.Record{TS: at, Kind: "call", ID: "2"})
	o.Off = false
	l.Configure(o)
	l.Record(adminapi.Record{TS: at, Kind: "call", ID: "3"})
	if got := find(t, l, Query{}).Records; len(got) != 2 || got[0].ID != "1" || got[1].ID != "3" {
		t.Errorf("found %+v, want 1 and 3", got)
	}
}

// TestSinceReadsNewFilesOnly: a file that has not been written since the time is not read.
func TestSinceReadsNewFilesOnly(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now()
	for i, age := range []time.Duration{2 * time.Hour, 2 * time.Minute} {
		path := filepath.Join(dir, fmt.Sprintf("%08d.jsonl", i+1))
		text := appendRecord(nil, &adminapi.Record{TS: now.Add(-age), Kind: "call",
			ID: fmt.Sprint(i + 1)})
		if err := os.WriteFile(path, append([]byte("no record\n"), text...), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	for since, want := range map[time.Duration][2]int{time.Hour: {1, 1}, 3 * time.Hour: {2, 2},
		0: {0, 0}} {
		found, err := Find(t.Context(), dir, Query{Since: now.Add(-since)})
		if got := [2]int{len(found.Records), found.Unreadable}; err != nil || got != want {
			t.Errorf("since %s: %d records and lines that are none, %v, want %d", since, got, err,
				want)
		}
	}
}

// TestConcurrent: many who record and ask at once lose nothing.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	l := start(t, Options{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				l.Record(adminapi.Record{TS: time.Now(), Kind: "call", Session: fmt.Sprint(i),
					ID: fmt.Sprint(j)})
			}
			found, err := l.Find(t.Context(), Query{Session: fmt.Sprint(i)})
			if err != nil || len(found.Records) != 100 || found.Unreadable != 0 {
				t.Errorf(
					"session %d: %d records, %d unreadable, %v, want 100",
					i,
					len(found.Records),
					found.Unreadable,
					err,
				)
			}
		})
	}
	wg.Wait()
}
