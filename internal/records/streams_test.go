package records

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// quietHost is a session without an agent.
type quietHost struct{}

func (quietHost) SetTools(context.Context, uint64, []gateway.Tool) error { return nil }
func (quietHost) Send(context.Context, gateway.Prompt) error             { return nil }
func (quietHost) Log(adminapi.LogLevel, string)                          {}
func (quietHost) Interrupt(context.Context, string) ([]string, error)    { return nil, nil }
func (quietHost) Close(context.Context, string) error                    { return nil }

// TestStreamsReturn: the events in a session's streams are there again after a gateway was killed,
// also when its last record is cut off. Another session gets no event of them.
func TestStreamsReturn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begin := func(id string) (*Log, *gateway.Session) {
		l := start(t, Options{Dir: dir})
		g := gateway.New(gateway.Options{Recorder: l})
		t.Cleanup(func() { g.Drain(context.Background()) })
		s, err := g.Register(gateway.SessionSpec{ID: id, Returns: true},
			gateway.HostInfo{Kind: "test"}, quietHost{})
		if err != nil {
			t.Fatal(err)
		}
		return l, s
	}
	l, s := begin("s1")
	for _, m := range []*protocol.Push{
		{Event: "first", Level: protocol.LevelKeep, Stream: "builds",
			Metadata: protocol.Raw(`{"run":1}`)},
		{Event: "second", Level: protocol.LevelSurface, Stream: "builds"},
	} {
		if _, err := s.Push(t.Context(), "ci", m); err != nil {
			t.Fatal(err)
		}
	}
	l.Flush(t.Context()) // the gateway dies here: the file is neither closed nor synced
	f, err := os.OpenFile(filepath.Join(dir, "00000001.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"ts":"2026-01-02T15:04`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"s1": "second surface  first keep {\"run\":1}",
		"s2": ""} {
		_, s := begin(id)
		var got []string
		for _, r := range s.History([]string{"builds@ci"}, 0, time.Time{}) {
			got = append(got, r.Event+" "+r.Level+" "+string(r.Metadata))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("session %s: the stream has %q, want %q", id, text, want)
		}
	}
}
