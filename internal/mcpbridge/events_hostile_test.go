package mcpbridge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"tapgw/configs"
)

// A source that fires a thousand times a second costs one read and one event a second. Without an
// entry for it, it costs nothing.
func TestEventStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			server := newEventServer(t, "mem://a", "mem://b")
			r := newRig(t)
			s, h := r.session("one", "/w")
			r.bridge(withEvents(serveHTTP(t, server.Server, era),
				eventOf("mem://a", "a", "surface"),
				eventOf("mem://b", "b", "keep")))
			h.has(t, "log")
			began := time.Now()
			r.untilEvent(s, "a", "the text", func() { server.changed("mem://a") })
			for i := range 2500 {
				server.changed("mem://a")
				server.changed("mem://a/part")
				server.changed(fmt.Sprintf("mem://nobody/%d", i))
				<-time.After(time.Millisecond)
			}
			server.set("the end")
			server.changed("mem://a")
			r.untilEvent(s, "a", "the end", func() {})
			r.untilEvent(s, "b", "the end", func() { server.changed("mem://b") })
			most := 2*int(time.Since(began)/eventGap) + 4
			if n := len(events(s, "a")); n > most || int(server.reads.Load()) > most {
				t.Errorf("the storm made %d events and %d readings, want at most %d", n,
					server.reads.Load(), most)
			}
			for _, text := range events(s, "a") {
				if strings.Contains(text, "nobody") {
					t.Errorf("there is the event %q, want none of resources that nobody asked for",
						text)
				}
			}
		})
	}
}

// A resource that is too large makes an event that says so, or is cut, and harms nothing else.
func TestLargeResources(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			server := newEventServer(t)
			server.add("mem://declared", 20<<20)
			server.add("mem://undeclared", 0)
			r := newRig(t)
			s, h := r.session("one", "/w")
			b := r.bridge(withEvents(serveHTTP(t, server.Server, era),
				eventOf("mem://*", "", "keep")))
			h.has(t, "log")
			server.set(strings.Repeat("x", 20<<20))
			r.untilEvent(s, "srv",
				"mem://declared has changed; it is not read, for it has 20971520 bytes",
				func() { server.changed("mem://declared") })
			if n := server.reads.Load(); n != 0 {
				t.Errorf("there were %d readings, want none", n)
			}
			r.untilEvent(s, "srv", "mem://undeclared has changed; reading it: ",
				func() { server.changed("mem://undeclared") })
			server.set(strings.Repeat("ü", 1<<20))
			got := r.untilEvent(
				s,
				"srv",
				"[cut here: the whole text has 2097",
				func() { server.changed("mem://undeclared") },
			)
			if len(got) > maxEventText+100 || !utf8.ValidString(got) {
				t.Errorf("the event has %d bytes, valid: %v, want at most %d, valid", len(got),
					utf8.ValidString(got), maxEventText)
			}
			b.until("one connection", func(lines, _ string) bool {
				return strings.Count(lines, "connected by") == 1
			})
		})
	}
}

// Status names the entries of which a server knows nothing, and the resources that are left out;
// the others work.
func TestEventFaults(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, h := r.session("one", "/w")
	entries := []configs.MCPEvent{
		eventOf("mem://x/none", "", "keep"),
		eventOf("mem://y/*", "", "keep"),
		{Log: "info", Level: "keep"},
	}
	b := r.bridge(withEvents(rawServer(t, plainTool("t"), nil), entries...))
	b.hasFault(
		"events[0] (resource mem://x/none): the MCP server does not tell of changed resources: it does not have")
	b.hasFault("events[1] (resource mem://y/*): the MCP server does not tell of changed resources")
	b.hasFault(
		"events[2] (log info): the MCP server sends no log messages: it does not have the capability logging")
	b.stop()
	h.has(t)
	for _, era := range eras {
		var uris []string
		for i := range 150 {
			uris = append(uris, fmt.Sprintf("mem://y/%03d", i))
		}
		server := newEventServer(t, uris...)
		b := r.bridge(withEvents(serveHTTP(t, server.Server, era), entries...))
		b.hasFault(
			"events[1] (resource mem://y/*): 51 resources left out: the bridge follows at most 100")
		b.hasFault("events[0] (resource mem://x/none): mem://x/none: ")
		r.untilEvent(s, "srv", "mem://y/098", func() { server.changed("mem://y/098") })
		b.stop()
		h.has(t)
	}
}

// A subscription that the server ends is asked for again, and so are all after a new connection.
func TestEventsComeBack(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			var isDown atomic.Bool
			var cut atomic.Pointer[context.CancelFunc]
			begun := make(chan struct{}, 10) // subscriptions
			server := newEventServer(t, "mem://a")
			p := serveHTTP(t, server.Server, era, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if isDown.Load() {
						http.Error(w, "closed", http.StatusForbidden)
						return
					}
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
					if bytes.Contains(body, []byte(`"resourceSubscriptions"`)) {
						ctx, cancel := context.WithCancel(r.Context())
						defer cancel()
						cut.Store(&cancel)
						r = r.WithContext(ctx)
						begun <- struct{}{}
					}
					next.ServeHTTP(w, r)
				})
			})
			r := newRig(t)
			s, h := r.session("one", "/w")
			b := r.bridge(withEvents(p, eventOf("mem://a", "", "keep")))
			h.has(t, "log")
			touch := func() { server.changed("mem://a") }
			r.untilEvent(s, "srv", "the text", touch)
			if era == eras[0] {
				<-begun
				(*cut.Load())()
				select {
				case <-begun:
				case <-time.After(patience):
					t.Fatal("the bridge does not subscribe again, want it after the cut")
				}
				server.set("after the cut")
				r.untilEvent(s, "srv", "after the cut", touch)
			}
			isDown.Store(true)
			callTool(s, "log", "{}")
			h.has(t)
			isDown.Store(false)
			h.has(t, "log")
			server.set("after the outage")
			r.untilEvent(s, "srv", "after the outage", touch)
			b.until("no fault", func(_, faults string) bool { return faults == "" })
		})
	}
}

// A server that never answers a subscription holds up neither the others nor the end of the bridge.
func TestMuteSubscription(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			server := newEventServer(t, "mem://a")
			p := serveHTTP(t, server.Server, era, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					isMute := bytes.Contains(body, []byte("mem://mute"))
					if err != nil || isMute && !bytes.Contains(body, []byte("cancelled")) {
						<-r.Context().Done()
						return
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
					next.ServeHTTP(w, r)
				})
			})
			r := newRig(t)
			s, h := r.session("one", "/w")
			b := r.bridge(withEvents(p, eventOf("mem://mute", "", "keep"),
				eventOf("mem://a", "", "keep")))
			h.has(t, "log")
			r.untilEvent(s, "srv", "the text", func() { server.changed("mem://a") })
			b.hasFault("mem://mute: subscribing to it: the MCP server does not answer within 10s")
			b.stop()
			if err := <-b.done; err != nil {
				t.Errorf("the bridge ends with %v, want nil", err)
			}
			b.done <- nil
		})
	}
}
