package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/protocol"
)

// FuzzRoutes has providers join, change, take over and leave sessions, in any order. After each
// step every session has the tools of its bindings, made anew here, a call of each goes to the
// provider that has it and by its present parameters, and the lists that hosts have kept are as
// they were.
//
// A step is two bytes: what happens, and to whom.
func FuzzRoutes(f *testing.F) {
	for seed := range uint64(16) {
		r := rand.New(rand.NewPCG(seed, 0))
		steps := make([]byte, 120)
		for i := range steps {
			steps[i] = byte(r.Uint32())
		}
		f.Add(steps)
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		synctest.Test(t, func(t *testing.T) {
			r := &routesRig{t: t, g: New(Options{})}
			r.register()
			r.register()
			for i := 0; i+1 < min(len(steps), 120); i += 2 {
				r.step(int(steps[i]), int(steps[i+1]))
				// far from the limits of hellos a minute, and all lists are out
				sleep(20 * time.Second)
				synctest.Wait()
				r.check(fmt.Sprintf("step %d (%d, %d)", i/2, steps[i], steps[i+1]))
				if t.Failed() {
					break
				}
			}
			for _, p := range r.providers {
				p.conn.Closed()
			}
			r.g.Drain(context.Background())
		})
	})
}

// routesRig is a gateway with hosts that keep lists, and providers that answer with what they were
// asked.
type routesRig struct {
	t         *testing.T
	g         *Gateway
	hosts     []*deepHost
	sessions  []*Session
	providers []*routesProvider
	serial    int // of definitions
}

// routesProvider is a provider's end.
type routesProvider struct {
	conn  *Conn
	token string // for a reconnect
	pass  *Pass

	mu    sync.Mutex // guards the fields that follow: timers of the gateway call Flush, too
	calls []*protocol.ToolCall
	done  int
}

// Send implements [Peer].
func (p *routesProvider) Send(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.ToolCall:
		p.mu.Lock()
		p.calls = append(p.calls, m)
		p.mu.Unlock()
	case *protocol.HelloAck:
		p.token = m.ReconnectToken
	}
}

// Flush implements [Peer].
func (p *routesProvider) Flush() {
	p.mu.Lock()
	asked := p.calls[p.done:]
	p.done = len(p.calls)
	p.mu.Unlock()
	for _, c := range asked {
		p.conn.Receive(protocol.Append(nil,
			&protocol.ToolResult{ID: c.ID, Data: protocol.Raw(`1`)}))
	}
}

// Close implements [Peer].
func (p *routesProvider) Close(protocol.CloseCode, string) {}

// deepHost keeps all lists, and copies of what they had when they came.
type deepHost struct {
	quietHost
	lists, copies [][]Tool
	refuses       atomic.Bool
}

// SetTools implements [Host].
func (h *deepHost) SetTools(_ context.Context, _ uint64, tools []Tool) error {
	copied := slices.Clone(tools)
	for i := range copied {
		copied[i].Parameters = slices.Clone(copied[i].Parameters)
	}
	h.lists, h.copies = append(h.lists, tools), append(h.copies, copied)
	if h.refuses.Load() {
		return errors.New("not now")
	}
	return nil
}

func (r *routesRig) register() {
	if len(r.sessions) == 4 {
		return
	}
	h := &deepHost{}
	s, err := r.g.Register(SessionSpec{ID: fmt.Sprintf("s%d", len(r.sessions)), CWD: "/c"},
		HostInfo{Kind: "test", LiveTools: len(r.sessions)%2 == 0}, h)
	if err != nil {
		r.t.Fatal(err)
	}
	r.hosts, r.sessions = append(r.hosts, h), append(r.sessions, s)
}

// session is the session that a number means, or all of them.
func (r *routesRig) session(n int) string {
	if n%4 == 3 {
		return protocol.AllSessions
	}
	return r.sessions[n%len(r.sessions)].id
}

