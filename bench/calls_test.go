package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/protocol"
)

// BenchmarkCall is a call of a provider's tool through a real gateway, as it is by default, beside
// the relay. On one core the figures contain no waiting and show best what a change of the code
// costs. The relay beside itself is what the machine adds to a ratio.
func BenchmarkCall(b *testing.B) {
	for _, it := range []struct {
		name      string
		providers int
		pin       []string
		settings  string
		isRelay   bool
	}{
		{name: "providers=1", providers: 1},
		{name: "providers=50", providers: 50},
		{name: "no-records/providers=1", providers: 1, settings: "[records]\nenabled = false\n"},
		{name: "no-records/providers=50", providers: 50, settings: "[records]\nenabled = false\n"},
		{name: "one-core", providers: 1, pin: oneCore},
		{name: "relay", providers: 1, isRelay: true},
	} {
		b.Run(it.name, func(b *testing.B) {
			r := rig{b, it.pin}
			side := func(isRelay bool) func() metrics {
				m := r.relay
				if !isRelay {
					m = func() *middle { return r.gateway(it.settings) }
				}
				c := r.caller(m(), part{Providers: it.providers})
				c.load(8, 2000) // warms up
				return func() metrics { return c.calls(800, 3200) }
			}
			compare(b, side(true), side(it.isRelay))
		})
	}
}

// BenchmarkRulesOnWire is a call with the most hook rules that a provider may have, beside a call
// without rules. Both go through real gateways that apply the rules themselves; no rule matches.
func BenchmarkRulesOnWire(b *testing.B) {
	side := func(rules int) func() metrics {
		r := rig{B: b}
		c := r.caller(r.gateway(""), part{Providers: 1, Rules: rules, NoHooks: true})
		c.load(8, 2000)
		return func() metrics {
			l, cpu := c.load(1, 800)
			return metrics{"p50-us": us(l.P50), "cpu-us": cpu}
		}
	}
	compare(b, side(0), side(protocol.MaxHookRules))
}

// BenchmarkInside is a call whose caller is in the gateway's process, as the JavaScript gateway was
// measured.
func BenchmarkInside(b *testing.B) {
	for name, pin := range map[string][]string{"two-cores": nil, "one-core": oneCore} {
		for _, providers := range []int{1, 10, 50} {
			b.Run(fmt.Sprintf("%s/providers=%d", name, providers), func(b *testing.B) {
				r := rig{b, pin}
				p := r.part(part{Role: "inside", Providers: providers})
				m := &middle{process: p, url: p.line(), token: p.line()}
				ends := part{Role: "provider", URL: m.url, Token: m.token, Providers: providers}
				r.part(ends).line()
				m.line() // all tools are there
				c := &caller{process: m.process, middle: m}
				c.load(8, 2000)
				measure(b, func() metrics {
					got := c.calls(2000, 12000)
					got["resident-MiB"], _ = m.memory()
					return got
				})
			})
		}
	}
}

// BenchmarkFootprint is the memory of a real gateway at rest.
func BenchmarkFootprint(b *testing.B) {
	r := rig{B: b}
	measure(b, func() metrics {
		m := r.gateway("")
		settle(b)
		got := metrics{}
		got["idle-resident-MiB"], got["idle-anonymous-MiB"] = m.memory()
		c := r.caller(m, part{Providers: 50, Tools: 20})
		settle(b)
		got["full-resident-MiB"], got["full-anonymous-MiB"] = m.memory()
		c.stop()
		m.stop()
		return got
	})
}

// toolWatch is a session of a gateway that notes when each tool came into its list.
type toolWatch struct {
	*host
	b    *testing.B
	news chan struct{} // one token: something changed

	mu   sync.Mutex
	seen map[string]time.Time
	sets int
}

