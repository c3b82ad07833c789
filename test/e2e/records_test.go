//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// recorded are a session's records of a kind, in short.
func (h *home) recorded(kind, session string) []string {
	h.t.Helper()
	args := []string{"records", "--kind", kind, "--json"}
	if session != "" {
		args = append(args, "--session", session)
	}
	var lines []string
	for _, r := range decode[[]adminapi.Record](h.t, h.tapctl(args...)) {
		line := strings.Join(
			strings.Fields(fmt.Sprint(r.Provider, " ", r.Tool, " ", r.Stream, " ", r.Outcome, " ",
				r.Fate, " ", r.Code, " ", r.Event, " ", r.Command)),
			" ",
		)
		if r.ExitCode != nil {
			line += fmt.Sprint(" = ", *r.ExitCode)
		}
		lines = append(lines, line)
	}
	return lines
}

// streams are the events in a session's streams, oldest first.
func (h *home) streams(session string) []string {
	h.t.Helper()
	var lines []string
	for _, r := range decode[[]adminapi.StreamRow](h.t,
		h.tapctl("query", "--session", session, "--json")) {
		lines = append([]string{r.Provider + " " + r.Stream + " " + r.Event}, lines...)
	}
	return lines
}

func expectLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("%s:\n%s\nwant:\n%s", what, g, w)
	}
}

// TestRecordsAfterTheGatewayWasKilled: a session that comes back has the events of its streams, and
// all that was recorded is there, as the files say: a line that the crash cut off is no record.
func TestRecordsAfterTheGatewayWasKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	h.put("tapgw.toml", "[copilot.permissions]\nshell = \"allow\"\n")
	g := h.serve("--config", h.path("tapgw.toml"))
	session := h.copilot(m)
	push := func(text string) {
		t.Helper()
		h.tapctl("push", "--session", session, "--provider", "ci", "--stream", "builds", "--level",
			"keep", text)
	}
	push("first build")
	if got := h.ask(session,
		`call:bash {"command":"exit 3","description":"fail"}`); !strings.Contains(
		got,
		"exit code 3",
	) {
		t.Errorf("the session answers %q, want the exit code 3", got)
	}
	push("second build")
	h.waitIdle(session)
	h.saved(session, "exit 3")
	pushes := []string{"ci builds stored first build", "ci builds stored second build"}
	expectLines(t, "pushes", h.recorded("push", session), pushes...)
	expectLines(t, "calls", h.recorded("call", session), "bash ok exit 3 = 3")

	g.kill()
	h.waitNoRuntime(patience)
	file, err := os.OpenFile(h.state("records/00000001.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(`{"ts":"2026-01-02T15:04:05.000000Z","kind":"push","session":"` +
		session)
	if err != nil || file.Close() != nil {
		t.Fatal(err)
	}
	sql := h.tapctl("records", "sql", "SELECT stream, fate, event FROM pushes ORDER BY ts", "--csv")
	expectLines(t, "in SQL, without a gateway", strings.Split(sql, "\n"), "stream,fate,event",
		"builds,stored,first build", "builds,stored,second build")

	h.serve("--config", h.path("tapgw.toml"))
	h.tapctl(append([]string{"sessions", "resume", session}, endpoint(m)...)...)
	expectLines(t, "the streams after the crash", h.streams(session), "ci builds first build",
		"ci builds second build")
	push("third build")
	expectLines(t, "the streams then", h.streams(session), "ci builds first build",
		"ci builds second build", "ci builds third build")
	expectLines(t, "pushes then", h.recorded("push", session),
		append(pushes, "ci builds stored third build")...)
	expectLines(t, "calls then", h.recorded("call", session), "bash ok exit 3 = 3")
}
