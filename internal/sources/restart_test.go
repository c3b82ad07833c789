package sources_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// hasLine reports whether a line of a source, or a message about it, has a text.
func (w *world) hasLine(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.lines, func(line string) bool {
		return strings.Contains(line, text)
	})
}

// keep writes the progress that a source starts with.
func (w *world) keep(progress string) {
	w.Helper()
	if err := os.WriteFile(filepath.Join(w.state, "watch.json"), []byte(progress),
		0o600); err != nil {
		w.Fatal(err)
	}
}

// waitState waits until the only source has a state.
func (w *world) waitState(state string) adminapi.Source {
	w.Helper()
	defer w.gateway.Watch()()
	for {
		changes := w.gateway.Changes()
		if list := w.set.List(); len(list) == 1 && list[0].State == state {
			return list[0]
		}
		if err := w.gateway.WaitChange(w.patient(), changes); err != nil {
			w.Fatal(err)
		}
	}
}

// A command that prints without end and ignores SIGTERM ends with its source, and so do its
// children.
func TestStopOfACommandThatPrintsWithoutEnd(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	stop := w.run(`run = "trap '' TERM; yes child & while :; do echo line; done"
level = "keep"
`, protocol.AllSessions)
	w.wait(s, 1)
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the end of the source: got %v, want no error", err)
		}
	case <-time.After(patience):
		t.Fatal("the source has not ended")
	}
	w.end()
}

// A command without a schedule runs on: it is started again with the gateway, and after a failure;
// one that has ended well is done.
func TestCommandWithoutAScheduleRunsOn(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	const runsOn = `run = "echo on; exec sleep 1000"`
	for n := range 2 {
		stop := w.run(runsOn, s.ID())
		w.wait(s, n+1)
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	w.want("events of a command that runs on", w.events(s, "watch@watch"), []string{"on", "on"})
	if !w.hasLine("was cut off") {
		t.Errorf("lines: got %q, want one that says which run was cut off", w.lines)
	}
	for range 2 {
		if err := w.failure(`run = "exit 3"`, s.ID()); err == nil ||
			!strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("a command that fails: got %v, want exit status 3", err)
		}
	}
	stop := w.run(`run = "echo once"`, s.ID())
	w.waitState(adminapi.SourceDone)
	w.want("events", w.wait(s, 3), []string{"on", "on", "once"})
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.end()
}

func TestTriggerCountsWhatRuns(t *testing.T) {
	w := newWorld(t)
	stop := w.run(`run = "echo here; exec sleep 1000"
every = "1h"
`, protocol.AllSessions)
	w.waitState(adminapi.SourceWaiting)
	if got := w.set.Trigger("watch"); got != 0 {
		t.Errorf("without a session: got %d runs, want 0", got)
	}
	s := w.session()
	w.wait(s, 1)
	if got := w.set.Trigger("watch"); got != 0 {
		t.Errorf("while it runs: got %d runs, want 0", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.end()
}

// A missed run is said where the source is listed, and does not count as a run.
func TestMissedRunIsShown(t *testing.T) {
	tests := []struct {
		name, when, missed string
		state, reason      string
		prompts            int
		next               time.Duration
	}{
		{"every", `every = "1h"`, "skip", adminapi.SourceWaiting, "and is skipped", 0,
			30 * time.Minute},
		{"every", `every = "1h"`, "once", adminapi.SourceWaiting, "", 1, time.Hour},
		{"cron", `cron = "0 * * * *"`, "skip", adminapi.SourceWaiting, "and is skipped", 0,
			59 * time.Minute},
		{"cron", `cron = "0 * * * *"`, "once", adminapi.SourceWaiting, "", 1, 59 * time.Minute},
		{"at", `at = 1999-12-31T20:00:00Z`, "skip", adminapi.SourceDone, "its time is over", 0, 0},
		{"at", `at = 1999-12-31T20:00:00Z`, "once", adminapi.SourceDone, "its time is over", 1, 0},
	}
	for _, test := range tests {
		t.Run(test.name+" "+test.missed, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				<-time.After(time.Minute) // the clock begins at a full hour
				w := newWorld(t)
				s := w.session()
				last := time.Now().Add(-150 * time.Minute)
				if test.name != "at" {
					w.keep(fmt.Sprintf(`{"lastRunAt":%q,"lastDueAt":%[1]q,"runs":1}`,
						last.Format(time.RFC3339)))
				}
				stop := w.run("prompt = \"look\"\n"+test.when+"\nmissed = \""+test.missed+"\"\n",
					s.ID())
				synctest.Wait()
				v := w.only()
				if v.State != test.state || !strings.Contains(v.Reason, test.reason) {
					t.Errorf("got %s, %q, want %s, %q", v.State, v.Reason, test.state, test.reason)
				}
				if got := len(w.events(s, "watch@watch")); got != test.prompts {
					t.Errorf("prompts: got %d, want %d", got, test.prompts)
				}
				if test.prompts == 0 && test.name != "at" && !v.LastRunAt.Equal(last) {
					t.Errorf("the last run was at %s, want %s", v.LastRunAt, last)
				}
				if test.next > 0 && time.Until(v.NextRunAt) != test.next {
					t.Errorf("the next run is in %s, want %s", time.Until(v.NextRunAt), test.next)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				w.end()
			})
		})
	}
}

