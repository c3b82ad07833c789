package server

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

var hostSpoke = regexp.MustCompile(`(?m)^\w+> (\{"jsonrpc".*)$`)

// FuzzHostFrame: whatever a session host sends, it is answered with JSON or not
// at all, and nothing panics.
func FuzzHostFrame(f *testing.F) {
	files, err := filepath.Glob("../../testdata/wire/host-*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no corpus: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, m := range hostSpoke.FindAllSubmatch(text, -1) {
			f.Add(m[1])
		}
	}
	f.Add([]byte(`{"id":1e400,"method":"session/update","params":{"id":"e1","label":"\ud83d"}}`))
	f.Add(
		[]byte(
			`{"id":"\ud83d","method":"tool/call","params":{"sessionId":"e1","name":"t","args":{"a":1e400}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g := gateway.New(gateway.Options{})
		s := New(Options{Gateway: g})
		ctx, cancel := context.WithCancel(t.Context())
		c := &hostConn{server: s, ctx: ctx, sessions: map[string]*remoteHost{},
			calls: map[string]*gateway.Pending{}}
		c.info = &gateway.HostInfo{Kind: "fuzz", Log: true}
		ws := &wire{isFlushing: true} // nothing flushes: the answers stay queued
		c.rpc = rpcConn{wire: ws, pending: map[uint64]chan rpcFrame{}}
		if _, fault := c.attach(gateway.SessionSpec{ID: "e1", CWD: "/c"}); fault != nil {
			t.Fatalf("attaching a session: %v, want no error", fault)
		}
		c.receive(bytes.Clone(data))
		cancel()
		c.rpc.failPending()
		c.requests.Wait()
		g.Drain(context.Background())
		ws.mu.Lock()
		defer ws.mu.Unlock()
		from := 0
		for _, end := range ws.frameEnds {
			frame := ws.out[from:end]
			from = end
			if !json.Valid(frame) {
				t.Fatalf("answered %q, want JSON", frame)
			}
			if f, fault := parseFrame(frame); fault != nil ||
				(f.method == "" && f.result == nil && f.errorBody == nil) {
				t.Fatalf("answered %q: %v, want a request, a result or an error", frame, fault)
			}
		}
		if f, fault := parseFrame(data); fault == nil && f.method != "" && f.id != nil &&
			len(ws.frameEnds) == 0 && protocol.Raw(data).IsValid() {
			t.Fatalf("no answer to %q, want one", data)
		}
	})
}
