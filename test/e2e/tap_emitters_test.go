//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// buildScript prints an error and stays, with a child.
const buildScript = `test "$1" && { sleep 1000; exit; }
echo booting
echo 'main.c:3: error: x'
sh "$0" child &
until test -e "$0.again"; do sleep 0.1; done
echo 'main.c:4: error: y'
wait
`

// A model starts an emitter, is woken by what it prints, changes its filter and stops it. The
// commands that its session may not run in a shell it may not run so either, and nothing is left of
// an emitter whose gateway was killed.
func TestModelStartsAnEmitter(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	script := h.path("work", "build.sh")
	h.put("work/build.sh", buildScript)
	h.put("tapgw.toml", fmt.Sprintf(
		"[tap]\n[copilot.permissions]\nshell = \"deny\"\nallow_commands = [\"sh %s\"]\ndeny_commands = [\"curl\"]\n", script,
	))
	g := h.serve("--config", h.path("tapgw.toml"))
	session := h.copilot(m)
	call := func(tool, args string) string {
		t.Helper()
		return h.ask(session, "call:"+tool+" "+args)
	}
	want := func(what, got string, want ...string) {
		t.Helper()
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: got %q, want %q in it", what, got, part)
			}
		}
	}
	for _, command := range []string{"curl http://x", "sh " + script + "; curl http://x", "ls",
		"sh $(curl x)"} {
		call("tap_start_emitter", fmt.Sprintf(`{"name":"bad","command":%q}`, command))
		all := m.Requests()
		messages := all[len(all)-1].Messages
		want(command, messages[len(messages)-1].Text, "the command is denied: ",
			"[copilot.permissions]")
	}
	want("the list", call("tap_list_emitters", "{}"), "Emitters (0):")
	start := fmt.Sprintf(`{"name":"build","command":"sh %s","channel":"ops",`, script) +
		`"eventFilter":[{"match":"booting","outcome":"drop"},{"match":"error","outcome":"inject"}]}`
	want("the start", call("tap_start_emitter", start), "Started emitter 'build'")
	woken := func(text string) {
		t.Helper()
		for n := 1; ; n++ {
			if r := request(t, m, n); strings.Contains(scriptmodel.Prompt(r.LastUser()), text) {
				return
			}
		}
	}
	woken("main.c:3: error: x")
	h.waitIdle(session)
	want("the list", call("tap_list_emitters", "{}"),
		"- build: type=command status=running stream=ops", "acceptedLines=1 droppedLines=1")
	want("the filter",
		call("tap_set_event_filter", `{"name":"build","rules":[{"match":".*","outcome":"keep"}]}`),
		"Of the events so far: keep=1")
	h.put("work/build.sh.again", "")
	eventually(t, patience, func() error {
		if got := h.call(session, "tap_stream_history", `{"channel":"ops"}`); !strings.Contains(got,
			"error: y") {
			return fmt.Errorf("the stream has %q, want the second error", got)
		}
		return nil
	})
	want("the stop", call("tap_stop_emitter", `{"name":"build"}`), "Stopped emitter 'build'")
	if left := processesOf(script); len(left) > 0 {
		t.Errorf("after the stop there are %q, want no process of the emitter", left)
	}
	if got := prompts(m, "main.c:4: error: y"); got != 0 {
		t.Errorf("an event that the filter keeps has woken the model %d times, want 0", got)
	}

	want("another start", call("tap_start_emitter", start), "Started")
	h.waitSource("tap.build", func(s adminapi.Source) bool {
		return s.State == adminapi.SourceRunning
	})
	eventually(t, patience, func() error {
		if n := len(processesOf(script)); n < 2 {
			return fmt.Errorf("%d processes run, want the emitter's two", n)
		}
		return nil
	})
	g.kill()
	h.waitNoRuntime(patience)
	eventually(t, patience, func() error {
		if left := processesOf(script); len(left) > 0 {
			return fmt.Errorf("after the gateway was killed there are %q", left)
		}
		return nil
	})
}
