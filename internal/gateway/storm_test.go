package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// TestCallsEndOnce ("the storm") does at the same time everything that can end a call or
// keep it from its provider; stormReport lists it. storm_callers_test.go has callers and
// hosts, storm_providers_test.go the simulated providers, storm_receive_test.go what they
// check of each message, storm_steps_test.go what they send without being asked.
// TAPGW_SEED repeats a run's choices, but not the order of its goroutines.
//
// Each call ends exactly once, at its timeout at the latest. A tool runs only with its
// gates' permission, and twice only after a retryable error. A removed tool gets no call
// after the ack. At the end the gateway holds nothing of any call. Time is the bubble's,
// in whole milliseconds, so that many things happen at the same instant; under the race
// detector it is real.
func TestCallsEndOnce(t *testing.T) {
	calls := 100_000
	if testing.Short() {
		calls = 20_000
	}
	runStorm(t, calls)
}

func runStorm(t *testing.T, calls int) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("TAPGW_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("TAPGW_SEED=%d", seed)
	run := func(t *testing.T) { newWorld(t, seed, calls).run() }
	if raceEnabled {
		// In a bubble of this size the race detector itself breaks (Go 1.26),
		// so time is real here and the promises about it are wider.
		run(t)
		return
	}
	synctest.Test(t, run)
}

const (
	stormSessions   = 4
	extraCalls      = 20_000 // calls at most, until all has happened
	calmSession     = 0      // for steady providers only, and seldom disturbed
	hostGateSession = 3      // its host asks the gates itself
)

// Times for a real clock on a busy machine: unit is the unit of the calls' time
// limits, margin is added to each promise about time, and stepPause is a provider's
// pause between two steps, in milliseconds.
var unit, margin, stepPause, stormCallers = time.Millisecond, time.Duration(0), 4, 256

func init() {
	if raceEnabled {
		unit, margin, stepPause = 2*time.Millisecond, 30*time.Second, 32
		stormCallers = 128 // with many more goroutines the race detector takes most of the time
	}
}

// world is a gateway with its simulated hosts, callers and providers.
type world struct {
	t     *testing.T
	g     *Gateway
	seed  uint64
	calls int64 // to make

	numbers atomic.Int64 // of calls, from 1
	made    atomic.Int64
	ended   atomic.Int64
	records []callRecord // by the call's number; 0 for calls with malformed arguments
	tally   tally

	serial   atomic.Int64 // of sessions
	sessions [stormSessions]atomic.Pointer[Session]

	callersDone   chan struct{} // closed when all calls are made and have ended
	stopProviders chan struct{} // closed when the providers must disconnect

	mu        sync.Mutex
	providers map[*Provider]bool // without some that disconnected and left no work
	slots     map[*slots]bool
}

// callRecord is the history of a call: its outcome at the caller, its runs at
// providers, and its gates.
type callRecord struct {
	ended                   atomic.Int32
	code                    protocol.Code // once it has ended
	runs, retries, instance atomic.Int32
	asked, granted, refused atomic.Int32 // of gates that fail closed
}

func newWorld(t *testing.T, seed uint64, calls int) *world {
	w := &world{t: t, seed: seed, calls: int64(calls),
		records:     make([]callRecord, 1+calls+extraCalls),
		callersDone: make(chan struct{}), stopProviders: make(chan struct{}),
		providers: map[*Provider]bool{}, slots: map[*slots]bool{}}
	w.g = New(Options{ReadFile: func(_ string, f protocol.FileRef) (*File, error) {
		return &File{Name: f.Path, MimeType: "text/plain"}, nil
	}})
	return w
}

func (w *world) rand(stream int) *rand.Rand { return rand.New(rand.NewPCG(w.seed, uint64(stream))) }

func (w *world) run() {
	for i := range w.sessions {
		w.register(i)
	}
	var callers, providers, others sync.WaitGroup
	for i := range providerKinds {
		providers.Go(func() { w.runProvider(i, w.rand(i)) })
	}
	for i := range stormCallers {
		callers.Go(func() { w.runCaller(w.rand(1000 + i)) })
	}
	others.Go(func() { w.runDisturber(w.rand(2000)) })
	callers.Wait()
	w.waitFor(2*protocol.GateTimeout+time.Second, w.unfinishedCalls)
	close(w.callersDone)
	others.Wait()
	w.waitFor(slotGrace, w.heldCalls)
	close(w.stopProviders)
	providers.Wait()
	w.waitFor(slotGrace, w.heldCalls)
	w.waitFor(protocol.ReconnectWindow, w.leftovers)
	w.g.Drain(context.Background())
	w.checkRecords()
	w.checkReport()
}

// waitFor waits until left returns nothing, and fails if that takes longer than most.
func (w *world) waitFor(most time.Duration, left func() []string) {
	for deadline := time.Now().Add(most + margin); ; sleep(100 * time.Millisecond) {
		found := left()
		if len(found) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, f := range found {
				w.t.Errorf("left over: %s, want nothing of any call", f)
			}
			return
		}
	}
}

