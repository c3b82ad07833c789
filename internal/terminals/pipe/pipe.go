// Package pipe keeps the pipe that a Copilot CLI gave its extension, and lends it to one gateway
// after the other. It reads only the parts of the CLI's JSON-RPC that this needs: where a message
// ends, which request an answer belongs to, and which calls of tools wait for a gateway that is
// gone.
//
// Invariants:
//
//   - The CLI is always read, so that a missing or frozen gateway never holds it up.
//   - The CLI gets whole messages only, and an answer to each of its requests and each call of our
//     tools.
//   - A gateway gets only answers to its own requests.
package pipe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tapgw/internal/chans"
	"tapgw/internal/jsonrpc"
)

const (
	maxMessage = 64 << 20
	maxHad     = 500 // names of tools, which have to fit into the head of a request
	// maxWaiting bounds the messages that wait for a gateway that does not read, in bytes.
	maxWaiting = 16 << 20

	joinTimeout  = 10 * time.Second
	firstBackOff = 100 * time.Millisecond
	maxBackOff   = 2 * time.Second
	// toolsGrace is how long the CLI keeps the tools of a gateway that is gone. A restart takes
	// less.
	toolsGrace = 10 * time.Second
)

// ownID begins the ids of our own requests. Gateways use other ids.
const ownID = "tapgw-pipe-"

// NoGateway is the model's result when it calls a tool of a gateway that is gone.
const NoGateway = "The tool's gateway is not running at present. Try again later, or go " +
	"on without it."

// Pipe is the pipe of one session of a CLI.
type Pipe struct {
	In      io.Reader // from the CLI
	Out     io.Writer // to it
	Session string    // the CLI's id of the session
	// Dial connects to a gateway. had names the tools that the CLI has had from other gateways: it
	// goes on to list them as if they were its own. The error is logged once while it stays the
	// same.
	Dial func(ctx context.Context, had []string) (io.ReadWriteCloser, error)
	Note func(text string) // for the CLI's log

	writing sync.Mutex // held while a message is written to the CLI

	mu       sync.Mutex // guards the fields that follow
	gateway  *gateway   // nil while there is no gateway
	lastID   int
	own      map[string]chan struct{} // our requests that wait, by id; closed at the answer
	tools    map[string]bool          // names of tools that gateways ever gave the CLI
	calls    map[string]bool          // waiting calls of these tools, by request id
	requests map[string]bool          // of the CLI that the gateway has not answered, by id
	asked    map[string]bool          // ids of the gateway's requests that the CLI has not answered
}

// gateway is a connection to a gateway. A goroutine of its own writes to it.
type gateway struct {
	conn io.ReadWriteCloser

	mu      sync.Mutex // guards the fields that follow
	changed *sync.Cond
	queue   []byte
	ended   bool
}

// message has the members of a message that the pipe needs.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// Run lends the pipe to gateways until the CLI closes it, or ctx ends. It first joins the CLI's
// session without a gateway, because the CLI shows that it waits for an extension that has not
// joined.
func (p *Pipe) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	p.own, p.tools = map[string]chan struct{}{}, map[string]bool{}
	p.calls, p.requests, p.asked = map[string]bool{}, map[string]bool{}, map[string]bool{}
	// it ends with the process if the CLI does not close the pipe
	go func() { cancel(p.readCLI()) }()
	p.join(ctx)
	p.lend(ctx)
	if err := context.Cause(ctx); !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// lend lends the pipe to one gateway after the other.
