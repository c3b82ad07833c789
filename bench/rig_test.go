// Package bench holds the benchmarks of the whole gateway, beside a floor wherever there is one: a
// relay without logic, a bare server or client, a program that prints one line. ci/bench.sh runs
// them, with those of other packages, and package bench/table prints their ratios beside the limits
// in its file rows.txt. benchstat reads the same output.
//
// A benchmark is a call of [compare] or [measure]. Each iteration is a round: both sides do the
// same work once, and the side that begins alternates, since a shared machine has moods. A round
// returns metrics, and the benchmark reports the median of each over the rounds: NAME for tapgw,
// floor-NAME for the floor, and NAME/floor for the median of the rounds' ratios. So `-benchtime
// 41x` means 41 rounds.
//
// The sides are processes: a real `tapgw serve` from bin/ (or from the directory in
// TAPGW_BENCH_BIN, which compares two revisions), and this test binary in a role that the variable
// TAPGW_BENCH_PART gives it. Measurements in this process count its processor time, so that a busy
// machine does not decide the result.
package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"tapgw/internal/client"
)

// part is the role of a process, which ends when its input does.
type part struct {
	Role       string
	URL, Token string
	Providers  int    `json:",omitempty"`
	Tools      int    `json:",omitempty"` // of each provider
	Rules      int    `json:",omitempty"` // hook rules of each provider
	NoHooks    bool   `json:",omitempty"` // of a host: the gateway applies the rules
	HTTP       bool   `json:",omitempty"` // of an MCP server: streamable HTTP in place of pipes
	Log        string `json:",omitempty"` // of a tap: where it writes
}

const partVariable = "TAPGW_BENCH_PART"

func TestMain(m *testing.M) {
	if text := os.Getenv(partVariable); text != "" {
		os.Exit(play(text))
	}
	// The clock that stops patterns lives on for a second.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

func play(text string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	roles := map[string]func(context.Context, part) error{
		"relay": runRelay, "host": runHost, "provider": runProvider,
		"inside": runInside, "mcp": runMCPServer, "tap": runTap,
	}
	var p part
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = roles[p.Role](ctx, p)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "part %s: %v\n", p.Role, err)
		return 1
	}
	return 0
}

// variable is the environment variable that gives this test binary the role.
func (p part) variable() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // texts and numbers
	}
	return partVariable + "=" + string(text)
}

// metrics are the values of one round. The name of each ends in its unit, as in "p50-us".
type metrics map[string]float64

// compare measures floor and ours once in each iteration and reports the medians.
func compare(b *testing.B, floor, ours func() metrics) {
	b.Helper()
	sides := [2]func() metrics{floor, ours}
	var got [2]map[string][]float64
	for i := range got {
		got[i] = map[string][]float64{}
	}
	for round := 0; b.Loop(); round++ {
		for turn := range sides {
			i := (round + turn) % 2
			if sides[i] == nil {
				continue
			}
			for name, v := range sides[i]() {
				got[i][name] = append(got[i][name], v)
			}
		}
	}
	b.ReportMetric(0, "ns/op") // both sides together
	for name, values := range got[1] {
		b.ReportMetric(median(values), name)
		if floors := got[0][name]; floors != nil {
			ratios := make([]float64, len(values))
			for i, v := range values {
				ratios[i] = v / floors[i]
			}
			b.ReportMetric(median(floors), "floor-"+name)
			b.ReportMetric(median(ratios), name+"/floor")
		}
	}
}

// measure is [compare] without a floor.
func measure(b *testing.B, round func() metrics) {
	b.Helper()
	compare(b, nil, round)
}

func median[T float64 | time.Duration](v []T) T {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantiles returns p50 and p99 in a unit.
func quantiles(took []time.Duration, unit func(time.Duration) float64) (p50, p99 float64) {
	took = slices.Sorted(slices.Values(took))
	return unit(took[len(took)/2]), unit(took[len(took)*99/100])
}

// process is a child process. The benchmark reads its output line by line.
type process struct {
	b     *testing.B
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
}

// start runs a command until the end of the benchmark.
func start(b *testing.B, env []string, argv ...string) *process {
	b.Helper()
	p := &process{b: b, cmd: exec.Command(argv[0], argv[1:]...)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	p.lines = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.stop)
	return p
}

// stop closes the input, sends SIGINT, and kills the process after 20 s, which is a gateway's own
// deadline.
func (p *process) stop() {
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(os.Interrupt)
	kill := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait()
}

// line waits for the next line of output.
func (p *process) line() string {
	p.b.Helper()
	s, err := p.lines.ReadString('\n')
	if err != nil {
		p.b.Fatalf("reading from %s: %v", p.cmd, err)
	}
	return strings.TrimSpace(s)
}

// cpu is the processor time of the process.
func (p *process) cpu() time.Duration { return cpuOf(p.b, p.cmd.Process.Pid) }

// ownCPU is the processor time of this process.
func ownCPU(b *testing.B) time.Duration { return cpuOf(b, os.Getpid()) }

// cpuOf reads the clock of a process's processor time, which counts threads that have ended, too.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	const schedulerClock = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedulerClock), &t); err != nil {
		b.Fatalf("reading the processor time of process %d: %v", pid, err)
	}
	return time.Duration(t.Nano())
}

// memory returns the MiB that are resident, and those of them that no file backs.
func (p *process) memory() (resident, anonymous float64) {
	p.b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid))
	if err != nil {
		p.b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		kib, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "Rss:":
			resident = kib / 1024
		case "Anonymous:":
			anonymous = kib / 1024
		}
	}
	return resident, anonymous
}

