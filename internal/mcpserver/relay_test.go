package mcpserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const testPatience = 60 * time.Second

// restarting is a server that can be cut off and come back as another one.
type restarting struct {
	t      *testing.T
	mu     sync.Mutex
	cutOff func()
	down   bool
	server *mcp.Server
}

func newServer(tools ...string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "s"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	s.AddResource(&mcp.Resource{URI: "test://r", Name: "r"},
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return nil, io.EOF
		})
	for _, name := range tools {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{},
		) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name}}}, nil,
				nil
		})
	}
	return s
}

func (s *restarting) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errors.New("it is down")
	}
	ours, theirs := net.Pipe()
	session, err := s.server.Connect(context.WithoutCancel(ctx),
		&mcp.IOTransport{Reader: theirs, Writer: theirs}, nil)
	if err != nil {
		return nil, err
	}
	s.t.Cleanup(func() { _ = session.Wait() })
	s.cutOff = func() {
		_ = theirs.Close()
		go func() { _ = session.Close() }() // ends its subscriptions
	}
	s.t.Cleanup(s.cutOff)
	return ours, nil
}

// cut ends the connection, and the next one is to another server.
func (s *restarting) cut(next *mcp.Server, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server, s.down = next, down
	s.cutOff()
}

func (s *restarting) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// relayed is an SDK's client behind a relay.
func relayed(
	t *testing.T, s *restarting, version string,
) (client *mcp.ClientSession, changed, updated chan struct{}) {
	t.Helper()
	changed, updated = make(chan struct{}, 64), make(chan struct{}, 64)
	in, toRelay := io.Pipe()
	fromRelay, out := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	relay := Relay{Dial: s.dial, In: in, Out: out, Note: func(string) {}}
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	c := mcp.NewClient(&mcp.Implementation{Name: "c"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			changed <- struct{}{}
		},
		ResourceUpdatedHandler: func(context.Context, *mcp.ResourceUpdatedNotificationRequest) {
			updated <- struct{}{}
		},
	})
	client, err := c.Connect(t.Context(), &mcp.IOTransport{Reader: fromRelay, Writer: toRelay},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = out.Close()
		_ = client.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the relay: got %v, want no error", err)
		}
	})
	return client, changed, updated
}

func toolNames(t *testing.T, c *mcp.ClientSession) (names []string) {
	t.Helper()
	list, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func TestRelaySurvivesARestart(t *testing.T) {
	for name, version := range map[string]string{"modern": "2026-07-28",
		"handshake": "2025-11-25"} {
		t.Run(name, func(t *testing.T) {
			s := &restarting{t: t, server: newServer("old")}
			c, changed, updated := relayed(t, s, version)
			if got := toolNames(t, c); !slices.Equal(got, []string{"old"}) {
				t.Fatalf("tools: got %v, want old", got)
			}
			if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "test://r"}); err != nil {
				t.Fatal(err)
			}
			next := newServer("new")
			s.cut(next, true)
			// A request that comes meanwhile waits for the next connection.
			asked := make(chan []string, 1)
			go func() {
				list, err := c.ListTools(t.Context(), nil)
				if err != nil {
					t.Errorf("a request without a connection: got %v, want an answer", err)
					asked <- nil
					return
				}
				asked <- []string{list.Tools[0].Name}
			}()
			s.setDown(false)
			if got := <-asked; !slices.Equal(got, []string{"new"}) {
				t.Errorf("tools after the restart: got %v, want new", got)
			}
			wait(t, "the news that the list changed", changed)
			for len(changed) > 0 {
				<-changed
			}
			mcp.AddTool(next, &mcp.Tool{Name: "newer"},
				func(context.Context, *mcp.CallToolRequest, struct{},
				) (*mcp.CallToolResult, any, error) {
					return nil, nil, nil
				})
			wait(t, "a change of the new server's list", changed)
			for len(updated) > 0 {
				<-updated
			}
			if err := next.ResourceUpdated(t.Context(),
				&mcp.ResourceUpdatedNotificationParams{URI: "test://r"}); err != nil {
				t.Fatal(err)
			}
			wait(t, "an update of the new server", updated)
		})
	}
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(testPatience):
		t.Fatalf("waited for %s in vain, want it in time", what)
	}
}

// A call that was under way may have run, so it is not repeated.
func TestRelayFailsCallsOfALostConnection(t *testing.T) {
	begun, over := make(chan struct{}, 8), make(chan struct{})
	defer close(over)
	hanging := newServer()
	mcp.AddTool(hanging, &mcp.Tool{Name: "hang"},
		func(context.Context, *mcp.CallToolRequest, struct{},
		) (*mcp.CallToolResult, any, error) {
			begun <- struct{}{}
			<-over
			return nil, nil, nil
		})
	s := &restarting{t: t, server: hanging}
	c, _, _ := relayed(t, s, "2025-11-25")
	ended := make(chan error, 1)
	go func() {
		_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "hang"})
		ended <- err
	}()
	wait(t, "the call", begun)
	s.cut(newServer("new"), false)
	if err := <-ended; err == nil ||
		!strings.Contains(err.Error(), "whether the tool ran is not known") {
		t.Errorf("the call: got %v, want that its fate is not known", err)
	}
	if got := toolNames(t, c); !slices.Equal(got, []string{"new"}) || len(begun) > 0 {
		t.Errorf("after it: got %v, %d calls more; want new and none", got, len(begun))
	}
}

