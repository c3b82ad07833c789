package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/recording"
)

// scriptedPeer is a provider in this process, which answers each message by a script.
type scriptedPeer struct {
	answer func(sent string) []string
	sent   []string
	frames chan frame
	ended  bool
}

func newScriptedPeer(answer func(string) []string, first ...string) *scriptedPeer {
	p := &scriptedPeer{answer: answer, frames: make(chan frame, 64)}
	p.say(first...)
	return p
}

func (p *scriptedPeer) say(texts ...string) {
	for _, text := range texts {
		f := frame{text: true, data: []byte(text)}
		_ = json.Unmarshal(f.data, &f.object)
		p.frames <- f
	}
}

func (p *scriptedPeer) send(text []byte) {
	p.sent = append(p.sent, string(text))
	p.say(p.answer(string(text))...)
}

func (p *scriptedPeer) close(protocol.CloseCode) { p.cut() }

func (p *scriptedPeer) cut() {
	if !p.ended {
		p.ended = true
		close(p.frames)
	}
}

func (p *scriptedPeer) barrier(context.Context) {}
func (p *scriptedPeer) stream() <-chan frame    { return p.frames }

// readLines reads a recording of lines such as "1 gateway>provider {…}", "1 provider closed" and
// "gap 3", after a first line with these connections.
func readLines(t *testing.T, connections string, lines ...string) *recording.File {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, `{"recording":1,"gateway":"t","ts":"2026-01-02T15:04:05Z","session":`+
		`{"id":"session-1","label":"l","cwd":"/c","state":"idle"},"connections":[%s]}`+"\n",
		connections)
	for i, line := range lines {
		ts := time.Date(2026, 1, 2, 15, 4, 5+i, 0, time.UTC).Format(time.RFC3339)
		var conn int
		var rest string
		if _, err := fmt.Sscanf(line, "%d", &conn); err != nil {
			fmt.Fprintf(&text, `{"ts":%q,"gap":3}`+"\n", ts)
			continue
		}
		_, rest, _ = strings.Cut(line, " ")
		who, message, _ := strings.Cut(rest, " ")
		from, to, _ := strings.Cut(who, ">")
		content := `"message":` + message
		if message == "closed" {
			content = `"closed":{"code":1001,"reason":""}`
		} else if !strings.HasPrefix(message, "{") {
			content = `"text":` + string(protocol.AppendText(nil, message))
		}
		fmt.Fprintf(&text, `{"ts":%q,"conn":%d,"provider":"p","from":%q,"to":%q,%s}`+"\n", ts, conn,
			from, to, content)
	}
	file, err := recording.Read(strings.NewReader(text.String()))
	if err != nil || len(file.Faults) > 0 {
		t.Fatalf("reading the recording: %v, %+v\n%s", err, file.Faults, text.String())
	}
	return file
}

