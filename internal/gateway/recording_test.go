package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// startRecording begins a recording of a session, which ends with the test.
func startRecording(t *testing.T, s *Session) (*Recording, adminapi.RecordingStart) {
	t.Helper()
	r, start, err := s.Record()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r, start
}

// readRecording reads the lines that there are, each as "CONN FROM>TO WHAT". Those with the host
// are left out: the session's worker writes them when it comes to it.
func readRecording(t *testing.T, r *Recording) []string {
	t.Helper()
	return slices.DeleteFunc(readWholeRecording(t, r), func(line string) bool {
		return strings.Contains(line, "host")
	})
}

func readWholeRecording(t *testing.T, r *Recording) (lines []string) {
	t.Helper()
	for r.lines.count.value() > r.cursor {
		next, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range next {
			lines = append(lines, fmt.Sprintf("%d %s>%s %s", l.Conn, l.From, l.To, recordedText(l)))
		}
	}
	return lines
}

func recordedText(l adminapi.RecordingLine) string {
	switch {
	case l.Message != nil:
		head, _ := readRecordedHead(l.Message)
		return string(head.kind)
	case l.Closed != nil:
		return fmt.Sprintf("closed %d", l.Closed.Code)
	case l.Gap > 0:
		return fmt.Sprintf("gap %d", l.Gap)
	case l.Size > 0:
		return fmt.Sprintf("size %d", l.Size)
	case l.End != "":
		return l.End
	}
	return l.Text
}

// quietPeer is a peer that nobody listens to.
type quietPeer struct{}

func (quietPeer) Send(protocol.Message)            {}
func (quietPeer) Flush()                           {}
func (quietPeer) Close(protocol.CloseCode, string) {}

// connect connects a provider, and closes it at the end of the test.
func connect(t *testing.T, g *Gateway, session string) *Conn {
	t.Helper()
	c := g.Connect(quietPeer{}, ConnOptions{})
	t.Cleanup(c.Closed)
	c.Receive(protocol.Append(nil, &protocol.Auth{Token: g.AdminToken()}))
	c.Receive(
		protocol.Append(nil, &protocol.Hello{Name: "late", ProtocolVersion: new(protocol.Version),
			Session: session}),
	)
	return c
}

func TestRecordingBeginsWithTheState(t *testing.T) {
	_, s, e := joined(t)
	e.conn.Receive([]byte(`{"type":"context.update","requestId":"c","context":"always"}`))
	_, start := startRecording(t, s)
	if start.Recording != adminapi.RecordingVersion || start.Session.ID != "s1" ||
		len(start.Connections) != 1 {
		t.Fatalf("start: got %+v, want version %d, session s1 and one connection", start,
			adminapi.RecordingVersion)
	}
	c := start.Connections[0]
	want :=
		`{"type":"hello","name":"echo","protocolVersion":2,"session":"s1","context":"always","tools":[` +
			`{"name":"greet","description":"d","parameters":` + greetSchema + `}]}`
	if diff := cmp.Diff(want, string(c.Hello)); diff != "" {
		t.Errorf("hello (-want +got):\n%s", diff)
	}
	if c.Conn != 1 || c.Provider != "echo" || c.Trust != string(TrustProject) || c.Pending != nil {
		t.Errorf("connection: got %+v, want 1, echo, project, nothing pending", c)
	}
}

func TestRecordingHasWhatIsSaid(t *testing.T) {
	g, s, e := joined(t)
	r, _ := startRecording(t, s)
	s.CallTool(t.Context(), Call{Name: "greet", Args: protocol.Raw(`{"name":"x"}`)})
	e.conn.Receive([]byte(`{"type":`))
	e.conn.ReceiveOversized([]byte(`{"type":"push"`), 9<<20)
	late := connect(t, g, "s1")
	late.Receive([]byte(`{"type":"goodbye"}`))
	want := []string{
		"1 gateway>provider tool.call", "1 provider>gateway tool.result",
		`1 provider>gateway {"type":`, "1 gateway>provider error",
		"1 provider>gateway size 9437184", "1 gateway>provider error",
		"2 provider>gateway auth", "2 gateway>provider sessions", "2 provider>gateway hello",
		"2 gateway>provider hello.ack", "2 gateway>provider session.lifecycle",
		"2 gateway>provider session.lifecycle", "2 provider>gateway goodbye",
		"2 gateway>provider closed 1000",
	}
	if diff := cmp.Diff(want, readRecording(t, r)); diff != "" {
		t.Errorf("recording (-want +got):\n%s", diff)
	}
}

