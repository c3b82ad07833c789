//go:build e2e && linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"tapgw/internal/scriptmodel"
)

// installed returns the path of a file that npm installed, by a pattern below node_modules.
func installed(t testing.TB, pattern string) string {
	t.Helper()
	for _, dir := range []string{".runtime", ".runtime/agents"} {
		found, err := filepath.Glob(filepath.Join(repo, dir, "node_modules",
			filepath.FromSlash(pattern)))
		if err == nil && len(found) > 0 {
			return found[0]
		}
	}
	t.Fatalf("npm installed no %s: run ci/runtime.sh agents", pattern)
	return ""
}

// platform is how npm's packages name this system.
var platform = runtime.GOOS + "-" + map[string]string{"amd64": "x64",
	"arm64": "arm64"}[runtime.GOARCH]

// agentPatience is longer than that for our own programs: some agents compute for five seconds
// before they do anything.
const agentPatience = 3 * patience

// mcpAgent is a coding agent that is an MCP client: how it runs one prompt with the scripted model.
type mcpAgent struct {
	settings string // a file of its own in the home, without which it does not work
	text     string // what that says
	env      func(m *scriptmodel.Server) []string
	command  func(t testing.TB) []string
}

// copilotEnv is the environment in which the Copilot CLI needs no account and no network. It
// unpacks 235 MB, once for all tests.
func copilotEnv(m *scriptmodel.Server) []string {
	return []string{"COPILOT_PROVIDER_BASE_URL=" + m.URL, "COPILOT_PROVIDER_API_KEY=" + modelKey,
		"COPILOT_MODEL=" + scriptmodel.ModelID, "COPILOT_OFFLINE=true", unpackedOnce()}
}

// unpackedOnce is the variable by which all tests share what the Copilot CLI unpacks.
func unpackedOnce() string { return "COPILOT_PKG_CACHE_HOME=" + filepath.Join(root, "copilot-cli") }

// mcpAgents have the names that tapgw mcp install has for them.
var mcpAgents = map[string]mcpAgent{
	"copilot": {
		env: copilotEnv,
		command: func(t testing.TB) []string {
			return []string{installed(t, "@github/copilot-"+platform+"/copilot"),
				"--no-auto-update", "--silent", "--allow-all-tools", "-p"}
		},
	},
	"gemini": {
		settings: ".gemini/settings.json",
		text:     `{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false}}`,
		env: func(m *scriptmodel.Server) []string {
			return []string{"GOOGLE_GEMINI_BASE_URL=" + m.Root(), "GEMINI_API_KEY=" + modelKey,
				"GEMINI_MODEL=" + scriptmodel.ModelID, "GEMINI_CLI_TRUST_WORKSPACE=true",
				"GEMINI_CLI_NO_RELAUNCH=true"}
		},
		command: func(t testing.TB) []string {
			return []string{
				installed(t, "node-"+platform+"/bin/node"),
				installed(t, "@google/gemini-cli/bundle/gemini.js"),
				"--yolo",
				"-p",
			}
		},
	},
	"opencode": {
		env: func(m *scriptmodel.Server) []string {
			return []string{
				"OPENCODE_DISABLE_MODELS_FETCH=1",
				"npm_config_offline=true",
				fmt.Sprintf("OPENCODE_CONFIG_CONTENT="+`{
				"model": "scripted/scripted", "small_model": "scripted/scripted", "autoupdate": false,
				"provider": {"scripted": {"npm": "@ai-sdk/openai-compatible",
					"options": {"baseURL": %q, "apiKey": %q}, "models": {"scripted": {"tool_call": true}}}}}`,
					m.URL, modelKey),
			}
		},
		command: func(t testing.TB) []string {
			return []string{installed(t, "opencode-"+platform+"*/bin/opencode"), "run", "--title",
				"test"}
		},
	},
}

// lateTool is a model that wants a tool that is not there yet: it calls one that waits, and then
// others until the tool has come, all in one turn. Agents put names of their own before those of
// tools.
func lateTool(r *scriptmodel.Request) scriptmodel.Reply {
	call := func(tool string, args map[string]string) (scriptmodel.ToolCall, bool) {
		for _, name := range r.ToolNames() {
			if strings.HasSuffix(name, tool) {
				data, err := json.Marshal(args)
				return scriptmodel.ToolCall{Name: name, Args: string(data)}, err == nil
			}
		}
		return scriptmodel.ToolCall{}, false
	}
	result := r.LastResult()
	if strings.Contains(result, "Hello, latecomer!") {
		return scriptmodel.Reply{Text: "The late tool said: " + result}
	}
	if late, ok := call("greet_late", map[string]string{"name": "latecomer"}); ok {
		return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{late}}
	}
	next, ok := call("wait_here", map[string]string{})
	if result != "" { // agents stop a model that says the same again and again
		next, ok = call("greet_all", map[string]string{"name": fmt.Sprint("number ", r.N)})
	}
	if !ok {
		return scriptmodel.Reply{Text: "There are no tools: " + strings.Join(r.ToolNames(), ", ")}
	}
	return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{next}, Delay: 50 * time.Millisecond}
}

// TestMCPAgents installs the gateway in real agents. Their models call a provider's tool, and one
// that the provider adds meanwhile, in the same turn.
func TestMCPAgents(t *testing.T) {
	t.Parallel()
	for name, agent := range mcpAgents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for transport, flags := range map[string][]string{"http": {"--http"}, "stdio": nil} {
				t.Run(transport, func(t *testing.T) { testAgent(t, name, agent, flags) })
			}
		})
	}
}

