package bench

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/records"
	"tapgw/internal/server"
)

// local is a gateway with one session in this process. The session has no hooks, so the gateway
// applies the rules.
type local struct {
	g     *gateway.Gateway
	s     *gateway.Session
	srv   *server.Server // after serve
	peers []*peer
}

func newLocal(ctx context.Context, o gateway.Options) (*local, error) {
	o.Starters = map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}}
	l := &local{g: gateway.New(o)}
	var err error
	l.s, err = l.g.Start(ctx, gateway.StartRequest{Host: gateway.HostLocal, CWD: "/"})
	return l, err
}

// newLocalIn is newLocal until the end of the benchmark, with providers.
func newLocalIn(b testing.TB, o gateway.Options, providers ...*provider) *local {
	b.Helper()
	l, err := newLocal(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		for _, r := range l.peers {
			close(r.frames)
			r.reading.Wait()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		l.g.Drain(ctx)
	})
	for _, p := range providers {
		l.join(b, p, 0)
	}
	return l
}

// serve serves the gateway on loopback. Call end at the end.
func (l *local) serve(o server.Options) (end func(), err error) {
	o.Gateway, o.Status = l.g, func() adminapi.Status { return adminapi.Status{} }
	l.srv = server.New(o)
	if err := l.srv.Listen("127.0.0.1:0"); err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- l.srv.Serve() }()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.srv.Shutdown(ctx)
		<-served //nolint:errcheck // it was shut down
	}, nil
}