// TestRecordingHasTheHost shows what a recording has of a session's host: its prompts, its lists of
// tools, and what it reports.
func TestRecordingHasTheHost(t *testing.T) {
	g, s, _ := joined(t)
	other, err := g.Register(SessionSpec{ID: "s2", CWD: "/c"}, HostInfo{Kind: "test"}, quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	r, _ := startRecording(t, s)
	if _, err := s.Prompt(t.Context(), Prompt{Text: "hello", Source: SourceUser}); err != nil {
		t.Fatal(err)
	}
	other.Event(Event{Callback: OnStartMessage, ID: "m"})
	s.Event(Event{Callback: OnMessage, ID: "m", Delta: "hi"})
	var got []string
	for r.lines.count.value() > r.cursor {
		lines, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			// when the worker comes to it
			if text := string(l.Message); !strings.HasPrefix(text, `{"type":"tools"`) {
				got = append(got, l.From+">"+l.To+" "+text)
			}
		}
	}
	want := []string{`gateway>host {"type":"prompt","text":"hello","source":"user"}`,
		`host>gateway {"callback":"onMessage","delta":"hi","messageId":"m"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recording (-want +got):\n%s", diff)
	}
}

// TestRecordingIsOfOneSession shows that what is about another session stays out: its providers,
// and the messages about it of a provider of both.
func TestRecordingIsOfOneSession(t *testing.T) {
	g, s, _ := joined(t)
	second, err := g.Register(SessionSpec{ID: "s2", CWD: "/c"}, HostInfo{Kind: "test"}, quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	both := connect(t, g, protocol.AllSessions)
	both.Receive(
		[]byte(
			`{"type":"tools.update","requestId":"t","tools":[{"name":"t","description":"d","parameters":{}}]}`),
	)
	r, start := startRecording(t, s)
	if len(start.Connections) != 2 {
		t.Fatalf("connections: got %d, want 2", len(start.Connections))
	}
	connect(t, g,
		"s2").Receive([]byte(`{"type":"push","level":"keep","event":"x","requestId":"p"}`))
	for _, session := range []*Session{second, s} {
		session.BeginCall(Call{Name: "t"}, func(Outcome) {})
	}
	both.provider.mu.Lock()
	var answers []string
	for id, c := range both.provider.pending {
		answers = append(answers, fmt.Sprintf(`{"type":"tool.result","id":%q,"data":%q}`, id,
			c.session.id))
	}
	both.provider.mu.Unlock()
	for _, answer := range answers {
		both.Receive([]byte(answer))
	}
	both.Receive([]byte(`{"type":"stream.query","queryId":"q","sessionId":"s2"}`))
	if diff := cmp.Diff([]string{"2 gateway>provider tool.call", "2 provider>gateway tool.result"},
		readRecording(t, r)); diff != "" {
		t.Errorf("recording (-want +got):\n%s", diff)
	}
}

// TestRecordingHasARefusedProvider shows that a provider which can't join is in the recording.
func TestRecordingHasARefusedProvider(t *testing.T) {
	g, s, _ := joined(t)
	r, _ := startRecording(t, s)
	c := g.Connect(quietPeer{}, ConnOptions{})
	c.Receive([]byte(`{"type":"auth","token":"wrong"}`))
	want := []string{"2 provider>gateway auth", "2 gateway>provider error",
		"2 gateway>provider closed 1008"}
	if diff := cmp.Diff(want, readRecording(t, r)); diff != "" {
		t.Errorf("recording (-want +got):\n%s", diff)
	}
}

// TestSlowReaderOfARecording shows that a reader that does not read slows nobody: calls go on,
// and a line says how many lines were dropped.
func TestSlowReaderOfARecording(t *testing.T) {
	_, s, _ := joined(t)
	r, _ := startRecording(t, s)
	const calls = 5000
	for range calls {
		if o := s.CallTool(t.Context(),
			Call{Name: "greet", Args: protocol.Raw(`{"name":"x"}`)}); o.Failed() {
			t.Fatalf("call: got %s, want success", o.Text())
		}
	}
	gap := fmt.Sprintf("gap %d", r.lines.count.value()-maxRecordedLines)
	lines := readWholeRecording(t, r)
	if len(lines) != maxRecordedLines+1 || !strings.HasSuffix(lines[0], gap) {
		t.Errorf("recording: got %d lines, the first %q, want %d and %q", len(lines), lines[0],
			maxRecordedLines+1, gap)
	}
}

func TestRecordingEndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, e := joined(t)
		r, _ := startRecording(t, s)
		go func() { _ = s.Stop(context.Background(), "test") }()
		synctest.Wait()
		e.conn.Receive([]byte(`{"type":"shutdown.ready"}`))
		<-s.Done()
		lines := readRecording(t, r)
		want := []string{"1 gateway>provider session.lifecycle",
			"1 provider>gateway shutdown.ready", "1 gateway>provider sessions.updated",
			"0 > the session has ended: test"}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("recording (-want +got):\n%s", diff)
		}
		if _, err := r.Next(t.Context()); !errors.Is(err, ErrSessionEnded) {
			t.Errorf("after the last line: got %v, want %v", err, ErrSessionEnded)
		}
		if _, _, err := s.Record(); err == nil {
			t.Error("a recording of an ended session: got one, want an error")
		}
	})
}

func TestRecordingsAreBounded(t *testing.T) {
	g, s, _ := joined(t)
	var last *Recording
	for range maxRecordings {
		last, _ = startRecording(t, s)
	}
	if _, _, err := s.Record(); err == nil ||
		!strings.Contains(err.Error(), "8 recordings run already") {
		t.Errorf("one more: got %v, want RATE_LIMITED", err)
	}
	last.Stop()
	last.Stop()
	again, _ := startRecording(t, s)
	for _, r := range append(g.recordingsOf(s), again) {
		r.Stop()
	}
	if g.recordings.Load() != nil {
		t.Error(
			"after all stopped: got a list of recordings, want none, so that messages cost nothing")
	}
}

// TestRecordingsComeAndGo shows that recordings begin and end while calls are made, and that
// neither waits for the other for ever.
func TestRecordingsComeAndGo(t *testing.T) {
	g, s, _ := joined(t)
	connect(t, g, protocol.AllSessions)
	done := make(chan struct{})
	var caller sync.WaitGroup
	caller.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				s.CallTool(t.Context(), Call{Name: "greet", Args: protocol.Raw(`{"name":"x"}`)})
			}
		}
	})
	for range 200 {
		r, start, err := s.Record()
		if err != nil {
			t.Fatal(err)
		}
		if len(start.Connections) != 2 {
			t.Errorf("connections: got %d, want 2", len(start.Connections))
		}
		if _, err := r.Next(t.Context()); err != nil {
			t.Errorf("reading: %v", err)
		}
		r.Stop()
	}
	close(done)
	caller.Wait()
}

// TestNoRecordingCostsNothing shows that messages cost no allocation while nobody records.
func TestNoRecordingCostsNothing(t *testing.T) {
	g := New(Options{})
	c := g.Connect(quietPeer{}, ConnOptions{})
	t.Cleanup(c.Closed)
	var m protocol.Message = &protocol.SessionLifecycle{SessionID: "s1",
		State: protocol.LifecycleIdle}
	frame := []byte(`{"type":"goodbye"}`)
	if n := testing.AllocsPerRun(1000, func() { c.peer.Send(m); c.recordFrame(frame) }); n != 0 {
		t.Errorf("a message each way: got %v allocations, want 0", n)
	}
}

// BenchmarkRecording compares the routing core while nobody records with the same while one
// reads a recording.
func BenchmarkRecording(b *testing.B) {
	call := Call{Name: "greet", Args: protocol.Raw(`{"name":"Alice"}`)}
	for _, isRecorded := range []bool{false, true} {
		b.Run(fmt.Sprintf("recorded=%t", isRecorded), func(b *testing.B) {
			_, s, _ := joined(b)
			if isRecorded {
				r, _, err := s.Record()
				if err != nil {
					b.Fatal(err)
				}
				defer r.Stop()
			}
			b.ReportAllocs()
			for b.Loop() {
				s.BeginCall(call, func(Outcome) {})
			}
		})
	}
}
