//go:build e2e && linux

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// model starts a scripted model endpoint in this process.
func model(t testing.TB, reply scriptmodel.ReplyFunc) *scriptmodel.Server {
	t.Helper()
	m, err := scriptmodel.Start("127.0.0.1:0", reply)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// request waits for the n-th request of a model, counted from 1.
func request(t testing.TB, m *scriptmodel.Server, n int) *scriptmodel.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := m.WaitRequest(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// copilot starts a real Copilot session with a scripted model.
func (h *home) copilot(m *scriptmodel.Server, args ...string) string {
	h.t.Helper()
	return h.tapctl(append([]string{"sessions", "start", "--host", "copilot", "--model",
		scriptmodel.ModelID, "--provider-url", m.URL}, args...)...)
}

// ask gives a session a prompt and returns the answer.
func (h *home) ask(session, prompt string) string {
	h.t.Helper()
	return h.tapctl("sessions", "query", session, prompt)
}

// asking gives a session a prompt whose turn goes on beside the test.
func (h *home) asking(session, prompt string) *process {
	h.t.Helper()
	return h.start(tapctl, "sessions", "query", session, prompt)
}

// waitIdle waits until a session has nothing to do.
func (h *home) waitIdle(session string) {
	h.t.Helper()
	eventually(h.t, patience, func() error {
		for _, s := range decode[[]adminapi.Session](h.t, h.tapctl("sessions", "--json")) {
			if s.ID == session && s.State == "idle" {
				return nil
			} else if s.ID == session {
				return fmt.Errorf("session %s is %s", session, s.State)
			}
		}
		return fmt.Errorf("session %s is gone", session)
	})
}

// timeline returns the lines of a session's log that hold a text.
func (h *home) timeline(session, text string) []adminapi.TimelineLine {
	h.t.Helper()
	var found []adminapi.TimelineLine
	for _, l := range decodeLines[adminapi.TimelineLine](h.t,
		h.tapctl("sessions", "log", session, "--json")) {
		if strings.Contains(l.Message, text) {
			found = append(found, l)
		}
	}
	return found
}

// waitTimeline waits for a line of a session's log.
func (h *home) waitTimeline(session, text string) {
	h.t.Helper()
	eventually(h.t, patience, func() error {
		if len(h.timeline(session, text)) == 0 {
			return fmt.Errorf("%q is not in the timeline", text)
		}
		return nil
	})
}

// heard reports whether a text was in any request to a model.
func heard(m *scriptmodel.Server, text string) bool {
	for _, r := range m.Requests() {
		if strings.Contains(string(r.Body), text) {
			return true
		}
	}
	return false
}

// runtimes returns the process ids of the Copilot runtimes of a home. Their
// command line names the program, their environment the home.
func (h *home) runtimes() []int {
	h.t.Helper()
	var pids []int
	for _, found := range processesOf(h.dir) {
		pid, command, _ := strings.Cut(found, " ")
		program, _, _ := strings.Cut(command, " ")
		if exe, err := os.Readlink(filepath.Join("/proc", pid, "exe")); err == nil {
			program = exe
		}
		if filepath.Base(program) == "copilot-runtime" {
			n, err := strconv.Atoi(pid)
			if err != nil {
				h.t.Fatal(err)
			}
			pids = append(pids, n)
		}
	}
	return pids
}

// runtime returns the process id of the one Copilot runtime of a home.
func (h *home) runtime() int {
	h.t.Helper()
	pids := h.runtimes()
	if len(pids) != 1 {
		h.t.Fatalf("%d Copilot runtimes run: %v, want 1", len(pids), pids)
	}
	return pids[0]
}

// waitNoRuntime waits until no Copilot runtime of a home is left.
func (h *home) waitNoRuntime(within time.Duration) {
	h.t.Helper()
	eventually(h.t, within, func() error {
		if pids := h.runtimes(); len(pids) > 0 {
			return fmt.Errorf("the Copilot runtime still runs: %v", pids)
		}
		return nil
	})
}
