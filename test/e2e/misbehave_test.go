//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
)

// stage is a session with a provider that behaves, at work all the time, for
// another one that does not.
type stage struct {
	*home
	g       *gateway
	api     *client.Client
	session string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	s := &stage{home: newHome(t)}
	s.g = s.serve()
	s.api = s.g.api()
	s.session = s.local()
	s.bindProvider(s.session, "neighbour", "quietly")
	ctx, stop := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() { s.callNeighbour(ctx) })
	t.Cleanup(func() {
		stop()
		working.Wait()
	})
	return s
}

// callNeighbour calls the neighbour's tool again and again: every call must succeed, and
// there must be some before it ends.
func (s *stage) callNeighbour(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := 0; n < 20 || ctx.Err() == nil; n++ {
		<-tick.C
		args := json.RawMessage(fmt.Sprintf(`{"for":%d}`, n))
		r, err := s.api.Call(context.Background(), s.session, "quietly", adminapi.Call{Args: args})
		if err != nil || string(r.Data) != strconv.Itoa(n) {
			s.t.Errorf("call %d of the other provider: %s %s %v, want %d and no error", n, r.Data,
				r.ErrorCode, err, n)
			return
		}
	}
}

// calling is a call that goes on beside the test.
type calling struct {
	s    *stage
	done chan struct{}
	took time.Duration
	adminapi.CallResult
	err error
}

// call begins a call. Its own timeout, 0 for the tool's, ends it at the latest.
func (s *stage) begin(tool string, timeout time.Duration) *calling {
	c := &calling{s: s, done: make(chan struct{})}
	var call adminapi.Call
	if timeout > 0 {
		call.TimeoutMs = new(timeout.Milliseconds())
	}
	go func() {
		defer close(c.done)
		began := time.Now()
		c.CallResult, c.err = s.api.Call(context.Background(), s.session, tool, call)
		c.took = time.Since(began)
	}()
	s.t.Cleanup(func() { <-c.done })
	return c
}

// checkEnd waits for the outcome of a call and checks it: an error code, or "" and
// the data as JSON.
func (c *calling) checkEnd(code, data string) {
	c.s.t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		c.s.t.Fatalf("a call did not end within %v, want its end", patience)
	}
	if c.err != nil || c.ErrorCode != code || (code == "" && string(c.Data) != data) {
		c.s.t.Errorf("the call ended with %q %.100s %.100q %v, want %q %.100s", c.ErrorCode, c.Data,
			c.Error, c.err, code, data)
	}
}

// checkPending checks that a call has not ended.
func (c *calling) checkPending() {
	c.s.t.Helper()
	select {
	case <-c.done:
		c.s.t.Errorf("the call ended already: %q %s %q, want it to wait", c.ErrorCode, c.Data,
			c.Error)
	default:
	}
}

// checkAnswered makes a peer answer the next call, and checks that it arrived.
func (s *stage) checkAnswered(c *peer, tool string) {
	s.t.Helper()
	k := s.begin(tool, 0)
	c.send(message{"type": "tool.result", "id": c.next("tool.call")["id"], "data": "well"})
	k.checkEnd("", `"well"`)
}

// checkNoErrors checks that the gateway had nothing to complain about.
func (c *peer) checkNoErrors() {
	c.t.Helper()
	if n := c.count("error"); n != 0 {
		c.t.Errorf("the gateway sent %d errors, the last: %v, want 0", n, c.next("error"))
	}
}

func TestProviderAnswersNothing(t *testing.T) {
	s := newStage(t)
	c := s.g.peer(s.session, "silent", message{"name": "short", "timeout": 300},
		message{"name": "long"})
	first, second := s.begin("short", 0), s.begin("long", 400*time.Millisecond)
	first.checkEnd("TIMEOUT", "")
	second.checkEnd("TIMEOUT", "")
	if first.took < 300*time.Millisecond || second.took < 400*time.Millisecond {
		t.Errorf("the calls timed out after %v and %v, want 300 ms and 400 ms or more", first.took,
			second.took)
	}
	calls := map[any]bool{c.next("tool.call")["id"]: true, c.next("tool.call")["id"]: true}
	for range 2 {
		cancel := c.next("tool.cancel")
		if !calls[cancel["id"]] || cancel["reason"] != "timeout" {
			t.Errorf(
				`the provider was told %v, its calls were %v, want a cancel of each for "timeout"`,
				cancel, calls)
		}
		delete(calls, cancel["id"])
	}
	s.checkAnswered(c, "long")
	c.checkNoErrors()
}

