package conformance

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// gatewayPatience is how long a rule waits for something that must come. It is far over every time of the
// protocol that the kit waits for, so that a busy machine fails no rule.
const gatewayPatience = 30 * time.Second

// goodbyePatience is how long a rule's connections wait together for the gateway to close them after their goodbye.
// What it sends before is read: a close from here would pass it over.
const goodbyePatience = time.Second

// scene is what one rule works in: its connections, its sessions and its provider's name. The runner
// ends all of them after the rule.
type scene struct {
	run     *gatewayRun
	name    string          // of the rule's provider
	ctx     context.Context // ends after the rule has been cleaned up
	stop    <-chan struct{} // closed when the user stops the run; nil while the rule is cleaned up
	reading sync.WaitGroup
	counter int

	peers []*peer
	hosts []*host
}

// fail ends the rule, which is broken: what it wants, and what was seen. A rule is a list of steps of which
// each needs the one before, so a step that fails ends the rule with a panic, which [scene.try] recovers.
func (s *scene) fail(want, got string, args ...any) { panic(fail(want, got, args...)) }

// next returns a number that the rule has not used yet.
func (s *scene) next() int {
	s.counter++
	return s.counter
}

// equal fails if a value of the gateway's is another than the protocol says.
func (s *scene) equal(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		s.fail(what+": "+shortText(fillJSON("%s", want)), "%s", shortText(fillJSON("%s", got)))
	}
}

// pause lets a few milliseconds pass, so that two events have different times.
func (s *scene) pause() { <-time.After(20 * time.Millisecond) }

// dial opens a WebSocket at a path of the gateway.
func (s *scene) dial(path string, header http.Header) (*websocket.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(s.ctx, gatewayPatience)
	defer cancel()
	return s.run.Dial(ctx, path, header)
}

// connect opens a provider's connection.
func (s *scene) connect() *peer { return s.connectFrom("") }

// connectFrom opens a provider's connection of a web page of that origin.
func (s *scene) connectFrom(origin string) *peer {
	var header http.Header
	if origin != "" {
		header = http.Header{"Origin": {origin}}
	}
	ws, answer, err := s.dial("/", header)
	if answer != nil && answer.StatusCode == http.StatusServiceUnavailable {
		panic(skipf("the gateway has no room for another connection now: %s", answer.Status))
	}
	if err != nil {
		s.fail("a WebSocket at /", "%v", err)
	}
	p := newPeer(s, ws, nil)
	s.peers = append(s.peers, p)
	return p
}

// login opens a connection and authenticates.
func (s *scene) login() *peer {
	p := s.connect()
	p.accepted("sessions", `{"type":"auth","token":%s}`, s.run.Token)
	return p
}

// hello binds a provider and returns the hello.ack. more are further members of the hello, as JSON.
func (s *scene) hello(p *peer, session, more string) message {
	if more != "" {
		more = "," + more
	}
	return p.accepted("hello.ack", `{"type":"hello","protocolVersion":2,"name":%s,"session":%s%s}`, s.name, session,
		rawJSON(more))
}

// bind authenticates on a new connection and binds it to a session.
func (s *scene) bind(h *host, more string) (*peer, message) {
	p := s.login()
	return p, s.hello(p, h.id, more)
}

// provider is bind for rules that do not need the hello.ack.
func (s *scene) provider(h *host, more string) *peer {
	p, _ := s.bind(h, more)
	return p
}

// close ends everything that the rule began: its connections, its sessions, and then the directories that the gateway
// made for its providers. Those are in every hello.ack, also in one that came after the rule was stopped.
func (s *scene) close() {
	for _, p := range s.peers {
		_ = p.write(`{"type":"goodbye"}`)
	}
	late, cancel := context.WithTimeout(s.ctx, goodbyePatience)
	defer cancel()
	for _, p := range s.peers {
		p.waitClosed(late)
		_ = p.ws.Close(websocket.StatusNormalClosure, "")
	}
	for _, h := range s.hosts {
		h.end()
		_ = h.ws.Close(websocket.StatusNormalClosure, "")
	}
	s.reading.Wait() // the connections are closed
	for _, p := range s.peers {
		for _, m := range p.log {
			if dir := m.text("persistDir"); dir != "" {
				s.removeDirs(dir)
			}
		}
	}
}

// ownDir returns the persistDir if it is on this machine and the gateway made it for this run: its last
// part is the provider's name, which has a random part. A gateway can't make the kit write or remove
// anything else.
func (s *scene) ownDir(dir string) (string, bool) {
	dir = filepath.Clean(dir)
	info, err := os.Lstat(dir)
	own := err == nil && info.IsDir() && strings.HasPrefix(filepath.Base(dir), s.run.namePrefix)
	return dir, own
}

// removeDirs removes a persistDir of this rule if it is empty, and those of hellos that the gateway refused.
func (s *scene) removeDirs(dir string) {
	beside := filepath.Join(filepath.Dir(filepath.Clean(dir)), s.name)
	refused, _ := filepath.Glob(beside + ".*") // a bad pattern finds none
	for _, dir := range append(refused, dir) {
		if dir, ok := s.ownDir(dir); ok {
			_ = os.Remove(dir) // of a directory: an empty one
		}
	}
}

// tool is the JSON of a tool without parameters. more are further members.
func tool(name, more string) string {
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"name":%q,"description":"For the conformance kit","parameters":{"type":"object"}%s}`,
		name, more)
}

// tools is the member "tools" with tools of these names.
func tools(names ...string) string {
	list := make([]string, len(names))
	for i, n := range names {
		list[i] = tool(n, "")
	}
	return `"tools":[` + strings.Join(list, ",") + `]`
}
