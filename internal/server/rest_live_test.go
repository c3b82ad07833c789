package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// A session that others started has a queue from its first live; ids are decoded.
func TestRESTOtherSessions(t *testing.T) {
	f := newRESTFixture(t)
	const id = "a b/c%2F.é"
	s := f.session(id)
	s.Event(gateway.Event{Callback: gateway.OnStartMessage, ID: "m1"})
	s.Event(gateway.Event{Callback: gateway.OnEndMessage, ID: "m1", Content: "long ago"})
	s.Event(gateway.Event{Callback: gateway.OnStartMessage, ID: "m2"})
	s.Event(gateway.Event{Callback: gateway.OnMessage, ID: "m2", Delta: "just "})
	// What is under way begins for those who come later, too.
	f.wantJSON("the first live", f.live(id), `{"callback":"onStartMessage","messageId":"m2"}`)
	s.Event(gateway.Event{Callback: gateway.OnEndMessage, ID: "m2", Content: "just now"})
	f.wantJSON("live", f.live(id),
		`{"callback":"onEndMessage","messageId":"m2","completeContent":"just now"}`)
	f.wantJSON("query", f.post("copilot/session/"+url.PathEscape(id)+"/query", "hello"), `{}`)
	if err := s.Stop(t.Context(), "elsewhere"); err != nil {
		t.Fatal(err)
	}
	f.wantJSON("after its end", f.live(id), `{"error":"SessionClosed"}`)
	f.wantJSON("and then", f.live(id), `{"error":"SessionNotFound"}`)

	// A new session of the same id comes after the old one was drained.
	s = f.session("again")
	answer := f.liveAsync("again")
	f.waitForCaller("again")
	s.Event(gateway.Event{Callback: gateway.OnAgentStart, ID: "1"})
	f.wantJSON("live", <-answer, `{"callback":"onAgentStart","turnId":"1"}`)
	s.Event(gateway.Event{Callback: gateway.OnAgentEnd, ID: "1"})
	if err := s.Stop(t.Context(), "elsewhere"); err != nil {
		t.Fatal(err)
	}
	f.session("again").Event(gateway.Event{Callback: gateway.OnAgentStart, ID: "2"})
	f.wantResponses([]string{f.live("again"), f.live("again"), f.live("again")},
		`{"callback":"onAgentEnd","turnId":"1"}`,
		`{"error":"SessionClosed"}`, `{"callback":"onAgentStart","turnId":"2"}`)
}

// Of sessions that ended and that nobody asks for any more the latest are kept.
func TestRESTEndedSessionsAreForgotten(t *testing.T) {
	f := newRESTFixture(t)
	var ids []string
	for range restEndedKept + 2 {
		id := f.mustStart("local")
		f.wantJSON("stop", f.post("copilot/session/"+id+"/stop", ""), `{"result":"Closed"}`)
		ids = append(ids, id)
	}
	f.mustStart("local")
	for i, want := range map[int]string{0: restSessionNotFound, 1: restSessionNotFound,
		2:                 restSessionClosed,
		restEndedKept + 1: restSessionClosed} {
		f.wantJSON(fmt.Sprintf("session %d", i), f.live(ids[i]), fmt.Sprintf(`{"error":%q}`, want))
	}
}

// raw sends a request on a connection of its own and leaves it there.
func (f *restFixture) raw(path string) net.Conn {
	f.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := io.WriteString(c,
		"GET /api/"+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		f.t.Fatal(err)
	}
	return c
}

