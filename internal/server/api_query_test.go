package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// lines are the objects of an NDJSON answer, times taken out.
func lines(t *testing.T, body string) []string {
	t.Helper()
	var list []string
	for line := range strings.Lines(body) {
		list = append(list, untimed(t, line))
	}
	return list
}

func untimed(t *testing.T, line string) string {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(line), &object); err != nil {
		t.Fatalf("line %q: got %v, want an object", line, err)
	}
	delete(object, "ts")
	var b bytes.Buffer
	_ = encodeJSON(&b, object)
	return strings.TrimSpace(b.String())
}

func TestAPIQueryFollowsItsTurn(t *testing.T) {
	f := newAPIFixture(t)
	id := f.session()
	f.provide(id)
	_, body := f.ask("POST", "/sessions/"+id+"/query", `{"prompt":"hello"}`)
	want := `{"callback":"onAgentStart","turnId":"turn-1"}
{"callback":"onAgentEnd","turnId":"turn-1"}
{"callback":"onIdle"}
{"done":true}`
	expectText(t, "a turn", strings.Join(lines(t, body), "\n"), want)
	_, body = f.ask("POST", "/sessions/"+id+"/query",
		`{"prompt":"call:echo {\"text\":\"hi\"}","mode":"immediate"}`)
	got := strings.Join(lines(t, body), "\n")
	for _, part := range []string{
		`{"callback":"onStartToolExecution","toolArguments":"{\"text\":\"hi\"}","toolCallId":"call-2","toolName":"echo"}`,
		`{"callback":"onEndToolExecution","result":{"content":"{\"echoed\":{\"text\":\"hi\"}}"},"toolCallId":"call-2"}`,
		`{"callback":"onEndMessage","completeContent":"{\"echoed\":{\"text\":\"hi\"}}","messageId":"message-2"}`,
		"{\"callback\":\"onIdle\"}\n{\"done\":true}",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("a tool call: got\n%s\nwant a line %s", got, part)
		}
	}
	f.expect("POST", "/sessions/"+id+"/query", `{"prompt":"hello","detach":true}`, 202, "{}")
}

// scripted is a host that hands its prompts to the test.
type scripted struct{ prompts chan gateway.Prompt }

func (scripted) SetTools(context.Context, uint64, []gateway.Tool) error { return nil }
func (h scripted) Send(_ context.Context, p gateway.Prompt) error {
	h.prompts <- p
	return nil
}
func (scripted) Log(adminapi.LogLevel, string)                       {}
func (scripted) Interrupt(context.Context, string) ([]string, error) { return nil, nil }
func (scripted) Close(context.Context, string) error                 { return nil }

// hosted registers a session of a scripted host.
func (f *apiFixture) hosted() (*gateway.Session, scripted) {
	f.t.Helper()
	h := scripted{make(chan gateway.Prompt, 1)}
	s, err := f.gateway.Register(gateway.SessionSpec{CWD: f.dir},
		gateway.HostInfo{Kind: "test", Send: true}, h)
	if err != nil {
		f.t.Fatal(err)
	}
	return s, h
}

func TestAPIQueryTellsHowTheTurnFailed(t *testing.T) {
	f := newAPIFixture(t)
	s, h := f.hosted()
	go func() {
		<-h.prompts
		s.Busy()
		s.Event(gateway.Event{SessionError: "the model said no"})
		s.Idle()
	}()
	_, body := f.ask("POST", "/sessions/"+s.ID()+"/query", `{"prompt":"x"}`)
	want := `{"sessionError":"the model said no"}
{"callback":"onIdle"}
{"done":true,"error":{"code":"SESSION_ERROR","message":"the model said no"}}`
	expectText(t, "a failed turn", strings.Join(lines(t, body), "\n"), want)
	go func() {
		<-h.prompts
		s.Ended("it died")
	}()
	_, body = f.ask("POST", "/sessions/"+s.ID()+"/query", `{"prompt":"x"}`)
	want = `{"sessionError":"the session's host is gone: it died"}
{"done":true,"error":{"code":"SESSION_ERROR","message":"the session's host is gone: it died"}}`
	expectText(t, "a failed turn", strings.Join(lines(t, body), "\n"), want)
	s, h = f.hosted()
	go func() {
		<-h.prompts
		if err := s.Stop(context.Background(), "somebody stopped it"); err != nil {
			t.Error(err)
		}
	}()
	_, body = f.ask("POST", "/sessions/"+s.ID()+"/query", `{"prompt":"x"}`)
	want =
		`{"done":true,"error":{"code":"INVALID_SESSION","message":"the session ended before the turn did"}}`
	expectText(t, "a stopped session", strings.Join(lines(t, body), "\n"), want)
}

