package records

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapgw/internal/adminapi"
)

var at = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// start returns a log in a directory of its own, which the test closes.
func start(t *testing.T, o Options) *Log {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "records")
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 256 << 20
	}
	l := New(o)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return l
}

func find(t *testing.T, l *Log, q Query) Found {
	t.Helper()
	found, err := l.Find(t.Context(), q)
	if err != nil {
		t.Fatalf("finding %+v: %v", q, err)
	}
	return found
}

// TestRecord writes records of each kind, with hostile texts, and finds them as they were.
func TestRecord(t *testing.T) {
	t.Parallel()
	l := start(t, Options{})
	want := []adminapi.Record{
		{
			TS:      at,
			Kind:    adminapi.RecordSession,
			Session: "s\"1",
			State:   adminapi.RecordStart,
			Label:   "a\x1b[31m\nb",
			CWD:     "/tmp",
		},
		{TS: at, Kind: adminapi.RecordCall, Session: "s1", Provider: "ci", Tool: "build",
			Outcome: "failed", Code: "TIMEOUT", DurationMs: 1.25, Trace: strings.Repeat("a", 32),
			ID: "1"},
		{TS: at, Kind: adminapi.RecordCall, Tool: "bash", Command: "exit 0 # \x1b[2J\n",
			ExitCode: new(0)},
		{
			TS:      at.Add(time.Microsecond),
			Kind:    adminapi.RecordGate,
			Session: "s1",
			Outcome: "deny",
			By:      "hook x",
			Reason:  "no",
		},
		{TS: at, Kind: adminapi.RecordPush, Session: "s1", Provider: "ci", Stream: "builds", Seq: 7,
			Level: "inject", Fate: adminapi.FateQueued, Event: "broken \u2028 \x00",
			Metadata: json.RawMessage(`{"a":"\ud800","session":"s2"}`)},
	}
	for _, r := range want {
		l.Record(r)
	}
	got := find(t, l, Query{})
	if !reflect.DeepEqual(got, Found{Records: want}) {
		t.Errorf("found %+v, want %+v", got, want)
	}
	path := filepath.Join(l.o.Dir, "00000001.jsonl")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.IndexFunc(data, func(r rune) bool { return r < ' ' && r != '\n' }); i >= 0 {
		t.Errorf("the file has the control character %q", data[i])
	}
	for path, mode := range map[string]os.FileMode{path: 0o600, l.o.Dir: 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode of %s: %v, %v, want %v", path, info.Mode().Perm(), err, mode)
		}
	}
}

// TestRecordHasNoSecrets: a secret in a command, a text or metadata does not reach a file.
func TestRecordHasNoSecrets(t *testing.T) {
	t.Parallel()
	l := start(t, Options{})
	l.Record(adminapi.Record{TS: at, Kind: "push", Session: "s",
		Command: "curl -H 'Authorization: Bearer abcd1234' h",
		Event:   "GH_TOKEN=abc gh pr list", Reason: "dial postgresql://u:pw@db: refused",
		Metadata: json.RawMessage(`{"password":"x y","key":"name","n":1}`)})
	r := find(t, l, Query{}).Records[0]
	if r.Command != "curl -H 'Authorization: Bearer <secret>' h" ||
		r.Event != "GH_TOKEN=<secret> gh pr list" ||
		r.Reason != "dial postgresql://u:<secret>@db: refused" {
		t.Errorf("texts: got %+v, want <secret>", r)
	}
	if got, want := string(
		r.Metadata), `{"password":"<secret-1>","key":"name","n":1}`; got != want {
		t.Errorf("metadata: got %s, want %s", got, want)
	}
}

// TestRecordRedacts: tokens of gateways never reach a file, wherever they stand.
func TestRecordRedacts(t *testing.T) {
	t.Parallel()
	l := start(t, Options{})
	token := "adm-0123456789abcdef0123456789abcdef"
	l.Record(adminapi.Record{TS: at, Kind: "push", Session: "s", Event: "see " + token,
		Prompt: token, Reason: token,
		Tool: token, Command: token,
		Metadata: json.RawMessage(`{"x":"\u0061dm-0123456789abcdef0123456789abcdef"}`)})
	r := find(t, l, Query{}).Records[0]
	if r.Event != "see <token>" || r.Prompt != "<token>" || r.Reason != "<token>" ||
		r.Tool != "<token>" || r.Command != "<token>" {
		t.Errorf("texts: got %+v, want <token>", r)
	}
	if got, want := string(r.Metadata), `{"x":"<token-1>"}`; got != want {
		t.Errorf("metadata: got %s, want %s", got, want)
	}
}

