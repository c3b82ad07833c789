package mcpserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/mcpserver"
)

// answered is the answer to a raw request, or a notification.
type answered struct {
	Method string         `json:"method"`
	ID     any            `json:"id"`
	Result map[string]any `json:"result"`
	Params map[string]any `json:"params"`
	Error  *struct {
		Code int            `json:"code"`
		Data map[string]any `json:"data"`
		Text string         `json:"message"`
	} `json:"error"`
}

// rawClient sends requests of the newest revision as they are, with capabilities as JSON.
type rawClient interface {
	ask(method string, params map[string]any) answered
	// listen returns what comes on a stream.
	listen(taskIDs ...string) <-chan answered
	setCapabilities(capabilities string)
	cut() // ends the client without a word
}

const (
	takesTasks = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	elicits    = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
)

// eachWire runs a test over HTTP and through the relay of tapgw mcp.
func eachWire(t *testing.T, test func(t *testing.T, connect func(w *world, path, token string) rawClient)) {
	t.Helper()
	t.Run("http", func(t *testing.T) { test(t, (*world).rawHTTP) })
	t.Run("stdio", func(t *testing.T) { test(t, (*world).rawRelay) })
}

// rawParams adds to params what each request of the revision has.
func rawParams(params map[string]any, capabilities string) map[string]any {
	params["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": json.RawMessage(capabilities)}
	return params
}

func rawRequest(id int, method string, params map[string]any) []byte {
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		panic(err)
	}
	return text
}

func listenParams(taskIDs []string) map[string]any {
	return map[string]any{"notifications": map[string]any{"taskIds": taskIDs}}
}

type httpClient struct {
	w                         *world
	path, token, capabilities string
	headers                   map[string]string
}

func (w *world) rawHTTP(path, token string) rawClient {
	return &httpClient{w: w, path: path, token: token, capabilities: takesTasks}
}

func (c *httpClient) setCapabilities(capabilities string) { c.capabilities = capabilities }

func (c *httpClient) cut() {}

func (c *httpClient) send(ctx context.Context, method string, params map[string]any) io.ReadCloser {
	c.w.Helper()
	body := rawRequest(1, method, rawParams(params, c.capabilities))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.w.url+c.path, strings.NewReader(string(body)))
	if err != nil {
		c.w.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Mcp-Method": method,
		"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28",
		"Authorization": "Bearer " + c.token} {
		r.Header.Set(name, value)
	}
	for _, key := range []string{"name", "taskId"} {
		if name, ok := params[key].(string); ok {
			r.Header.Set("Mcp-Name", name)
		}
	}
	for name, value := range c.headers {
		r.Header.Set(name, value)
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		c.w.Fatal(err)
	}
	return answer.Body
}

func (c *httpClient) ask(method string, params map[string]any) answered {
	c.w.Helper()
	body := c.send(c.w.Context(), method, params)
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(body)
	if err != nil {
		c.w.Fatal(err)
	}
	_, data, ok := strings.Cut(string(text), "data: ")
	if !ok {
		data = string(text)
	}
	return c.w.decode(data)
}

func (w *world) decode(text string) (a answered) {
	w.Helper()
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		w.Errorf("%.200q: %v, want a message", text, err)
	}
	return a
}

func (c *httpClient) listen(taskIDs ...string) <-chan answered {
	c.w.Helper()
	body := c.send(c.w.Context(), "subscriptions/listen", listenParams(taskIDs))
	messages := make(chan answered, 1000)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(messages)
		lines := bufio.NewScanner(body)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				messages <- c.w.decode(data)
			}
		}
	})
	c.w.Cleanup(func() { _ = body.Close(); reading.Wait() })
	return messages
}

// relayClient is a client of tapgw mcp.
type relayClient struct {
	w            *world
	capabilities string
	in           io.Writer
	stop         func()

	mu        sync.Mutex
	count     int
	waiting   map[float64]chan answered
	listeners map[float64]chan answered
}

func (w *world) rawRelay(path, token string) rawClient {
	w.Helper()
	return w.rawRelayTo(func() (string, string) { return w.ws + path, token })
}

