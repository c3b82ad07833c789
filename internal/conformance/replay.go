package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tapgw/internal/chans"
	"tapgw/internal/protocol"
	"tapgw/internal/recording"
)

// ReplayOptions say how a recording is replayed. Only Recording is required.
type ReplayOptions struct {
	Recording *recording.File
	Provider  string        // whose part is replayed, see [ReplayedProvider]
	Speed     float64       // 1 as fast as it was, 10 ten times that; 0 as fast as the answers come
	Patience  time.Duration // how long to wait for a message; 0: 5 s
	// JSON pointers, with * for any name or index, of values that may differ
	Ignore []string
	Home   string // stands for <home>; "" if it is unknown
}

// longestPause bounds how long a replay waits for the time of a message.
const longestPause = 100 * 365 * 24 * time.Hour

// defaultPatience is the patience of a replay. It is short, because the replay waits so long for
// each missing message.
const defaultPatience = 5 * time.Second

// Kinds of a [Finding].
const (
	FindingDiffers    = "differs"
	FindingMissing    = "missing"
	FindingUnexpected = "unexpected"
)

// Finding is a message that differs from the recording. Line is its line in the recording, 0 for a
// message that the recording does not have. Type is the message's, "text" for a frame that is no
// message, "closed" for a connection's end, and "connection" for its beginning.
type Finding struct {
	Kind        string          `json:"kind"`
	Line        int             `json:"line,omitzero"`
	Type        string          `json:"type"`
	Recorded    json.RawMessage `json:"recorded,omitzero"`
	Replayed    json.RawMessage `json:"replayed,omitzero"`
	Differences []Difference    `json:"differences,omitzero"`
}

// Difference is a value that differs, by its JSON pointer. The text of a side without the value is
// "".
type Difference struct {
	Path     string          `json:"path"`
	Recorded json.RawMessage `json:"recorded,omitzero"`
	Replayed json.RawMessage `json:"replayed,omitzero"`
}

// ReplayReport is the result of a replay. Sent and Equal count messages; Skipped counts those that
// can't be replayed, and Gap those that the recording itself lacks.
type ReplayReport struct {
	Subject  string    `json:"subject"`
	Provider string    `json:"provider"`
	Sent     int       `json:"sent"`
	Equal    int       `json:"equal"`
	Skipped  int       `json:"skipped"`
	Gap      uint64    `json:"gap"`
	Findings []Finding `json:"findings"`
	Output   []string  `json:"output"` // the last lines that the provider printed
}

// replayPeer is one connection to the provider or gateway of a replay.
type replayPeer interface {
	send(text []byte)
	close(code protocol.CloseCode)
	cut()
	// barrier waits until everything that the other side had sent is in the stream.
	barrier(ctx context.Context)
	stream() <-chan frame // closed when the connection has ended
}

// replayConn is a connection of the recording.
type replayConn struct {
	peer     replayPeer // nil if it did not come
	unread   []received
	hasEnded bool
}

// received is a frame that no step has taken yet.
type received struct {
	kind  string // type of the message; "text" for a frame that is no message
	text  []byte // with placeholders in place of directories
	value any    // nil for a frame that is no message
}

// replayer replays one party of a recording.
type replayer struct {
	ReplayOptions
	direction
	steps  []replayStep
	conns  map[int]*replayConn
	ids    map[string]string // by the ids in the recording: the new ids in their place
	dirs   map[string]string // placeholders of directories, and the directories
	redact *recording.Redactor
	report *ReplayReport
	begun  time.Time

	translator *strings.Replacer // of translates ids; nil at first
	translates int
}

// direction is the difference between a replay against a provider and one against a gateway.
type direction struct {
	ours  string // the party that is replayed
	made  []string
	open  func(ctx context.Context) (replayPeer, error)
	loose []string // types of messages that depend on others than the two: they are not awaited
	// before is called before a step, and may cause the message that the step waits for.
	before func(replayStep)
	token  string // of a provider that is replayed
}

func newReplayer(o ReplayOptions, d direction, subject string) *replayer {
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	r := &replayer{
		ReplayOptions: o, direction: d, conns: map[int]*replayConn{}, ids: map[string]string{},
		dirs: map[string]string{}, report: &ReplayReport{Subject: subject, Provider: o.Provider,
			Findings: []Finding{}},
	}
	r.steps = r.plan(o.Provider)
	return r
}