// unfinishedCalls says how many calls have not ended.
func (w *world) unfinishedCalls() (left []string) {
	if made, ended := w.made.Load(), w.ended.Load(); made != ended {
		left = append(left, fmt.Sprintf("%d of %d calls, which have not ended", made-ended, made))
	}
	return left
}

// heldCalls lists what providers and slots still hold of calls when none is pending.
func (w *world) heldCalls() (left []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.providers {
		p.mu.Lock()
		if what := p.pendingWork(); what != "" {
			left = append(left, fmt.Sprintf("provider %s: %s", p.name, what))
		}
		p.mu.Unlock()
	}
	for s := range w.slots {
		s.mu.Lock()
		if s.used != 0 || len(s.queue) != 0 {
			left = append(left, fmt.Sprintf("%d of %d slots are taken, %d calls wait", s.used,
				s.max, len(s.queue)))
		}
		s.mu.Unlock()
	}
	return left
}

// leftovers checks the gateway's state after every provider has left.
func (w *world) leftovers() (left []string) {
	g := w.g
	g.mu.Lock()
	defer g.mu.Unlock()
	count := func(what string, n, want int) {
		if n != want {
			left = append(left, fmt.Sprintf("%d %s", n, what))
		}
	}
	count("connections", len(g.conns), 0)
	count("limits", len(g.limits), 0)
	count("tokens", len(g.tokens), 2)
	count("sessions", len(g.sessions), stormSessions)
	if !raceEnabled { // a real half minute would be too long to wait
		count("reconnect tokens", len(g.memories), 0)
	}
	for _, s := range g.order {
		s.mu.Lock()
		count("bindings", len(s.bindings), 0)
		count("calls at gates", len(s.askingGates), 0)
		s.prompts.mu.Lock()
		count("jobs", len(s.prompts.queue), 0)
		s.prompts.mu.Unlock()
		count("routes", len(s.routes.Load().list), 0)
		count("rules", len(s.routes.Load().rules), 0)
		s.mu.Unlock()
	}
	return left
}

// checkRecords checks the record of each call.
func (w *world) checkRecords() {
	t := w.t
	if made, counted := w.made.Load(), w.g.stats.Calls.Load(); counted != uint64(made) {
		t.Errorf("the stats count %d calls, want the %d that were made", counted, made)
	}
	for n := range w.records {
		e := &w.records[n]
		runs := e.runs.Load()
		switch e.code {
		case protocol.CodeDenied, protocol.CodeNotFound, protocol.CodeRateLimited,
			protocol.CodeInvalidArguments:
			// With these codes no provider got the call, or none got its retry.
			if runs > e.retries.Load() {
				t.Errorf(
					"call %d ended with %s and ran %d times, want at most %d: its retries",
					n, e.code, runs, e.retries.Load(),
				)
			}
		case "":
			if e.ended.Load() == 0 && runs > 0 {
				t.Errorf("call %d was never made and ran %d times, want none", n, runs)
			}
			if e.ended.Load() != 0 && e.refused.Load() > 0 {
				t.Errorf("call %d succeeded and a gate refused it, want a denial", n)
			}
		}
	}
}

// register registers a new session at an index.
func (w *world) register(i int) {
	id := fmt.Sprintf("s%d-%d", i, w.serial.Add(1))
	s, err := w.g.Register(SessionSpec{ID: id, Label: "l", CWD: "/c"},
		HostInfo{Kind: "storm", Send: i != 1, Interrupt: true, LiveTools: i%2 == 0,
			Hooks: i == hostGateSession}, quietHost{})
	if err != nil {
		w.t.Error(err)
		return
	}
	w.sessions[i].Store(s)
}

// isHostGated reports whether a session's host asks the gates itself.
func isHostGated(session string) bool { return session[1]-'0' == hostGateSession }

// randomSession is a random session, the calm one less often.
func (w *world) randomSession(r *rand.Rand) *Session {
	i := r.IntN(stormSessions)
	if r.IntN(2) == 0 {
		i = max(i, r.IntN(stormSessions))
	}
	return w.sessions[i].Load()
}

func (w *world) areCallersDone() bool {
	select {
	case <-w.callersDone:
		return true
	default:
		return false
	}
}

// record returns the record of a call's number.
func (w *world) record(n int64) *callRecord {
	if n < 1 || n >= int64(len(w.records)) {
		w.t.Errorf("there is no call %d, want a call from 1 to %d", n, len(w.records)-1)
		n = 0
	}
	return &w.records[n]
}

// quietHost accepts everything and does nothing.
type quietHost struct{}

func (quietHost) SetTools(context.Context, uint64, []Tool) error      { return nil }
func (quietHost) Send(context.Context, Prompt) error                  { return nil }
func (quietHost) Log(adminapi.LogLevel, string)                       {}
func (quietHost) Interrupt(context.Context, string) ([]string, error) { return nil, nil }
func (quietHost) Close(context.Context, string) error                 { return nil }

func sleep(d time.Duration) { <-time.After(d) }

// pause sleeps for less than a number of milliseconds, or not at all.
func pause(r *rand.Rand, most int) { sleep(time.Duration(r.IntN(most)) * time.Millisecond) }
