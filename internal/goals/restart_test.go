package goals_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// A gateway that dies in the middle of a turn leaves a goal that goes on: the turn counts once, and
// so does the time.
func TestGoalGoesOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.model.turn = func(int, string) { <-time.After(time.Minute) }
		g := w.start(adminapi.GoalRequest{Turns: 4, TimeMs: time.Hour.Milliseconds()}, report)
		w.want(w.after(90*time.Second, g.ID), adminapi.GoalActive, 2, "")
		file := filepath.Join(w.state, g.ID+".json")
		killed, err := os.ReadFile(file) // in the middle of the second turn
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the goal's file has the mode %v, %v, want 0600", info.Mode(), err)
		}
		w.end()
		if err := os.WriteFile(file, killed, 0o600); err != nil {
			t.Fatal(err)
		}

		<-time.After(24 * time.Hour)
		w.gateway = gateway.New(gateway.Options{})
		w.open()
		waiting := w.after(time.Hour, g.ID)
		w.want(waiting, adminapi.GoalActive, 2,
			"its session does not run: tapctl sessions resume s")
		if w.gateway.InUse() {
			t.Error("a goal that waits keeps the gateway in use, want that it may end")
		}
		w.turn = func(int, string) { <-time.After(time.Minute) }
		w.register("s", gateway.HostInfo{Kind: "remote", Send: true, Usage: true})
		now := w.after(30*time.Second, g.ID)
		w.want(now, adminapi.GoalActive, 3, "")
		if second := now.Iterations[1]; second.Reason == "" || second.EndedAt.IsZero() ||
			len(second.Missing) != 1 {
			t.Errorf(
				"the turn that was cut off is %+v, want its end, its reason and what was missing",
				second)
		}
		if limit := 10 * time.Minute.Milliseconds(); now.Spent.TimeMs > limit {
			t.Errorf("the goal has used %d ms, want only the time with its session",
				now.Spent.TimeMs)
		}
		w.want(w.after(time.Hour, g.ID), adminapi.GoalOverBudget, 4, "4 turns")
		if got := len(w.model.got()); got != 2 {
			t.Errorf("the model got %d prompts after the restart, want 2", got)
		}
		w.end()
	})
}

// A session that ends takes its goal with it, unless it may come back.
func TestSessionEndsInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(adminapi.GoalRequest{}, report)
		w.want(w.after(time.Second, g.ID), adminapi.GoalActive, 1, "")
		for range 2 {
			if err := w.model.session.Stop(t.Context(), "by the test"); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Minute)
			v, _ := w.set.Get(g.ID)
			if v.State != adminapi.GoalActive || !strings.Contains(v.Reason, "does not run") {
				t.Errorf("without its session the goal is %s: %q; want that it waits", v.State,
					v.Reason)
			}
			w.register("s", gateway.HostInfo{Kind: "remote", Send: true})
			<-time.After(time.Second)
		}
		w.want(w.after(time.Minute, g.ID), adminapi.GoalActive, 3, "")
		w.end()

		w.gateway = gateway.New(gateway.Options{
			Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}},
		})
		w.state = t.TempDir()
		w.open()
		s, err := w.gateway.Start(t.Context(), gateway.StartRequest{Host: gateway.HostLocal,
			CWD: w.dir})
		if err != nil {
			t.Fatal(err)
		}
		g = w.start(adminapi.GoalRequest{Session: s.ID()}, report)
		<-time.After(3 * time.Second)
		if err := s.Stop(t.Context(), "by the test"); err != nil {
			t.Fatal(err)
		}
		if v := w.after(time.Minute, g.ID); v.State != adminapi.GoalStopped ||
			v.Reason != "its session has ended" {
			t.Errorf("the goal of a local session is %s: %q; want it stopped", v.State, v.Reason)
		}
		w.end()
	})
}

// After the clock was set back, calls count from about as long ago as the goal has been at work.
func TestClockThatWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.model.turn = func(int, string) { <-time.After(time.Minute) }
		g := w.start(adminapi.GoalRequest{Turns: 3}, `{"call": "make test"}`)
		w.after(90*time.Second, g.ID)
		w.end()
		file := filepath.Join(w.state, g.ID+".json")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		var kept map[string]any
		if err := json.Unmarshal(data, &kept); err != nil {
			t.Fatal(err)
		}
		kept["since"] = later
		if data, err = json.Marshal(kept); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		w.gateway = gateway.New(gateway.Options{})
		w.register("s", gateway.HostInfo{Kind: "remote", Send: true})
		w.model.turn = func(int, string) { <-time.After(time.Minute) }
		w.open()
		w.after(time.Second, g.ID)
		w.mu.Lock()
		ago := time.Since(w.since)
		w.mu.Unlock()
		if ago < time.Minute || ago > 5*time.Minute {
			t.Errorf("calls count since %s ago, want about as long as the goal has been at work",
				ago)
		}
		w.want(w.after(time.Hour, g.ID), adminapi.GoalOverBudget, 3, "")
		w.end()
	})
}

// A file that is damaged is left alone, and the others go on; only so many that have ended are
// kept.
func TestFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write("report.md", "done")
		for range 110 {
			g := w.start(adminapi.GoalRequest{}, report)
			w.after(time.Second, g.ID)
		}
		if got := len(w.set.List("")); got != 100 {
			t.Errorf("%d goals are kept, want 100", got)
		}
		files, _ := os.ReadDir(w.state)
		if len(files) != 100 {
			t.Errorf("%d files are kept, want 100", len(files))
		}
		w.set.Close()
		good, err := os.ReadFile(filepath.Join(w.state, files[0].Name()))
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range []string{"", "{", `{"id": "x"}`, string(good[:len(good)/2]),
			string(good),
			strings.Replace(string(good), files[0].Name()[:10], "g-1", 1)} {
			name := filepath.Join(w.state, files[i+1].Name())
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w.open()
		if got := len(w.set.List("")); got != 94 {
			t.Errorf("%d goals can be read, want 94", got)
		}
		if after, _ := os.ReadDir(w.state); len(after) != 100 {
			t.Errorf("%d files are there, want that the damaged ones stay", len(after))
		}
		w.end()
	})
}
