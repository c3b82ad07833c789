package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// host is a session host at /host. Through the relay it gets the providers' answers; it knows them only by their ids.
type host struct {
	c       *websocket.Conn
	session string
	noHooks bool // the gateway applies the rules
	// toolsSet is called with the tool names of each tools/set; it may be nil.
	toolsSet func(names []string)

	nextID atomic.Uint64

	mu      sync.Mutex
	pending map[uint64]chan answerFrame
	err     error // why the connection ended; closed pending channels follow it
}

func dialHost(ctx context.Context, url string) (*host, error) {
	c, err := dial(ctx, url+"/host")
	if err != nil {
		return nil, err
	}
	h := &host{c: c, pending: make(map[uint64]chan answerFrame)}
	h.nextID.Store(firstID)
	return h, nil
}

// read handles frames until the connection ends. Then it fails the pending requests.
func (h *host) read(ctx context.Context) {
	var (
		in  bytes.Buffer
		err error
	)
	for err == nil {
		if err = readFrame(ctx, h.c, &in); err != nil {
			break
		}
		var f answerFrame
		if json.Unmarshal(in.Bytes(), &f) != nil {
			err = errors.New("reading a frame: not JSON")
			break
		}
		err = h.handle(ctx, f)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	for id, answer := range h.pending {
		delete(h.pending, id)
		close(answer)
	}
}

// handle gives a response to its request, or answers a request of the gateway.
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
	return h.c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{}}`, f.ID))
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
	frame, err := json.Marshal(requestFrame{"2.0", id, method, params})
	if err != nil {
		return answerFrame{}, err
	}
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

// open introduces the host and registers a session of the given id.
func (h *host) open(ctx context.Context, token, session string, live bool) error {
	h.session = session
	type object = map[string]any
	if _, err := h.do(ctx, "initialize", object{
		"protocolVersion": 1, "token": token, "host": object{"name": "bench", "version": "1"},
		"capabilities": object{"send": true, "log": true, "hooks": !h.noHooks, "liveTools": live},
	}); err != nil {
		return err
	}
	_, err := h.do(ctx, "session/register", object{"id": session, "label": "bench", "cwd": "/"})
	return err
}

var errTool = errors.New("the tool failed")

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

// await calls every provider's tool until it answers.
func (h *host) await(ctx context.Context, providers int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for k := range providers {
		for {
			err := h.callTool(ctx, k)
			if err == nil {
				break
			}
			if !errors.Is(err, errTool) {
				return err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting for provider %d: %w", k, err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return nil
}

// Load is what one round of calls measured. Wall is the time of the whole round, P50 and P99 are those of single calls;
// durations are nanoseconds. With an Error, that of the first failed call, the numbers are 0.
type Load struct {
	Calls    int
	Wall     int64
	P50, P99 int64
	Error    string `json:",omitempty"`
}

// load makes calls from workers at once, to one provider after the other.
func load(workers, calls, providers int, call func(k int) error) Load {
	var (
		next  atomic.Int64
		wg    sync.WaitGroup
		took  = make([]int64, calls)
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
				if err := call(i % providers); err != nil {
					first.CompareAndSwap(nil, &err)
					return
				}
				took[i] = int64(time.Since(t))
			}
		})
	}
	wg.Wait()
	l := Load{Calls: calls, Wall: int64(time.Since(start))}
	if err := first.Load(); err != nil {
		return Load{Error: (*err).Error()}
	}
	slices.Sort(took)
	l.P50, l.P99 = took[calls/2], took[calls*99/100]
	return l
}

// runHost registers a session, waits until every provider answers, then takes
// commands on standard input, "WORKERS CALLS" a line, and answers each with a
// line of JSON.
func runHost(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("host", flag.ContinueOnError)
	url := flags.String("url", "", "")
	token := flags.String("token", "", "")
	n := flags.Int("n", 1, "")
	hooks := flags.Bool("hooks", true, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	h, err := dialHost(ctx, *url)
	if err != nil {
		return err
	}
	defer func() { _ = h.c.CloseNow() }()
	h.noHooks = !*hooks
	go h.read(ctx)
	if err := h.open(ctx, *token, "bench-session", false); err != nil {
		return err
	}
	if err := h.await(ctx, *n); err != nil {
		return err
	}
	return obey(func(workers, calls int) Load {
		return load(workers, calls, *n, func(k int) error { return h.callTool(ctx, k) })
	})
}

// obey prints "ready" and runs the rounds that standard input asks for.
func obey(round func(workers, calls int) Load) error {
	fmt.Println("ready")
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var workers, calls int
		if _, err := fmt.Sscan(lines.Text(), &workers, &calls); err != nil {
			return fmt.Errorf("reading command %q: %w", strings.TrimSpace(lines.Text()), err)
		}
		if err := out.Encode(round(workers, calls)); err != nil {
			return err
		}
	}
	return lines.Err()
}