// replayScript replays a recording against peers, one for each connection.
func replayScript(t *testing.T, o ReplayOptions, peers ...*scriptedPeer) *ReplayReport {
	t.Helper()
	o.Provider = "p"
	d := direction{ours: adminapi.PartyGateway, made: []string{"requestId", "queryId"},
		open: func(context.Context) (replayPeer, error) {
			if len(peers) == 0 {
				return nil, errors.New("no more")
			}
			p := peers[0]
			peers = peers[1:]
			return p, nil
		}}
	r := newReplayer(o, d, "test")
	if err := r.makeDirs(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	r.run(t.Context())
	return r.report
}

// brief is a finding in one line.
func brief(findings []Finding) (texts []string) {
	for _, f := range findings {
		text := fmt.Sprintf("%s %d %s", f.Kind, f.Line, f.Type)
		for _, d := range f.Differences {
			text += fmt.Sprintf(" %s:%s/%s", d.Path, d.Recorded, d.Replayed)
		}
		texts = append(texts, text)
	}
	return texts
}

func TestReplayCompares(t *testing.T) {
	const call = `1 gateway>provider {"type":"tool.call","id":"c1","sessionId":"session-1","tool":"t","args":{}}`
	const result = `1 provider>gateway {"type":"tool.result","id":"c1","data":{"n":1.0,"list":["a"],"who":"<token-1>!"}}`
	tests := []struct {
		name    string
		answers []string
		ignore  []string
		want    []string
	}{
		{"equal",
			[]string{`{"data":{"who":"me!","list":["a"],"n":1},"id":"c1","type":"tool.result"}`},
			nil, nil},
		{"values differ",
			[]string{`{"type":"tool.result","id":"c1","data":{"n":2,"list":["a","b"],"who":"me"}}`},
			nil,
			[]string{`differs 3 tool.result /data/list/1:/"b" /data/n:1.0/2 /data/who:"<token-1>!"/"me"`}},
		{"values that may differ",
			[]string{`{"type":"tool.result","id":"c1","data":{"n":2,"list":["b"],"who":"x!"}}`},
			[]string{"/data/n", "/data/*/0"}, nil},
		{"an error in place of data", []string{`{"type":"tool.result","id":"c1","error":"no"}`},
			nil,
			[]string{`differs 3 tool.result /data:{"list":["a"],"n":1.0,"who":"<token-1>!"}/ /error:/"no"`}},
		{"nothing", nil, nil, []string{"missing 3 tool.result"}},
		{"the answer of another call", []string{`{"type":"tool.result","id":"c2"}`}, nil,
			[]string{"missing 3 tool.result", "unexpected 0 tool.result"}},
		{"a frame that is no message", []string{`{"type":`}, nil,
			[]string{"missing 3 tool.result", "unexpected 0 text"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peer := newScriptedPeer(func(string) []string { return test.answers })
				report := replayScript(
					t,
					ReplayOptions{Recording: readLines(t, "", call, result), Ignore: test.ignore},
					peer,
				)
				if diff := cmp.Diff(test.want, brief(report.Findings)); diff != "" {
					t.Errorf("findings (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestReplayTakesAnyAnswer shows that an answer to a question, which a recording does not have, may
// be anything.
func TestReplayTakesAnyAnswer(t *testing.T) {
	const call = `1 gateway>provider {"type":"tool.call","id":"c1","sessionId":"session-1","tool":"t","args":{}}`
	const answer = `1 provider>gateway {"type":"question.answer","question":"q","content":"<answer-1>","person":"Ada"}`
	synctest.Test(t, func(t *testing.T) {
		peer := newScriptedPeer(func(string) []string {
			return []string{`{"type":"question.answer","question":"q","content":{"pin":1},"person":"Bob"}`}
		})
		report := replayScript(t, ReplayOptions{Recording: readLines(t, "", call, answer)}, peer)
		want := []string{`differs 3 question.answer /person:"Ada"/"Bob"`}
		if diff := cmp.Diff(want, brief(report.Findings)); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
	})
}

// TestReplayMapsIDs shows that ids which the provider makes up are known by their place, and that
// the gateway's answers have the ids of this run.
func TestReplayMapsIDs(t *testing.T) {
	file := readLines(
		t,
		"",
		`1 provider>gateway {"type":"push","level":"keep","event":"a","requestId":"old-a"}`,
		`1 provider>gateway {"type":"push","level":"keep","event":"b","requestId":"old-b"}`,
		`1 gateway>provider {"type":"ack","requestId":"old-b","sessionId":"session-1","seq":1}`,
		`1 gateway>provider {"type":"tool.call","id":"c1","sessionId":"session-1","tool":"t","args":{"requestId":"old-a"}}`,
	)
	peer := newScriptedPeer(func(string) []string { return nil },
		`{"type":"push","level":"keep","event":"b","requestId":"new-b"}`,
		`{"type":"push","level":"keep","event":"a","requestId":"new-a"}`)
	report := replayScript(t, ReplayOptions{Recording: file}, peer)
	if len(report.Findings) > 0 || report.Equal != 2 {
		t.Errorf("report: got %+v, want 2 equal messages", report)
	}
	want := []string{
		`{"type":"ack","requestId":"new-b","sessionId":"session-1","seq":1}`,
		`{"type":"tool.call","id":"c1","sessionId":"session-1","tool":"t","args":{"requestId":"old-a"}}`,
	}
	if diff := cmp.Diff(want, peer.sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

// TestReplayAwaitsAnswers shows causality: a message that followed an answer in the recording is
// sent after it.
func TestReplayAwaitsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := readLines(t, "",
			`1 gateway>provider {"type":"tool.call","id":"c1","tool":"t","args":{}}`,
			`1 provider>gateway {"type":"tool.result","id":"c1","data":1}`,
			`1 gateway>provider {"type":"tool.call","id":"c2","tool":"t","args":{}}`,
			`1 provider>gateway {"type":"tool.result","id":"c2","data":2}`)
		var order []string
		peer := newScriptedPeer(nil)
		peer.answer = func(sent string) []string {
			id := "c1"
			if strings.Contains(sent, "c2") {
				id = "c2"
			}
			order = append(order, "call "+id)
			time.AfterFunc(time.Second, func() {
				order = append(order, "answer "+id)
				peer.say(`{"type":"tool.result","id":"` + id + `","data":` + id[1:] + `}`)
			})
			return nil
		}
		report := replayScript(t, ReplayOptions{Recording: file}, peer)
		if diff := cmp.Diff([]string{"call c1", "answer c1", "call c2", "answer c2"},
			order); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		if len(report.Findings) > 0 {
			t.Errorf("findings: got %v, want none", brief(report.Findings))
		}
	})
}

func TestReplaySpeed(t *testing.T) {
	for speed, want := range map[float64]time.Duration{0: 0, 1: 2 * time.Second,
		10: 200 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			file := readLines(t, "", `1 gateway>provider {"type":"a"}`,
				`1 gateway>provider {"type":"b"}`,
				`1 gateway>provider {"type":"c"}`)
			begun := time.Now()
			replayScript(
				t,
				ReplayOptions{Recording: file, Speed: speed},
				newScriptedPeer(func(string) []string { return nil }),
			)
			if got := time.Since(begun); got != want {
				t.Errorf("speed %v: got %v, want %v", speed, got, want)
			}
		})
	}
}

// TestReplayBeginsInMidSession shows that a provider is brought to the state of the recording's
// first line, calls that were not answered included, and that its offer is compared.
func TestReplayBeginsInMidSession(t *testing.T) {
	const connection = `{"conn":4,"provider":"p","trust":"project","hello":{"type":"hello","name":"p","protocolVersion":2,` +
		`"session":"all","tools":[{"name":"t"}]},"pending":[{"type":"tool.call","id":"c0","tool":"t","args":{}}]}`
	file := readLines(t, connection, `4 provider>gateway {"type":"tool.result","id":"c0","data":1}`)
	peer := newScriptedPeer(func(sent string) []string {
		switch {
		case strings.Contains(sent, `"sessions"`):
			return []string{`{"type":"hello","name":"p","protocolVersion":2,"session":"session-1","hooks":{},` +
				`"tools":[{"name":"other"}]}`}
		case strings.Contains(sent, "tool.call"):
			return []string{`{"type":"tool.result","id":"c0","data":1}`}
		}
		return nil
	}, `{"type":"auth","token":"ptk-x","name":"p"}`)
	report := replayScript(t, ReplayOptions{Recording: file}, peer)
	if diff := cmp.Diff([]string{`differs 1 hello /tools/0/name:"t"/"other"`},
		brief(report.Findings)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	var types []string
	for _, text := range peer.sent {
		types = append(types, string(protocol.Peek([]byte(text)).Type))
	}
	want := []string{"sessions", "hello.ack", "session.lifecycle", "session.lifecycle", "tool.call"}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	if !strings.Contains(peer.sent[1], `"sessionId":"all"`) ||
		strings.Contains(peer.sent[1], "<persistDir") {
		t.Errorf("hello.ack: got %s, want all sessions and a real directory", peer.sent[1])
	}
}

// TestReplayFollowsConnections shows that a provider which connects again is taken to its new
// connection, and that an end that does not come is missing.
func TestReplayFollowsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := readLines(t, "", `1 gateway>provider {"type":"a"}`, `1 gateway>provider closed`,
			`2 gateway>provider {"type":"b"}`, `2 provider>gateway closed`, "gap",
			`3 gateway>provider {"type":"c"}`)
		quiet := func(string) []string { return nil }
		first, second := newScriptedPeer(quiet), newScriptedPeer(quiet)
		report := replayScript(t, ReplayOptions{Recording: file}, first, second)
		if !first.ended || len(first.sent) != 1 || len(second.sent) != 1 {
			t.Errorf("connections: got %v and %v sent, the first ended: %t, want one each and true",
				first.sent, second.sent, first.ended)
		}
		want := []string{"missing 5 closed", "missing 7 connection"}
		if diff := cmp.Diff(want, brief(report.Findings)); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
		if report.Gap != 3 {
			t.Errorf("gap: got %d, want 3", report.Gap)
		}
	})
}

func TestReplayedProvider(t *testing.T) {
	file := readLines(t, `{"conn":9,"provider":"q","trust":"project","hello":{"type":"hello"}}`,
		`1 gateway>provider {"type":"a"}`)
	for _, test := range []struct{ name, want, err string }{
		{"p", "p", ""},
		{"Q", "q", ""},
		{"", "", "choose one with --provider: p, q"},
		{"r", "", `no provider "r"; it has p, q`},
	} {
		got, err := ReplayedProvider(file, test.name)
		hasError := err != nil && strings.Contains(err.Error(), test.err)
		if got != test.want || (test.err != "") != hasError {
			t.Errorf("provider %q: got %q, %v, want %q and an error with %q", test.name, got, err,
				test.want, test.err)
		}
	}
}

func TestSameText(t *testing.T) {
	for _, test := range []struct {
		recorded, replayed string
		want               bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"<token-1>", "", true},
		{"<token-1>", "anything\n", true},
		{"x <token-1> y", "x 1 y", true},
		{"x <token-1> y", "x 1 z", false},
		{"x <token-1> y", "x y", false},
		{"<a-1>", "b", false},
		{"<redacted-1>, <redacted-12> and", "one, two and", true},
		{"<redacted-1>, <redacted-12> and", "one and", false},
		{"ab<code-1>ba", "aba", false},
		{"in session-1!", "in live-7!", true},
		{"short", "id", true},
		{"a short text", "a id text", false}, // a short id may be a word
	} {
		r := &replayer{ids: map[string]string{"session-1": "live-7", "short": "id"}}
		if got := r.sameText(test.recorded, test.replayed); got != test.want {
			t.Errorf("%q as %q: got %t, want %t", test.recorded, test.replayed, got, test.want)
		}
	}
}

// FuzzReplay replays hostile recordings: each step ends, and each message that is expected is
// reported once.
func FuzzReplay(f *testing.F) {
	const start = `{"recording":1,"gateway":"t","ts":"2026-01-02T15:04:05Z","session":{"id":"s"},"connections":` +
		`[{"conn":1,"provider":"p","hello":{"type":"hello","session":"all"},"pending":[{"type":"tool.call"}]}]}` + "\n"
	f.Add(start +
		`{"conn":1,"provider":"p","from":"provider","to":"gateway","message":{"type":"push","id":"<token-1>"}}`)
	f.Add(start +
		`{"conn":2,"provider":"p","from":"gateway","to":"provider","message":{"requestId":"<persistDir-1>"}}`)
	f.Add(start +
		`{"conn":1,"provider":"p","from":"gateway","to":"provider","closed":{"code":1,"reason":""}}` + "\n" +
		`{"conn":1,"provider":"p","from":"provider","to":"gateway","text":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := recording.Read(strings.NewReader(text))
		if err != nil {
			return
		}
		name, err := ReplayedProvider(file, "")
		if err != nil {
			return
		}
		for _, ours := range []string{adminapi.PartyGateway, adminapi.PartyProvider} {
			open := func(context.Context) (replayPeer, error) {
				p := newScriptedPeer(func(string) []string {
					return nil
				}, `{"type":"tool.result","id":"x"}`)
				p.cut() // nothing more comes, so nothing is waited for
				return p, nil
			}
			d := direction{ours: ours, made: []string{"requestId", "id"}, open: open}
			o := ReplayOptions{Recording: file, Provider: name, Home: "/home/u"}
			r := newReplayer(o, d, "fuzz")
			r.setDirs(nil)
			r.run(t.Context())
			expected := 0
			for _, s := range r.steps {
				if s.action == stepExpect {
					expected++
				}
			}
			reported := r.report.Equal
			for _, finding := range r.report.Findings {
				if finding.Kind != FindingUnexpected &&
					(finding.Recorded != nil || finding.Type == "text") {
					reported++
				}
			}
			if reported != expected {
				t.Errorf("got %d messages reported, want %d: %+v", reported, expected, r.report)
			}
		}
	})
}
