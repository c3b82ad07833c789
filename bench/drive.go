package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report prints tables with a row for each metric.
type report struct {
	out  *tabwriter.Writer
	over int // rows that miss their target
}

func newReport() *report {
	return &report{out: tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
}

func (r *report) title(s string, columns string) {
	_ = r.out.Flush()
	fmt.Printf("\n%s\n", s)
	_, _ = fmt.Fprintln(r.out, columns)
}

// row prints a metric of floor and gateway, and whether value keeps its target. The target is an upper bound, or a
// lower one with atLeast.
func (r *report) row(metric, floor, ours string, value, target float64, atLeast bool) {
	verdict, sign := "ok", "<="
	if atLeast {
		sign = ">="
	}
	if atLeast && value < target || !atLeast && value > target {
		verdict = "OVER"
		r.over++
	}
	_, _ = fmt.Fprintf(r.out, "%s\t%s\t%s\t%.2f\t%s %.2f\t%s\n", metric, floor, ours, value, sign, target, verdict)
}

// inform is row without a target.
func (r *report) inform(metric, floor, ours string, value float64) {
	_, _ = fmt.Fprintf(r.out, "%s\t%s\t%s\t%.2f\t\t\n", metric, floor, ours, value)
}

func median[T float64 | int64 | time.Duration](v []T) T {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// series has the values of one metric in all rounds, of the floor and of the gateway.
type series struct{ floor, ours, ratio []float64 }

func (s *series) add(floor, ours float64) {
	s.floor = append(s.floor, floor)
	s.ours = append(s.ours, ours)
	s.ratio = append(s.ratio, ours/floor)
}

func (s *series) row(r *report, metric, format string, target float64, atLeast bool) {
	r.row(metric, fmt.Sprintf(format, median(s.floor)), fmt.Sprintf(format, median(s.ours)), median(s.ratio), target,
		atLeast)
}

// inform adds a row that has no target.
func (s *series) inform(r *report, metric, format string) {
	r.inform(metric, fmt.Sprintf(format, median(s.floor)), fmt.Sprintf(format, median(s.ours)), median(s.ratio))
}

func micros(ns int64) float64 { return float64(ns) / 1e3 }

func perSecond(l Load) float64 { return float64(l.Calls) / (float64(l.Wall) / 1e9) }

type options struct {
	binary string
	self   string
	rounds int
	calls  int
	noise  bool
	only   string
}

// parts are the tables, by the name that -only takes.
var parts = []struct {
	name    string
	measure func(context.Context, options, *report) error
}{
	{"floor", againstFloor}, {"footprint", footprint}, {"latency", latencies}, {"rules", rulesAndGates},
	{"updates", updates}, {"streams", streams}, {"sse", sse}, {"files", providerFiles}, {"patterns", patterns},
	{"topology", ownTopology}, {"sdks", sdks}, {"mcpserver", sessionAsServer}, {"mcpbridge", mcpCalls},
	{"records", recorded}, {"terminals", terminals},
}

// drive runs the measurements and prints their tables.
func drive(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.binary, "tapgw", "bin/tapgw", "the gateway to measure")
	flags.IntVar(&o.rounds, "rounds", 41,
		"rounds of each comparison, floor and gateway in turn: many and short, because a round trip on two "+
			"cores has two speeds, as the processes share a core or not, and the machine has moods")
	flags.IntVar(&o.calls, "calls", 800, "calls of a sequential round; a concurrent one makes four times as many")
	flags.BoolVar(&o.noise, "noise", false, "measure the relay against itself: what the machine adds to a ratio")
	flags.StringVar(&o.only, "only", "", "one table: "+partNames())
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if o.self, err = os.Executable(); err != nil {
		return err
	}
	r := newReport()
	if o.noise {
		defer func() { _ = r.out.Flush() }()
		return againstFloor(ctx, o, r)
	}
	if _, err := os.Stat(o.binary); err != nil {
		return fmt.Errorf("there is no gateway at %s: run `make build` first", o.binary)
	}
	measured := false
	for _, part := range parts {
		if o.only != "" && o.only != part.name {
			continue
		}
		measured = true
		if err := part.measure(ctx, o, r); err != nil {
			return err
		}
	}
	if !measured {
		return fmt.Errorf("-only %s: there is no such table; the tables are %s", o.only, partNames())
	}
	_ = r.out.Flush()
	if r.over > 0 {
		fmt.Printf("\n%d over target\n", r.over)
	} else {
		fmt.Printf("\nall within target\n")
	}
	return nil
}

func partNames() string {
	names := make([]string, len(parts))
	for i, part := range parts {
		names[i] = part.name
	}
	return strings.Join(names, ", ")
}

// againstFloor compares the gateway with the relay, with 1 and 50 providers.
func againstFloor(ctx context.Context, o options, r *report) error {
	r.title(fmt.Sprintf("Against a relay without logic: three processes, %d rounds in turn, medians", o.rounds),
		"metric\tfloor\ttapgw\tratio\ttarget\t")
	c, err := compare(ctx, o, nil, 1)
	if err != nil {
		return err
	}
	c.p50.row(r, "sequential round trip, p50 us", "%.0f", 1.25, false)
	c.p99.row(r, "sequential round trip, p99 us", "%.0f", 1.5, false)
	c.cpu.row(r, "CPU of the middle, us a call, sequential", "%.1f", 1.6, false)
	c.cpuAt64.inform(r, "CPU of the middle, us a call, 64 at once", "%.1f")
	c.rate.row(r, "calls/s, 64 at once, 1 provider", "%.0f", 0.75, true)
	if c, err = compare(ctx, o, nil, 50); err != nil {
		return fmt.Errorf("with 50 providers: %w", err)
	}
	c.rate.row(r, "calls/s, 64 at once, 50 providers", "%.0f", 0.75, true)
	// These figures are reproducible and contain no waiting. They show what a change of the code costs.
	if c, err = compare(ctx, o, oneCore, 1); err != nil {
		return fmt.Errorf("on one core: %w", err)
	}
	c.p50.inform(r, "sequential round trip, p50 us, all on one core", "%.0f")
	c.cpu.inform(r, "CPU of the middle, us a call, sequential, all on one core", "%.1f")
	return nil
}

// oneCore runs the command after it, and its children, on the first core.
var oneCore = []string{"taskset", "-c", "0"}

// comparison is the result of compare. Durations are in microseconds.
type comparison struct{ p50, p99, cpu, rate, cpuAt64 series }

// compare measures relay and gateway in turn. pin stands before each command.
func compare(ctx context.Context, o options, pin []string, providers int) (c comparison, err error) {
	var both [2]*system
	for i := range both {
		m, err := startMiddle(ctx, o, pin, i == 1)
		if err != nil {
			return c, err
		}
		if both[i], err = join(ctx, o.self, pin, m, endpoints{providers: providers, tools: 1}); err != nil {
			return c, err
		}
		defer both[i].stop()
		if _, err := both[i].sample(8, 2000); err != nil { // warm up
			return c, err
		}
	}
	for round := range o.rounds {
		var seq, conc [2]sample
		for turn := range both {
			i := (turn + round) % 2 // the first one alternates
			if seq[i], err = both[i].sample(1, o.calls); err != nil {
				return c, err
			}
		}
		for turn := range both {
			i := (turn + round) % 2
			if conc[i], err = both[i].sample(64, 4*o.calls); err != nil {
				return c, err
			}
		}
		c.p50.add(micros(seq[0].P50), micros(seq[1].P50))
		c.p99.add(micros(seq[0].P99), micros(seq[1].P99))
		c.cpu.add(micros(int64(seq[0].cpu)), micros(int64(seq[1].cpu)))
		c.rate.add(perSecond(conc[0].Load), perSecond(conc[1].Load))
		c.cpuAt64.add(micros(int64(conc[0].cpu)), micros(int64(conc[1].cpu)))
	}
	return c, nil
}

func startMiddle(ctx context.Context, o options, pin []string, gateway bool) (*middle, error) {
	if gateway && !o.noise {
		return startGateway(ctx, o.binary, pin)
	}
	return startRelay(ctx, o.self, pin)
}

// footprint measures how fast a real `tapgw serve` starts, and its memory.
func footprint(ctx context.Context, o options, r *report) error {
	r.title("A real `tapgw serve`", "metric\t\ttapgw\tof target\tat most\t")
	var ready []time.Duration
	for range 9 {
		m, err := startGateway(ctx, o.binary, nil)
		if err != nil {
			return err
		}
		ready = append(ready, m.ready)
		m.stop()
	}
	absolute := func(metric, unit string, v, target float64) {
		r.row(metric, "", fmt.Sprintf("%.1f %s", v, unit), v/target, 1, false)
	}
	absolute("start to URL printed (50 ms)", "ms", micros(int64(median(ready)))/1e3, 50)

	m, err := startGateway(ctx, o.binary, nil)
	if err != nil {
		return err
	}
	const mib = 1 << 20
	if err := waitUntilIdle(ctx); err != nil {
		return err
	}
	idle, err := m.memory()
	if err != nil {
		return err
	}
	absolute("resident, idle (22 MiB)", "MiB", float64(idle.resident)/mib, 22)
	absolute("anonymous, idle (5 MiB)", "MiB", float64(idle.anonymous)/mib, 5)
	s, err := join(ctx, o.self, nil, m, endpoints{providers: 50, tools: 20})
	if err != nil {
		return err
	}
	defer s.stop()
	if err := waitUntilIdle(ctx); err != nil {
		return err
	}
	full, err := m.memory()
	if err != nil {
		return err
	}
	absolute("resident, 50 providers of 20 tools (38 MiB)", "MiB", float64(full.resident)/mib, 38)
	absolute("anonymous, 50 providers of 20 tools (25 MiB)", "MiB", float64(full.anonymous)/mib, 25)
	return nil
}

// waitUntilIdle waits until a process that has started is surely idle.
func waitUntilIdle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * time.Second):
		return nil
	}
}

// quantiles returns p50 and p99 in milliseconds.
func quantiles(v []time.Duration) (p50, p99 float64) {
	v = slices.Clone(v)
	slices.Sort(v)
	return micros(int64(v[len(v)/2])) / 1e3, micros(int64(v[len(v)*99/100])) / 1e3
}