// ReplayedProvider returns the provider of a recording that a name means, "" the only one. The
// error lists those that there are.
func ReplayedProvider(f *recording.File, name string) (string, error) {
	names := map[string]bool{}
	for _, c := range f.Start.Connections {
		names[c.Provider] = true
	}
	for _, l := range f.Lines {
		if l.Conn > 0 {
			names[l.Provider] = true
		}
	}
	if len(names) > 1 {
		delete(names, "") // connections that never said hello
	}
	all := slices.Sorted(maps.Keys(names))
	if others := slices.DeleteFunc(slices.Clone(all), isOwn); len(others) == 1 && name == "" {
		return others[0], nil
	}
	switch {
	case len(all) == 0:
		return "", fmt.Errorf("the recording has no message of a provider")
	case name == "" && len(all) == 1:
		return all[0], nil
	case name == "":
		return "", fmt.Errorf("the recording has several providers; choose one with --provider: %s",
			strings.Join(all, ", "))
	case !names[protocol.NormalName(name)]:
		return "", fmt.Errorf("the recording has no provider %q; it has %s", name,
			strings.Join(all, ", "))
	}
	return protocol.NormalName(name), nil
}

// isOwn reports whether a provider is the one that the gateway itself gives to each session
// (docs/tap.md).
func isOwn(provider string) bool { return provider == "tap" }

// run takes all steps and then looks for unexpected messages.
func (r *replayer) run(ctx context.Context) {
	r.begun = time.Now()
	for i := range r.steps {
		if ctx.Err() != nil {
			return
		}
		r.take(ctx, i)
	}
	for _, number := range slices.Sorted(maps.Keys(r.conns)) {
		c := r.conns[number]
		if c.peer == nil {
			continue
		}
		if !c.hasEnded {
			bounded, cancel := context.WithTimeout(ctx, r.Patience)
			c.peer.barrier(bounded)
			cancel()
		}
		r.readAll(c)
		r.reportUnread(c)
	}
}

// take takes one step.
func (r *replayer) take(ctx context.Context, i int) {
	s := r.steps[i]
	c := r.conn(ctx, s)
	if r.before != nil {
		r.before(s)
	}
	switch s.action {
	case stepSend:
		r.pace(ctx, s)
		r.send(c, s)
	case stepExpect:
		r.expect(ctx, c, i)
	case stepClose:
		r.pace(ctx, s)
		if c.peer != nil {
			c.peer.close(protocol.CloseCode(s.line.Closed.Code))
			r.finish(ctx, c, s)
		}
	case stepClosed:
		r.finish(ctx, c, s)
	}
}

// conn returns the connection of a step, which is opened by its first step.
func (r *replayer) conn(ctx context.Context, s replayStep) *replayConn {
	c := r.conns[s.line.Conn]
	if c != nil {
		return c
	}
	c = &replayConn{}
	r.conns[s.line.Conn] = c
	bounded, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	peer, err := r.open(bounded)
	if err != nil {
		c.hasEnded = true
		if ctx.Err() == nil {
			r.find(Finding{Kind: FindingMissing, Line: s.line.Number, Type: "connection"})
		}
		return c
	}
	c.peer = peer
	return c
}

// pace waits until the time of a step.
func (r *replayer) pace(ctx context.Context, s replayStep) {
	if r.Speed == 0 || s.line.TS.IsZero() {
		return
	}
	// At a wild speed this is more than a Duration holds.
	since := float64(s.line.TS.Sub(r.Recording.Start.TS)) / r.Speed
	since = max(0, min(since, float64(longestPause)))
	_ = chans.Sleep(ctx, time.Until(r.begun.Add(time.Duration(since))))
}

func (r *replayer) send(c *replayConn, s replayStep) {
	text := []byte(s.line.Text)
	if s.line.Message != nil {
		text = r.filled(s.line.Message)
	}
	if c.peer != nil && !c.hasEnded {
		c.peer.send(text)
		r.report.Sent++
	}
}