func TestProviderAnswersTwice(t *testing.T) {
	s := newStage(t)
	c := s.g.peer(s.session, "eager", message{"name": "twice"})
	k := s.begin("twice", 0)
	id := c.next("tool.call")["id"]
	c.send(message{"type": "tool.result", "id": id, "data": "first"})
	c.send(message{"type": "tool.result", "id": id, "data": "second"})
	c.send(message{"type": "tool.result", "id": id, "error": "third", "errorCode": "INTERNAL"})
	k.checkEnd("", `"first"`)
	s.checkAnswered(c, "twice")
	c.checkNoErrors()
}

func TestProviderAnswersLate(t *testing.T) {
	s := newStage(t)
	c := s.g.peer(s.session, "late", message{"name": "short", "timeout": 300},
		message{"name": "long"})
	long := s.begin("long", 0)
	longID := c.next("tool.call")["id"]
	short := s.begin("short", 0)
	shortID := c.next("tool.call")["id"]
	short.checkEnd("TIMEOUT", "")
	c.next("tool.cancel")
	// What the protocol demands, and what the tool came to after all.
	c.send(message{"type": "tool.result", "id": shortID, "error": "Cancelled",
		"errorCode": "CANCELLED"})
	c.send(message{"type": "tool.result", "id": shortID, "data": "late"})
	c.send(message{"type": "tool.progress", "id": shortID, "message": "late"})
	s.checkAnswered(c, "long") // by now they have arrived
	long.checkPending()
	c.send(message{"type": "tool.result", "id": longID, "data": "in time"})
	long.checkEnd("", `"in time"`)
	c.checkNoErrors()
}

func TestProviderAnswersGarbage(t *testing.T) {
	s := newStage(t)
	c := s.g.peer(s.session, "garbled", message{"name": "tool"})

	// With no call in flight each fault is answered, and that is all.
	for _, fault := range []struct{ frame, code string }{
		{`{`, "INVALID_JSON"},
		{``, "INVALID_JSON"},
		{`[]`, "INVALID_JSON"},
		{"\x00\xff\xfe", "INVALID_JSON"},
		{`{"type":5}`, "INVALID_JSON"},
		{`{"type":"push","type":"push"}`, "INVALID_JSON"},
		{`{"type":"tool.result"}`, "INVALID_JSON"},
		{`{"type":"tool.result","id":"nobody-made-this","data":1}`, "UNKNOWN_CALL_ID"},
		{`{"type":"push","level":"shout","event":"x"}`, "INVALID_JSON"},
		{`{"type":"tools.update","tools":{}}`, "INVALID_JSON"},
		{`{"type":"no.such.type"}`, "UNKNOWN_TYPE"},
		{`{"type":"hello.ack"}`, "UNKNOWN_TYPE"},
		{`{"type":"auth","token":"ptk-x"}`, "INVALID_STATE"},
	} {
		c.raw([]byte(fault.frame))
		if e := c.next("error"); e["code"] != fault.code || e["message"] == "" {
			t.Errorf("%q gets %v, want %s", fault.frame, e, fault.code)
		}
	}
	s.checkAnswered(c, "tool")

	// With one, it is that call which fails.
	for _, frame := range []string{`{"type":"tool.result",`,
		`{"type":"tool.result","id":"nobody-made-this","data":1}`,
		`{"type":"tool.result","id":7,"data":1}`} {
		k := s.begin("tool", 0)
		c.next("tool.call")
		c.raw([]byte(frame))
		k.checkEnd("INTERNAL", "")
		c.next("error")
	}
	// A result that names its call fails that one, whatever else is in flight.
	named, other := s.begin("tool", 0), s.begin("tool", 0)
	id, otherID := c.next("tool.call")["id"], c.next("tool.call")["id"]
	c.raw(fmt.Appendf(nil, `{"type":"tool.result","id":%q,"errorCode":5}`, id))
	c.next("error")
	c.send(message{"type": "tool.result", "id": otherID, "data": "well"})
	// Calls are dispatched in any order, so either may be the one named.
	<-named.done
	<-other.done
	if named.ErrorCode == "" {
		named, other = other, named
	}
	named.checkEnd("INTERNAL", "")
	other.checkEnd("", `"well"`)

	// With several, nobody can tell which: the provider is cut off.
	several := []*calling{s.begin("tool", 0), s.begin("tool", 0), s.begin("tool", 0)}
	for range several {
		c.next("tool.call")
	}
	c.raw([]byte(`{"type":"tool.result","data":"whose?"}`))
	for _, k := range several {
		k.checkEnd("DISCONNECTED", "")
	}
	if code := c.waitClosed(); code < 4000 {
		t.Errorf("the connection was closed with %d, want at least 4000", code)
	}
}