// settle waits until processes that have started, or have had work, are surely idle.
func settle(b *testing.B) { pause(b, 2*time.Second) }

func pause(b *testing.B, d time.Duration) {
	b.Helper()
	select {
	case <-b.Context().Done():
		b.Fatal(b.Context().Err())
	case <-time.After(d):
	}
}

// rig starts the processes of a benchmark. pin stands before each command.
type rig struct {
	*testing.B
	pin []string
}

// oneCore is the pin that keeps a command and its children on the first processor.
var oneCore = []string{"taskset", "-c", "0"}

// part starts this test binary in a role.
func (r rig) part(p part) *process {
	r.Helper()
	return start(r.B, []string{p.variable()}, append(slices.Clone(r.pin), self(r.B))...)
}

func self(b *testing.B) string {
	b.Helper()
	path, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	return path
}

// program returns the path of one of the programs of this repository.
func program(b *testing.B, name string) string {
	b.Helper()
	dir := os.Getenv("TAPGW_BENCH_BIN")
	if dir == "" {
		dir = "../bin"
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		b.Fatalf("there is no %s: run `make build` first (%v)", name, err)
	}
	return path
}

// middle is the process between host and provider: the relay or the gateway.
type middle struct {
	*process
	url          string
	token, admin string
	home         string
	env          []string      // where its programs find it
	ready        time.Duration // from its start to its URL
}

func (r rig) relay() *middle {
	r.Helper()
	p := r.part(part{Role: "relay"})
	return &middle{process: p, url: p.line()}
}

// home makes a home directory for a gateway with the settings in its tapgw.toml. Its sessions lack
// the tap_* tools, as the other side of a comparison does.
func home(b *testing.B, settings string) (dir string, env []string) {
	b.Helper()
	dir = b.TempDir()
	put(b, filepath.Join(dir, "tapgw", "tapgw.toml"), "[tap]\ntools = false\n"+settings)
	return dir, []string{"HOME=" + dir, "COPILOT_HOME=" + dir, "XDG_CONFIG_HOME=" + dir,
		"XDG_STATE_HOME=" + dir}
}

// put writes a file and its directory as editors do.
func put(b *testing.B, path, text string) {
	b.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	err = errors.Join(err, os.WriteFile(path+".part", []byte(text), 0o600))
	if err = errors.Join(err, os.Rename(path+".part", path)); err != nil {
		b.Fatal(err)
	}
}

// gateway starts a real gateway in a home of its own.
func (r rig) gateway(settings string) *middle {
	r.Helper()
	dir, env := home(r.B, settings)
	return r.gatewayIn(dir, env)
}

func (r rig) gatewayIn(dir string, env []string) *middle {
	r.Helper()
	argv := append(slices.Clone(r.pin), program(r.B, "tapgw"), "serve", "--listen", "127.0.0.1:0",
		"--log-level", "error")
	began := time.Now()
	m := &middle{process: start(r.B, env, argv...), home: dir, env: env}
	m.url = m.line()
	m.ready = time.Since(began)
	for file, to := range map[string]*string{".provider-token": &m.token,
		".admin-token": &m.admin} {
		text, err := os.ReadFile(filepath.Join(dir, "extensions", "tap", file))
		if err != nil {
			r.Fatal(err)
		}
		*to = strings.TrimSpace(string(text))
	}
	return m
}

// file writes a file below the gateway's config directory.
func (m *middle) file(name, text string) { put(m.b, filepath.Join(m.home, "tapgw", name), text) }

// client is an admin client of the gateway.
func (m *middle) client() *client.Client {
	m.b.Helper()
	c, err := client.New(client.Options{URL: m.url, Token: m.admin})
	if err != nil {
		m.b.Fatal(err)
	}
	m.b.Cleanup(c.Close)
	return c
}

// caller is a process that calls tools of providers through a middle.
type caller struct {
	*process
	providers *process
	middle    *middle
}

// caller starts the providers, then the host: the relay must know the providers when the host
// sends.
func (r rig) caller(m *middle, p part) *caller {
	r.Helper()
	p.URL = m.url
	p.Role, p.Token = "provider", m.token
	providers := r.part(p)
	providers.line()
	p.Role, p.Token = "host", m.admin
	c := &caller{r.part(p), providers, m}
	c.line()
	return c
}

// stop ends both ends.
func (c *caller) stop() {
	c.process.stop()
	c.providers.stop()
}

// load lets the process make calls from some workers at once. The second result is the processor
// time that the middle took for a call, in microseconds.
func (c *caller) load(workers, calls int) (l load, cpu float64) {
	c.b.Helper()
	before := c.middle.cpu()
	if _, err := fmt.Fprintln(c.in, workers, calls); err != nil {
		c.b.Fatal(err)
	}
	if err := json.Unmarshal([]byte(c.line()), &l); err != nil {
		c.b.Fatal(err)
	}
	if l.Error != "" {
		c.b.Fatal(l.Error)
	}
	return l, us(c.middle.cpu()-before) / float64(calls)
}

// calls is a round of calls: one at a time, then 64 at once.
func (c *caller) calls(n, nAtOnce int) metrics {
	c.b.Helper()
	one, cpu := c.load(1, n)
	many, cpuMany := c.load(64, nAtOnce)
	return metrics{"p50-us": us(one.P50), "p99-us": us(one.P99), "cpu-us": cpu,
		"p99-64-us": us(many.P99), "cpu-64-us": cpuMany, "calls/s": many.rate()}
}