func (l *local) serveIn(b *testing.B, o server.Options) {
	b.Helper()
	end, err := l.serve(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(end)
}

// web is the server's URL for HTTP.
func (l *local) web() string { return "http" + strings.TrimPrefix(l.srv.URL(), "ws") }

// call calls the first tool of provider k.
func (l *local) call(ctx context.Context, k int) error {
	o := l.s.CallTool(ctx, gateway.Call{Name: toolName(k, 0),
		Args: protocol.Raw(marshal(toolArgs))})
	if o.Failed() {
		return fmt.Errorf("%s: %s", o.ErrorCode, o.Error)
	}
	return nil
}

// calls makes calls one after the other.
func (l *local) calls(b *testing.B, n int) metrics {
	b.Helper()
	before := ownCPU(b)
	got := makeCalls(1, n, func(int) error { return l.call(b.Context(), 0) })
	if got.Error != "" {
		b.Fatal(got.Error)
	}
	return metrics{"p50-us": us(got.P50), "p99-us": us(got.P99),
		"cpu-us": us(ownCPU(b)-before) / float64(n)}
}

// runInside runs a gateway with the caller in the same process. It prints URL and token, waits for
// its providers, and obeys.
func runInside(ctx context.Context, p part) error {
	l, err := newLocal(ctx, gateway.Options{})
	if err != nil {
		return err
	}
	end, err := l.serve(server.Options{})
	if err != nil {
		return err
	}
	defer end()
	fmt.Printf("%s\n%s\n", l.srv.URL(), l.g.InstanceToken())
	for len(l.s.Tools()) < p.Providers {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return obey(func(workers, calls int) load {
		return makeCalls(workers, calls, func(i int) error { return l.call(ctx, i%p.Providers) })
	})
}

// peer is a provider in this process. It answers each call, and its gates allow each call after a
// delay.
type peer struct {
	provider *provider
	delay    time.Duration
	conn     *gateway.Conn
	frames   chan []byte // what it says
	reading  sync.WaitGroup
	bound    chan struct{}
	acks     chan struct{}
	failed   chan error // the first error message of the gateway
}

// join binds a provider and serves it from a goroutine, the only reader of its connection.
func (l *local) join(b testing.TB, p *provider, delay time.Duration) *peer {
	b.Helper()
	r := &peer{provider: p, delay: delay, bound: make(chan struct{}), acks: make(chan struct{}, 1),
		frames: make(chan []byte, 1024), failed: make(chan error, 1)}
	r.conn = l.g.Connect(r, gateway.ConnOptions{})
	r.reading.Go(func() {
		for frame := range r.frames {
			r.conn.Receive(frame)
		}
		r.conn.Closed()
	})
	l.peers = append(l.peers, r)
	r.frames <- fmt.Appendf(nil, `{"type":"auth","token":%q}`, l.g.InstanceToken())
	select {
	case <-r.bound:
	case err := <-r.failed:
		b.Fatal(err)
	}
	return r
}

// resultTail is the rest of a result's frame after the id.
var resultTail = fmt.Sprintf(`","data":%q}`, toolArgs.result())

// Send implements [gateway.Peer].
func (r *peer) Send(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.ToolCall:
		// Written by hand, because the peer's time would count as the gateway's.
		answer := append(make([]byte, 0, 256), `{"type":"tool.result","id":"`...)
		r.frames <- append(append(answer, m.ID...), resultTail...)
	case *protocol.GateCheck:
		answer := fmt.Appendf(nil, `{"type":"gate.result","callId":"%s","decision":"allow"}`,
			m.CallID)
		if r.delay == 0 {
			r.frames <- answer
			return
		}
		time.AfterFunc(r.delay, func() { r.frames <- answer })
	case *protocol.Sessions:
		r.frames <- r.provider.hello(m.Active[0].ID)
	case *protocol.HelloAck:
		close(r.bound)
	case *protocol.Ack:
		r.acks <- struct{}{}
	case *protocol.Error:
		select {
		case r.failed <- m:
		default:
		}
	}
}

// Flush implements [gateway.Peer].
func (r *peer) Flush() {}

// Close implements [gateway.Peer].
func (r *peer) Close(protocol.CloseCode, string) {}

// update sends an update and waits for its ack.
func (r *peer) update(b testing.TB, m object) {
	b.Helper()
	r.frames <- marshal(m)
	select {
	case <-r.acks:
	case err := <-r.failed:
		b.Fatal(err)
	}
}

func (r *peer) setRules(b testing.TB, rules ...protocol.Rule) {
	b.Helper()
	r.update(b, object{"type": "hooks.update", "requestId": "rules", "onPreToolUse": rules})
}

// rules returns rules as people write them, up to the fifty that a provider may have. None matches
// a call of the bench's tool. Half of them are about other tools or providers; the patterns of the
// other half are tried.
func rules(n int) []protocol.Rule {
	shapes := []protocol.Match{
		{Tool: "bash", Args: `git\s+WORD\b`},
		{Tool: "mcp_*_WORD*"},
		{Tool: "edit", File: "WORD/**"},
		{Tool: "*WORD*", Args: "force"},
		{Provider: "WORD", Args: ".*"},
		{Args: "git WORD"},
		{Tool: "t*", Args: `"command":"(?:sudo|doas)\s+\w*WORD`},
		{Args: `\bWORD(?!\s+--dry-run)`},
		{Args: `(?=.*\bgit\b).*WORD.*--force(?!-with-lease)`},
		{Tool: "t*", File: "WORD/**/*.{sql,env}"},
	}
	actions := []protocol.Rule{
		{Action: protocol.ActionGate, GateID: "bench"},
		{Action: protocol.ActionDeny, Reason: "not here"},
		{Action: protocol.ActionContext, Content: "mind the bench"},
	}
	words := []string{"push", "publish", "deploy", "release", "secret"}
	list := make([]protocol.Rule, n)
	for i := range list {
		r, m := actions[i%len(actions)], shapes[i%len(shapes)]
		for _, field := range []*string{&m.Tool, &m.Args, &m.File, &m.Provider} {
			*field = strings.ReplaceAll(*field, "WORD", words[i/len(shapes)%len(words)])
		}
		r.Match = m
		list[i] = r
	}
	return list
}

// unskippableRules returns rules whose patterns run on each text, because no quick check excludes
// them.
func unskippableRules(n int) []protocol.Rule {
	match := protocol.Match{Args: `"(?:p|c)\w+":"(?!internal/)`}
	return slices.Repeat([]protocol.Rule{{Match: match, Action: protocol.ActionDeny}}, n)
}

var benchTool = provider{name: "tool", tools: 1}

// BenchmarkRules is a call in process with the most rules that a provider may have, beside a call
// without rules. No rule matches: unskippable ones are those that only the engine can tell from a
// match.
func BenchmarkRules(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, list := range map[string][]protocol.Rule{
		"usual":       rules(protocol.MaxHookRules),
		"unskippable": unskippableRules(protocol.MaxHookRules),
	} {
		b.Run(name, func(b *testing.B) {
			without := newLocalIn(b, gateway.Options{}, &benchTool)
			with := newLocalIn(b, gateway.Options{}, &benchTool,
				&provider{name: "rules", rules: list})
			compare(b, func() metrics { return without.calls(b, 1000) },
				func() metrics { return with.calls(b, 1000) })
		})
	}
}

// BenchmarkGates is a call that waits for four gates, beside one that waits for one. The gates are
// asked at once.
func BenchmarkGates(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, delay := range map[string]time.Duration{"5-ms": 5 * time.Millisecond, "at-once": 0} {
		b.Run(name, func(b *testing.B) {
			side := func(gates int) func() metrics {
				l := newLocalIn(b, gateway.Options{}, &benchTool)
				gate := protocol.Rule{Action: protocol.ActionGate, GateID: "bench",
					Match: protocol.Match{Tool: "t*"}}
				for i := range gates {
					p := &provider{name: fmt.Sprintf("gate%d", i), rules: []protocol.Rule{gate}}
					l.join(b, p, delay)
				}
				return func() metrics { return l.calls(b, 10) }
			}
			compare(b, side(1), side(4))
		})
	}
}

// BenchmarkRecord compares calls in process with records on and off.
func BenchmarkRecord(b *testing.B) {
	log := records.New(records.Options{Dir: filepath.Join(b.TempDir(), "calls"),
		MaxBytes: 256 << 20})
	without := newLocalIn(b, gateway.Options{}, &benchTool)
	with := newLocalIn(b, gateway.Options{Recorder: log}, &benchTool)
	compare(b, func() metrics { return without.calls(b, 2000) },
		func() metrics { return with.calls(b, 2000) })
	if fault := log.Faults(); fault != "" {
		b.Fatal(fault)
	}
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
}

// streamFilter is the example of three rules in the documents.
var streamFilter = []map[string]string{
	{"match": "behind=0", "outcome": "drop"},
	{"match": "conflicts=[1-9]", "outcome": "inject"},
	{"match": ".*", "outcome": "keep"},
}

// BenchmarkStream is how many events a second of one processor takes into a stream: read from JSON,
// filtered by the last of three rules, counted in the budget, stored. A thousand providers share
// the stream, so that the measurement stays within their budgets of ten pushes a second.
func BenchmarkStream(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const feeders = 1000
	l := newLocalIn(b, gateway.Options{})
	for range feeders {
		l.join(b, &provider{name: "git-watch"}, 0)
	}
	l.peers[0].update(b, object{"type": "filter.set", "requestId": "f", "stream": "git-watch",
		"rules": streamFilter})
	frame := []byte(`{"type":"push","stream":"git-watch",` +
		`"event":"main: ahead=2 behind=3 conflicts=0 dirty=1","level":"surface"}`)
	measure(b, func() metrics {
		pause(b, 1100*time.Millisecond) // until all budgets are whole
		stored, before := l.s.HistoryCursor(), ownCPU(b)
		for range protocol.PushRate {
			for _, p := range l.peers {
				p.conn.Receive(frame) // its reader has nothing to read
			}
		}
		rate := float64(feeders*protocol.PushRate) / (ownCPU(b) - before).Seconds()
		for _, p := range l.peers {
			select {
			case err := <-p.failed:
				b.Fatal(err)
			default:
			}
		}
		if got := l.s.HistoryCursor() - stored; got != feeders*protocol.PushRate {
			b.Fatalf("%d events are stored, want %d", got, feeders*protocol.PushRate)
		}
		return metrics{"events/cpu-s": rate}
	})
}

// BenchmarkSSE is the time from a host's event to the readers of the session's server-sent events,
// over loopback.
func BenchmarkSSE(b *testing.B) {
	for _, readers := range []int{1, 50} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			l := newLocalIn(b, gateway.Options{})
			l.serveIn(b, server.Options{})
			had := l.follow(b, readers)
			measure(b, func() metrics {
				var took []time.Duration
				for range 400 / readers {
					begun := time.Now()
					l.s.Event(gateway.Event{Callback: gateway.OnMessage, ID: "m",
						Delta: "a word or two "})
					for range readers {
						select {
						case at := <-had:
							took = append(took, at.Sub(begun))
						case <-time.After(10 * time.Second):
							b.Fatalf("an event did not come to %d readers", readers)
						}
					}
				}
				got := metrics{}
				got["p50-ms"], got["p99-ms"] = quantiles(took, ms)
				return got
			})
		})
	}
}