// tools are the definitions that a number means. Instances share what they are called like, without
// a serial number.
func (r *routesRig) tools(n int, isShared bool) []protocol.Tool {
	list := []protocol.Tool{}
	for i := range 4 {
		if n>>i&1 == 0 {
			continue
		}
		r.serial++
		version := r.serial
		if isShared {
			version = 0
		}
		name := fmt.Sprintf("t%d", i)
		if isShared {
			name = "shared" + name
		}
		list = append(list,
			protocol.Tool{Name: name, Description: fmt.Sprintf("version %d", version),
				Parameters: protocol.Raw(
					fmt.Sprintf(`{"properties":{"v":{"const":%d}},"required":["v"]}`, version))})
	}
	return list
}

func (r *routesRig) helloOf(n int) *protocol.Hello {
	version := protocol.Version
	m := &protocol.Hello{Name: fmt.Sprintf("n%d", n%3), ProtocolVersion: &version,
		Session: r.session(n >> 2)}
	if n&0x10 != 0 {
		m.Instance = fmt.Sprintf("i%d", n>>5&1)
	}
	m.Tools = r.tools(n>>4^n, m.Instance != "")
	return m
}

func (r *routesRig) connect(token string) *routesProvider {
	p := &routesProvider{}
	p.conn = r.g.Connect(p, ConnOptions{})
	p.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: token}))
	r.providers = append(r.providers, p)
	return p
}

// step does one thing to one provider.
func (r *routesRig) step(what, n int) {
	if what %= 10; what == 0 || len(r.providers) == 0 {
		r.connect(r.g.AdminToken()).conn.Receive(protocol.Append(nil, r.helloOf(n)))
		return
	}
	p := r.providers[n%len(r.providers)]
	send := func(m protocol.Message) { p.conn.Receive(protocol.Append(nil, m)) }
	isShared := p.conn.provider != nil && p.conn.provider.instance != ""
	switch what {
	case 1:
		p.conn.Closed()
	case 2:
		m := &protocol.ToolsUpdate{Tools: r.tools(n>>2, isShared)}
		if n&0x40 != 0 {
			m.Remove = []string{"t1", "sharedt2"}
		}
		if n&0x80 != 0 {
			m.SessionID = r.sessions[n%len(r.sessions)].id
		}
		send(m)
	case 3:
		send(r.helloOf(n))
	case 4: // takes the connection over, or comes back
		if p.conn.provider == nil {
			return
		}
		m := r.helloOf(n)
		m.Name, m.Instance, m.ReconnectToken = p.conn.provider.name, "", p.token
		if n&0x20 != 0 {
			m.Tools = nil
		}
		if n&0x40 != 0 {
			m.Session = ""
		}
		r.connect(r.g.AdminToken()).conn.Receive(protocol.Append(nil, m))
	case 5:
		r.register()
	case 6:
		h := r.hosts[n%len(r.hosts)]
		h.refuses.Store(!h.refuses.Load())
	case 7:
		ready := &protocol.SessionReady{SessionID: r.sessions[n%len(r.sessions)].id}
		for _, p := range r.providers {
			if !p.conn.is(closed) {
				p.conn.Receive(protocol.Append(nil, ready))
			}
		}
	case 8, 9: // a provider file, and its next version with another prefix
		spec := PassSpec{Trust: TrustProject, All: true, Owner: "me",
			Tools: ToolPolicy{Prefix: fmt.Sprintf("x%d_", n>>6),
				Deny: []string{fmt.Sprintf("t%d", n&3)}}}
		if what == 9 && p.pass != nil {
			spec.Replaces = []*Pass{p.pass}
		}
		pass := r.g.Issue(spec)
		next := r.connect(pass.Token())
		next.pass = pass
		next.conn.Receive(protocol.Append(nil, r.helloOf(n)))
	}
}

