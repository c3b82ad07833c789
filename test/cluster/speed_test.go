//go:build e2e && linux

package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"tapgw/internal/client"
)

// median is that of the rounds.
func median[T float64 | time.Duration](list []T) T {
	slices.Sort(list)
	return list[len(list)/2]
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// BenchmarkHop calls a tool of the session's gateway and one of another gateway in turn, and
// measures beside them the floor: bare processes that make the same two ways and know nothing of
// calls. The host, the providers, the gateways and the NATS server are processes of their own. Each
// metric is the median of the rounds.
func BenchmarkHop(b *testing.B) {
	url := natsNodes(b, 1)[0].url
	mine := newMachine(b, "a", []string{url}, admitting("a"))
	other := newMachine(b, "b", []string{url}, admitting("b"))
	until(b, "they see each other", func() bool { return mine.sees(other) && other.sees(mine) })
	host, err := client.Host(b.Context(),
		client.Options{URL: mine.url, Token: mine.token(".admin-token")},
		client.HostOptions{Name: "bench", Version: "1", Label: "work", CWD: "/"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { host.Close(context.Background(), "done") })
	const providers = 8
	startPart(b, "provider", providerPart{mine.url, mine.token(".admin-token"), "here", providers})
	startPart(b, "provider", providerPart{other.url, other.token(".admin-token"), "there",
		providers})
	_, end := startPart(b, "bare end", barePart{})
	startPart(b, "bare", barePart{URL: url, Next: end})
	bareHere, _ := startPart(b, "bare caller", barePart{Next: end})
	bareThere, _ := startPart(b, "bare caller", barePart{URL: url})
	caller := func(where string) func(i int) error {
		return func(i int) error {
			result, err := host.CallTool(b.Context(), fmt.Sprint(where, "-", i),
				fmt.Sprint(where, "-", i%providers),
				[]byte(`{"path":"internal/gateway/session.go"}`))
			if err == nil && result.ErrorCode != "" {
				err = fmt.Errorf("%s: %s", result.ErrorCode, result.Error)
			}
			return err
		}
	}
	for _, where := range []string{"here", "there"} {
		until(b, "the tools are there", func() bool {
			return makeCalls(1, providers, caller(where)).Error == ""
		})
	}
	call := func(where string, workers, calls int) round {
		r := makeCalls(workers, calls, caller(where))
		if r.Error != "" {
			b.Fatal(r.Error)
		}
		return r
	}
	call("here", 8, 2000)
	call("there", 8, 2000)
	var here, there, more, bare, bareMore []time.Duration
	var ratio []float64
	for b.Loop() {
		h, t := call("here", 1, 500).P50, call("there", 1, 500).P50
		bh, bt := bareHere.round(1, 500).P50, bareThere.round(1, 500).P50
		here, there, more = append(here, h), append(there, t), append(more, t-h)
		bare, bareMore = append(bare, bt), append(bareMore, bt-bh)
		ratio = append(ratio, float64(t-h)/float64(bt-bh))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(micros(median(here)), "us-here")
	b.ReportMetric(micros(median(there)), "us-elsewhere")
	b.ReportMetric(micros(median(more)), "us-more")
	b.ReportMetric(micros(median(bare)), "us-bare")
	b.ReportMetric(micros(median(bareMore)), "us-bare-more")
	b.ReportMetric(median(ratio), "ratio")
}

// BenchmarkRate calls tools of several providers of another gateway from several sessions, and
// beside it the floor, as many bare requests through the same NATS server. Callers and providers
// are in the processes of their gateways.
func BenchmarkRate(b *testing.B) {
	url := natsNodes(b, 1)[0].url
	const sessions, providers = 8, 16
	startPart(b, "bare", barePart{URL: url})
	floor, _ := startPart(b, "bare caller", barePart{URL: url})
	calling := launchPart(b, "gateway", gatewayPart{url, "a", "b", sessions, 0, providers})
	startPart(b, "gateway", gatewayPart{url, "b", "a", 0, providers, 0})
	calling.line() // its sessions have the tools
	calling.round(64, 20_000)
	rates := map[int][]float64{}
	p50 := map[int][]time.Duration{}
	var bare []float64
	for b.Loop() {
		for _, workers := range []int{1, 16, 64, 256} {
			r := calling.round(workers, 400+100*min(workers, 256))
			rates[workers] = append(rates[workers], r.perSecond())
			p50[workers] = append(p50[workers], r.P50)
		}
		bare = append(bare, floor.round(256, 26_000).perSecond())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(micros(median(p50[1])), "us-p50")
	for _, workers := range []int{16, 64, 256} {
		b.ReportMetric(median(rates[workers]), fmt.Sprintf("calls/s-%d", workers))
	}
	b.ReportMetric(median(bare), "calls/s-nats-256")
}
