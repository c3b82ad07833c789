//go:build runtime

package langserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/internal/taptest/cloud"
)

func withMCP(t testing.TB) func(*Options, *cloud.Cloud) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options, _ *cloud.Cloud) {
		o.MCP = map[string]MCPServer{"tiny": {Command: []string{self, "-test.run=none"},
			Env: map[string]string{mcpVar: "1", "GORACE": "atexit_sleep_ms=0"}}}
	}
}

// The language server runs MCP servers and asks before their calls.
func TestMCP(t *testing.T) {
	r := newRig(t, withMCP(t))
	r.waitMCP(t)
	var asked Confirmation
	answer := error(nil)
	r.set(func() {
		r.confirm = func(_ context.Context, q Confirmation) error {
			asked = q
			return answer
		}
	})
	// A tool of ours has the same name: it is not mistaken for it.
	r.offer(t, answeringTool("shout", "ours"))
	n := r.requestCount()
	r.mustTurn(t, "hello")
	names := r.requestsAfter(n)[0].ToolNames()
	i := slices.IndexFunc(names, func(name string) bool { return strings.Contains(name, "tiny") })
	if i < 0 {
		t.Fatalf("the model has %q, want the MCP server's tool among them", names)
	}
	prompt := "call:" + names[i] + ` {"text":"hello"}`
	if result, e := r.mustTurn(t, prompt); result.Text != "HELLO" {
		t.Errorf("%q %v, want %q", result.Text, e, "HELLO")
	}
	if asked.Kind != MCPTool || asked.Server != "tiny" || asked.Tool != "shout" || asked.Ours {
		t.Errorf("asked %+v, want tool shout of MCP server tiny", asked)
	}
	answer = errors.New("not allowed: allow.mcp in lsclient.toml lists what is")
	result, e := r.mustTurn(t, prompt)
	if !strings.Contains(result.Text, answer.Error()) || strings.Contains(result.Text, "skip") {
		t.Errorf("refused: the model saw %q, want %q in it", result.Text, answer)
	}
	if call := e.call(t, "shout"); call.State != Failed || call.Error != answer.Error() {
		t.Errorf("refused: the event is %+v, want it to say %q", call, answer)
	}
	if result, _ = r.mustTurn(t, "hello"); result.Text != "You said: hello" {
		t.Errorf(`after a refusal: %q, want "You said: hello"`, result.Text)
	}
}

// waitMCP waits until the MCP server has told its tools.
func (r *rig) waitMCP(t testing.TB) {
	t.Helper()
	r.waitFor(t, func(ctx context.Context) (string, bool) {
		servers, err := r.MCPServers(ctx)
		ok := err == nil && len(servers) == 1 && servers[0].Name == "tiny" &&
			servers[0].Status == "running" &&
			slices.Equal(servers[0].Tools, []MCPServerTool{{"shout", "Shouts."}})
		return fmt.Sprintf("MCP servers: %+v %v", servers, err), ok
	})
}

// waitFor calls isReady until it returns true, for changes that no event reports. A failure shows
// the last state that it saw.
func (r *rig) waitFor(t testing.TB, isReady func(ctx context.Context) (now string, ok bool)) {
	t.Helper()
	ctx := within(t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now, ok := isReady(ctx)
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s, want it in time", now)
		}
	}
}

// The organisation's policy against MCP takes effect and is reported.
func TestMCPSwitchedOff(t *testing.T) {
	r := newRig(t, withMCP(t), func(_ *Options, c *cloud.Cloud) { c.SetFlags("mcp=0") })
	n := r.requestCount()
	r.mustTurn(t, "hello")
	for _, name := range r.requestsAfter(n)[0].ToolNames() {
		if strings.Contains(name, "tiny") || strings.Contains(name, "shout") {
			t.Errorf(`the model has the MCP tool %s, want no "tiny" and no "shout" in it`, name)
		}
	}
	r.waitFor(t, func(ctx context.Context) (string, bool) {
		servers, err := r.MCPServers(ctx)
		return fmt.Sprintf("%v %v", servers, err), errors.Is(err, ErrMCPDisabled)
	})
	if !strings.Contains(r.log.String(), "switched off by the organisation") {
		t.Errorf("the log is %s, want a warning that the organisation switched it off",
			r.log.String())
	}
}
