//go:build e2e && linux

package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"tapgw/internal/client"
)

// watched counts what a person feels: the longest task, and how far things moved by themselves.
const watched = `window.longest = 0;
window.moved = 0;
new PerformanceObserver((l) => { for (const e of l.getEntries()) longest = Math.max(longest, e.duration); })
	.observe({ type: "longtask", buffered: true });
new PerformanceObserver((l) => { for (const e of l.getEntries()) if (!e.hadRecentInput) moved += e.value; })
	.observe({ type: "layout-shift", buffered: true });
0`

// pageBench is a gateway with one session, and a page that shows it.
type pageBench struct {
	v    *view
	g    *gateway
	s    *client.HostSession
	told int // entries
}

func newPageBench(b *testing.B) *pageBench {
	b.Helper()
	h := newHome(b)
	p := &pageBench{g: h.serve()}
	var err error
	p.s, err = client.Host(b.Context(), client.Options{URL: p.g.url, Token: h.read(".admin-token")},
		client.HostOptions{
			Name: "teller", Version: "1", ID: "long", Label: "long", CWD: h.path("work"),
			State: func(bool, error) {},
		})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.s.Close(context.Background(), "told all") })
	p.v = h.browser().profile(b).openView(h.link())
	p.v.waitText(".connection", "Live")
	return p
}

// tell makes n entries of the kinds that a session has most.
func (p *pageBench) tell(n int) {
	for range n {
		switch p.told++; p.told % 4 {
		case 0:
			p.s.Event("assistant.message", message{"content": fmt.Sprintf(
				"Answer %d:\n\n- with `code`\n- and **more**", p.told)})
		case 1:
			p.s.Event("user.message", message{"content": fmt.Sprintf("question %d", p.told)})
		default:
			p.s.Event("tool.execution_complete",
				message{"tool": "read", "args": message{"path": "a.go"},
					"result": message{"type": "success", "output": fmt.Sprint("line ", p.told)}})
		}
	}
}

// last is a text of the newest message.
func (p *pageBench) last() string { return fmt.Sprintf("Answer %d:", p.told/4*4) }

// throttle makes the browser's processor so many times slower.
func (v *view) throttle(times float64) {
	v.t.Helper()
	v.do("slowing down",
		command(emulation.SetCPUThrottlingRate, emulation.SetCPUThrottlingRateParams{Rate: times}))
}

// reportAtMost reports a figure, and fails if it is more than it may be.
func reportAtMost(b *testing.B, figure, most float64, unit string) {
	b.Helper()
	b.ReportMetric(figure, unit)
	if figure > most {
		b.Errorf("%.2f %s, want at most %.2f", figure, unit, most)
	}
}

// BenchmarkPageOpen opens a session of 20,000 entries: the time until its end can be read, and how
// far things move.
func BenchmarkPageOpen(b *testing.B) {
	p := newPageBench(b)
	for p.told < 20_000 {
		p.tell(500)
		p.v.waitText(".entry", p.last())
	}
	for _, it := range []struct {
		name     string
		throttle float64
		most     time.Duration
	}{{"plain", 1, 3 * time.Second}, {"throttled", 4, 8 * time.Second}} {
		b.Run(it.name, func(b *testing.B) {
			p.v.throttle(it.throttle)
			var took time.Duration
			n := 0
			for b.Loop() {
				p.v.visit("about:blank")
				begin := time.Now()
				p.v.visit(p.g.origin() + "/#/sessions/long")
				p.v.waitText(".entry", p.last())
				took += time.Since(begin)
				n++
			}
			eval[any](p.v.tab, watched)
			reportAtMost(b, took.Seconds()/float64(n), it.most.Seconds(), "s/open")
			moved := eval[float64](p.v.tab, `new Promise((r) => setTimeout(() => r(moved), 100))`)
			reportAtMost(b, moved, 0.05, "shift")
			begin := time.Now()
			p.v.until(`(() => {
				const timeline = document.querySelector(".timeline");
				timeline.scrollTop = 0;
				return timeline.dataset.entries >= 12000; // of calls the gateway keeps half as many
			})()`)
			b.ReportMetric(time.Since(begin).Seconds(), "s/older")
		})
	}
}