// follower reads an NDJSON stream line by line.
type follower struct {
	t     *testing.T
	lines *bufio.Scanner
	body  io.Closer
}

func (f *apiFixture) follow(path string) *follower {
	f.t.Helper()
	r := f.open("GET", path, "")
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/x-ndjson" {
		f.t.Fatalf("%s: got %s %s, want 200 application/x-ndjson", path, r.Status,
			r.Header.Get("Content-Type"))
	}
	return &follower{f.t, bufio.NewScanner(r.Body), r.Body}
}

func (f *follower) next() string {
	f.t.Helper()
	if !f.lines.Scan() {
		return "end"
	}
	return untimed(f.t, f.lines.Text())
}

func TestAPIStreamsFollowAndEndWithTheSession(t *testing.T) {
	f := newAPIFixture(t)
	s, _ := f.hosted()
	at := "/sessions/" + s.ID()
	push := func(body string) {
		t.Helper()
		f.expect("POST", at+"/push", body, 200, `"fate"…`)
	}
	push(`{"event":"one","stream":"a","level":"keep"}`)
	push(`{"event":"two","stream":"b","level":"keep","metadata":{"n":1}}`)
	push(`{"event":"three","stream":"a","level":"keep","provider":"other"}`)

	live := f.follow(at + "/live")
	log := f.follow(at + "/log?follow=1")
	history := f.follow(at + "/history?follow=1&stream=a")
	owned := f.follow(at + "/history?follow=1&stream=a@other&last=0")
	defer func() {
		_ = live.body.Close()
		_ = log.body.Close()
		_ = history.body.Close()
		_ = owned.body.Close()
	}()

	expectText(t, "log", log.next(),
		`{"level":"info","message":"session started","seq":1,"source":"gateway"}`)
	for _, want := range []string{
		`{"event":"one","level":"keep","provider":"tapctl","stream":"a"}`,
		`{"event":"three","level":"keep","provider":"other","stream":"a"}`,
	} {
		expectText(t, "history", history.next(), want)
	}
	push(`{"event":"four","stream":"b","level":"keep"}`)
	push(`{"event":"five","stream":"a","level":"keep","provider":"other"}`)
	want := `{"event":"five","level":"keep","provider":"other","stream":"a"}`
	expectText(t, "history", history.next(), want)
	expectText(t, "history with last=0", owned.next(), want)
	s.Event(gateway.Event{Callback: gateway.OnMessage, ID: "m", Delta: "<&>"})
	expectText(t, "live", live.next(), `{"callback":"onMessage","delta":"<&>","messageId":"m"}`)
	f.expect("DELETE", at, "", 200, "{}")
	if got, want := log.next(), "session is ending"; !strings.Contains(got, want) {
		t.Errorf("log: got %s, want …%s…", got, want)
	}
	for what, stream := range map[string]*follower{"live": live, "log": log, "history": history,
		"owned": owned} {
		expectText(t, what, stream.next(), "end")
	}
}

func TestAPIHistoryNewestFirst(t *testing.T) {
	f := newAPIFixture(t)
	s, _ := f.hosted()
	for i := range 5 {
		f.expect("POST", "/sessions/"+s.ID()+"/push", fmt.Sprintf(`{"event":"e%d","stream":"a"}`,
			i), 200, `"fate"…`)
	}
	_, body := f.ask("GET", "/sessions/"+s.ID()+"/history?stream=a&last=2", "")
	var rows []adminapi.StreamRow
	if err := json.Unmarshal([]byte(body), &rows); err != nil || len(rows) != 2 ||
		rows[0].Event != "e4" || rows[1].Event != "e3" {
		t.Fatalf("history: got %s (%v), want e4 and e3", body, err)
	}
	since := rows[1].TS.Format(time.RFC3339Nano)
	if _, body := f.ask("GET", "/sessions/"+s.ID()+"/history?since="+since, ""); strings.Count(body,
		`"event"`) != 2 {
		t.Errorf("history since %s: got %s, want two events", since, body)
	}
	f.expect("GET", "/sessions/"+s.ID()+"/history?stream=none", "", 200, "[]")
}

func TestAPIPushAndWait(t *testing.T) {
	f := newAPIFixture(t)
	s, h := f.hosted()
	go func() {
		<-h.prompts
		s.Busy()
		s.Idle()
	}()
	_, body := f.ask("POST", "/sessions/"+s.ID()+"/push", `{"prompt":"do","wait":true}`)
	var r adminapi.Receipt
	if err := json.Unmarshal([]byte(body), &r); err != nil || r.Fate != adminapi.FateDelivered ||
		r.Seq != 1 {
		t.Errorf("receipt: got %s (%v), want number 1, delivered", body, err)
	}
}
