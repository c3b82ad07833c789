//go:build e2e && linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// mcpFile writes the provider file of a real MCP server from npm.
func (h *home) mcpFile(name, more string) {
	h.t.Helper()
	program := filepath.Join(
		repo,
		".runtime",
		"node_modules",
		"@modelcontextprotocol",
		"server-"+name,
		"dist",
		"index.js",
	)
	if _, err := os.Stat(program); err != nil {
		h.t.Fatalf("no MCP server: %v: run make runtime", err)
	}
	h.put("providers/"+name+".toml", fmt.Sprintf("kind = \"mcp\"\ncommand = [\"node\", %q]\n%s\n",
		program, more))
}

// TestMCPServer lets a real session use a real MCP server: texts, an image, progress, a question
// that tapctl answers, a call that is interrupted, and one whose server is killed.
func TestMCPServer(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	h.serveFiles()
	h.mcpFile("everything", "")
	session := h.copilot(m)
	h.waitTool(session, "trigger-elicitation-request")

	if got := h.ask(session, `call:get-sum {"a":2,"b":40}`); !strings.Contains(got, "42") {
		t.Errorf("get-sum: %q, want 42 in it", got)
	}
	before := len(m.Requests())
	h.ask(session, "call:get-tiny-image")
	image := false
	for _, r := range m.Requests()[before:] {
		for _, message := range r.Messages {
			for _, url := range message.Images {
				image = image || strings.HasPrefix(url, "data:image/png;base64,")
			}
		}
	}
	if !image || !heard(m, "the image you requested") {
		t.Errorf(
			"the model was shown an image: %v, and its text: %v, want both",
			image,
			heard(m, "the image you requested"),
		)
	}
	if got := h.ask(session,
		`call:trigger-long-running-operation {"duration":1,"steps":2}`); !strings.Contains(got,
		"Long running operation completed") {
		t.Errorf("the long operation: %q, want its end", got)
	}
	h.waitTimeline(session, "trigger-long-running-operation: 1 of 2")
	got := h.ask(session, `call:everything_read_resource {"uri":"demo://resource/dynamic/text/1"}`)
	if !strings.Contains(got, "Resource 1") {
		t.Errorf("a resource: %q, want its text", got)
	}

	turn := h.asking(session, "call:trigger-elicitation-request")
	if q := h.asked(session); !strings.HasPrefix(q.Message, "everything: Please provide inputs") ||
		q.Schema == nil {
		t.Errorf("the question is %+v, want that of the server with its form", q)
	}
	h.tapctl("sessions", "answer", session, "--content", `{"name":"Bo"}`)
	if code := turn.wait(patience); code != 0 || !strings.Contains(turn.output(), "Bo") {
		t.Errorf("the turn with a question: code %d, %s, want 0 and the name", code, turn.output())
	}

	const long = `call:trigger-long-running-operation {"duration":600,"steps":2400}`
	turn = h.asking(session, long)
	h.waitTimeline(session, "trigger-long-running-operation: 1 of 2400")
	h.tapctl("sessions", "interrupt", session)
	turn.wait(patience)
	h.waitIdle(session)

	turn = h.asking(session, long)
	eventually(t, patience, func() error {
		if n := len(h.timeline(session, "trigger-long-running-operation: 1 of 2400")); n < 2 {
			return fmt.Errorf("%d calls tell of themselves, want 2", n)
		}
		return nil
	})
	h.killMCPServer("everything")
	turn.wait(patience)
	if last := m.Requests()[len(m.Requests())-1]; !strings.Contains(last.LastResult(),
		"DISCONNECTED") {
		t.Errorf("the model was told %q, want DISCONNECTED", last.LastResult())
	}
	h.waitTimeline(session, "provider everything left")
	eventually(t, patience, func() error {
		if n := len(h.timeline(session, "provider everything joined")); n != 2 {
			return fmt.Errorf("the server's tools came %d times, want 2", n)
		}
		return nil
	})
	if got := h.ask(session, `call:get-sum {"a":2,"b":40}`); !strings.Contains(got, "42") {
		t.Errorf("get-sum of the new process: %q, want 42 in it", got)
	}
}

// killMCPServer kills the process of a provider with SIGKILL.
func (h *home) killMCPServer(name string) {
	h.t.Helper()
	started := regexp.MustCompile(`started node as process (\d+)`).FindAllStringSubmatch(
		h.tapctl("providers", "log", name), -1)
	if len(started) == 0 {
		h.t.Fatalf("the log of %s names no process, want one", name)
	}
	pid, err := strconv.Atoi(started[len(started)-1][1])
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// TestMCPServersOfSessions runs a server for each session, which gets its directory as its root,
// and one for all.
func TestMCPServersOfSessions(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.serveFiles()
	h.mcpFile("filesystem",
		"sessions = \"each\"\nprefix = \"fs_\"\nallow = [\"read_text_file\", \"write_file\"]")
	h.mcpFile("memory", fmt.Sprintf("[env]\nMEMORY_FILE_PATH = %q", h.path("memory.json")))
	var sessions []string
	for _, name := range []string{"one", "two"} {
		dir := h.path(name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "note.txt"), []byte("the note of "+name),
			0o600); err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, h.tapctl("sessions", "start", "--host", "local", "--cwd", dir))
	}
	for i, name := range []string{"one", "two"} {
		h.waitTool(sessions[i], "fs_read_text_file")
		args := func(of string) string {
			data, err := json.Marshal(map[string]string{"path": filepath.Join(h.path(of),
				"note.txt")})
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		if got := h.call(sessions[i], "fs_read_text_file", args(name)); !strings.Contains(got,
			"the note of "+name) {
			t.Errorf("session %s reads %q, want its note", name, got)
		}
		other := map[string]string{"one": "two", "two": "one"}[name]
		r := h.run(tapctl, "tools", "call", "--session", sessions[i], "fs_read_text_file",
			"--args", args(other))
		if r.code == 0 || !strings.Contains(r.stderr+r.stdout, "outside allowed directories") {
			t.Errorf("session %s reads the note of %s: code %d, %s%s, want a refusal", name, other,
				r.code, r.stdout, r.stderr)
		}
	}
	h.call(sessions[0], "create_entities",
		`{"entities":[{"name":"Bo","entityType":"person","observations":["tall"]}]}`)
	if got := h.call(sessions[1], "read_graph", `{}`); !strings.Contains(got, "tall") {
		t.Errorf("the memory of both sessions: %q, want what the other said", got)
	}
}