// wantedTools lists the tools of a session's bindings with, for each, the tools that its calls may
// go to.
func wantedTools(s *Session) (defs []Tool, ways [][]*tool) {
	at := map[string]int{}
	add := func(name string, d Tool, t *tool) {
		i, ok := at[name]
		if !ok {
			i = len(defs)
			at[name] = i
			defs, ways = append(defs, d), append(ways, nil)
		}
		if t != nil {
			ways[i] = append(ways[i], t)
		}
	}
	for _, b := range s.bindings {
		p := b.provider
		for _, t := range b.offer.tools {
			add(t.Name, Tool{Name: t.Name, Description: t.Description, Parameters: t.Parameters,
				Provider: p.name}, t)
		}
		if p.instance != "" {
			name := metaTool(p.name)
			add(name,
				Tool{Name: name, Provider: p.name,
					Description: "List connected " + p.name + " instances",
					Parameters:  protocol.Raw(`{"type":"object","properties":{}}`)}, nil)
		}
	}
	for i, way := range ways {
		if len(way) > 0 && way[0].provider.instance != "" {
			instances := make([]string, len(way))
			for i, t := range way {
				instances[i] = t.provider.instance
			}
			target :=
				`{"type":"string","description":"Instance ID; the most recently active one when left out. ` +
					`Available: ` + strings.Join(instances, ", ") + `"}`
			defs[i].Parameters = withProperty(defs[i].Parameters, targetParam, []byte(target))
		}
	}
	return defs, ways
}

func equalTools(a, b []Tool) bool { return slices.EqualFunc(a, b, isSameTool) }

func (r *routesRig) check(when string) {
	for i, s := range r.sessions {
		want, ways := wantedTools(s)
		routes := s.routes.Load()
		if got, _ := s.HostTools(); !equalTools(got, want) {
			r.t.Errorf("%s: session %d has %v, want %v", when, i, got, want)
		}
		for j, d := range want {
			to := routes.find(d.Name)
			if to != routes.list[j] {
				r.t.Errorf("%s: session %d finds %v by the name %s, want %v", when, i, to, d.Name,
					routes.list[j])
				continue
			}
			if !slices.Equal(to.tools, ways[j]) {
				r.t.Errorf("%s: in session %d calls of %s go to %v, want %v", when, i, d.Name,
					to.tools, ways[j])
			}
			for _, t := range ways[j] {
				if s.bindings == nil || !slices.ContainsFunc(s.bindings, func(b *binding) bool {
					return b.provider == t.provider
				}) {
					r.t.Errorf("%s: %s in session %d leads to a provider that is not bound there",
						when, d.Name, i)
				}
				r.call(when, s, t)
			}
		}
		h := r.hosts[i]
		for j, list := range h.lists {
			if !equalTools(list, h.copies[j]) {
				r.t.Errorf("%s: list %d of session %d became %v, was %v", when, j, i, list,
					h.copies[j])
			}
			if cap(list) > len(list) {
				r.t.Errorf("%s: list %d of session %d has room behind it", when, j, i)
			}
		}
		if n := len(h.lists); !h.refuses.Load() && n > 0 && !s.hostMayDiffer &&
			!equalTools(h.lists[n-1], want) {
			r.t.Errorf("%s: session %d was given %v, want %v", when, i, h.lists[n-1], want)
		}
	}
}

// call calls a tool in a session.
func (r *routesRig) call(when string, s *Session, t *tool) {
	var version int
	_, _ = fmt.Sscanf(t.Description, "version %d", &version)
	args := fmt.Sprintf(`{"v":%d}`, version)
	if t.provider.instance != "" {
		args = fmt.Sprintf(`{"v":%d,"target":%q}`, version, t.provider.instance)
	}
	p := t.provider.peer.(recordedPeer).Peer.(*routesProvider)
	before := len(p.calls)
	o := s.CallTool(r.t.Context(), Call{Name: t.Name, Args: protocol.Raw(args)})
	if o.Failed() || len(p.calls) != before+1 {
		r.t.Errorf("%s: %s of %s in session %s: %s, and it got %d calls, want one", when, t.Name,
			t.provider.name, s.id, o.Text(), len(p.calls)-before)
		return
	}
	if c := p.calls[before]; c.SessionID != s.id || c.Tool != t.called {
		r.t.Errorf("%s: the call is %s in session %s, want %s in %s", when, c.Tool, c.SessionID,
			t.called, s.id)
	}
}
