package sources_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/sources"
)

func TestMain(m *testing.M) {
	// it ends by itself
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

// world is a gateway in this process, and the sources that run in it.
type world struct {
	*testing.T
	gateway *gateway.Gateway
	set     *sources.Set
	state   string // the directory of the sources' files
	dir     string // where commands run and files are watched: a directory in state, or ""
	record  func(adminapi.Record)
	faults  chan string // takes the faults; nil if a fault fails the test

	mu    sync.Mutex
	lines []string // of all sources
	said  chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		T:     t,
		set:   sources.NewSet(),
		state: t.TempDir(),
		said:  make(chan struct{}, 1),
		gateway: gateway.New(gateway.Options{
			Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}},
		}),
	}
}

// session starts a session without a model.
func (w *world) session() *gateway.Session {
	w.Helper()
	s, err := w.gateway.Start(w.Context(), gateway.StartRequest{Host: gateway.HostLocal,
		CWD: w.TempDir()})
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// run runs a source, given as a provider file, for all sessions or for one. stop ends it and
// returns its error.
func (w *world) run(text, session string) (stop func() error) {
	w.Helper()
	cancel, done := w.begin(text, session)
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// failure runs a source that ends by itself, and returns its error.
func (w *world) failure(text, session string) error {
	w.Helper()
	cancel, done := w.begin(text, session)
	defer cancel()
	return <-done
}

func (w *world) begin(text, session string) (cancel func(), ended <-chan error) {
	w.Helper()
	if !strings.Contains(text, "kind =") {
		text = "kind = \"source\"\n" + text
	}
	p, faults := configs.ParseProvider("watch.toml", []byte(text))
	if len(faults) > 0 {
		w.Fatal(faults)
	}
	pass := w.gateway.Issue(gateway.PassSpec{
		Trust: gateway.TrustProject, All: session == protocol.AllSessions, Name: p.Name,
		Session: strings.TrimSuffix(session, protocol.AllSessions), Grants: []string{"questions"},
	})
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() {
		defer pass.Revoke()
		done <- w.set.Run(ctx, sources.Options{
			Provider: &p, Gateway: ofSources{w.gateway}, Token: pass.Token(), Session: session,
			Dir:   filepath.Join(w.state, w.dir),
			Env:   func() []string { return []string{"PATH=" + os.Getenv("PATH")} },
			State: filepath.Join(w.state, "watch.json"),
			Taken: filepath.Join(w.state, "watch@.json"),
			Line: func(from, line string) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.lines = append(w.lines, from+": "+line)
				select {
				case w.said <- struct{}{}:
				default:
				}
			},
			Record: w.record,
			Faults: func(lines []string) {
				if w.faults == nil {
					w.Errorf("faults: %q, want none", lines)
					return
				}
				w.faults <- strings.Join(lines, "\n")
			},
		})
	}()
	return cancel, done
}

// end ends the gateway's sessions and their sources.
func (w *world) end() {
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	w.gateway.Drain(ctx)
}

// events returns the texts of a session's stream, oldest first, each with its time since began if
// that is set.
func (w *world) events(s *gateway.Session, stream string) (list []string) {
	w.Helper()
	rows := s.History([]string{stream}, 200, time.Time{})
	for _, row := range slices.Backward(rows) {
		text := row.Event
		if text == "" {
			text = row.Prompt
		}
		list = append(list, text)
	}
	return list
}

func (w *world) want(what string, got, want []string) {
	w.Helper()
	if !slices.Equal(got, want) {
		w.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func (w *world) only() adminapi.Source {
	w.Helper()
	list := w.set.List()
	if len(list) != 1 {
		w.Fatalf("sources: got %d, want 1", len(list))
	}
	return list[0]
}

func TestPromptOnASchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		stop := w.run(`prompt = "look"
every = "10m"
max_runs = 3
`, s.ID())
		<-time.After(9 * time.Minute)
		synctest.Wait()
		w.want("after 9 minutes", w.events(s, "watch@watch"), []string{"look"})
		v := w.only()
		if got, want := time.Until(v.NextRunAt), time.Minute; v.State != adminapi.SourceWaiting ||
			got != want {
			t.Errorf("the source is %s until %s from now, want waiting until %s", v.State, got,
				want)
		}
		<-time.After(time.Hour)
		synctest.Wait()
		w.want("after max_runs", w.events(s, "watch@watch"), []string{"look", "look", "look"})
		if v := w.only(); v.State != adminapi.SourceDone || v.Runs != 3 || !v.NextRunAt.IsZero() {
			t.Errorf("got %+v, want it done after 3 runs", v)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

func TestCronAfterAGap(t *testing.T) {
	tests := []struct {
		missed string
		want   []string // when the gateway is back, and an hour later
	}{
		{"skip", []string{"look"}},
		{"once", []string{"look", "look"}},
	}
	for _, test := range tests {
		t.Run(test.missed, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := `prompt = "look"
cron = "0 * * * *"
missed = "` + test.missed + `"
`
				<-time.After(time.Minute) // the clock begins at a full hour
				w := newWorld(t)
				s := w.session()
				stop := w.run(text, s.ID())
				<-time.After(90 * time.Minute) // one run at 01:00
				synctest.Wait()
				if err := stop(); err != nil {
					t.Error(err)
				}
				w.want("before the gap", w.events(s, "watch@watch"), []string{"look"})
				<-time.After(5 * time.Hour) // to 06:30: five runs are missed
				stop = w.run(text, s.ID())
				<-time.After(time.Minute)
				synctest.Wait()
				w.want("after the gap", w.events(s, "watch@watch"),
					append([]string{"look"}, test.want[1:]...))
				<-time.After(time.Hour)
				synctest.Wait()
				w.want("an hour later", w.events(s, "watch@watch"),
					append([]string{"look"}, test.want...))
				if err := stop(); err != nil {
					t.Error(err)
				}
				w.end()
			})
		})
	}
}

// A loop is a prompt whenever the session is idle. It needs no person to go on, and ends at its
// budget.
func TestPromptWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		stop := w.run(`prompt = "go on"
idle = true
every = ["10s", "1m"]
max_runs = 6
`, s.ID())
		began := time.Now()
		<-time.After(time.Hour)
		synctest.Wait()
		var at []time.Duration
		for _, row := range slices.Backward(s.History(nil, 0, time.Time{})) {
			at = append(at, row.TS.Sub(began))
		}
		want := []time.Duration{
			0,
			10 * time.Second,
			70 * time.Second,
			130 * time.Second,
			190 * time.Second,
			250 * time.Second,
		}
		if !slices.Equal(at, want) {
			t.Errorf("the prompts came after %v, want %v", at, want)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

func TestPromptWithoutAScheduleComesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		for range 3 { // the gateway starts again
			stop := w.run(`prompt = "begin"`, s.ID())
			<-time.After(time.Minute)
			synctest.Wait()
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		w.want("prompts", w.events(s, "watch@watch"), []string{"begin"})
		w.end()
	})
}