// TestRecordHasAllMembers: a record comes back whole from its file.
func TestRecordHasAllMembers(t *testing.T) {
	t.Parallel()
	want := adminapi.Record{TS: at, ExitCode: new(3), Metadata: json.RawMessage(`{"a":1}`),
		DurationMs: 1.5, Seq: 7}
	v := reflect.ValueOf(&want).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString("the " + v.Type().Field(i).Name)
		}
	}
	l := start(t, Options{})
	l.Record(want)
	if diff := cmp.Diff([]adminapi.Record{want}, find(t, l, Query{}).Records); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestRecordCuts: a text that is too long is cut between two characters, and metadata that is too
// long is left out.
func TestRecordCuts(t *testing.T) {
	t.Parallel()
	l := start(t, Options{})
	long := strings.Repeat("x", maxText-1) + "é and more"
	l.Record(adminapi.Record{TS: at, Kind: "push", Event: long,
		Metadata: json.RawMessage(`{"a":"` + long + `"}`)})
	r := find(t, l, Query{}).Records[0]
	if want := strings.Repeat("x", maxText-1) + "…"; r.Event != want || r.Metadata != nil {
		t.Errorf("got %d bytes that end in %q and metadata of %d bytes, want %d bytes and none",
			len(r.Event), r.Event[len(r.Event)-5:], len(r.Metadata), len(want))
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	l := start(t, Options{MaxBytes: 10 << 10}) // files of 1 KiB
	for i := range 40 {
		r := adminapi.Record{TS: at.Add(time.Duration(i) * time.Second), Kind: adminapi.RecordCall,
			Outcome: "ok", Session: fmt.Sprint("s", i%2), Provider: "p", Tool: "ok",
			ID: fmt.Sprint(i)}
		if i%10 == 3 {
			r.Outcome, r.Trace = "failed", "t3"
		}
		if i == 20 {
			r = adminapi.Record{TS: r.TS, Kind: adminapi.RecordPush, Session: "s0", Provider: "q",
				ID:       "20",
				Fate:     "stored",
				Metadata: json.RawMessage(`{"session":"s1","outcome":"failed","tool":"ok"}`)}
		}
		l.Record(r)
		l.Flush(t.Context())
	}
	if list, err := Segments(l.o.Dir); err != nil || len(list) < 3 {
		t.Fatalf("%d files, %v, want several", len(list), err)
	}
	for _, c := range []struct {
		name  string
		q     Query
		want  string
		isCut bool
	}{
		{"last", Query{Last: 3}, "37 38 39", true},
		{"session", Query{Session: "s1", Last: 2}, "37 39", true},
		{"not in metadata", Query{Session: "s1", Since: at.Add(18 * time.Second),
			Until: at.Add(22 * time.Second)},
			"19 21", false},
		{"outcome", Query{Outcome: "failed"}, "3 13 23 33", false},
		{"fate", Query{Outcome: "stored"}, "20", false},
		{"trace", Query{Trace: "t3", Since: at.Add(13 * time.Second)}, "13 23 33", false},
		{"provider", Query{Provider: "q"}, "20", false},
		{"kind", Query{Kind: "push"}, "20", false},
		{"tool", Query{Tool: "ok", Until: at.Add(time.Second)}, "0 1", false},
		{"none", Query{Session: "s"}, "", false},
	} {
		found := find(t, l, c.q)
		var ids []string
		for _, r := range found.Records {
			ids = append(ids, r.ID)
		}
		if got := strings.Join(ids, " "); got != c.want || found.More != c.isCut ||
			found.Unreadable != 0 {
			t.Errorf("%s: got %q, cut %v, %d unreadable, want %q, cut %v", c.name, got, found.More,
				found.Unreadable, c.want, c.isCut)
		}
	}
}

// TestCutAnywhere cuts a file at each byte of its last kilobyte: all whole records are found, and
// the next ones go into the same file behind the rest.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	l := start(t, Options{})
	for i := range 20 {
		l.Record(
			adminapi.Record{TS: at, Kind: "push", Session: "s", Event: strings.Repeat("é\n", 20),
				ID: fmt.Sprint(i)},
		)
	}
	l.Flush(t.Context())
	whole, err := os.ReadFile(filepath.Join(l.o.Dir, "00000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(whole) - 1024; cut < len(whole); cut++ {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "00000001.jsonl"), whole[:cut],
			0o600); err != nil {
			t.Fatal(err)
		}
		wantWhole := bytes.Count(whole[:cut], []byte("\n"))
		again := New(Options{Dir: dir, MaxBytes: 1 << 20})
		got := find(t, again, Query{})
		if len(got.Records) != wantWhole || got.Unreadable != 0 {
			t.Fatalf(
				"cut at %d: %d records, %d unreadable, want %d and 0",
				cut,
				len(got.Records),
				got.Unreadable,
				wantWhole,
			)
		}
		again.Record(adminapi.Record{TS: at, Kind: "call", ID: "next"})
		got = find(t, again, Query{})
		isHalf := whole[cut-1] != '\n'
		wantUnreadable := 0
		if isHalf && whole[cut] != '\n' {
			wantUnreadable = 1
		} else if isHalf { // only its end was missing
			wantWhole++
		}
		n := len(got.Records)
		if n != wantWhole+1 || got.Unreadable != wantUnreadable || got.Records[n-1].ID != "next" {
			t.Fatalf("cut at %d, then one more: %d records, %d unreadable, want %d and %d", cut, n,
				got.Unreadable, wantWhole+1, wantUnreadable)
		}
		// without waiting for the disk a thousand times
		if err := again.file.f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReader: lines that are no records are counted, and records are found, whatever stands
// between.
func TestReader(t *testing.T) {
	t.Parallel()
	good := string(appendRecord(nil, &adminapi.Record{TS: at, Kind: "call", ID: "good"}))
	for name, c := range map[string]struct {
		text       string
		unreadable int
	}{
		"text":        {"hello\n" + good, 1},
		"empty lines": {"\n\n" + good, 0},
		"zeros":       {strings.Repeat("\x00", 5000) + "\n" + good, 1},
		"no JSON":     {good[:len(good)-2] + ",}\n" + good, 1},
		"too long":    {lineStart + strings.Repeat("x", MaxLine+readSize) + "}\n" + good, 1},
		"long":        {lineStart + strings.Repeat("x", readSize+1) + "}\n" + good, 1},
		"no end":      {good + good[:20], 0},
		"two halves":  {good[:30] + good[30:60] + good + "\n" + good, 1},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "00000009.jsonl"), []byte(c.text),
			0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Find(t.Context(), dir, Query{})
		if err != nil || len(got.Records) != 1 || got.Records[0].ID != "good" ||
			got.Unreadable != c.unreadable {
			t.Errorf("%s: got %+v, %v, want the good record and %d unreadable", name, got, err,
				c.unreadable)
		}
	}
}

// FuzzFind: no file makes the reader fail, and a record behind it is always found.
func FuzzFind(f *testing.F) {
	good := appendRecord(nil, &adminapi.Record{TS: at, Kind: "call", Session: "s", ID: "good"})
	f.Add([]byte("{}"), "s", "ok")
	f.Add(good, "s", "")
	f.Add(good[:40], "x", "\"")
	f.Add([]byte(lineStart+lineTime(at)+`","metadata":{"session":"s"}}`), "s", "")
	f.Fuzz(func(t *testing.T, data []byte, session, outcome string) {
		dir := t.TempDir()
		data = append(append(bytes.Clone(data), '\n'), good...)
		if err := os.WriteFile(filepath.Join(dir, "00000001.jsonl"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Find(t.Context(), dir, Query{})
		if err != nil || len(got.Records) == 0 || got.Records[len(got.Records)-1].ID != "good" {
			t.Fatalf("%q: got %+v, %v, want the good record as the last", data, got, err)
		}
		some, err := Find(t.Context(), dir, Query{Session: session, Outcome: outcome})
		if err != nil || len(some.Records) > len(got.Records) {
			t.Fatalf("%q: session %q, outcome %q: got %+v, %v", data, session, outcome, some, err)
		}
	})
}