func testAgent(t *testing.T, name string, a mcpAgent, flags []string) {
	h := newHome(t)
	m := model(t, lateTool)
	if a.settings != "" {
		if err := os.MkdirAll(filepath.Dir(h.path(a.settings)), 0o700); err != nil {
			t.Fatal(err)
		}
		h.put(a.settings, a.text)
	}
	h.serve()
	session := h.local()
	p := h.bindProvider(session, "toolbox", "wait_here,greet_all")
	words := append([]string{"mcp", "install", name, "--yes", "--json"}, flags...)
	if name == "copilot" { // it would get its own session
		words = append(words, "--session", session)
	}
	install := h.run(tapgw, words...)
	if install.code != 0 {
		t.Fatalf("tapgw mcp install %s: code %d, want 0: %s", name, install.code, install.stderr)
	}
	env := a.env(m)
	if flags != nil {
		env = append(env, "TAP_MCP_TOKEN="+h.tapctl("mcp", "token", "--session", session))
	}
	words = append(a.command(t), "Wait, and greet whoever comes.")
	turn := start(t, name, h.command(env, words[0], words[1:]...))
	_ = turn.in.Close()

	eventually(t, agentPatience, func() error {
		if p.find("called wait_here") == "" {
			return fmt.Errorf("the agent calls no tool:\n%s", turn.output())
		}
		return nil
	})
	p.writeLine("add greet_late")
	p.expect("added greet_late <nil>")
	p.writeLine("finish")
	if code := turn.wait(agentPatience); code != 0 ||
		!strings.Contains(turn.output(), "Hello, latecomer!") {
		t.Errorf("%s: code %d, want 0 and what the late tool said:\n%s", name, code, turn.output())
	}
	h.waitTimeline(session, "calls greet_late")
	h.uninstalled(name, decode[struct{ File string }](t, install.stdout).File, a.text)
}

// uninstalled checks that tapgw mcp uninstall leaves what was in a client's file, and nothing of
// ours. Some clients write to it, too.
func (h *home) uninstalled(client, file, before string) {
	h.t.Helper()
	if r := h.run(tapgw, "mcp", "uninstall", client, "--yes"); r.code != 0 {
		h.t.Errorf("tapgw mcp uninstall %s: code %d, want 0: %s", client, r.code, r.stderr)
	}
	after, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) || !strings.Contains(string(after), before) ||
		strings.Contains(string(after), "tapgw") {
		h.t.Errorf("after uninstall %s says %q (%v), want %q and nothing of tapgw", file, after,
			err, before)
	}
}

// TestMCPInspector calls tools and reads streams with MCP's own client for the command line, in the
// revision of 2026 and in those with a handshake.
func TestMCPInspector(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	session := h.local()
	p := h.bindProvider(session, "toolbox", "greet,missing")
	p.writeLine("push keep seen")
	p.expect("pushed seen <nil>")
	token := h.tapctl("mcp", "token", "--session", session)
	url := "http" + strings.TrimPrefix(g.url, "ws") + "/mcp"
	h.env = append(h.env, "MCP_INSPECTOR_SECRET_STORE=memory")
	type object = map[string]any
	headers := object{"Authorization": "Bearer " + token}
	config, err := json.Marshal(object{"mcpServers": object{
		"modern": object{"type": "http", "url": url, "headers": headers, "protocolEra": "modern"},
		"legacy": object{"type": "http", "url": url + "/s/" + session, "headers": headers,
			"protocolEra": "legacy"},
		"stdio": object{"type": "stdio", "command": tapgw,
			"args": []string{"mcp", "--session", session},
			"env":  object{"COPILOT_HOME": h.path("copilot")}, "protocolEra": "modern"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	h.put("inspector.json", string(config))
	for _, server := range []string{"modern", "legacy", "stdio"} {
		inspect := func(args ...string) result {
			return h.run(installed(t, "node-"+platform+"/bin/node"), append([]string{
				installed(t, "@modelcontextprotocol/inspector/clients/launcher/build/index.js"),
				"--cli", "--config", h.path("inspector.json"), "--server", server, "-q"},
				args...)...)
		}
		if r := inspect("--method", "tools/list", "--strict"); r.code != 0 ||
			!strings.Contains(r.stdout, `"greet"`) {
			t.Errorf("%s: tools/list: code %d, want 0 and greet: %s%s", server, r.code, r.stdout,
				r.stderr)
		}
		r := inspect("--method", "tools/call", "--tool-name", "greet", "--tool-arg", "name="+server)
		if r.code != 0 || !strings.Contains(r.stdout, "Hello, "+server+"!") {
			t.Errorf("%s: greet: code %d, want 0 and a greeting: %s%s", server, r.code, r.stdout,
				r.stderr)
		}
		const toolFailed = 5
		r = inspect("--method", "tools/call", "--tool-name", "missing")
		if r.code != toolFailed || !strings.Contains(r.stdout, "nothing is called missing") {
			t.Errorf(
				"%s: missing: code %d, want %d and its error: %s%s",
				server,
				r.code,
				toolFailed,
				r.stdout,
				r.stderr,
			)
		}
		r = inspect("--method", "resources/list")
		if r.code != 0 || !strings.Contains(r.stdout, "tapgw://stream/") {
			t.Errorf("%s: resources/list: code %d, want 0 and a stream: %s%s", server, r.code,
				r.stdout, r.stderr)
		}
	}
}