func TestProviderSendsTooMuch(t *testing.T) {
	const mib = 1 << 20
	s := newStage(t)
	c := s.g.peer(s.session, "large", message{"name": "tool"})

	// 3 MiB are fine for a result, and for nothing else.
	data := text(3 * mib)
	k := s.begin("tool", 0)
	c.send(message{"type": "tool.result", "id": c.next("tool.call")["id"], "data": data})
	k.checkEnd("", `"`+data+`"`)
	c.checkNoErrors()
	c.send(message{"type": "push", "level": "keep", "event": data})
	if e := c.next("error"); e["code"] != "PAYLOAD_TOO_LARGE" || e["replyTo"] != "push" {
		t.Errorf(`a push of 3 MiB gets %v, want "PAYLOAD_TOO_LARGE" and "push"`, e)
	}
	s.checkAnswered(c, "tool")

	// A result that is too large ends its call, and no other.
	large, other := s.begin("tool", 0), s.begin("tool", 0)
	first, second := c.next("tool.call")["id"], c.next("tool.call")["id"]
	c.raw(fmt.Appendf(nil, `{"type":"tool.result","id":%q,"data":%q}`, first, text(6*mib)))
	if e := c.next("error"); e["code"] != "PAYLOAD_TOO_LARGE" || e["replyTo"] != "tool.result" {
		t.Errorf(`a result of 6 MiB gets %v, want "PAYLOAD_TOO_LARGE" and "tool.result"`, e)
	}
	c.send(message{"type": "tool.result", "id": second, "data": "well"})
	<-large.done
	<-other.done
	if large.ErrorCode == "" {
		large, other = other, large
	}
	large.checkEnd("PAYLOAD_TOO_LARGE", "")
	other.checkEnd("", `"well"`)

	// Past 16 MiB the connection is closed.
	k = s.begin("tool", 0)
	c.next("tool.call")
	c.raw([]byte(text(17 * mib)))
	k.checkEnd("DISCONNECTED", "")
	if code := c.waitClosed(); code != websocket.StatusMessageTooBig && code != -1 {
		t.Errorf("the connection was closed with %v, want -1", code)
	}
}

// TestProviderStandsStill stops a provider's process for a while.
func TestProviderStandsStill(t *testing.T) {
	s := newStage(t)
	p := s.bindProvider(s.session, "sleeper", "greet")
	p.freeze()
	var calls []*calling
	for range 5 {
		calls = append(calls, s.begin("greet", 300*time.Millisecond))
	}
	for _, k := range calls {
		k.checkEnd("TIMEOUT", "")
	}
	p.signal(syscall.SIGCONT)
	k := s.begin("greet", 0)
	k.checkEnd("", `"Hello, <nil>!"`)
	if p.find("unbound") != "" {
		t.Errorf("the provider's output, want no message that its session ended:\n%s", p.output())
	}
}

