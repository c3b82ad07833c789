//go:build e2e && linux

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
)

// remoteSession is a session whose host is a program at /host: it comes back after its gateway
// does.
type remoteSession struct {
	m       *machine
	url, id string // the gateway has the same URL after a restart

	mu    sync.Mutex
	lines map[string]int // that its person has seen, and how often
}

func (m *machine) remoteSession(id string) *remoteSession {
	m.t.Helper()
	r := &remoteSession{m: m, url: m.url, id: id, lines: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			r.serve(ctx)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	m.t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

// serve is one connection of the host.
func (r *remoteSession) serve(ctx context.Context) {
	token, err := os.ReadFile(filepath.Join(r.m.home, "extensions", "tap", ".admin-token"))
	if err != nil {
		return
	}
	ws, _, err := websocket.Dial(ctx, r.url+"/host", nil)
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(-1)
	send := func(format string, args ...any) {
		_ = ws.Write(ctx, websocket.MessageText, fmt.Appendf(nil, format, args...))
	}
	send(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"token":%q,"host":{"name":"test"},`+
			`"capabilities":{"send":true,"log":true,"liveTools":true}}}`,
		strings.TrimSpace(string(token)))
	send(
		`{"jsonrpc":"2.0","id":2,"method":"session/register","params":{"id":%q,"label":%q,"cwd":"/"}}`, r.id, r.id)
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Message string }
		}
		if json.Unmarshal(data, &m) != nil {
			return
		}
		if m.Method == "session/log" {
			r.mu.Lock()
			r.lines[m.Params.Message]++
			r.mu.Unlock()
		}
		if m.Method != "" && len(m.ID) > 0 {
			send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
		}
	}
}

// events are those that the session's streams have, oldest first.
func (r *remoteSession) events() string {
	rows, err := r.m.gw.History(context.Background(), r.id, client.HistoryQuery{Last: 200})
	if err != nil {
		return err.Error()
	}
	texts := make([]string, len(rows))
	for i, row := range rows {
		texts[len(rows)-1-i] = row.Event
	}
	return strings.Join(texts, " ")
}

// teller pushes numbered events to all sessions all the time.
type teller struct {
	m    *machine
	hold sync.Mutex // held while the teller's gateway is away

	mu     sync.Mutex
	n      int // events that were taken
	queued int // of them, that waited for NATS
}

func (r *teller) run(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		r.hold.Lock()
		n := r.count() + 1
		receipt, err := r.m.gw.Broadcast(ctx,
			adminapi.Broadcast{Provider: "ci", Stream: fmt.Sprint("builds-", n%10),
				Event: fmt.Sprint(n)})
		r.mu.Lock()
		switch {
		case err == nil && receipt.Fate == adminapi.FateQueued:
			r.queued++
			r.n = n
		case err == nil:
			r.n = n
		case ctx.Err() == nil && !strings.Contains(err.Error(), "more than"):
			t.Errorf("event %d: %v", n, err)
		}
		r.mu.Unlock()
		r.hold.Unlock()
		select {
		case <-time.After(130 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (r *teller) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// leader is the node that leads a stream.
func leader(t *testing.T, nodes []*natsNode, stream string) *natsNode {
	t.Helper()
	for _, node := range nodes {
		nc, err := nats.Connect(node.url)
		if err != nil {
			continue
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		s, err := js.Stream(t.Context(), stream)
		if err != nil || s.CachedInfo().Cluster == nil {
			continue
		}
		if got := len(s.CachedInfo().Cluster.Replicas); got != 2 {
			t.Errorf("the stream has %d replicas beside its leader, want 2", got)
		}
		for i := range nodes {
			if s.CachedInfo().Cluster.Leader == fmt.Sprint("n", i) {
				return nodes[i]
			}
		}
	}
	t.Fatalf("stream %s has no leader", stream)
	return nil
}

// TestLasting has sessions on five machines, and takes machines, NATS servers and the network away
// while events go to all of them. Each session's streams have each event once, in order.
func TestLasting(t *testing.T) {
	t.Parallel() // with TestChaos: most of their time is waiting
	nodes := natsNodes(t, 3)
	urls := []string{nodes[0].url, nodes[1].url, nodes[2].url}
	network := newProxy(t, strings.TrimPrefix(nodes[2].url, "nats://"))
	machines := map[string]*machine{}
	sessions := map[string]*remoteSession{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		at, config := urls, admitting(name)
		if name == "d" {
			at = []string{"nats://" + network.listener.Addr().String()}
		}
		if name == "a" {
			config += "\n[cluster.keep]\nstreams = [\"builds-*\"]"
		}
		machines[name] = newMachine(t, name, at, config)
		sessions[name] = machines[name].remoteSession("s" + name)
	}
	a := machines["a"]
	until(t, "they see each other", func() bool {
		return a.sees(machines["b"]) && a.sees(machines["c"]) && a.sees(machines["d"]) &&
			a.sees(machines["e"])
	})
	for name, s := range sessions {
		until(t, "session "+s.id+" gets what a keeps", func() bool {
			data, _ := os.ReadFile(filepath.Join(machines[name].home, "extensions", "tap",
				"kept-events.json"))
			return strings.Contains(string(data), s.id)
		})
	}
	tells := &teller{m: a}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tells.run(ctx, t)
	}()
	defer func() { cancel(); <-done }()
	haveAll := func() bool {
		tells.hold.Lock()
		want := numbered(tells.count())
		defer tells.hold.Unlock()
		for _, s := range sessions {
			if s.events() != want {
				return false
			}
		}
		return true
	}
	for _, event := range []struct {
		name string
		do   func()
	}{
		{"nothing", func() { pause(2) }},
		{"kill -9 of a gateway", func() { machines["b"].kill(); pause(2); machines["b"].boot() }},
		{"kill -9 of the stream's leader", func() {
			n := leader(t, nodes, "tapgw_a")
			n.kill()
			pause(3)
			n.run()
		}},
		{"freeze of a gateway", func() { freeze(&machines["c"].process, 4) }},
		{"freeze of the stream's leader", func() {
			freeze(&leader(t, nodes, "tapgw_a").process, 8)
		}},
		{"a partition of 10 s", func() { network.set(true); pause(10); network.set(false) }},
		{"kill -9 of the gateway that keeps", func() {
			tells.hold.Lock()
			defer tells.hold.Unlock()
			a.kill()
			pause(2)
			a.boot()
		}},
	} {
		event.do()
		began := time.Now()
		until(t, "after "+event.name+" all sessions have all events", haveAll)
		t.Logf("%s: every session has all %d events %s after its end", event.name, tells.count(),
			time.Since(began).Round(100*time.Millisecond))
	}
	tells.hold.Lock() // not while an event is under way
	cancel()
	tells.hold.Unlock()
	<-done
	out, code := machines["b"].tapctl("query", "--all", "--last", "200", "--json")
	var kept []adminapi.StreamRow
	if err := json.Unmarshal([]byte(out), &kept); code != 0 || err != nil ||
		len(kept) != tells.count() {
		t.Errorf("tapctl query --all: %d events, exit code %d, %v, want %d", len(kept), code, err,
			tells.count())
	}
	for name, s := range sessions {
		doubled, missed := 0, 0
		for n := 1; n <= tells.count(); n++ {
			switch s.seen(n) {
			case 0:
				missed++
			case 1:
			default:
				doubled++
			}
		}
		t.Logf("the person of session %s saw %d events twice, and %d not at all", name, doubled,
			missed)
	}
	t.Logf("%d events, %d of them waited for NATS", tells.count(), tells.queued)
}

// seen is how often the session's person has seen an event.
func (r *remoteSession) seen(n int) (times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line, count := range r.lines {
		if strings.HasSuffix(line, fmt.Sprintf(": %d", n)) {
			times += count
		}
	}
	return times
}

func numbered(n int) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprint(i + 1)
	}
	return strings.Join(texts, " ")
}