// TestMCPFaults has tapctl status name what is wrong with MCP servers, while another one works.
func TestMCPFaults(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.serveFiles()
	redirecting := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/",
		http.StatusTemporaryRedirect))
	defer redirecting.Close()
	defer redirecting.CloseClientConnections()
	h.put("providers/far.toml", fmt.Sprintf("kind = \"mcp\"\nurl = %q\n", redirecting.URL))
	h.put("providers/none.toml", "kind = \"mcp\"\ncommand = [\"/no/such/server\"]\n")
	h.put("providers/secret.toml",
		"kind = \"mcp\"\nurl = \"http://127.0.0.1:1/\"\nheaders = { A = \"${NOT_SET}\" }\n")
	h.mcpFile("memory", "")
	session := h.local()
	h.waitTool(session, "read_graph")
	eventually(t, patience, func() error {
		r := h.run(tapctl, "status")
		for _, want := range []string{
			"the MCP server redirects to http://127.0.0.1:1, which the provider's file does not name",
			"starting /no/such/server", "the header A needs the variable NOT_SET",
		} {
			if !strings.Contains(r.stdout+r.stderr, want) {
				return fmt.Errorf("status does not say %q: %s%s", want, r.stdout, r.stderr)
			}
		}
		return nil
	})
	if got := h.call(session, "read_graph", "{}"); !strings.Contains(got, "entities") {
		t.Errorf("the good server: %q, want its graph", got)
	}
}

// TestMCPEvents has a real MCP server wake a real session that idles: its changed resource becomes
// a prompt. So it is after the server was killed; and a changed file changes what becomes of it.
func TestMCPEvents(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	h.serveFiles()
	const entry = "[[events]]\nresource = \"demo://resource/dynamic/text/%d\"\nstream = %q\nlevel = %q\n"
	const logs = "[[events]]\nlog = \"debug\"\nstream = \"logs\"\nlevel = \"keep\"\n"
	h.mcpFile("everything", fmt.Sprintf(entry, 1, "build", "inject")+logs)
	session := h.copilot(m)
	h.waitTool(session, "toggle-subscriber-updates")
	live := h.start(tapctl, "sessions", "live", session)
	events := func(stream string) []adminapi.StreamRow {
		t.Helper()
		return decode[[]adminapi.StreamRow](t,
			h.tapctl("query", "--session", session, stream+"@everything", "--json"))
	}
	waitEvent := func(stream, text string) {
		t.Helper()
		eventually(t, patience, func() error {
			all := events(stream)
			for _, e := range all {
				if strings.Contains(e.Event, text) {
					return nil
				}
			}
			return fmt.Errorf("the stream %s has %v, want an event with %q", stream, all, text)
		})
	}

	h.call(session, "toggle-subscriber-updates", "{}")
	woken := request(t, m, 1)
	const prompt = "[from provider everything]\ndemo://resource/dynamic/text/1 has changed:\nResource 1: This is a plaintext"
	if !strings.Contains(woken.LastUser(), prompt) {
		t.Errorf("the model was woken by %q, want %q in it", woken.LastUser(), prompt)
	}
	waitEvent("build", "demo://resource/dynamic/text/1 has changed:\nResource 1: ")
	waitEvent("logs",
		"info: Received Subscribe Resource request for URI: demo://resource/dynamic/text/1")
	eventually(t, patience, func() error {
		if out := live.output(); !strings.Contains(out,
			"demo://resource/dynamic/text/1 has changed") {
			return fmt.Errorf("tapctl sessions live shows %q, want the event", out)
		}
		return nil
	})

	h.killMCPServer("everything")
	h.waitTimeline(session, "everything left")
	h.waitTool(session, "toggle-subscriber-updates")
	before := len(events("build"))
	eventually(t, patience, func() error {
		// the subscription may come after the first
		h.call(session, "toggle-subscriber-updates", "{}")
		if n := len(events("build")); n == before {
			return fmt.Errorf("there are %d events since the server was killed, want more",
				n-before)
		}
		return nil
	})

	h.mcpFile("everything", fmt.Sprintf(entry, 2, "quiet", "keep"))
	eventually(t, patience, func() error {
		h.call(session, "toggle-subscriber-updates", "{}")
		if len(events("quiet")) == 0 {
			return fmt.Errorf("the stream quiet is empty, want what the new file asks for")
		}
		return nil
	})
}