// finish waits for the end of a connection.
func (r *replayer) finish(ctx context.Context, c *replayConn, s replayStep) {
	timeout := time.NewTimer(r.Patience)
	defer timeout.Stop()
	for c.peer != nil && !c.hasEnded {
		select {
		case f, ok := <-c.peer.stream():
			r.receive(c, f, ok)
		case <-timeout.C:
			r.find(Finding{Kind: FindingMissing, Line: s.line.Number, Type: "closed"})
			c.hasEnded = true
			c.peer.cut()
		case <-ctx.Done():
			return
		}
	}
}

// receive keeps a frame, or notes the end of the connection.
func (r *replayer) receive(c *replayConn, f frame, ok bool) {
	if !ok {
		c.hasEnded = true
		return
	}
	got := received{kind: "text", text: f.data}
	if f.object != nil {
		got.kind = string(f.typ())
		got.text = r.redact.Message(f.data)
		got.value = decodeReplayed(got.text)
	}
	c.unread = append(c.unread, got)
}

// readAll reads the messages that have come, without waiting.
func (r *replayer) readAll(c *replayConn) {
	for c.peer != nil && !c.hasEnded {
		select {
		case f, ok := <-c.peer.stream():
			r.receive(c, f, ok)
		default:
			return
		}
	}
}

// expect waits for the message of a step and compares it.
func (r *replayer) expect(ctx context.Context, c *replayConn, i int) {
	s := r.steps[i]
	timeout := time.NewTimer(r.Patience)
	defer timeout.Stop()
	for {
		r.readAll(c)
		if r.match(c, i) {
			return
		}
		if c.peer == nil || c.hasEnded {
			break
		}
		select {
		case f, ok := <-c.peer.stream():
			r.receive(c, f, ok)
			continue
		case <-timeout.C:
		case <-ctx.Done():
			return
		}
		break
	}
	r.find(Finding{Kind: FindingMissing, Line: s.line.Number, Type: s.kind(),
		Recorded: s.line.Message})
}

// match takes the message of a step out of those that came: an equal one, or else the first of its
// kind that no later step expects.
func (r *replayer) match(c *replayConn, i int) bool {
	s := r.steps[i]
	first := -1
	var differences []Difference
	for k, got := range c.unread {
		if !r.sameKind(s, got) {
			continue
		}
		found, ids := r.compare(s, got)
		if len(found) == 0 {
			maps.Copy(r.ids, ids)
			c.unread = slices.Delete(c.unread, k, k+1)
			r.report.Equal++
			return true
		}
		if first < 0 && !r.isExpectedLater(i, got) {
			first, differences = k, found
		}
	}
	if first < 0 {
		return false
	}
	got := c.unread[first]
	_, ids := r.compare(s, got)
	maps.Copy(r.ids, ids)
	c.unread = slices.Delete(c.unread, first, first+1)
	r.find(Finding{Kind: FindingDiffers, Line: s.line.Number, Type: s.kind(),
		Recorded: s.line.Message, Replayed: got.json(), Differences: differences})
	return true
}

// maxLookAhead bounds how many steps are asked whether they expect a message.
const maxLookAhead = 1000

// isExpectedLater reports whether a later step of the same connection expects exactly this message.
func (r *replayer) isExpectedLater(i int, got received) bool {
	for _, s := range r.steps[i+1 : min(len(r.steps), i+1+maxLookAhead)] {
		if s.action != stepExpect || s.line.Conn != r.steps[i].line.Conn || !r.sameKind(s, got) {
			continue
		}
		if found, _ := r.compare(s, got); len(found) == 0 {
			return true
		}
	}
	return false
}

// reportUnread reports unexpected messages.
func (r *replayer) reportUnread(c *replayConn) {
	for _, got := range c.unread {
		if !slices.Contains(r.loose, got.kind) {
			r.find(Finding{Kind: FindingUnexpected, Type: got.kind, Replayed: got.json()})
		}
	}
}

func (r *replayer) find(f Finding) { r.report.Findings = append(r.report.Findings, f) }

func (got received) json() json.RawMessage {
	if got.value != nil {
		return got.text
	}
	return protocol.AppendText(nil, string(got.text))
}

// cutAll ends all connections, and waits until their readers have ended.
func (r *replayer) cutAll() {
	for _, c := range r.conns {
		if c.peer != nil {
			c.peer.cut()
			for range c.peer.stream() {
			}
		}
	}
}
