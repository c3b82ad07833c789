package mcpserver

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	// maxRelayed bounds a message to the client: a result with the largest file, in base64.
	maxRelayed = 128 << 20
	// retryFirst and retryLast are the pauses between attempts to connect again.
	retryFirst = 100 * time.Millisecond
	retryLast  = 5 * time.Second
	// patience is how long requests wait for a connection, and how long answers may take after the
	// client has closed its end. A gateway restarts in less.
	patience = 5 * time.Second
	// maxHeld bounds the messages that wait for a connection.
	maxHeld = 1000
	// firstWithoutBatches is the first revision that has no batches of messages.
	firstWithoutBatches = "2025-06-18"
	// codeLost is the JSON-RPC code of a request that the relay answers itself.
	codeLost = -32000
)

// Relay connects an MCP client on stdio with a server that may go away and come back. The messages
// pass as they are. When the connection is lost, it connects again, repeats the client's handshake,
// subscriptions and open requests, and tells the client that lists may have changed. Calls that
// were under way fail, because they may have run or not. Run it once.
type Relay struct {
	// Dial connects to the server: messages with a line feed at the end, both ways.
	Dial func(context.Context) (io.ReadWriteCloser, error)
	In   io.Reader
	Out  io.Writer
	Note func(text string) // for the person at the client

	ctx      context.Context
	conn     io.ReadWriteCloser // nil while disconnected
	incoming chan []byte        // from conn; closed when it ends
	readers  sync.WaitGroup     // of connections

	handshake     []byte            // initialize
	handshakeID   string            //
	batches       bool              // the handshake was of a revision that has them
	initialized   []byte            // notifications/initialized
	subscriptions map[string][]byte // resources/subscribe, by URI
	open          map[string]*frame // requests without an answer, by id
	// ids of requests of the relay's own, whose answers the client does not get
	silent    map[string]bool
	held      []*frame // that wait for a connection
	restoring bool     // the answer to the repeated handshake is waited for
	isLost    bool     // there was no connection for patience
}

// frame is a message of the client.
type frame struct {
	line   []byte
	id     string // as it is written; "" for a notification
	method string // "" for an answer
	isLast bool   // it was under way when a connection was lost, and is not said a third time
	params struct {
		URI           string `json:"uri"`
		Notifications struct {
			Tools     bool `json:"toolsListChanged"`
			Resources bool `json:"resourcesListChanged"`
		} `json:"notifications"`
		RequestID json.RawMessage `json:"requestId"`
		Version   string          `json:"protocolVersion"`
	}
}

// isRequest reports whether the client waits for an answer.
func (f *frame) isRequest() bool { return f.id != "" && f.method != "" }

// isSubscribed reports whether it is a subscription to lists that stays until the client ends it.
func (f *frame) isSubscribed() bool {
	return f.method == methodListen &&
		(f.params.Notifications.Tools || f.params.Notifications.Resources)
}

// readFrame reads a message. The error says why the server would end the connection because of it:
// the SDK does so for a line that is no message, and for a batch in a revision without batches.
func readFrame(line []byte, batches bool) (*frame, error) {
	f := &frame{line: line}
	if bytes.HasPrefix(bytes.TrimLeft(line, " \t\r"), []byte("[")) {
		var batch []json.RawMessage
		if err := json.Unmarshal(line, &batch); err != nil {
			return f, err
		}
		if !batches || len(batch) == 0 {
			return f, errors.New("this revision of the protocol has no batches")
		}
		for _, message := range batch {
			if _, err := jsonrpc.DecodeMessage(message); err != nil {
				return f, err
			}
		}
		return f, nil
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	_, err := jsonrpc.DecodeMessage(line)
	if err = cmp.Or(err, json.Unmarshal(line, &m)); err != nil {
		return f, err
	}
	f.id, f.method = string(m.ID), m.Method
	if f.id == "null" {
		return f, errors.New("its id is null")
	}
	_ = json.Unmarshal(m.Params, &f.params) // wrong params are the server's to refuse
	return f, nil
}

// Run relays until the client closes its end, which is no error, or ctx ends. Only the first
// connection's error is returned: later ones are tried again.
func (r *Relay) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.ctx = ctx
	r.subscriptions, r.open, r.silent = map[string][]byte{}, map[string]*frame{}, map[string]bool{}
	if err := r.connect(); err != nil {
		return err
	}
	defer func() {
		cancel()
		r.close()
		r.readers.Wait()
	}()
	lines := make(chan []byte)
	// a read of stdin can't be ended: it goes on until the program ends
	go readLines(ctx, r.In, MaxBody, lines)
	return r.relay(lines)
}

