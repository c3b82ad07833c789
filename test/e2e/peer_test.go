//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// message is a message of the provider protocol.
type message map[string]any

// peer is a provider in this process that says what it likes, byte by byte.
type peer struct {
	t  testing.TB
	ws *websocket.Conn

	mu   sync.Mutex
	got  map[string][]message // by type, in order
	seen map[string]int       // how many of them next has returned
	more chan struct{}        // closed and replaced when one comes
	end  error                // why no more come

	hear   atomic.Bool   // false: read nothing more
	finish chan struct{} // closed at the end of the test
}

// connect opens a provider connection and reads it until it ends.
func (g *gateway) connect() *peer {
	g.t.Helper()
	return g.connectFrom("")
}

// connectFrom connects as a web page of that origin would, "" for no page.
func (g *gateway) connectFrom(origin string) *peer {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o := &websocket.DialOptions{}
	if origin != "" {
		o.HTTPHeader = http.Header{"Origin": {origin}}
	}
	ws, _, err := websocket.Dial(ctx, g.url, o)
	if err != nil {
		g.t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	c := &peer{t: g.t, ws: ws, got: map[string][]message{}, seen: map[string]int{},
		more: make(chan struct{}), finish: make(chan struct{})}
	c.hear.Store(true)
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		c.read()
	}()
	g.t.Cleanup(func() {
		_ = ws.CloseNow()
		close(c.finish)
		<-reading
	})
	return c
}

func (c *peer) read() {
	for {
		if !c.hear.Load() {
			<-c.finish
			return
		}
		_, data, err := c.ws.Read(context.Background())
		m := message{}
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		c.mu.Lock()
		if err != nil {
			c.end = err
		} else {
			kind, _ := m["type"].(string)
			c.got[kind] = append(c.got[kind], m)
		}
		close(c.more)
		c.more = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// next waits for the next message of a type.
func (c *peer) next(kind string) message {
	c.t.Helper()
	timeout := time.After(patience)
	for {
		c.mu.Lock()
		if n := c.seen[kind]; n < len(c.got[kind]) {
			m := c.got[kind][n]
			c.seen[kind]++
			c.mu.Unlock()
			return m
		}
		more, end := c.more, c.end
		c.mu.Unlock()
		if end != nil {
			c.t.Fatalf("the connection ended without %s: %v, want one", kind, end)
		}
		select {
		case <-more:
		case <-timeout:
			c.t.Fatalf("no %s within %v, want one", kind, patience)
		}
	}
}

// count returns how many messages of a type came so far.
func (c *peer) count(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got[kind])
}

// waitClosed waits for the end of the connection and returns its close code, -1
// when it was cut.
func (c *peer) waitClosed() websocket.StatusCode {
	c.t.Helper()
	var end error
	eventually(c.t, patience, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if end = c.end; end == nil {
			return errors.New("the connection is still up")
		}
		return nil
	})
	return websocket.CloseStatus(end)
}

// send sends a message; an error shows in what comes back, or does not.
func (c *peer) send(m message) {
	c.t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	c.raw(data)
}

// raw sends a text frame as it is.
func (c *peer) raw(data []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = c.ws.Write(ctx, websocket.MessageText, data)
}

// stopReading stops reading, but for a message that is awaited already.
func (c *peer) stopReading() { c.hear.Store(false) }

// bind authenticates and says hello. Every tool takes any arguments, and more
// time than tests have if it says nothing else.
func (c *peer) bind(session, name string, tools ...message) {
	c.t.Helper()
	for _, tool := range tools {
		tool["description"] = "Misbehaves"
		tool["parameters"] = message{"type": "object"}
		if tool["timeout"] == nil {
			tool["timeout"] = 600_000
		}
	}
	c.next("sessions")
	c.send(message{"type": "hello", "name": name, "protocolVersion": 2, "session": session,
		"tools": tools})
	c.next("hello.ack")
}

// peer binds a provider in this process to a session.
func (g *gateway) peer(session, name string, tools ...message) *peer {
	g.t.Helper()
	c := g.connect()
	c.send(message{"type": "auth", "token": g.home.read(".provider-token")})
	c.bind(session, name, tools...)
	return c
}

// get makes a plain request and returns the status of its answer.
func (g *gateway) get(path string, headers ...string) int {
	g.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http"+strings.TrimPrefix(g.url, "ws")+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	r.Close = true
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// text is a text of so many bytes.
func text(bytes int) string { return strings.Repeat("x", bytes) }