func readAnswer(t *testing.T, c net.Conn) string {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// In 5 seconds without a response, and not before, live says so; then it can be
// asked again. It waits for nothing else.
func TestRESTLiveTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRESTBubble(t)
		id := f.mustStart("local")
		for range 3 {
			began := time.Now()
			f.wantJSON("live", f.live(id), `{"error":"HttpRequestTimeout"}`)
			if took := time.Since(began); took != restLiveTimeout {
				t.Errorf("it took %s, want %s", took, restLiveTimeout)
			}
		}
		s, _ := f.gateway.Session(id)
		answer := f.liveAsync(id)
		wait(restLiveTimeout - time.Millisecond)
		synctest.Wait()
		began := time.Now()
		f.wantJSON("a second call", f.live(id), `{"error":"ParallelCallNotSupported"}`)
		s.Event(gateway.Event{Callback: gateway.OnAgentStart, ID: "1"})
		f.wantJSON("at the last moment", <-answer, `{"callback":"onAgentStart","turnId":"1"}`)
		if took := time.Since(began); took != 0 {
			t.Errorf("the answer came after %s, want 0", took)
		}
		// One that waits hears of the end at once.
		answer = f.liveAsync(id)
		synctest.Wait()
		f.wantJSON("stop", f.post("copilot/session/"+id+"/stop", ""), `{"result":"Closed"}`)
		f.wantJSON("the one who waits", <-answer, `{"error":"SessionClosed"}`)
		f.wantJSON("and then", f.live(id), `{"error":"SessionNotFound"}`)
	})
}

// A caller that takes nothing of its answer is given up after 10 seconds; the
// response is for the next one. Other sessions notice nothing.
func TestRESTStalledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRESTBubble(t)
		id, other := f.mustStart("gpt-5-mini"), f.mustStart("gpt-5-mini")
		s, _ := f.gateway.Session(id)
		content := strings.Repeat("x", 1<<17)
		s.Event(gateway.Event{Callback: gateway.OnEndMessage, ID: "m1", Content: content})
		stalled, err := f.client.Transport.(*http.Transport).DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stalled.Close() }()
		if _, err := io.WriteString(stalled,
			"GET /api/copilot/session/"+id+
				"/live HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		synctest.Wait()
		for i := range 100 {
			o, _ := f.gateway.Session(other)
			o.Event(gateway.Event{Callback: gateway.OnAgentStart, ID: fmt.Sprint(i)})
			f.wantJSON("another session", f.live(other),
				fmt.Sprintf(`{"callback":"onAgentStart","turnId":"%d"}`, i))
		}
		if time.Since(began) != 0 {
			t.Errorf("another session was held up for %s, want 0", time.Since(began))
		}
		// The next caller of this one waits for as long as any caller does.
		f.wantJSON("while it stalls", f.live(id), `{"error":"ParallelCallNotSupported"}`)
		if took := time.Since(began); took != restLiveTimeout {
			t.Errorf("it was told so after %s, want %s", took, restLiveTimeout)
		}
		wait(writeDeadline - restLiveTimeout)
		synctest.Wait()
		f.wantJSON("afterwards", f.live(id),
			fmt.Sprintf(`{"callback":"onEndMessage","messageId":"m1","completeContent":%q}`,
				content))
	})
}

// 10,000 deltas while somebody reads, as fast as they come: none is lost, none
// comes twice, and all are in their order.
func TestRESTOrderUnderLoad(t *testing.T) {
	f := newRESTFixture(t)
	id := f.mustStart("gpt-5-mini")
	s, _ := f.gateway.Session(id)
	const deltas = 10_000
	go func() {
		s.Event(gateway.Event{Callback: gateway.OnStartMessage, ID: "m"})
		for i := range deltas {
			s.Event(gateway.Event{Callback: gateway.OnMessage, ID: "m", Delta: fmt.Sprint(i)})
		}
		s.Event(gateway.Event{Callback: gateway.OnEndMessage, ID: "m", Content: "all"})
	}()
	f.wantJSON("the first", f.live(id), `{"callback":"onStartMessage","messageId":"m"}`)
	for i := range deltas {
		if got, want := f.live(id), fmt.Sprintf(
			`{"callback":"onMessage","delta":"%d","messageId":"m"}`,
			i); got != want {
			t.Fatalf("response %d is %s, want %s", i, got, want)
		}
	}
	f.wantJSON("the last", f.live(id),
		`{"callback":"onEndMessage","messageId":"m","completeContent":"all"}`)
}