// relay handles the messages of both sides, one after the other.
func (r *Relay) relay(lines <-chan []byte) error {
	var retry, giveUp, end <-chan time.Time
	wait := retryFirst
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				lines, end = nil, time.After(patience)
				break
			}
			r.fromClient(line)
		case line, ok := <-r.incoming:
			if !ok {
				r.drop()
				r.Note("the connection to the gateway was lost; connecting again")
				wait, retry, giveUp = retryFirst, time.After(retryFirst), time.After(patience)
				break
			}
			r.fromServer(line)
		case <-retry:
			if err := r.connect(); err != nil {
				wait = min(2*wait, retryLast)
				retry = time.After(wait)
				break
			}
			retry, giveUp = nil, nil
			r.Note("connected to the gateway again")
			r.restore()
		case <-giveUp:
			giveUp = nil
			r.isLost = true
			r.failHeld()
		case <-end:
			return nil
		case <-r.ctx.Done():
			return nil
		}
		if lines == nil && !r.isWaiting() {
			return nil
		}
	}
}

// isWaiting reports whether a request other than a subscription has no answer yet.
func (r *Relay) isWaiting() bool {
	for _, f := range r.open {
		if f.method != methodListen {
			return true
		}
	}
	return slices.ContainsFunc(r.held, (*frame).isRequest)
}

// The methods that the relay knows.
const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
	methodListen      = "subscriptions/listen"
	methodCancelled   = "notifications/cancelled"
	methodCall        = "tools/call"
)

// fromClient passes a message of the client on, or holds it until there is a connection.
func (r *Relay) fromClient(line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	f, err := readFrame(line, r.batches)
	if err != nil {
		code := jsonrpc.CodeInvalidRequest
		if !json.Valid(line) {
			code = jsonrpc.CodeParseError
		}
		r.answer("null", code, "that is no message: "+shortLine(err.Error()))
		return
	}
	switch f.method {
	case methodInitialize:
		r.handshake, r.handshakeID, r.batches = f.line, f.id, f.params.Version < firstWithoutBatches
	case methodInitialized:
		r.initialized = f.line
	case methodSubscribe:
		r.subscriptions[f.params.URI] = f.line
	case methodUnsubscribe:
		delete(r.subscriptions, f.params.URI)
	case methodCancelled:
		if f := r.open[string(f.params.RequestID)]; f != nil && f.method == methodListen {
			delete(r.open, f.id)
		}
	}
	switch {
	case r.conn != nil && !r.restoring:
		r.send(f)
	case r.isLost && f.isRequest():
		r.answer(f.id, codeLost,
			"no gateway is reachable; start one with: tapgw serve, or tapgw ensure")
	case len(r.held) < maxHeld:
		r.held = append(r.held, f)
	}
}

// send writes a message of the client to the server, and remembers a request until its answer.
func (r *Relay) send(f *frame) {
	if f.isRequest() {
		r.open[f.id] = f
	}
	r.write(f.line)
}

// write writes to the server. The reader notices a connection that has ended.
func (r *Relay) write(line []byte) {
	_, _ = r.conn.Write(append(bytes.Clone(line), '\n'))
}

// fromServer passes a message of the server on.
func (r *Relay) fromServer(line []byte) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Error  json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(line, &m)
	if id := string(m.ID); m.Method == "" && id != "" {
		if f := r.open[id]; f != nil && f.isSubscribed() && m.Error == nil {
			return // a gateway that shuts down ends it; the next one gets it again
		}
		delete(r.open, id)
		if r.silent[id] {
			delete(r.silent, id)
			if r.restoring && id == r.handshakeID {
				r.resume()
			}
			return
		}
	}
	r.writeLine(line)
}

func (r *Relay) writeLine(line []byte) { _, _ = r.Out.Write(append(bytes.TrimSpace(line), '\n')) }