// BenchmarkPageBusy shows 200 events a second for a minute: the longest task.
func BenchmarkPageBusy(b *testing.B) {
	p := newPageBench(b)
	p.tell(4)
	p.v.waitText(".entry", p.last())
	for _, it := range []struct {
		name     string
		throttle float64
		most     float64
	}{{"plain", 1, 100}, {"throttled", 4, 300}} {
		b.Run(it.name, func(b *testing.B) {
			p.v.throttle(it.throttle)
			for b.Loop() {
				eval[any](p.v.tab, watched)
				tick := time.NewTicker(20 * time.Millisecond)
				for range 60 * 50 {
					<-tick.C
					p.tell(4)
				}
				tick.Stop()
				p.v.waitText(".entry", p.last())
				reportAtMost(b, eval[float64](p.v.tab, `longest`), it.most, "ms/longest")
			}
		})
	}
}

// BenchmarkPageText shows a message of 600 kB: the longest task.
func BenchmarkPageText(b *testing.B) {
	p := newPageBench(b)
	long := longMessage()
	for b.Loop() {
		p.told++
		p.v.visit(fmt.Sprintf("%s/?%d#/sessions/long", p.g.origin(), p.told))
		p.v.waitText(".session h2", "long")
		eval[any](p.v.tab, watched)
		ask := fmt.Sprint("write much ", p.told)
		p.s.Event("user.message", message{"content": ask})
		p.s.Event("assistant.message", message{"content": ask + "\n\n" + long})
		p.v.waitText(".entry.message", ask)
		took := eval[float64](p.v.tab, `new Promise((r) => setTimeout(() => r(longest), 100))`)
		reportAtMost(b, took, 300, "ms/longest")
	}
}

// BenchmarkPageFirst is the time until a browser that has nothing of the page lists the sessions.
func BenchmarkPageFirst(b *testing.B) {
	p := newPageBench(b)
	p.v.do("no cache",
		command(network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true}))
	for _, it := range []struct {
		name string
		link network.Conditions
		most time.Duration
	}{
		{"loopback", network.Conditions{DownloadThroughput: -1, UploadThroughput: -1}, time.Second},
		{"slow", network.Conditions{Latency: 400, DownloadThroughput: 50_000,
			UploadThroughput: 50_000},
			2 * time.Second},
	} {
		b.Run(it.name, func(b *testing.B) {
			p.v.do("setting the link", command(network.EmulateNetworkConditionsByRule,
				network.EmulateNetworkConditionsByRuleParams{
					MatchedNetworkConditions: []*network.Conditions{&it.link},
				}))
			listed, n := 0.0, 0
			for b.Loop() {
				p.v.visit("about:blank")
				p.v.visit(p.g.origin() + "/")
				p.v.until(`document.querySelector(".items a")`)
				listed += eval[float64](p.v.tab, `performance.now()`)
				n++
			}
			reportAtMost(b, listed/float64(n)/1000, it.most.Seconds(), "s/first")
		})
	}
}

// BenchmarkPageHeap is how much more memory the page takes after an hour's events than after a
// quarter of them, at 50 events a second. The page keeps 20,000.
func BenchmarkPageHeap(b *testing.B) {
	const hour = 180_000
	p := newPageBench(b)
	used := func(until int) float64 {
		for p.told < until {
			p.tell(1000)
			p.v.waitText(".entry", p.last())
		}
		var usage runtime.GetHeapUsageResult
		p.v.do("measuring",
			chromedp.Func(func(ctx context.Context, _ *chromedp.Target) (err error) {
				if _, err = chromedp.Call(ctx, heapprofiler.CollectGarbage,
					cdp.Empty{}); err != nil {
					return err
				}
				usage, err = chromedp.Call(ctx, runtime.GetHeapUsage, cdp.Empty{})
				return err
			}))
		return usage.UsedSize
	}
	for b.Loop() {
		quarter := used(hour / 4)
		reportAtMost(b, used(hour)/quarter, 1.1, "times")
		b.ReportMetric(quarter/(1<<20), "MiB")
	}
}