// A run can be missed before there was a first.
func TestFirstRunMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = "prompt = \"look\"\ncron = \"0 2 * * *\"\nmissed = \"once\"\n"
		w := newWorld(t)
		s := w.session()
		for range 2 {
			stop := w.run(text, s.ID())
			synctest.Wait()
			if err := stop(); err != nil {
				t.Error(err)
			}
			<-time.After(9 * time.Hour)
		}
		w.want("prompts", w.events(s, "watch@watch"), []string{"look"})
		w.end()
	})
}

// A clock that was wrong for a while does not keep a source from running until it is as late again.
func TestClockSetBack(t *testing.T) {
	for _, when := range []string{`every = "1h"`, `cron = "0 * * * *"`} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s := w.session()
			later := time.Now().AddDate(1, 0, 0).Format(time.RFC3339)
			w.keep(fmt.Sprintf(`{"lastRunAt":%q,"lastDueAt":%[1]q,"runs":1}`, later))
			stop := w.run("prompt = \"look\"\n"+when, s.ID())
			<-time.After(61 * time.Minute)
			synctest.Wait()
			w.want(when, w.events(s, "watch@watch"), []string{"look"})
			if err := stop(); err != nil {
				t.Error(err)
			}
			w.end()
		})
	}
}

// The budget of a file's new text does not count the runs of its old text.
func TestAnotherPromptBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		for _, text := range []string{"one", "two", "two"} {
			stop := w.run("prompt = \""+text+"\"\n", s.ID())
			synctest.Wait()
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		w.want("prompts", w.events(s, "watch@watch"), []string{"one", "two"})
		w.end()
	})
}

// A source with a limited number of runs does not run while the count of its past runs is unknown.
func TestDamagedState(t *testing.T) {
	for text, counts := range map[string]bool{
		"run = \"true\"\nevery = \"1m\"\nmax_runs = 2":                 true,
		"run = \"true\"\nat = 2000-01-01T00:00:00Z\nmissed = \"once\"": true,
		"run = \"true\"\nevery = \"1m\"":                               false,
	} {
		w := newWorld(t)
		if err := os.WriteFile(filepath.Join(w.state, "watch.json"), []byte(`{"runs":`),
			0o600); err != nil {
			t.Fatal(err)
		}
		cancel, ended := w.begin(text, protocol.AllSessions)
		if !counts {
			cancel()
		}
		late := time.AfterFunc(10*time.Second, cancel) // one that runs ends without an error
		err := <-ended
		late.Stop()
		if (err != nil) != counts || counts &&
			!strings.Contains(err.Error(), "watch.json is damaged") {
			t.Errorf("%s: got %v, want an error %v", text, err, counts)
		}
		cancel()
		w.end()
	}
}
