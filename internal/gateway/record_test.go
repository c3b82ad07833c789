package gateway

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// kept is a recorder that keeps everything.
type kept struct {
	mu   sync.Mutex
	list []adminapi.Record
	past []adminapi.Record
}

func (k *kept) Record(r adminapi.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = append(k.list, r)
}

func (k *kept) Pushed(string) []adminapi.Record { return k.past }

// lines are the records in short, without the times.
func (k *kept) lines() (lines []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.list {
		line := fmt.Sprint(r.Kind, " ", r.Session)
		for _, part := range []string{r.State, r.Provider, r.Tool, r.Outcome, r.Code, r.By,
			r.Stream, string(r.Fate),
			r.Level, r.Event, r.Prompt, string(r.Metadata), r.Reason, ofGiven(r.Trace)} {
			if part != "" {
				line += " " + part
			}
		}
		if r.Command != "" {
			line += " $ " + r.Command
		}
		if r.ExitCode != nil {
			line += fmt.Sprint(" = ", *r.ExitCode)
		}
		if r.TS.IsZero() {
			line += " without a time"
		}
		lines = append(lines, line)
	}
	return lines
}

// ofGiven is a trace's id if it is that of the traceparent given, and not one of the gateway's.
func ofGiven(trace string) string {
	if strings.Contains(given, trace) {
		return trace
	}
	return ""
}

func compareLines(t *testing.T, got, want []string) {
	t.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("records:\n%s\nwant:\n%s", g, w)
	}
}

// TestRecords makes each thing happen that has a record.
func TestRecords(t *testing.T) {
	k := &kept{}
	s, p := traced(t, Options{Recorder: k})
	s.CallTool(t.Context(), Call{Name: "greet", Args: protocol.Raw(`{"name":"x"}`),
		Traceparent: given})
	s.CallTool(t.Context(), Call{Name: "greet", Args: protocol.Raw(`{}`)})
	s.CallTool(t.Context(), Call{Name: "gone"})
	s.Event(Event{Callback: OnStartToolExecution, ID: "1", Tool: "bash"})
	s.Event(Event{Callback: OnEndToolExecution, ID: "1", Error: &adminapi.ToolError{Code: "FAILED",
		Message: "exit 1"}})
	// it is a call of a provider's tool
	s.Event(Event{Callback: OnStartToolExecution, ID: "2", Tool: "greet"})
	s.Event(Event{Callback: OnEndToolExecution, ID: "2"})
	for _, m := range []*protocol.Push{
		{Event: "kept", Level: protocol.LevelKeep, Stream: "Builds",
			Metadata: protocol.Raw(`{"n":1}`)},
		{Event: "shown", Level: protocol.LevelSurface},
	} {
		if _, err := s.Push(t.Context(), "ci", m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Prompt(t.Context(), Prompt{Text: "hello", Traceparent: given}); err != nil {
		t.Fatal(err)
	}
	s.Idle()
	if _, err := s.Prompt(t.Context(), Prompt{Text: "again"}); err != nil {
		t.Fatal(err)
	}
	s.Event(Event{SessionError: "no model"})
	s.Idle()
	if _, err := s.Push(t.Context(), "ci",
		&protocol.Push{Prompt: "do it", Level: protocol.LevelInject}); err != nil {
		t.Fatal(err)
	}
	p.conn.Closed()
	if err := s.Stop(context.Background(), "enough"); err != nil {
		t.Fatal(err)
	}
	trace := "4bf92f3577b34da6a3ce929d0e0e4736"
	compareLines(t, k.lines(), []string{
		"session s1 start",
		"call s1 echo greet ok " + trace,
		"call s1 greet failed INVALID_ARGUMENTS arguments of greet: required: missing properties: [\"name\"]",
		"call s1 gone failed NOT_FOUND tool \"gone\" does not exist in this session",
		"call s1 bash failed FAILED exit 1",
		"push s1 ci builds stored keep kept {\"n\":1}",
		"push s1 ci ci surfaced surface shown",
		"turn s1 ok user " + trace,
		"turn s1 failed user no model",
		"push s1 ci ci queued inject do it",
		"push s1 ci ci delivered inject",
		"turn s1 failed provider:ci the session has ended",
		"session s1 end enough",
	})
}

// TestRecordedCommands: a call of the host's own shell has its command and how it ended; other
// calls have neither, and arguments that can be read in two ways have no command.
func TestRecordedCommands(t *testing.T) {
	k := &kept{}
	s, _ := traced(t, Options{Recorder: k})
	for i, c := range []struct{ tool, args string }{
		{"bash", `{"command":"make test"}`},
		{"view", `{"command":"no shell"}`},
		{"bash", `{"command":"true","Command":"make test"}`},
		{"bash", `{"command":"true","command":"make test"}`},
		{"bash", `{"command":["make"]}`},
		{"greet", `{"command":"a provider's"}`},
	} {
		id := fmt.Sprint(i)
		s.Event(Event{Callback: OnStartToolExecution, ID: id, Tool: c.tool, Args: c.args})
		s.Event(Event{Callback: OnEndToolExecution, ID: id, ExitCode: new(3)})
	}
	s.Event(Event{ID: "0", Tool: "bash", Args: `{"command":"sleep 9 &"}`, ExitCode: new(0)})
	s.Event(Event{UserMessage: "no call"})
	compareLines(t, k.lines()[1:], []string{
		"call s1 bash ok $ make test = 3",
		"call s1 view ok",
		"call s1 bash ok $ true = 3",
		"call s1 bash ok",
		"call s1 bash ok",
		"call s1 bash ok $ sleep 9 & = 0",
	})
}

// TestStreamsReturn: a session that comes back has the events of before in its streams; a new one
// does not.
func TestStreamsReturn(t *testing.T) {
	k := &kept{past: []adminapi.Record{
		{Provider: "ci", Stream: "builds", Level: "keep", Event: "one"},
		{Provider: "ci", Stream: "builds", Level: "inject", Prompt: "two"},
		// the fate of the one before
		{Provider: "ci", Stream: "builds", Fate: adminapi.FateDelivered},
		{Provider: "../x", Stream: "builds", Event: "no provider has this name"},
	}}
	g := New(Options{Recorder: k})
	defer g.Drain(context.Background())
	for _, c := range []struct {
		returns bool
		want    string
	}{{true, "two one "}, {false, ""}} {
		s, err := g.Register(
			SessionSpec{ID: fmt.Sprint("s", c.returns), Returns: c.returns},
			HostInfo{Kind: "test"},
			quietHost{},
		)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, r := range s.History([]string{"builds@ci"}, 0, k.past[0].TS) {
			got += r.Event + r.Prompt + " "
		}
		if got != c.want {
			t.Errorf("returns %v: the stream has %q, want %q", c.returns, got, c.want)
		}
	}
}