// follow opens the session's events several times. The channel has the time of each event at each
// reader.
func (l *local) follow(b *testing.B, readers int) <-chan time.Time {
	b.Helper()
	web := &http.Client{Transport: &http.Transport{}}
	had := make(chan time.Time, readers)
	var reading sync.WaitGroup
	b.Cleanup(func() { web.CloseIdleConnections(); reading.Wait() })
	for range readers {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet,
			l.web()+"/api/v1/sessions/"+l.s.ID()+"/events", nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+l.g.AdminToken())
		response, err := web.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		reading.Go(func() {
			defer func() { _ = response.Body.Close() }()
			for lines := bufio.NewScanner(response.Body); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "data: ") {
					had <- time.Now()
				}
			}
		})
	}
	return had
}

// worstPatterns returns patterns that explode, or whose single steps are as long as possible,
// within 1 KiB each.
func worstPatterns() map[string]protocol.Match {
	x := strings.Repeat
	var classes, ranges strings.Builder
	for _, script := range slices.Sorted(maps.Keys(unicode.Scripts)) {
		in := unicode.Scripts[script]
		isInTexts := unicode.In('x', in) || unicode.In('ж', in) || unicode.In('界', in)
		if classes.Len() < 980 && !isInTexts {
			fmt.Fprintf(&classes, `\p{%s}`, script)
		}
	}
	for r := rune(0x4e00); ranges.Len() < 980; r += 3 {
		ranges.WriteRune(r)
	}
	m := map[string]protocol.Match{
		"glob of stars":    {File: x("*x", 200) + "*y"},
		"glob of braces":   {File: x("{x,*}", 40) + "y"},
		"glob of parts":    {File: x("**/", 100) + "y"},
		"glob of brackets": {File: x("[x]*", 200) + "y"},
	}
	for name, expr := range map[string]string{
		"nested plus":          `(x+)+y`,
		"nested star":          `(x*)*y`,
		"alternatives alike":   `(x|xx)+y`,
		"words":                `^(\w+\s?)*$!`,
		"backreference":        `(.*)*\1y`,
		"look-ahead":           `(?=(x+))\1*y`,
		"look-behind":          `(?<=(x+)+z)x`,
		"lazy":                 `(?:x*?)*?y`,
		"four hundred stars":   x("x*", 400) + "y",
		"optional":             `(?:x?){200}x{200}y`,
		"nested counts":        `(?:(?:x{1,50}){1,50}){1,50}y`,
		"quadratic":            `.*y`,
		"any case":             `(?i)(x+)+y`,
		"long text":            "y" + x("x", 990) + `\d`,
		"long text, any case":  "(?i)y" + x("x", 990) + `\d`,
		"periodic":             x("xy", 490) + `\d`,
		"classes":              "[" + classes.String() + "]",
		"classes in a loop":    "[^" + classes.String() + "]+y",
		"characters":           "[" + ranges.String() + "]",
		"characters in a loop": "[^" + ranges.String() + "]+y",
	} {
		m[name] = protocol.Match{Args: expr}
	}
	return m
}

