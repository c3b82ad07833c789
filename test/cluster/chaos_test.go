//go:build e2e && linux

package cluster

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/providers"
)

// proxy passes on what it gets, and keeps it while it is cut: as a network that is gone does,
// without an end of the connections.
type proxy struct {
	listener net.Listener
	target   string

	mu   sync.Mutex
	open sync.Cond // isCut has changed
	cut  bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target}
	p.open.L = &p.mu
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		p.set(false)
		cancel()
		_ = l.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.target)
			if err != nil {
				_ = in.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _ = in.Close(); _ = out.Close() })
			work.Go(func() { p.copy(in, out) })
			work.Go(func() { p.copy(out, in) })
		}
	})
	return p
}

func (p *proxy) copy(to, from net.Conn) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		for p.cut {
			p.open.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) set(isCut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = isCut
	p.open.Broadcast()
}

// callers call the tools of a session all the time: one that the gate allows, and one that it
// denies.
type callers struct {
	calls, succeeded, opened, unended atomic.Int64
	slowest                           atomic.Int64 // ns
}

// longest is the time that a call may take on a busy machine: its gate has 5 s.
const longest = 20 * time.Second

func (c *callers) run(ctx context.Context, m *machine, session string) {
	var work sync.WaitGroup
	defer work.Wait()
	for _, text := range []string{"fine", "forbidden"} {
		work.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				result, err := m.call(session, "echo", map[string]string{"Text": text})
				took := time.Since(began)
				c.calls.Add(1)
				c.slowest.Store(max(c.slowest.Load(), int64(took)))
				switch {
				case err != nil && ctx.Err() == nil, took > longest:
					c.unended.Add(1)
				case result.ErrorCode == "" && text == "forbidden":
					c.opened.Add(1)
				case result.ErrorCode == "":
					c.succeeded.Add(1)
				}
			}
		})
	}
}

// call calls a tool as the session's model would.
func (m *machine) call(session, tool string, args any) (adminapi.CallResult, error) {
	data, err := json.Marshal(args)
	if err != nil {
		return adminapi.CallResult{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*longest)
	defer cancel()
	return m.gw.Call(ctx, session, tool, adminapi.Call{Args: data})
}

// TestChaos has three NATS servers and five gateways, takes some of them away, and looks at what
// calls, gates and lists do meanwhile and after it.
func TestChaos(t *testing.T) {
	t.Parallel()
	nodes := natsNodes(t, 3)
	urls := []string{nodes[0].url, nodes[1].url, nodes[2].url}
	network := newProxy(t, strings.TrimPrefix(nodes[2].url, "nats://"))
	machines := map[string]*machine{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		at := urls
		if name == "d" {
			at = []string{"nats://" + network.listener.Addr().String()}
		}
		machines[name] = newMachine(t, name, at, admitting(name))
	}
	a := machines["a"]
	session := a.session("work")
	type input struct{ Text string }
	machines["b"].provide("tools", func(p *providers.Provider) {
		echo := func(_ context.Context, in input) (string, error) { return in.Text, nil }
		providers.AddTool(p, "echo", "echoes", echo)
	})
	for _, name := range []string{"c", "d"} {
		machines[name].provide("guard-"+name, func(p *providers.Provider) {
			_, err := p.Gate(t.Context(), providers.Match{Tool: "echo"},
				func(_ context.Context, c providers.GateCall) (providers.Decision, error) {
					if strings.Contains(string(c.Args), "forbidden") {
						return providers.Deny("it is forbidden"), nil
					}
					return providers.Allow(), nil
				})
			if err != nil {
				t.Error(err)
			}
		})
	}
	isWhole := func() bool {
		state := a.cluster()
		reachable := 0
		for _, g := range state.Gateways {
			if g.Reachable && g.State == adminapi.GatewayUp {
				reachable++
			}
		}
		serving := map[string]bool{}
		for _, p := range state.Providers {
			serving[p.Name] = !p.Doubtful
		}
		return reachable == 4 && serving["tools"] && serving["guard-c"] && serving["guard-d"]
	}
	works := func() bool {
		fine, err := a.call(session, "echo", input{"fine"})
		forbidden, _ := a.call(session, "echo", input{"forbidden"})
		return err == nil && fine.ErrorCode == "" && forbidden.ErrorCode == "DENIED" && isWhole()
	}
	until(t, "the cluster works", works)
	ctx, cancel := context.WithCancel(t.Context())
	var c callers
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx, a, session)
	}()
	for _, event := range []struct {
		name string
		do   func()
	}{
		{"kill -9 of a gateway with tools", func() {
			machines["b"].kill()
			pause(2)
			machines["b"].boot()
		}},
		{"kill -9 of a gateway with a gate", func() {
			machines["c"].kill()
			pause(2)
			machines["c"].boot()
		}},
		{"kill -9 of a NATS server", func() { nodes[0].kill(); pause(2); nodes[0].run() }},
		{"freeze of a gateway with a gate", func() { freeze(&machines["c"].process, 4) }},
		{"freeze of a gateway with tools", func() { freeze(&machines["b"].process, 4) }},
		{"freeze of a NATS server", func() { freeze(&nodes[1].process, 8) }},
		{"a partition of 10 s", func() { network.set(true); pause(10); network.set(false) }},
	} {
		event.do()
		began := time.Now()
		until(t, "after "+event.name+" the cluster works", works)
		t.Logf("%s: all works %s after its end", event.name,
			time.Since(began).Round(100*time.Millisecond))
	}
	cancel()
	<-done
	t.Logf("%d calls, %d succeeded, the slowest took %s", c.calls.Load(), c.succeeded.Load(),
		time.Duration(c.slowest.Load()).Round(time.Millisecond))
	if n := c.opened.Load(); n > 0 {
		t.Errorf("%d calls that a gate denies went through", n)
	}
	if n := c.unended.Load(); n > 0 {
		t.Errorf("%d calls did not end in %s", n, longest)
	}
	if c.succeeded.Load() == 0 {
		t.Error("no call succeeded")
	}
}

// pause lets the processes do what they do for some seconds.
func pause(seconds int) { <-time.After(time.Duration(seconds) * time.Second) }

// freeze stops a process for some seconds.
func freeze(p *process, seconds int) {
	p.signal(syscall.SIGSTOP)
	pause(seconds)
	p.signal(syscall.SIGCONT)
}