func TestRelayWithoutServer(t *testing.T) {
	s := &restarting{t: t, down: true}
	r := Relay{Dial: s.dial, In: strings.NewReader(""), Out: io.Discard, Note: func(string) {}}
	if err := r.Run(t.Context()); err == nil || err.Error() != "it is down" {
		t.Errorf("got %v, want that of the connection", err)
	}
}

// A gateway that shuts down ends its subscriptions first. The client does not hear of that, and is
// subscribed at the next one.
func TestRelaySubscribesAgain(t *testing.T) {
	const listen = `{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}`
	gateways := make(chan net.Conn, 3)
	in, client := io.Pipe()
	var out strings.Builder // read when the relay has ended
	r := Relay{In: in, Out: &out, Note: func(string) {},
		Dial: func(context.Context) (io.ReadWriteCloser, error) {
			ours, theirs := net.Pipe()
			gateways <- theirs
			return ours, nil
		}}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context()) }()
	go func() { _, _ = io.WriteString(client, listen+"\n") }()
	for i := range 3 {
		gateway := <-gateways
		_ = gateway.SetReadDeadline(time.Now().Add(testPatience / 4))
		if line, err := bufio.NewReader(gateway).ReadString('\n'); err != nil ||
			line != listen+"\n" {
			t.Errorf("the gateway gets %q, %v, want %s", line, err, listen)
		}
		if i == 2 {
			break
		}
		if _, err := io.WriteString(gateway,
			`{"jsonrpc":"2.0","id":2,"result":{}}`+"\n"); err != nil {
			t.Fatal(err)
		}
		if err := gateway.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_ = client.Close()
	if err := <-ended; err != nil {
		t.Errorf("the relay ends with %v, want no error", err)
	}
	changed := strings.Count(out.String(), `"notifications/tools/list_changed"`)
	if strings.Contains(out.String(), "result") || changed < 1 {
		t.Errorf("the client is told %q, want that the list changed, and of no end", out.String())
	}
}

// The relay does not wait for a gateway after its client has gone, unless a request still wants an
// answer.
func TestRelayEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &restarting{t: t, server: newServer("old")}
		in, client := io.Pipe()
		r := Relay{Dial: s.dial, In: in, Out: io.Discard, Note: func(string) {}}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context()) }()
		synctest.Wait()
		s.cut(nil, true)
		synctest.Wait()
		if _, err := io.WriteString(client,
			`{"jsonrpc":"2.0","method":"notifications/cancelled"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		_ = client.Close()
		before := time.Now()
		if err := <-ended; err != nil || time.Since(before) > 0 {
			t.Errorf("the relay ends with %v after %v, want no error, at once", err,
				time.Since(before))
		}
	})
}

// A client's requests are answered although it closes its end at once, and bad lines are refused.
func TestRelayAnswersAPipe(t *testing.T) {
	s := &restarting{t: t, server: newServer("old")}
	var out strings.Builder
	in := "{no\n" + `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n\n"
	r := Relay{Dial: s.dial, In: strings.NewReader(in), Out: &out, Note: func(string) {}}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `"id":null,"error":{"code":-32700`) ||
		!strings.Contains(lines[1], `"id":7`) || !strings.Contains(lines[1], `"old"`) {
		t.Errorf("got %q, want an error and the list", lines)
	}
}

// Lines for which the server would end the connection are refused, and the connection stays:
// repeated on the next one, they would end each.
func TestRelayRefusesWhatIsNoMessage(t *testing.T) {
	const meta = `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}`
	wrong := []string{
		"{no", "null", "{}", "[]", "7", `"x"`, `{"jsonrpc":"1.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":{},"method":"tools/list","params":` + meta + `}`,
		`{"jsonrpc":"2.0","id":null,"method":"tools/list","params":` + meta + `}`,
		`[{"jsonrpc":"2.0","id":1,"method":"tools/list","params":` + meta + `}]`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":` + strings.Repeat("[", 5000) +
			strings.Repeat("]", 5000) + `}`,
	}
	s := &restarting{t: t, server: newServer("old")}
	var out strings.Builder
	in := strings.Join(wrong,
		"\n") + "\n" + `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":` + meta + "}\n"
	r := Relay{Dial: s.dial, In: strings.NewReader(in), Out: &out, Note: func(text string) {
		t.Errorf("got %q", text)
	}}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; len(lines) != len(wrong)+1 || !strings.Contains(last, `"old"`) {
		t.Fatalf("got %d answers, the last %q; want %d, the last with the tool old", len(lines),
			last, len(wrong)+1)
	}
	for i, line := range lines[:len(wrong)] {
		if !strings.Contains(line, `"id":null,"error":{"code":-32`) {
			t.Errorf("%.80s: got %q, want an error", wrong[i], line)
		}
	}
}

// A request that ends each connection is said twice, and then answered.
func TestRelayGivesUpWhatEndsConnections(t *testing.T) {
	var said int
	dial := func(context.Context) (io.ReadWriteCloser, error) {
		ours, theirs := net.Pipe()
		go func() {
			lines := bufio.NewScanner(theirs)
			if lines.Scan() {
				said++
			}
			_ = theirs.Close()
		}()
		return ours, nil
	}
	var out strings.Builder
	r := Relay{Dial: dial,
		In: strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n"), Out: &out,
		Note: func(string) {}}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"id":1,"error"`) || said != 2 {
		t.Errorf("got %q after it was said %d times, want an error after 2", out.String(), said)
	}
}
