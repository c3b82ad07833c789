package gateway

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// The last 1,024 ids are remembered, older ones are forgotten.
func TestTombstones(t *testing.T) {
	var tomb tombstones
	ids := make([]uuid.UUID, 3*protocol.MaxFinishedCalls+5)
	for i := range ids {
		ids[i] = newCallID()
		tomb.add(ids[i])
	}
	for i, id := range ids {
		if want := i >= len(ids)-protocol.MaxFinishedCalls; tomb.has(id) != want {
			t.Fatalf("id %d of %d: remembered is %v, want %v", i, len(ids), !want, want)
		}
	}
	if len(tomb.ring) != protocol.MaxFinishedCalls {
		t.Errorf("a ring of %d, want %d", len(tomb.ring), protocol.MaxFinishedCalls)
	}
	if tomb.has(newCallID()) || (&tombstones{}).has(ids[0]) {
		t.Error("has says true for a call that never ended, want false")
	}
}

// Ids rise, so that calls can be sorted by the order in which they were made.
func TestCallIDsRise(t *testing.T) {
	last := newCallID()
	for range 100_000 {
		next := newCallID()
		if last.String() >= next.String() {
			t.Fatalf("%s, then %s, want them to rise", last, next)
		}
		last = next
	}
	if last.Version() != 7 {
		t.Errorf("version %d, want 7", last.Version())
	}
}

func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := window{max: 3}
		for i := range 3 {
			if !w.allow() {
				t.Fatalf("refused the %dth, want it allowed", i+1)
			}
			sleep(10 * time.Second)
		}
		if w.allow() {
			t.Fatal("allowed a fourth in 30 s, want a refusal")
		}
		sleep(29 * time.Second)
		if w.allow() {
			t.Fatal("allowed a fourth in 59 s, want a refusal")
		}
		sleep(time.Second)
		if !w.allow() || w.allow() {
			t.Fatal("a minute after the first, want one more allowed and no second")
		}
	})
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                       "plain",
		"tab\tand\nline":              "tab\tand\nline",
		"\x1b[31mred\x1b[0m":          "red",
		"\x1b]0;title\x07text":        "text",
		"\x1b]8;;http://x\x1b\\link":  "link",
		"\x1b[2J\x1b[H\x07\x08\x00\r": "",
		"\x7fdel":                     "del",
		"\x1b":                        "",
		"\u009b31mred\u0085":          "red",
		"\u009d0;title\u009ctext":     "text",
		"é😀":                          "é😀",
	} {
		if got := stripEscapes(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestBrief(t *testing.T) {
	if got := shorten("short"); got != "short" {
		t.Errorf("shorten(short) = %q, want short", got)
	}
	long := make([]byte, 0, 3000)
	for range 1000 {
		long = append(long, "é"...)
	}
	got := shorten(string(long))
	if len(got) > maxErrorText+10 || got[:2] != "é" || []rune(got)[len([]rune(got))-1] != '…' {
		t.Errorf("%d bytes, want at most %d, that begin with é and end with …", len(got),
			maxErrorText+10)
	}
}

// A timeline that is read from a line that has left it says how many lines are
// missing.
func TestTimelineSaysWhereItIsCut(t *testing.T) {
	g := New(Options{})
	s, err := g.Register(SessionSpec{ID: "s1", CWD: "/c"}, HostInfo{Kind: "test"}, quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Drain(context.Background())
	for range maxTimelineLines + 11 { // and the one that begins it
		s.Note(adminapi.LogInfo, "x")
	}
	for after, want := range map[uint64]string{
		0:  "12 lines before this are not kept any more",
		2:  "10 lines before this are not kept any more",
		11: "1 line before this is not kept any more", 12: "x", 500: "x",
	} {
		lines, cursor := s.Timeline(after)
		if lines[0].Message != want || cursor != maxTimelineLines+12 ||
			lines[0].Seq+1 != lines[1].Seq {
			t.Errorf(
				"after %d: %+v, then %d, want %q and line %d",
				after, lines[0], lines[1].Seq, want, maxTimelineLines+12,
			)
		}
	}
	if lines, _ := s.Timeline(maxTimelineLines + 12); len(lines) != 0 {
		t.Errorf("at its end: %v, want none", lines)
	}
}

// The timeline of a resumed session has the old lines with their times, and room for
// new ones.
func TestTimelineComesBack(t *testing.T) {
	g := New(Options{})
	s, err := g.Register(SessionSpec{ID: "s1", CWD: "/c"}, HostInfo{Kind: "test"}, quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Drain(context.Background())
	then := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	past := make([]adminapi.TimelineLine, maxTimelineLines)
	for i := range past {
		past[i] = adminapi.TimelineLine{
			TS:      then.Add(time.Duration(i) * time.Second),
			Level:   adminapi.LogWarning,
			Source:  "ci",
			Message: "\x1b[31mred",
		}
	}
	s.RestoreTimeline(past, true)
	lines, _ := s.Timeline(0)
	resumed := "the session was resumed; what was said before follows, with its times, " +
		"but for lines that are too old to be here"
	if len(lines) != 2+maxTimelineLines/2 || lines[1].Message != resumed {
		t.Fatalf("%d lines, the second %+v, want %d and %q", len(lines), lines[1],
			2+maxTimelineLines/2, resumed)
	}
	if l, want := lines[2], then.Add(maxTimelineLines/2*time.Second); !l.TS.Equal(want) ||
		l.Source != "ci" || l.Level != adminapi.LogWarning || l.Message != "red" || l.Seq != 3 {
		t.Errorf("%+v, want it to be of %s", l, want)
	}
}