// worstTexts returns the arguments for them, up to 64 KiB each.
func worstTexts() (list []protocol.Raw) {
	const most = 64<<10 - len(`{"path":""}`)
	long := strings.Repeat("x", most)
	for _, text := range []string{
		long, long[:200], strings.Repeat("x/", most/2), strings.Repeat("ж", most/2),
		strings.Repeat("界", most/3),
		strings.Repeat(strings.Repeat("xy", 400)+"x", most/801), long[:most-991] + "y" + long[:990],
	} {
		list = append(list, marshal(map[string]string{"path": text}))
	}
	return list
}

// BenchmarkPatterns is the longest processor time that matching one rule takes, of all patterns and
// texts. Each pair counts with the best of nine, because on a busy machine the clock that stops a
// match is late.
func BenchmarkPatterns(b *testing.B) {
	l := newLocalIn(b, gateway.Options{})
	p := l.join(b, &provider{name: "worst"}, 0)
	texts := worstTexts()
	measure(b, func() metrics {
		var slowest time.Duration
		var which string
		for name, match := range worstPatterns() {
			p.setRules(b, protocol.Rule{Match: match, Action: protocol.ActionDeny})
			for _, args := range texts {
				best := time.Hour
				for range 9 {
					before := ownCPU(b)
					l.s.PreToolUse(b.Context(), "bash", args)
					best = min(best, ownCPU(b)-before)
				}
				if best > slowest {
					slowest, which = best, name
				}
			}
		}
		b.Logf("the slowest pattern is %s", which)
		return metrics{"slowest-ms": ms(slowest)}
	})
}

// TestRulesMatchNothing checks that a benchmark of rules that do not match measures such rules.
func TestRulesMatchNothing(t *testing.T) {
	for name, list := range map[string][]protocol.Rule{"usual": rules(protocol.MaxHookRules),
		"unskippable": unskippableRules(protocol.MaxHookRules)} {
		for i := range list {
			list[i] = protocol.Rule{Match: list[i].Match, Action: protocol.ActionDeny}
		}
		l := newLocalIn(t, gateway.Options{}, &benchTool, &provider{name: name, rules: list})
		if err := l.call(t.Context(), 0); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
	}
}

// TestWorstPatternsAreTried checks that the gateway takes each pattern, and that it tries a rule on
// each text.
func TestWorstPatternsAreTried(t *testing.T) {
	l := newLocalIn(t, gateway.Options{})
	p := l.join(t, &provider{name: "worst"}, 0)
	for _, match := range worstPatterns() {
		p.setRules(t, protocol.Rule{Match: match, Action: protocol.ActionDeny})
	}
	p.setRules(t, protocol.Rule{Match: protocol.Match{Args: "nowhere"},
		Action: protocol.ActionDeny})
	for i, args := range worstTexts() {
		if d := l.s.PreToolUse(t.Context(), "bash", args); d.Deny {
			t.Errorf("text %d, of %d bytes: got a denial, %s; want no denial", i, len(args),
				d.Reason)
		}
	}
}
