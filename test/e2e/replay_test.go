//go:build e2e && linux

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tapgw/internal/scriptmodel"
)

// stdout is what the process has printed to its standard output.
func (p *process) stdout() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for _, l := range p.lines {
		if l.from == "stdout" {
			b.WriteString(l.text + "\n")
		}
	}
	return b.String()
}

// TestReplayOfEverySDK records the sample of an SDK from its handshake to its goodbye, and replays
// it: against the same sample, and as the sample against the gateway.
func TestReplayOfEverySDK(t *testing.T) {
	t.Parallel()
	for name, sample := range map[string]func(h *home) []string{
		"node": func(h *home) []string {
			h.nodeModules()
			sdk := os.DirFS(filepath.Join(repo, "providers", "node"))
			if err := os.CopyFS(h.path("work", "sdk"), sdk); err != nil {
				t.Fatal(err)
			}
			return []string{"node", h.path("work", "sdk", "test", "sample.mjs"), "echo"}
		},
		"python": func(*home) []string {
			sample := filepath.Join(repo, "providers", "python", "tests", "sample.py")
			return []string{systemPython, "-B", sample, "echo"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			replaySample(t, h, sample(h))
		})
	}
}

func replaySample(t *testing.T, h *home, command []string) {
	g := h.serve()
	session := h.local()
	record := h.start(tapctl, "record", "--session", session)
	record.expect("recording session " + session)
	p := start(t, command[0], h.command([]string{"TAP_GATEWAY_URL=" + g.url,
		"TAP_PROVIDER_TOKEN=" + h.read(".provider-token")}, command[0], command[1:]...))
	h.waitTool(session, "echo")
	for _, call := range []struct{ tool, args string }{
		{"echo", `{"text":"<b>\u00e9</b>"}`},
		{"progress", `{"lines":["one","two"]}`},
		{"push", `{"event":"built","level":"keep"}`},
		{"query", `{"streams":["echo"],"last":3}`},
		{"context", `{"text":"more"}`},
		{"add_tool", `{"name":"extra"}`},
		{"file", `{"text":"in a file"}`},
		{"deny", `{"match":{"tool":"extra"},"text":"no"}`},
	} {
		h.call(session, call.tool, call.args)
	}
	p.signal(syscall.SIGTERM)
	p.wait(patience)
	record.expect(`"type":"goodbye"`)
	record.expect(`"closed":{`)
	record.signal(syscall.SIGINT)
	record.wait(patience)
	file := h.path("bug.jsonl")
	if err := os.WriteFile(file, []byte(record.stdout()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, against := range [][]string{{"--gateway", g.url}, append([]string{"--"}, command...)} {
		args := append([]string{"replay", file, "--wait", "1m"}, against...)
		got := h.tapctl(args...)
		if !strings.Contains(got, ", 0 differ, 0 missing, 0 unexpected: ") ||
			strings.HasPrefix(got, "0 sent") {
			t.Errorf("replay %q: got %s, want nothing found", against, got)
		}
	}
}

// TestRecordCopilot records a session of a real Copilot runtime: what its host says is there, and
// no secret of the session or the gateway.
func TestRecordCopilot(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	h.serve()
	session := h.copilot(m)
	h.bindProvider(session, "greeter", "greet")
	record := h.start(tapctl, "record", "--session", session)
	record.expect("recording session " + session)
	h.ask(session, `call:greet {"name":"Ada"}`)
	h.tapctl("sessions", "stop", session)
	record.wait(patience)
	text := record.stdout()
	for _, want := range []string{
		`"from":"gateway","to":"host","message":{"type":"prompt","text":"call:greet {\"name\":\"Ada\"}"`,
		`"from":"host","to":"gateway","message":{"callback":"onStartToolExecution"`,
		`"tool":"greet","args":{"name":"Ada"}`, `"data":"Hello, Ada!"`,
		`"callback":"onEndMessage"`, `"end":"the session has ended`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the recording has no %s, want it:\n%s", want, text)
		}
	}
	for _, secret := range []string{modelKey, h.read(".admin-token"), h.read(".provider-token"),
		h.dir} {
		if strings.Contains(text, secret) {
			t.Errorf("the recording has %s, want it removed", secret)
		}
	}
}