// 20 callers share a busy session: one at a time is answered, and together they
// have everything once.
func TestRESTManyCallers(t *testing.T) {
	f := newRESTFixture(t)
	id := f.mustStart("gpt-5-mini")
	s, _ := f.gateway.Session(id)
	const callers, deltas = 20, 1000
	got := make([][]int, callers)
	var calling sync.WaitGroup
	for c := range callers {
		calling.Go(func() {
			for {
				answer, err := f.try(http.MethodPost, "copilot/session/"+id+"/live", "")
				var m struct{ Delta, Error string }
				if err == nil {
					err = json.Unmarshal([]byte(answer), &m)
				}
				switch n, nerr := strconv.Atoi(m.Delta); {
				case err != nil:
					t.Error(err)
					return
				case m.Error == restSessionClosed || m.Error == restSessionNotFound:
					return
				case m.Error == restParallelCall || m.Error == restTimeout:
				case nerr != nil:
					t.Errorf("a caller got %s, want no error", answer)
				default:
					got[c] = append(got[c], n)
				}
			}
		})
	}
	for i := range deltas {
		s.Event(gateway.Event{Callback: gateway.OnMessage, ID: "m", Delta: fmt.Sprint(i)})
	}
	f.wantJSON("stop", f.post("copilot/session/"+id+"/stop", ""), `{"result":"Closed"}`)
	calling.Wait()
	var all []int
	for c, list := range got {
		if !slices.IsSorted(list) {
			t.Errorf("caller %d got %v, want the deltas in order", c, list)
		}
		all = append(all, list...)
	}
	slices.Sort(all)
	for i := range deltas {
		if i >= len(all) || all[i] != i {
			t.Fatalf("%d responses came, want each once, not so at %d", len(all), i)
		}
	}
	if len(all) != deltas {
		t.Errorf("%d responses came, want %d", len(all), deltas)
	}
}

// A caller may use a new connection each time: that its last answer is only just
// written is nothing it could know.
func TestRESTSequentialCallers(t *testing.T) {
	f := newRESTFixture(t)
	id := f.mustStart("gpt-5-mini")
	s, _ := f.gateway.Session(id)
	f.client.Transport.(*http.Transport).DisableKeepAlives = true
	for i := range 300 {
		s.Event(gateway.Event{Callback: gateway.OnAgentStart, ID: fmt.Sprint(i)})
		f.wantJSON("live", f.live(id), fmt.Sprintf(`{"callback":"onAgentStart","turnId":"%d"}`, i))
	}
	f.wantJSON("stop", f.post("copilot/session/"+id+"/stop", ""), `{"result":"Closed"}`)
	f.wantJSON("live", f.live(id), `{"error":"SessionClosed"}`)
	f.wantJSON("live", f.live(id), `{"error":"SessionNotFound"}`)
}

// A caller that goes away in the middle of its answer does not take it along.
func TestRESTCallerGoesAwayInMidAnswer(t *testing.T) {
	f := newRESTFixture(t)
	id := f.mustStart("gpt-5-mini")
	s, _ := f.gateway.Session(id)
	content := strings.Repeat("x", 12<<20) // more than sockets hold
	s.Event(
		gateway.Event{Callback: gateway.OnEndToolExecution, ID: "c1",
			Result: &adminapi.ToolOutput{Content: content}},
	)
	s.Event(gateway.Event{Callback: gateway.OnAgentEnd, ID: "1"})
	for range 3 {
		c := f.raw("copilot/session/" + id + "/live")
		if err := c.(*net.TCPConn).SetReadBuffer(1 << 16); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		f.waitUntil(func() bool { return f.caller(id) == nil })
	}
	want := `{"callback":"onEndToolExecution","result":{"content":"` + content +
		`"},"toolCallId":"c1"}`
	if got := f.live(id); got != want {
		t.Errorf("the next call gets %d bytes, want %d", len(got), len(want))
	}
	f.wantJSON("and then", f.live(id), `{"callback":"onAgentEnd","turnId":"1"}`)
}

// One that closes its connection as soon as it has its answer had it.
func TestRESTCallerLeavesWithItsAnswer(t *testing.T) {
	f := newRESTFixture(t)
	id := f.mustStart("gpt-5-mini")
	s, _ := f.gateway.Session(id)
	for i := range 200 {
		s.Event(gateway.Event{Callback: gateway.OnAgentStart, ID: fmt.Sprint(i)})
		c := f.raw("copilot/session/" + id + "/live")
		f.wantJSON("live", readAnswer(t, c),
			fmt.Sprintf(`{"callback":"onAgentStart","turnId":"%d"}`, i))
		_ = c.Close()
	}
}