// TestProviderStopsReading lets more wait for a provider than it may: what does
// not fit into the sockets' buffers and 8 MiB of the gateway's.
func TestProviderStopsReading(t *testing.T) {
	s := newStage(t)
	c := s.g.peer(s.session, "deaf", message{"name": "tool"})
	c.stopReading()
	args := json.RawMessage(`{"text":"` + text(1<<20) + `"}`)
	outcomes := make(chan string, 24)
	for range cap(outcomes) {
		go func() {
			r, err := s.api.Call(context.Background(), s.session, "tool",
				adminapi.Call{Args: args, TimeoutMs: new(int64(5000))})
			if err != nil {
				r.ErrorCode = err.Error()
			}
			outcomes <- r.ErrorCode
		}()
	}
	count := map[string]int{}
	for range cap(outcomes) {
		select {
		case code := <-outcomes:
			count[code]++
		case <-time.After(patience):
			t.Fatalf("some calls did not end, the others with %v, want all %d to end", count,
				cap(outcomes))
		}
	}
	// Those that came after it was closed found no tool.
	late := s.noSuchTool("tool")
	if count["DISCONNECTED"] == 0 ||
		count["DISCONNECTED"]+count["TIMEOUT"]+count["NOT_FOUND"]+count[late] != cap(
			outcomes) {
		t.Errorf(
			`the calls ended with %v, want a "DISCONNECTED", and of the others only TIMEOUT, NOT_FOUND and %s`,
			count, late,
		)
	}
	if n := s.metric("tapgw_slow_consumers_total"); n != 1 {
		t.Errorf("%d slow consumers were closed, want 1", n)
	}
	if left := s.only(); left.Name != "neighbour" {
		t.Errorf("still connected: %+v, want the neighbour only", left)
	}
}

// noSuchTool is the error of the API when a session has no such tool.
func (s *stage) noSuchTool(tool string) string {
	_, err := s.api.Call(context.Background(), s.session, tool, adminapi.Call{})
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestProviderFloods(t *testing.T) {
	const flood = 5000
	s := newStage(t)
	c := s.g.peer(s.session, "loud", message{"name": "tool"})
	waiting := s.begin("tool", 0)
	id := c.next("tool.call")["id"]
	for n := range flood {
		c.send(message{"type": "push", "level": "surface", "event": fmt.Sprintf("event %d", n)})
	}
	for range flood {
		c.raw([]byte(`{"type":"no.such.type"}`))
	}
	c.send(message{"type": "tool.result", "id": id, "data": "heard"})
	waiting.checkEnd("", `"heard"`)
	s.checkAnswered(c, "tool")

	refused := map[any]int{}
	for range c.count("error") {
		refused[c.next("error")["code"]]++
	}
	shown := len(s.timeline(s.session, "event "))
	if refused["UNKNOWN_TYPE"] != flood || refused["RATE_LIMITED"] == 0 ||
		refused["RATE_LIMITED"]+shown != flood || len(refused) != 2 {
		t.Errorf(
			"of %d pushes and as many other messages %d were shown, refused were %v, want some of both and all answered",
			flood, shown, refused,
		)
	}
	if shown < 10 {
		t.Errorf("%d pushes were shown, want the 10 that a second allows", shown)
	}
}

// TestProviderAsksAndDoesNotListen asks for far more than it reads.
func TestProviderAsksAndDoesNotListen(t *testing.T) {
	s := newStage(t)
	c := s.g.peer(s.session, "rude", message{"name": "tool"})
	for range 5 {
		c.send(message{"type": "push", "level": "keep", "event": text(1 << 20)})
	}
	k := s.begin("tool", 0)
	c.next("tool.call")
	c.checkNoErrors()
	c.stopReading()
	for n := range 10 { // 5 MiB each
		c.send(message{"type": "stream.query", "queryId": fmt.Sprint(n), "last": 5})
	}
	k.checkEnd("DISCONNECTED", "")
	if n := s.metric("tapgw_slow_consumers_total"); n != 1 {
		t.Errorf("%d slow consumers were closed, want 1", n)
	}
}
