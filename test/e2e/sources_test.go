//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// waitSource waits until a source is as is says, and returns it.
func (h *home) waitSource(name string, is func(adminapi.Source) bool) (found adminapi.Source) {
	h.t.Helper()
	eventually(h.t, patience, func() error {
		for _, s := range decode[[]adminapi.Source](h.t, h.tapctl("sources", "--json")) {
			if found = s; s.Name == name && is(s) {
				return nil
			}
		}
		return fmt.Errorf("the source %s is not as it should be: %s", name, h.tapctl("sources"))
	})
	return found
}

// prompts is how many prompts that the model got have a text.
func prompts(m *scriptmodel.Server, text string) (n int) {
	for _, r := range m.Requests() {
		if strings.Contains(r.LastUser(), text) {
			n++
		}
	}
	return n
}

// A build that fails wakes a session once, however often it runs, and once more when it works
// again.
func TestFailingBuildWakesASessionOnce(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	h.serveFiles()
	session := h.copilot(m)
	h.put("providers/build.toml", fmt.Sprintf(`kind = "source"
run = "echo checked; test -e good || { echo 'main.c:3: broken' >&2; exit 2; }"
cwd = %q
every = "1s"
compare = "exit"
level = "inject"
`, h.path("work")))
	first := request(t, m, 1).LastUser()
	if !strings.Contains(first, "exit status 2") || !strings.Contains(first, "main.c:3: broken") {
		t.Errorf("the model was told %q, want how the build failed and what it printed", first)
	}
	runs := h.waitSource("build", func(s adminapi.Source) bool { return s.Runs > 0 }).Runs
	h.waitSource("build", func(s adminapi.Source) bool { return s.Runs >= runs+3 })
	h.waitIdle(session)
	if got := len(m.Requests()); got != 1 {
		t.Errorf("after more runs that failed the model has got %d requests, want 1", got)
	}
	h.put("work/good", "")
	if second := request(t, m, 2).LastUser(); !strings.Contains(second, "the command works again") {
		t.Errorf("the model was told %q, want that the command works again", second)
	}
	runs = h.waitSource("build", func(s adminapi.Source) bool { return s.Runs > 0 }).Runs
	h.waitSource("build", func(s adminapi.Source) bool { return s.Runs >= runs+2 })
	h.waitIdle(session)
	if got := len(m.Requests()); got != 2 {
		t.Errorf("after more runs that worked the model has got %d requests, want 2", got)
	}
}

// A gateway is killed. A loop has what is left of its budget, here nothing, a run that was missed
// is made up for or skipped as the files say, and a command that runs on runs again.
func TestSourcesAfterTheGatewayWasKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	g := h.serveFiles()
	session := h.copilot(m)
	nightly := "kind = \"source\"\nprompt = \"nightly, %[1]s\"\ncron = \"%[2]s\"\nmissed = %[1]q\n"
	when := time.Now().UTC().Add(12 * time.Hour).Format("4 15 * * *") // far from now
	for _, missed := range []string{"once", "skip"} {
		h.put("providers/"+missed+".toml", fmt.Sprintf(nightly, missed, when))
	}
	h.put("providers/tail.toml",
		"kind = \"source\"\nrun = \"echo it runs; exec sleep 1000\"\nlevel = \"keep\"\n")
	h.put("providers/loop.toml",
		"kind = \"source\"\nprompt = \"go on\"\nidle = true\nevery = \"1s\"\nmax_runs = 3\n")
	h.waitSource("loop", func(s adminapi.Source) bool { return s.State == adminapi.SourceDone })
	for _, name := range []string{"once", "skip"} {
		h.waitSource(name, func(s adminapi.Source) bool { return !s.NextRunAt.IsZero() })
	}
	h.waitSource("tail", func(s adminapi.Source) bool { return s.State == adminapi.SourceRunning })
	h.waitIdle(session)
	h.saved(session, "go on")
	g.kill()
	h.waitNoRuntime(patience)
	for _, name := range []string{"once", "skip"} {
		file := h.state("sources/" + name + "@" + session + ".json")
		if _, err := os.Stat(file); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-49 * time.Hour).Format(time.RFC3339)
		before := fmt.Appendf(nil, `{"lastRunAt":%q,"lastDueAt":%[1]q,"runs":1}`, at)
		if err := os.WriteFile(file, before, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	h.serve("--config", h.path("tapgw.toml"))
	h.tapctl(append([]string{"sessions", "resume", session}, endpoint(m)...)...)
	h.waitSource("once", func(s adminapi.Source) bool {
		return s.Runs == 2 && s.State == adminapi.SourceWaiting
	})
	skipped := h.waitSource("skip", func(s adminapi.Source) bool { return !s.NextRunAt.IsZero() })
	if skipped.Runs != 1 || !strings.Contains(skipped.Reason, "was missed, and is skipped") {
		t.Errorf("the source that skips: got %+v, want 1 run and the one that was skipped", skipped)
	}
	loop := h.waitSource("loop", func(s adminapi.Source) bool {
		return s.State == adminapi.SourceDone
	})
	if loop.Runs != 3 {
		t.Errorf("the loop has run %d times, want 3", loop.Runs)
	}
	h.waitSource("tail", func(s adminapi.Source) bool {
		return s.State == adminapi.SourceRunning && s.Runs == 2
	})
	h.waitIdle(session)
	for text, want := range map[string]int{"nightly, once": 1, "nightly, skip": 0, "go on": 3} {
		if got := prompts(m, text); got != want {
			t.Errorf("the model got %q %d times, want %d", text, got, want)
		}
	}
}