// answer answers a request in the server's place.
func (r *Relay) answer(id string, code int, text string) {
	message, err := json.Marshal(text)
	if err == nil {
		r.writeLine(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`,
			id, code, message))
	}
}

// connect connects to the server and starts to read from it.
func (r *Relay) connect() error {
	conn, err := r.Dial(r.ctx)
	if err != nil {
		return err
	}
	incoming := make(chan []byte)
	r.conn, r.incoming, r.isLost = conn, incoming, false
	r.readers.Go(func() { readLines(r.ctx, conn, maxRelayed, incoming) })
	return nil
}

// close ends the connection, if there is one.
func (r *Relay) close() {
	if r.conn != nil {
		_ = r.conn.Close()
	}
	r.conn, r.incoming, r.restoring = nil, nil, false
}

// drop ends the connection. Calls that were under way fail; other requests wait for the next
// connection.
func (r *Relay) drop() {
	r.close()
	for id, f := range r.open {
		switch {
		case r.silent[id]:
		case f.method == methodCall:
			r.answer(id, codeLost,
				"the connection to the gateway was lost; whether the tool ran is not known")
		case f.isLast:
			r.answer(id, codeLost,
				"the connection to the gateway was lost twice before an answer came")
		case f.method == methodListen || id == r.handshakeID && r.initialized == nil:
			continue // restore says them again
		default:
			f.isLast = true
			r.held = append(r.held, f)
		}
		delete(r.open, id)
	}
	clear(r.silent)
}

// restore repeats the handshake, subscriptions and open requests on a new connection. A server
// wants the handshake answered first.
func (r *Relay) restore() {
	if r.handshake == nil {
		r.resume()
		return
	}
	r.restoring = true
	if r.open[r.handshakeID] == nil { // it was answered to the client
		r.silent[r.handshakeID] = true
	} else {
		r.restoring = false // the client goes on when it has the answer
	}
	r.write(r.handshake)
	if !r.restoring {
		r.sendHeld()
	}
}

// resume goes on where the last connection ended.
func (r *Relay) resume() {
	r.restoring = false
	if r.initialized != nil {
		r.write(r.initialized)
	}
	for uri, line := range r.subscriptions {
		if f, err := readFrame(line, false); err == nil {
			r.silent[f.id] = true
			r.write(line)
		}
		if name, err := json.Marshal(uri); err == nil {
			r.writeLine(
				fmt.Appendf(
					nil,
					`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%s}}`,
					name,
				),
			)
		}
	}
	if r.initialized != nil {
		r.listsChanged("", true, true)
	}
	for _, f := range r.open { // all are subscriptions
		r.write(f.line)
		r.listsChanged(f.id, f.params.Notifications.Tools, f.params.Notifications.Resources)
	}
	r.sendHeld()
}

func (r *Relay) sendHeld() {
	held := r.held
	r.held = nil
	for _, f := range held {
		r.send(f)
	}
}

// failHeld answers the requests that wait for a connection.
func (r *Relay) failHeld() {
	held := r.held
	r.held = nil
	for _, f := range held {
		if f.isRequest() {
			r.answer(f.id, codeLost,
				"no gateway is reachable; start one with: tapgw serve, or tapgw ensure")
		}
	}
}

// listsChanged tells the client to list again, since another gateway may answer now. subscription
// is the client's subscription, "" in handshake revisions.
func (r *Relay) listsChanged(subscription string, tools, resources bool) {
	params := ""
	if subscription != "" {
		params = `,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + subscription +
			`}}`
	}
	if tools {
		r.writeLine([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"` + params +
			`}`))
	}
	if resources {
		r.writeLine([]byte(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"` +
			params + `}`))
	}
}

// readLines sends the lines of a stream until it ends or a line is longer than limit, and then
// closes lines.
func readLines(ctx context.Context, in io.Reader, limit int, lines chan<- []byte) {
	defer close(lines)
	reader := bufio.NewReaderSize(in, 64<<10)
	var line []byte
	for {
		part, err := reader.ReadSlice('\n')
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) && len(line) <= limit {
			continue
		}
		if len(line) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			select {
			case lines <- bytes.TrimRight(line, "\r\n"):
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
		line = nil
	}
}
