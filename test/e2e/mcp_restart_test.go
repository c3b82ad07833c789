//go:build e2e && linux

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpClient is an MCP client that has started `tapgw mcp`.
type mcpClient struct {
	*mcp.ClientSession
	t       testing.TB
	ctx     context.Context
	changed chan struct{} // has one when the list of tools has changed
	asked   chan string   // what the client's user was asked
	answer  mcp.ElicitResult
}

// mcpEras are the revisions that a client speaks with a handshake, and without.
var mcpEras = []string{"2025-06-18", "2026-07-28"}

// connectMCP starts `tapgw mcp` with more arguments.
func (h *home) connectMCP(revision string, args ...string) *mcpClient {
	h.t.Helper()
	c := &mcpClient{t: h.t, changed: make(chan struct{}, 1), asked: make(chan string, 10)}
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithTimeout(context.Background(), 2*patience)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case c.changed <- struct{}{}:
			default:
			}
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult,
			error) {
			c.asked <- r.Params.Message
			return &c.answer, nil
		},
	})
	command := h.command(nil, tapgw, append([]string{"mcp"}, args...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	c.ClientSession, err = client.Connect(c.ctx, &mcp.CommandTransport{Command: command},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		cancel()
		h.t.Fatalf("connecting to tapgw mcp: %v", err)
	}
	h.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			h.t.Errorf("tapgw mcp ended with %v, want no error", err)
		}
		cancel()
	})
	return c
}

// has waits until the client is told that it has a tool.
func (c *mcpClient) has(tool string) {
	c.t.Helper()
	for {
		var names []string
		for tool, err := range c.Tools(c.ctx, nil) {
			if err != nil {
				c.t.Fatalf("listing tools: %v", err)
			}
			names = append(names, tool.Name)
		}
		if slices.Contains(names, tool) {
			return
		}
		if !c.waitChanged() {
			c.t.Fatalf("the tools are %q, want %s among them, and to be told of it", names, tool)
		}
	}
}

// waitChanged waits until the client is told that its tools have changed.
func (c *mcpClient) waitChanged() bool {
	c.t.Helper()
	select {
	case <-c.changed:
		return true
	case <-c.ctx.Done():
		c.t.Error("the client is not told that its tools have changed, want that")
		return false
	}
}

// call calls a tool and returns the text of its result.
func (c *mcpClient) call(tool string) (string, error) {
	result, err := c.CallTool(c.ctx,
		&mcp.CallToolParams{Name: tool, Arguments: map[string]any{"name": "you"}})
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, part := range result.Content {
		if text, ok := part.(*mcp.TextContent); ok {
			all.WriteString(text.Text)
		}
	}
	return all.String(), nil
}

func (c *mcpClient) greets(tool string) {
	c.t.Helper()
	if got, err := c.call(tool); err != nil || got != "Hello, you!" {
		c.t.Errorf("%s: %q, %v, want a greeting", tool, got, err)
	}
}

// TestMCPRestart restarts the gateway under a client of `tapgw mcp`, in order and by kill -9. A
// call under way fails, and the same client goes on with the tools of the next gateway.
func TestMCPRestart(t *testing.T) {
	t.Parallel()
	for _, revision := range mcpEras {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			g := h.serve()
			h.local()
			p := h.provider("toolbox", "greet_0,wait_0")
			c := h.connectMCP(revision)
			for i, end := range []struct {
				by   func(*gateway)
				call string // what becomes of a call under way
			}{
				{(*gateway).stop, "CANCELLED: Cancelled: the gateway is shutting down"},
				{func(g *gateway) { g.kill() }, "whether the tool ran is not known"},
			} {
				c.has(fmt.Sprint("greet_", i))
				c.greets(fmt.Sprint("greet_", i))
				ended := make(chan string, 1)
				go func() {
					got, err := c.call("wait_0")
					ended <- fmt.Sprint(got, err)
				}()
				p.expectNth("called wait_0", i+1)
				end.by(g)
				if got := <-ended; !strings.Contains(got, end.call) {
					t.Errorf("the call under way ends with %q, want %q in it", got, end.call)
				}
				select { // what the gateway said when it ended
				case <-c.changed:
				default:
				}
				g = h.serve()
				c.waitChanged()
				h.local()
				p.writeLine("add", fmt.Sprint("greet_", i+1))
			}
			c.has("greet_2")
			c.greets("greet_2")
		})
	}
}

// TestMCPEnsure lets the client's program start the gateway, and start it again after kill -9.
func TestMCPEnsure(t *testing.T) {
	t.Parallel()
	for _, revision := range mcpEras {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			h.put("tapgw.toml", "listen = \"127.0.0.1:0\"")
			h.env = append(h.env, "TAPGW_GRACE=1s", "TAPGW_CONFIG="+h.path("tapgw.toml"))
			t.Cleanup(h.killGateway)
			if r := h.run(tapgw, "mcp"); r.code != 3 || !strings.Contains(r.stderr, "tapgw") {
				t.Errorf("without a gateway: code %d, %s, want 3", r.code, r.stderr)
			}
			c := h.connectMCP(revision, "--ensure")
			first := h.gatewayInfo()
			stays(t, 2*time.Second, func() error { return h.runs(first.PID) })
			h.local()
			p := h.provider("toolbox", "greet_0")
			c.has("greet_0")
			c.greets("greet_0")
			if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, patience, func() error {
				info, err := os.ReadFile(h.state("gateway.json"))
				if err != nil || decode[gatewayInfo](t, string(info)).PID == first.PID {
					return fmt.Errorf("no gateway was started again: gateway.json has %q", info)
				}
				return nil
			})
			h.local()
			p.writeLine("add greet_1")
			c.has("greet_1")
			c.greets("greet_1")
		})
	}
}
