package cluster

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"tapgw/internal/gateway"
)

// A stream that an operator deletes is made again with the next event, and sessions are told.
func TestKeptStreamDeleted(t *testing.T) {
	s := natsServer(t, nil)
	a, b := startKeeping(t, "a", s.ClientURL(), allBuilds),
		startKeeping(t, "b", s.ClientURL(), Keep{})
	sa, _ := a.session("sa")
	sb, _ := b.session("sb")
	a.hasPlace("a", "sa")
	b.hasPlace("a", "sb")
	a.tell(1, 3)
	awaitEvents(t, sa, numbers(1, 3))
	awaitEvents(t, sb, numbers(1, 3))
	if err := a.js.DeleteStream(t.Context(), "tapgw_a"); err != nil {
		t.Fatal(err)
	}
	a.tell(4, 6)
	awaitEvents(t, sb, numbers(1, 6))
	awaitEvents(t, sa, numbers(1, 6))
	for _, session := range []*gateway.Session{sa, sb} {
		until(t, "it is told", func() bool { return isTold(session, "begin anew") })
		if isTold(session, "missing here") {
			t.Error("told of a gap")
		}
	}
}

// Sessions of others also get the events that a gateway kept before it stopped keeping.
func TestKeptNoMore(t *testing.T) {
	s := natsServer(t, nil)
	a, b := startKeeping(t, "a", s.ClientURL(), allBuilds),
		startKeeping(t, "b", s.ClientURL(), Keep{})
	sb, _ := b.session("sb")
	b.hasPlace("a", "sb")
	a.tell(1, 3)
	awaitEvents(t, sb, numbers(1, 3))
	b.stop()
	a.tell(4, 6)
	a.stop()
	a.keep = Keep{}
	a.start()
	b.start()
	sb, _ = b.session("sb")
	awaitEvents(t, sb, numbers(1, 6))
}

// A session that is not shared for a while gets no events meanwhile, and then those that it has
// missed.
func TestKeptUnshared(t *testing.T) {
	s := natsServer(t, nil)
	a := startKeeping(t, "a", s.ClientURL(), allBuilds)
	b := &keeping{t: t, name: "b", url: s.ClientURL(),
		state: filepath.Join(t.TempDir(), "events.json"), change: func(o *Options) {
			o.Share = []string{"sb*"}
		}}
	b.start()
	t.Cleanup(func() { b.stop() })
	sb, _ := b.session("sb")
	other, _ := b.session("sb2")
	b.hasPlace("a", "sb")
	b.hasPlace("a", "sb2")
	a.tell(1, 3)
	awaitEvents(t, sb, numbers(1, 3))
	if err := sb.Rename(t.Context(), "private"); err != nil {
		t.Fatal(err)
	}
	a.tell(4, 6)
	awaitEvents(t, other, numbers(1, 6))
	if got := events(sb); strings.Contains(got, "4") {
		t.Error(got)
	}
	if err := sb.Rename(t.Context(), "sb-again"); err != nil {
		t.Fatal(err)
	}
	awaitEvents(t, sb, numbers(1, 6))
}

// A server that comes back without its last events, as after a loss of power, gives new events old
// numbers. Sessions get them nevertheless.
func TestKeptServerForgetsTheLast(t *testing.T) {
	dir, copied, port := filepath.Join(t.TempDir(), "js"), filepath.Join(t.TempDir(), "copy"), -1
	run := func() *server.Server {
		return natsServer(t, func(o *server.Options) { o.StoreDir, o.Port = dir, port })
	}
	stop := func(s *server.Server) {
		s.Shutdown()
		s.WaitForShutdown()
	}
	s := run()
	port = s.Addr().(*net.TCPAddr).Port
	a, b := startKeeping(t, "a", s.ClientURL(), allBuilds),
		startKeeping(t, "b", s.ClientURL(), Keep{})
	sa, _ := a.session("sa")
	sb, _ := b.session("sb")
	a.hasPlace("a", "sa")
	b.hasPlace("a", "sb")
	a.tell(1, 3)
	awaitEvents(t, sa, numbers(1, 3))
	awaitEvents(t, sb, numbers(1, 3))
	stop(s)
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	s = run()
	until(t, "events are kept again", func() bool { return a.Fault() == "" })
	a.tell(4, 6)
	awaitEvents(t, sa, numbers(1, 6))
	awaitEvents(t, sb, numbers(1, 6))
	stop(s)
	dir = copied
	run()
	until(t, "both have looked", func() bool {
		for m, id := range map[*keeping]string{a: "sa", b: "sb"} {
			m.positions.mu.Lock()
			seq := m.positions.origins["a"].Places[id].Seq
			m.positions.mu.Unlock()
			if seq != 3 {
				return false
			}
		}
		return true
	})
	a.tell(7, 9)
	awaitEvents(t, sa, numbers(1, 9))
	awaitEvents(t, sb, numbers(1, 9))
}