func (p *Pipe) lend(ctx context.Context) {
	noted, wait := "", time.Duration(0)
	var since time.Time // no gateway was there
	for {
		if chans.Sleep(ctx, wait) != nil {
			return
		}
		p.mu.Lock()
		had := slices.Sorted(maps.Keys(p.tools))
		had = had[:min(len(had), maxHad)]
		p.mu.Unlock()
		conn, err := p.Dial(ctx, had)
		if err == nil {
			began := time.Now()
			err = p.serve(ctx, conn)
			since = time.Now()
			if since.Sub(began) > maxBackOff {
				wait, noted = 0, ""
			}
		}
		if text := err.Error(); text != noted && ctx.Err() == nil {
			noted = text
			p.Note(text)
		}
		if !since.IsZero() && time.Since(since) > toolsGrace {
			since = time.Time{}
			p.join(ctx)
		}
		wait = min(max(2*wait, firstBackOff), maxBackOff)
	}
}

// join joins the CLI's session without tools. It ignores errors, because the gateway joins too and
// sees the same errors.
func (p *Pipe) join(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	for _, done := range []<-chan struct{}{
		p.request("connect", struct{}{}),
		p.request("session.resume",
			map[string]any{"sessionId": p.Session, "clientName": "tapgw", "tools": []any{},
				"disableResume": true}),
	} {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// request sends a request of our own. done is closed at its answer.
func (p *Pipe) request(method string, params any) (done <-chan struct{}) {
	p.mu.Lock()
	p.lastID++
	id, answered := fmt.Sprint(ownID, p.lastID), make(chan struct{})
	p.own[id] = answered
	p.mu.Unlock()
	p.tell(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	return answered
}

// tell sends the CLI a message that the pipe itself makes.
func (p *Pipe) tell(m any) {
	data, err := json.Marshal(m)
	if err != nil {
		p.Note(err.Error())
		return
	}
	p.write(data)
}

// write gives the CLI a message. After the CLI has closed the pipe, reading ends too.
func (p *Pipe) write(data []byte) {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, _ = p.Out.Write(jsonrpc.AppendFrame(nil, data))
}

// readCLI handles the CLI's messages until it closes the pipe.
func (p *Pipe) readCLI() error {
	in := bufio.NewReaderSize(p.In, 64<<10)
	for {
		data, err := jsonrpc.ReadFrame(in, maxMessage)
		if err != nil {
			return err
		}
		var m message
		if json.Unmarshal(data, &m) != nil {
			continue // there is no reader
		}
		for _, answer := range p.fromCLI(&m, data) {
			p.tell(answer)
		}
	}
}

// fromCLI passes a message on to the gateway, if the message is for the gateway. Without a gateway
// it returns the answers to send instead.
func (p *Pipe) fromCLI(m *message, data []byte) (answers []any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := string(m.ID)
	switch {
	case m.Method == "": // an answer
		var own string
		if json.Unmarshal(m.ID, &own) == nil && p.own[own] != nil {
			close(p.own[own])
			delete(p.own, own)
			return nil
		}
		if !p.asked[id] {
			return nil // for a gateway that is gone
		}
		delete(p.asked, id)
	case m.ID != nil && p.gateway == nil:
		return []any{refusal(m.ID)}
	case m.ID != nil:
		p.requests[id] = true
	default:
		if call := p.followCall(m); call != "" && p.gateway == nil {
			return []any{p.failCall(call)}
		}
	}
	if p.gateway != nil {
		p.gateway.send(data)
	}
	return nil
}

// followCall follows which calls of our tools wait, and returns the id of one that begins. Call
// with mu held.
func (p *Pipe) followCall(m *message) (begun string) {
	if m.Method != "session.event" {
		return ""
	}
	var e struct {
		Event struct {
			Type string `json:"type"`
			Data struct {
				RequestID string `json:"requestId"`
				ToolName  string `json:"toolName"`
			} `json:"data"`
		} `json:"event"`
	}
	if json.Unmarshal(m.Params, &e) != nil {
		return ""
	}
	switch d := e.Event.Data; {
	case e.Event.Type == "external_tool.requested" && p.tools[d.ToolName]:
		p.calls[d.RequestID] = true
		return d.RequestID
	case e.Event.Type == "external_tool.completed":
		delete(p.calls, d.RequestID)
	}
	return ""
}

// failCall makes the answer to a call whose gateway is gone. Call with mu held.
func (p *Pipe) failCall(requestID string) any {
	delete(p.calls, requestID)
	p.lastID++
	id := fmt.Sprint(ownID, p.lastID)
	p.own[id] = make(chan struct{})
	return map[string]any{"jsonrpc": "2.0", "id": id,
		"method": "session.tools.handlePendingToolCall",
		"params": map[string]any{"sessionId": p.Session, "requestId": requestID,
			"result": map[string]any{"textResultForLlm": NoGateway, "resultType": "failure"}}}
}

func refusal(id json.RawMessage) any {
	return map[string]any{"jsonrpc": "2.0", "id": id,
		"error": map[string]any{"code": jsonrpc.CodeInternal,
			"message": "the gateway is not running"}}
}

// serve lends the pipe to a gateway until that gateway is gone. Then it answers the requests for
// which the CLI still waits.
func (p *Pipe) serve(ctx context.Context, conn io.ReadWriteCloser) error {
	g := &gateway{conn: conn}
	g.changed = sync.NewCond(&g.mu)
	p.mu.Lock()
	p.gateway = g
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	var writer sync.WaitGroup
	writer.Go(g.write)
	err := p.readGateway(conn)
	stop()
	g.end()
	_ = conn.Close()
	writer.Wait()

	p.mu.Lock()
	p.gateway = nil
	var answers []any
	for id := range p.requests {
		answers = append(answers, refusal(json.RawMessage(id)))
	}
	for call := range p.calls {
		answers = append(answers, p.failCall(call))
	}
	clear(p.requests)
	clear(p.asked)
	p.mu.Unlock()
	for _, answer := range answers {
		p.tell(answer)
	}
	return err
}

// readGateway hands a gateway's messages on to the CLI.
func (p *Pipe) readGateway(conn io.Reader) error {
	in := bufio.NewReaderSize(conn, 64<<10)
	for {
		data, err := jsonrpc.ReadFrame(in, maxMessage)
		if err != nil {
			return err
		}
		var m message
		if err := json.Unmarshal(data, &m); err != nil {
			return fmt.Errorf("reading a message of the gateway: %w", err)
		}
		if p.fromGateway(&m) {
			p.write(data)
		}
	}
}

// fromGateway reports whether a gateway's message is for the CLI.
func (p *Pipe) fromGateway(m *message) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := string(m.ID)
	switch {
	case m.Method == "":
		known := p.requests[id]
		delete(p.requests, id)
		return known
	case strings.HasPrefix(strings.Trim(id, `"`), ownID):
		return false
	case m.ID != nil:
		p.asked[id] = true
	}
	var params struct {
		RequestID string                  `json:"requestId"`
		Tools     []struct{ Name string } `json:"tools"`
	}
	_ = json.Unmarshal(m.Params, &params)
	switch m.Method {
	case "session.resume", "session.tools.set":
		for _, t := range params.Tools {
			p.tools[t.Name] = true
		}
	case "session.tools.handlePendingToolCall":
		delete(p.calls, params.RequestID)
	}
	return true
}

// send queues a message. A gateway that does not read is left.
func (g *gateway) send(data []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	if len(g.queue) > maxWaiting {
		g.ended = true
		go func() { _ = g.conn.Close() }() // which may wait for the gateway
	}
	g.queue = jsonrpc.AppendFrame(g.queue, data)
	g.changed.Signal()
}

func (g *gateway) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.changed.Signal()
}

// write writes the queued messages until the connection ends.
func (g *gateway) write() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		for len(g.queue) == 0 && !g.ended {
			g.changed.Wait()
		}
		if g.ended {
			return
		}
		out := g.queue
		g.queue = nil
		g.mu.Unlock()
		_, err := g.conn.Write(out)
		g.mu.Lock()
		if err != nil {
			g.ended = true
			_ = g.conn.Close() // ends the reader
		}
	}
}