// patience bounds every wait for a process.
const patience = 60 * time.Second

// patient bounds a wait for a process.
func (w *world) patient() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	w.Cleanup(cancel)
	return ctx
}

// wait waits until a stream has a number of events.
func (w *world) wait(s *gateway.Session, n int) []string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for {
		cursor := s.HistoryCursor()
		if list := w.events(s, "watch@watch"); len(list) >= n {
			return list
		}
		if err := s.WaitHistory(ctx, cursor); err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.Fatalf("%d events: %v; %q", n, err, w.lines)
		}
	}
}

// The lines of a command are events of every session that the source serves; a filter drops some
// and changes the levels of others; the text is the file's.
func TestLinesOfACommand(t *testing.T) {
	w := newWorld(t)
	a, b := w.session(), w.session()
	stop := w.run(`run = "echo starting; echo warn: disk >&2; echo; echo error: full; exec sleep 1000"
text = "{output} says {line}"
level = "keep"
filter = [
  { match = "starting", outcome = "drop" },
  { match = "error", outcome = "surface" },
]
`, protocol.AllSessions)
	for _, s := range []*gateway.Session{a, b} {
		list := w.wait(s, 2)
		slices.Sort(list) // stdout and stderr have no common order
		w.want("events", list, []string{"stderr says warn: disk", "stdout says error: full"})
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.end()
}

// A command that fails is an event when it begins to fail, not at every run.
func TestCommandThatBeginsToFail(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	stop := w.run(`run = "cat state; test -e good"
every = "1s"
compare = "exit"
`, s.ID())
	list := w.wait(s, 1)
	if want := "the command ended with exit status 1"; !strings.HasPrefix(list[0], want) {
		t.Errorf("the first event: got %q, want it to begin with %q", list[0], want)
	}
	defer w.gateway.Watch()()
	for { // it fails again and again
		changes := w.gateway.Changes()
		if w.only().Runs >= 3 {
			break
		}
		if err := w.gateway.WaitChange(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
	}
	w.want("events", w.events(s, "watch@watch"), list)
	if err := os.WriteFile(filepath.Join(w.state, "good"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := w.wait(s, 2)[1], "the command works again"; !strings.HasPrefix(got, want) {
		t.Errorf("the second event: got %q, want it to begin with %q", got, want)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.end()
}

// ofSources is a gateway as sources see it.
type ofSources struct{ *gateway.Gateway }

func (g ofSources) Connect(p sources.Peer) sources.Conn {
	return g.Gateway.Connect(p, gateway.ConnOptions{})
}
