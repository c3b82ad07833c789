package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/protocol"
)

// The ends of a call are a host and its providers. They match frames by id, whatever the shape, so
// that both do the same work through a gateway and through the relay. They use encoding/json, as
// most programs do.
type (
	arguments struct {
		Path string `json:"path"`
		Line int    `json:"line"`
		Text string `json:"text"`
	}
	// callFrame is a call as it reaches a provider: the gateway's tool.call, or the host's
	// tool/call through the relay.
	callFrame struct {
		Type          string
		ID            json.RawMessage
		Args          *arguments
		Params        struct{ Args *arguments }
		Active        []struct{ ID string }
		RequestID     string
		Code, Message string
	}
	// resultFrame is a provider's answer, which the host receives as it is through the relay.
	resultFrame struct {
		Type string          `json:"type"`
		ID   json.RawMessage `json:"id"`
		Data string          `json:"data"`
	}
	// answerFrame is a message as it reaches a host: the gateway's answer or request, or a
	// resultFrame.
	answerFrame struct {
		ID     json.RawMessage
		Data   string
		Result *struct{ Data, ErrorCode, Error string }
		Error  *struct{ Message string }
		Method string
		Params struct{ Tools []struct{ Name string } }
	}
	requestFrame struct {
		JSONRPC string `json:"jsonrpc"`
		ID      uint64 `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}
	callParams struct {
		SessionID string    `json:"sessionId"`
		Name      string    `json:"name"`
		Args      arguments `json:"args"`
	}
	object = map[string]any
)

// toolSchema is the schema of each tool.
const toolSchema = `{"type":"object","properties":{"path":{"type":"string"},` +
	`"line":{"type":"integer","minimum":1},"text":{"type":"string"}},` +
	`"required":["path","line","text"]}`

var toolArgs = arguments{"internal/gateway/session.go", 128,
	"the quick brown fox jumps over the lazy dog"}

func (a arguments) result() string {
	return fmt.Sprintf("%s:%d: %s, and comes back", a.Path, a.Line, a.Text)
}

// toolName returns the name of tool j of provider k.
func toolName(k, j int) string { return fmt.Sprintf("t%d_%d", k, j) }

func dial(ctx context.Context, url string) (*websocket.Conn, error) {
	c, _, err := websocket.Dial(ctx, url, nil) //nolint:bodyclose // there is none after the upgrade
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", url, err)
	}
	c.SetReadLimit(-1)
	return c, nil
}

// readFrame reads one frame into buf, which it empties first.
func readFrame(ctx context.Context, c *websocket.Conn, buf *bytes.Buffer) error {
	_, r, err := c.Reader(ctx)
	if err != nil {
		return err
	}
	buf.Reset()
	_, err = buf.ReadFrom(r)
	return err
}

func readJSON(ctx context.Context, c *websocket.Conn, buf *bytes.Buffer, v any) error {
	if err := readFrame(ctx, c, buf); err != nil {
		return err
	}
	return json.Unmarshal(buf.Bytes(), v)
}

// untilOrphaned returns a context that ends with stdin, which the benchmark keeps open.
func untilOrphaned(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	return ctx
}

// relay is the floor: it forwards the frames unchanged, the host's to the providers in turn, a
// provider's to the host.
type relay struct {
	mu        sync.RWMutex
	host      *websocket.Conn
	providers []*websocket.Conn
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c, err := websocket.Accept(w, req, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(-1)
	isHost := req.URL.Path == "/host"
	r.mu.Lock()
	if isHost {
		r.host = c
	} else {
		r.providers = append(r.providers, c)
	}
	r.mu.Unlock()
	var buf bytes.Buffer
	for next := 0; readFrame(context.Background(), c, &buf) == nil; next++ {
		r.mu.RLock()
		to := r.host
		if isHost {
			to = r.providers[next%len(r.providers)]
		}
		r.mu.RUnlock()
		if to != nil && to.Write(context.Background(), websocket.MessageText, buf.Bytes()) != nil {
			return
		}
	}
}

// runRelay serves the relay on a free port and prints its URL.
func runRelay(ctx context.Context, _ part) error {
	ctx = untilOrphaned(ctx)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: &relay{}, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	fmt.Printf("ws://%s\n", ln.Addr())
	if err := srv.Serve(ln); ctx.Err() == nil {
		return err
	}
	return nil
}

// provider is one connection of a provider.
type provider struct {
	name  string
	token string
	tools int
	index int // k of its toolName
	rules []protocol.Rule

	c        *websocket.Conn
	in       bytes.Buffer
	said     time.Time // when it sent hello
	acked    time.Time
	greeted  bool
	received func(*callFrame) // may be nil
}

func (p *provider) hello(session string) []byte {
	m := object{"type": "hello", "name": p.name, "protocolVersion": 2, "session": session,
		"tools": toolList(p.index, p.tools, "Answers with a line of a file.")}
	if len(p.rules) > 0 {
		m["hooks"] = object{"onPreToolUse": p.rules}
	}
	return marshal(m)
}

func toolList(k, n int, description string) []object {
	list := make([]object, n)
	for j := range list {
		list[j] = object{"name": toolName(k, j), "description": description,
			"parameters": json.RawMessage(toolSchema)}
	}
	return list
}

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts and numbers
	}
	return data
}

// connect dials and authenticates.
func (p *provider) connect(ctx context.Context, url string) (err error) {
	if p.c, err = dial(ctx, url); err != nil {
		return err
	}
	return p.write(ctx, object{"type": "auth", "token": p.token})
}

func (p *provider) write(ctx context.Context, m any) error {
	return p.c.Write(ctx, websocket.MessageText, marshal(m))
}

// serve answers frames until the connection ends, or until done returns true; done may be nil.
func (p *provider) serve(ctx context.Context, done func() bool) error {
	for done == nil || !done() {
		var m callFrame
		if err := readJSON(ctx, p.c, &p.in, &m); err != nil {
			return err
		}
		if p.received != nil {
			p.received(&m)
		}
		answer, err := p.answer(&m)
		if err == nil && answer != nil {
			err = p.c.Write(ctx, websocket.MessageText, answer)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bind connects and serves until the gateway has acknowledged hello.
func (p *provider) bind(ctx context.Context, url string) error {
	if err := p.connect(ctx, url); err != nil {
		return err
	}
	return p.serve(ctx, func() bool { return !p.acked.IsZero() })
}

// answer returns the answer to a frame, or nil if there is none.
func (p *provider) answer(m *callFrame) ([]byte, error) {
	switch m.Type {
	case "sessions", "sessions.updated":
		if len(m.Active) == 0 || p.greeted {
			return nil, nil
		}
		p.greeted, p.said = true, time.Now()
		return p.hello(m.Active[0].ID), nil
	case "hello.ack":
		p.acked = time.Now()
	case "error":
		return nil, fmt.Errorf("provider %s: %s: %s", p.name, m.Code, m.Message)
	}
	if m.ID == nil {
		return nil, nil
	}
	args := m.Args
	if args == nil {
		args = m.Params.Args
	}
	if args == nil {
		args = &arguments{} // a host's request that is no call
	}
	return json.Marshal(resultFrame{"tool.result", m.ID, args.result()})
}

// runProvider serves some connections, and prints a line when all are connected. It ends with the
// first of them.
func runProvider(ctx context.Context, o part) error {
	ctx = untilOrphaned(ctx)
	ended := make(chan error, o.Providers)
	for k := range o.Providers {
		p := &provider{name: fmt.Sprintf("p%d", k), token: o.Token, tools: max(o.Tools, 1),
			index: k, rules: rules(o.Rules)}
		if err := p.connect(ctx, o.URL); err != nil {
			return err
		}
		go func() { ended <- p.serve(ctx, nil) }()
	}
	fmt.Println("connected")
	if err := <-ended; ctx.Err() == nil {
		return err
	}
	return nil
}

// host is a session host at /host. Through the relay it gets the providers' answers; it knows them
// only by their ids.
type host struct {
	c       *websocket.Conn
	session string
	noHooks bool // the gateway applies the rules
	live    bool // takes new tools at any time
	// toolsSet is called with the tool names of each tools/set; it may be nil.
	toolsSet func(names []string)

	nextID atomic.Uint64

	mu      sync.Mutex
	pending map[uint64]chan answerFrame
	err     error // why the connection ended; closed pending channels follow it
}

// open connects, and registers a session of the given id.
func (h *host) open(ctx context.Context, url, token, session string) (err error) {
	if h.c, err = dial(ctx, url+"/host"); err != nil {
		return err
	}
	h.session, h.pending = session, map[uint64]chan answerFrame{}
	h.nextID.Store(1 << 40) // far above the ids of a gateway's requests, so that they never mix
	go h.read(ctx)
	_, err = h.do(ctx, "initialize", object{
		"protocolVersion": 1, "token": token, "host": object{"name": "bench", "version": "1"},
		"capabilities": object{"send": true, "log": true, "hooks": !h.noHooks, "liveTools": h.live},
	})
	if err == nil {
		_, err = h.do(ctx, "session/register", object{"id": session, "label": "bench", "cwd": "/"})
	}
	return err
}

// read handles frames until the connection ends. Then it fails the pending requests.
func (h *host) read(ctx context.Context) {
	var in bytes.Buffer
	var err error
	for err == nil {
		var f answerFrame
		if err = readJSON(ctx, h.c, &in, &f); err == nil {
			err = h.handle(ctx, f)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	for id, answer := range h.pending {
		delete(h.pending, id)
		close(answer)
	}
}

// handle gives an answer to its request, or answers a request of the gateway.
func (h *host) handle(ctx context.Context, f answerFrame) error {
	if f.Method == "" {
		id, err := strconv.ParseUint(string(f.ID), 10, 64)
		if err != nil {
			return nil // a provider's first message, through the relay
		}
		h.mu.Lock()
		answer := h.pending[id]
		delete(h.pending, id)
		h.mu.Unlock()
		if answer != nil {
			answer <- f
		}
		return nil
	}
	if f.Method == "tools/set" && h.toolsSet != nil {
		names := make([]string, len(f.Params.Tools))
		for i, t := range f.Params.Tools {
			names[i] = t.Name
		}
		h.toolsSet(names)
	}
	if f.ID == nil {
		return nil
	}
	return h.c.Write(ctx, websocket.MessageText, fmt.Appendf(nil,
		`{"jsonrpc":"2.0","id":%s,"result":{}}`, f.ID))
}

// do sends a request and returns the frame that answers it.
func (h *host) do(ctx context.Context, method string, params any) (answerFrame, error) {
	id := h.nextID.Add(1)
	answer := make(chan answerFrame, 1)
	h.mu.Lock()
	if err := h.err; err != nil {
		h.mu.Unlock()
		return answerFrame{}, err
	}
	h.pending[id] = answer
	h.mu.Unlock()
	frame := marshal(requestFrame{"2.0", id, method, params})
	if err := h.c.Write(ctx, websocket.MessageText, frame); err != nil {
		return answerFrame{}, err
	}
	got, ok := <-answer
	switch {
	case !ok:
		return got, fmt.Errorf("connection lost: %w", h.err)
	case got.Error != nil:
		return got, fmt.Errorf("%s: %s", method, got.Error.Message)
	}
	return got, nil
}

var errTool = errors.New("the tool failed")

// callTool calls the first tool of provider k.
func (h *host) callTool(ctx context.Context, k int) error {
	got, err := h.do(ctx, "tool/call", callParams{h.session, toolName(k, 0), toolArgs})
	if err != nil {
		return err
	}
	data := got.Data
	if got.Result != nil {
		data = got.Result.Data
	}
	if data != toolArgs.result() {
		return fmt.Errorf("%w: answered %+v", errTool, got)
	}
	return nil
}

// runHost registers a session, waits until every provider answers, and obeys.
func runHost(ctx context.Context, p part) error {
	h := &host{noHooks: p.NoHooks}
	if err := h.open(ctx, p.URL, p.Token, "bench-session"); err != nil {
		return err
	}
	defer func() { _ = h.c.CloseNow() }()
	for k := range p.Providers {
		for began := time.Now(); ; <-time.After(10 * time.Millisecond) {
			err := h.callTool(ctx, k)
			if err == nil {
				break
			}
			if !errors.Is(err, errTool) || time.Since(began) > 20*time.Second {
				return fmt.Errorf("waiting for provider %d: %w", k, err)
			}
		}
	}
	return obey(func(workers, calls int) load {
		call := func(i int) error { return h.callTool(ctx, i%p.Providers) }
		return makeCalls(workers, calls, call)
	})
}

// load has the times that a number of calls took: Wall for all of them together, P50 and P99 for
// a single call. Error names the fault of the first call that failed; the numbers are 0 then.
type load struct {
	Calls          int
	Wall, P50, P99 time.Duration
	Error          string `json:",omitempty"`
}

func (l load) rate() float64 { return float64(l.Calls) / l.Wall.Seconds() }

// makeCalls makes calls from some workers at once.
func makeCalls(workers, calls int, call func(i int) error) load {
	var (
		next  atomic.Int64
		wg    sync.WaitGroup
		took  = make([]time.Duration, calls)
		first atomic.Pointer[error]
	)
	start := time.Now()
	for range workers {
		wg.Go(func() {
			for first.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= calls {
					return
				}
				t := time.Now()
				if err := call(i); err != nil {
					first.CompareAndSwap(nil, &err)
					return
				}
				took[i] = time.Since(t)
			}
		})
	}
	wg.Wait()
	l := load{Calls: calls, Wall: time.Since(start)}
	if err := first.Load(); err != nil {
		return load{Error: (*err).Error()}
	}
	slices.Sort(took)
	l.P50, l.P99 = took[calls/2], took[calls*99/100]
	return l
}

// obey prints "ready", reads commands, "WORKERS CALLS" a line, and answers each with a line of
// JSON.
func obey(calls func(workers, calls int) load) error {
	fmt.Println("ready")
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var workers, n int
		if _, err := fmt.Sscan(lines.Text(), &workers, &n); err != nil {
			return fmt.Errorf("reading command %q: %w", lines.Text(), err)
		}
		if err := out.Encode(calls(workers, n)); err != nil {
			return err
		}
	}
	return lines.Err()
}