// rawRelayTo connects to where at each attempt says.
func (w *world) rawRelayTo(where func() (url, token string)) *relayClient {
	w.Helper()
	c := &relayClient{w: w, capabilities: takesTasks, waiting: map[float64]chan answered{},
		listeners: map[float64]chan answered{}}
	transport := &http.Transport{}
	w.Cleanup(transport.CloseIdleConnections)
	in, toRelay := io.Pipe()
	fromRelay, out := io.Pipe()
	relay := mcpserver.Relay{In: in, Out: out, Note: func(string) {},
		Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
			url, token := where()
			ws, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{
				HTTPClient: &http.Client{Transport: bearer{token, transport}}})
			if err != nil {
				return nil, err
			}
			ws.SetReadLimit(1 << 20)
			return websocket.NetConn(context.Background(), ws, websocket.MessageText), nil
		}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := relay.Run(ctx); err != nil {
			w.Errorf("the relay: got %v, want no error", err)
		}
		_ = out.Close()
		_ = in.Close() // writes fail from now on
	})
	running.Go(func() {
		lines := bufio.NewScanner(fromRelay)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			c.take(w.decode(lines.Text()))
		}
	})
	c.in = toRelay
	c.stop = sync.OnceFunc(func() { cancel(); _ = toRelay.Close(); running.Wait() })
	w.Cleanup(c.stop)
	return c
}

func (c *relayClient) setCapabilities(capabilities string) { c.capabilities = capabilities }

func (c *relayClient) cut() { c.stop() }

// take gives a message to who waits for it.
func (c *relayClient) take(a answered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok := a.ID.(float64); ok && c.waiting[id] != nil {
		c.waiting[id] <- a
		return
	}
	meta, _ := a.Params["_meta"].(map[string]any)
	if id, ok := meta["io.modelcontextprotocol/subscriptionId"].(float64); ok && c.listeners[id] != nil {
		c.listeners[id] <- a
	}
}

func (c *relayClient) send(method string, params map[string]any, to map[float64]chan answered, room int) chan answered {
	c.w.Helper()
	c.mu.Lock()
	c.count++
	id, answers := c.count, make(chan answered, room)
	to[float64(id)] = answers
	c.mu.Unlock()
	line := append(rawRequest(id, method, rawParams(params, c.capabilities)), '\n')
	if _, err := c.in.Write(line); err != nil {
		c.w.Fatal(err)
	}
	return answers
}

func (c *relayClient) ask(method string, params map[string]any) answered {
	c.w.Helper()
	return receiveFrom(c.w, "the answer to "+method, c.send(method, params, c.waiting, 1))
}

func (c *relayClient) listen(taskIDs ...string) <-chan answered {
	c.w.Helper()
	return c.send("subscriptions/listen", listenParams(taskIDs), c.listeners, 1000)
}

func receiveFrom[T any](w *world, what string, from <-chan T) (v T) {
	w.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		w.Fatalf("waited for %s in vain, want it in time", what)
	}
	return v
}

// begin calls a tool and returns the id of its task.
func begin(w *world, c rawClient, tool string) string {
	w.Helper()
	a := c.ask("tools/call", map[string]any{"name": tool, "arguments": map[string]any{}})
	id, _ := a.Result["taskId"].(string)
	if a.Result["resultType"] != "task" || id == "" {
		w.Fatalf("%s: got %+v, want a task", tool, a)
	}
	return id
}

// task is a task of now.
func taskNow(w *world, c rawClient, id string) map[string]any {
	w.Helper()
	a := c.ask("tasks/get", map[string]any{"taskId": id})
	if a.Error != nil || a.Result["resultType"] != "complete" || a.Result["taskId"] != id {
		w.Fatalf("tasks/get: got %+v, want the task", a)
	}
	return a.Result
}

// until asks for a task until it has a status.
func until(w *world, c rawClient, id, status string) map[string]any {
	w.Helper()
	for deadline := time.Now().Add(patience); ; {
		v := taskNow(w, c, id)
		if v["status"] == status {
			return v
		}
		if time.Now().After(deadline) {
			w.Fatalf("the task: got %v, want it %s", v, status)
		}
	}
}

// code is the code of an error answer; 0 for none.
func (a answered) code() int {
	if a.Error == nil {
		return 0
	}
	return a.Error.Code
}

func (a answered) String() string { return fmt.Sprintf("%v %v %+v", a.Method, a.Result, a.Error) }