func (m *middle) watch(session string, live bool) *toolWatch {
	m.b.Helper()
	w := &toolWatch{host: &host{live: live}, b: m.b, seen: map[string]time.Time{},
		news: make(chan struct{}, 1)}
	w.toolsSet = func(names []string) {
		w.mu.Lock()
		w.sets++
		for _, n := range names {
			if _, ok := w.seen[n]; !ok {
				w.seen[n] = time.Now()
			}
		}
		w.mu.Unlock()
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
	if err := w.open(m.b.Context(), m.url, m.admin, session); err != nil {
		m.b.Fatal(err)
	}
	m.b.Cleanup(func() { _ = w.c.CloseNow() })
	return w
}

// wait waits for a tool and returns the time when it came into the list.
func (w *toolWatch) wait(tool string) time.Time {
	w.b.Helper()
	for deadline := time.After(10 * time.Second); ; {
		w.mu.Lock()
		at, ok := w.seen[tool]
		w.mu.Unlock()
		if ok {
			return at
		}
		select {
		case <-w.news:
		case <-deadline:
			w.b.Fatalf("tool %s did not come into the session's list in 10 s", tool)
		}
	}
}

// bind connects one provider, and returns it when it is bound.
func (m *middle) bind(k int) (p *provider, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(m.b.Context(), 10*time.Second)
	defer cancel()
	p = &provider{name: fmt.Sprintf("p%d", k), token: m.token, tools: 1, index: k}
	began := time.Now()
	if err := p.bind(ctx, m.url); err != nil {
		return p, 0, err
	}
	m.b.Cleanup(func() { _ = p.c.CloseNow() })
	return p, p.acked.Sub(began), nil
}

// BenchmarkConnect is the time from dialling to hello.ack, and the time from hello to the tool in
// the list of a host that takes tools live.
func BenchmarkConnect(b *testing.B) {
	m := rig{B: b}.gateway("")
	live := m.watch("live", true)
	next := 0
	measure(b, func() metrics {
		var acked, listed []time.Duration
		for range 40 {
			p, took, err := m.bind(next)
			if err != nil {
				b.Fatal(err)
			}
			acked = append(acked, took)
			listed = append(listed, live.wait(toolName(next, 0)).Sub(p.said))
			_ = p.c.Close(websocket.StatusNormalClosure, "")
			next++
		}
		got := metrics{}
		got["p50-ms"], got["p99-ms"] = quantiles(acked, ms)
		got["listed-p50-ms"], got["listed-p99-ms"] = quantiles(listed, ms)
		maps.Copy(got, m.connectAtOnce(b, next))
		return got
	})
}

// connectAtOnce connects fifty providers at once.
func (m *middle) connectAtOnce(b *testing.B, first int) metrics {
	var wg sync.WaitGroup
	var took [50]time.Duration
	var errs [50]error
	var all [50]*provider
	began := time.Now()
	for k := range took {
		wg.Go(func() { all[k], took[k], errs[k] = m.bind(first + 1000 + k) })
	}
	wg.Wait()
	last := time.Since(began)
	if err := errors.Join(errs[:]...); err != nil {
		b.Fatal(err)
	}
	for _, p := range all {
		_ = p.c.Close(websocket.StatusNormalClosure, "")
	}
	p50, _ := quantiles(took[:], ms)
	return metrics{"at-once-p50-ms": p50, "at-once-all-ms": ms(last)}
}

// BenchmarkBurst binds twenty providers in one go to a host that reloads to take tools: how often
// it reloads, and when it has the list after the last hello.ack.
func BenchmarkBurst(b *testing.B) {
	measure(b, func() metrics {
		m := rig{B: b}.gateway("")
		defer m.stop()
		slow := m.watch("reloads", false)
		var last, all time.Time
		for k := range 20 {
			p, _, err := m.bind(k)
			if err != nil {
				b.Fatal(err)
			}
			last = p.acked
		}
		for k := range 20 {
			if at := slow.wait(toolName(k, 0)); at.After(all) {
				all = at
			}
		}
		settle(b)
		slow.mu.Lock()
		defer slow.mu.Unlock()
		return metrics{"reloads": float64(slow.sets), "list-ms": ms(all.Sub(last))}
	})
}

// BenchmarkUpdate is the time from an update to its ack, on a real gateway whose host accepts each
// new list of tools. Each update changes something.
func BenchmarkUpdate(b *testing.B) {
	m := rig{B: b}.gateway("")
	m.watch("updates", true)
	p, _, err := m.bind(0)
	if err != nil {
		b.Fatal(err)
	}
	ctx, n := b.Context(), 0
	var acked string
	p.received = func(f *callFrame) {
		if f.Type == "ack" {
			acked = f.RequestID
		}
	}
	for _, it := range []struct {
		name   string
		update func() object
	}{
		{"one-tool", func() object {
			return toolsUpdate(1, n)
		}},
		{"20-tools", func() object { // nearly all of it is compiling schemas
			return toolsUpdate(20, n)
		}},
		{"3-rules", func() object {
			return object{"type": "hooks.update", "onPreToolUse": rules(10 + n%10)[7:10]}
		}},
		{"50-rules", func() object {
			all := rules(protocol.MaxHookRules)
			all[1].Reason = fmt.Sprint("not in version ", n)
			return object{"type": "hooks.update", "onPreToolUse": all}
		}},
		{"context", func() object {
			text := fmt.Sprint(n, strings.Repeat(" context", 512))
			return object{"type": "context.update", "context": text}
		}},
		{"filter", func() object {
			return object{"type": "filter.set", "stream": fmt.Sprintf("s%d", n%10),
				"rules": streamFilter}
		}},
	} {
		b.Run(it.name, func(b *testing.B) {
			measure(b, func() metrics {
				n++
				update, id := it.update(), fmt.Sprintf("u%d", n)
				update["requestId"] = id
				began := time.Now()
				err := p.write(ctx, update)
				if err == nil {
					err = p.serve(ctx, func() bool { return acked == id })
				}
				if err != nil {
					b.Fatal(err)
				}
				return metrics{"ms": ms(time.Since(began))}
			})
		})
	}
}

func toolsUpdate(n, version int) object {
	return object{"type": "tools.update", "remove": []string{},
		"tools": toolList(0, n, fmt.Sprint("Version ", version))}
}

// BenchmarkFiles is the time from a changed provider file to its tool in a session, and that of
// loading many files that start no process.
func BenchmarkFiles(b *testing.B) {
	for _, it := range []struct{ name, file, text string }{
		{"http", "providers/web.toml",
			"kind = \"http\"\n[tools.%s]\ndescription = \"d\"\nurl = \"http://127.0.0.1:1/\"\n"},
		{"tools", "dropins/drop.tool.toml",
			"name = %q\ndescription = \"d\"\nkind = \"read\"\ncommand = [\"true\"]\n"},
	} {
		b.Run(it.name, func(b *testing.B) {
			m := rig{B: b}.gateway("")
			m.file("dropins/README", "")
			m.file("providers/drop.toml", fmt.Sprintf("kind = \"tools\"\ndir = %q\n",
				filepath.Join(m.home, "tapgw", "dropins")))
			live := m.watch("live", true)
			next := 0
			measure(b, func() metrics {
				var took []time.Duration
				for range 5 {
					pause(b, 300*time.Millisecond) // the last change is over
					tool := fmt.Sprintf("%s_%d", it.name, next)
					next++
					began := time.Now()
					m.file(it.file, fmt.Sprintf(it.text, tool))
					took = append(took, live.wait(tool).Sub(began))
				}
				p50, most := quantiles(took, ms)
				return metrics{"p50-ms": p50, "slowest-ms": most}
			})
		})
	}
	b.Run("reload", func(b *testing.B) {
		m := rig{B: b}.gateway("")
		for i := range 1000 {
			m.file(fmt.Sprintf("providers/p%d.toml", i), fmt.Sprintf(`kind = "command"
command = ["true"]
env = { N = "%d" }
sessions = "each"
allow = ["get_*"]
`, i))
		}
		c := m.client()
		settle(b)
		measure(b, func() metrics {
			began := time.Now()
			if _, err := c.Reload(b.Context()); err != nil {
				b.Fatal(err)
			}
			return metrics{"ms": ms(time.Since(began))}
		})
	})
}

// BenchmarkIdle is the anonymous memory that provider files add to a gateway, once all of them
// rest.
func BenchmarkIdle(b *testing.B) {
	perProvider := func(m *middle, text, tool string) {
		live := m.watch("live", true)
		for i := range 50 {
			m.file(fmt.Sprintf("providers/p%d.toml", i), text+fmt.Sprintf("prefix = \"p%d_\"\n", i))
		}
		for i := range 50 {
			live.wait(fmt.Sprintf("p%d_%s", i, tool))
		}
	}
	for name, fill := range map[string]func(*middle){
		"50-programs": func(m *middle) {
			perProvider(m, fmt.Sprintf(`kind = "command"
name = "weather"
command = [%q, "__demo-provider"]
`, program(b, "tapgw")), "get_weather")
		},
		"50-MCP-servers": func(m *middle) {
			server := rig{B: b}.part(part{Role: "mcp", HTTP: true})
			perProvider(m, fmt.Sprintf("kind = \"mcp\"\nurl = %q\n", server.line()), "echo")
		},
		"1000-sources": func(m *middle) {
			m.watch("live", true)
			for i := range 1000 {
				m.file(fmt.Sprintf("providers/s%d.toml", i),
					"kind = \"source\"\nrun = [\"true\"]\ncron = \"0 0 1 1 *\"\n")
			}
			c := m.client()
			for waiting := 0; waiting < 1000; {
				pause(b, time.Second)
				list, err := c.Sources(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				waiting = 0
				for _, s := range list {
					if !s.NextRunAt.IsZero() {
						waiting++
					}
				}
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			measure(b, func() metrics {
				m := rig{B: b}.gateway("")
				defer m.stop()
				settle(b)
				_, before := m.memory()
				fill(m)
				settle(b)
				_, after := m.memory()
				return metrics{"more-MiB": after - before}
			})
		})
	}
}
