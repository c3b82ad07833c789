package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// maxGatewayBytes is how much one connection may send to the kit in all.
const maxGatewayBytes = 256 << 20

// maxGatewayFrame is how much the kit reads of one frame. A gateway may send 16 MiB, and a call's
// result to a session host in more.
const maxGatewayFrame = 32 << 20

// message is a JSON object from the gateway.
type message map[string]any

// text returns the string at a path of members; "" if there is none.
func (m message) text(path ...string) string {
	s, _ := m.at(path...).(string)
	return s
}

// at returns the value at a path of members; nil if there is none.
func (m message) at(path ...string) any {
	var v any = map[string]any(m)
	for _, key := range path {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[key]
	}
	return v
}

func (m message) String() string {
	text, err := json.Marshal(map[string]any(m))
	if err != nil {
		return fmt.Sprint(map[string]any(m))
	}
	return string(text)
}

// peer is one WebSocket of the kit: a provider at /, or a session host at /host. Its reader puts each
// message into an inbox, and rules take from there what they wait for, in any order. So a rule judges
// its own matter, and a fault elsewhere does not make it fail too.
type peer struct {
	s  *scene
	ws *websocket.Conn
	// reply answers the gateway's requests; nil for a provider.
	reply func(request message) string

	mu     sync.Mutex
	log    []message // everything that came
	inbox  []message // what no rule has taken yet
	before int       // how many stood before the one that was taken last
	closed bool
	code   websocket.StatusCode // of the gateway's close frame; -1 for none
	news   chan struct{}        // holds one: the inbox or closed has changed
}

func newPeer(s *scene, ws *websocket.Conn, reply func(message) string) *peer {
	ws.SetReadLimit(maxGatewayFrame)
	p := &peer{s: s, ws: ws, reply: reply, news: make(chan struct{}, 1)}
	s.reading.Go(p.read)
	return p
}

func (p *peer) read() {
	left := maxGatewayBytes
	for {
		kind, text, err := p.ws.Read(p.s.ctx)
		left -= len(text)
		if err != nil || left < 0 {
			p.mu.Lock()
			p.closed, p.code = true, websocket.CloseStatus(err)
			p.mu.Unlock()
			p.wake()
			_ = p.ws.CloseNow()
			return
		}
		m, err := decodeMessage(text)
		switch {
		case kind != websocket.MessageText:
			m = message{"type": "a binary frame"}
		case err != nil:
			m = message{"type": "not a JSON object", "text": shortText(string(text))}
		case p.reply != nil:
			if answer := p.reply(m); answer != "" {
				_ = p.write(answer)
			}
		}
		p.mu.Lock()
		p.log, p.inbox = append(p.log, m), append(p.inbox, m)
		p.mu.Unlock()
		p.wake()
	}
}

func decodeMessage(text []byte) (m message, err error) {
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	if err = dec.Decode(&m); err == nil && m == nil {
		err = errors.New("not an object")
	}
	return m, err
}

// waitClosed waits until the connection has ended, or ctx.
func (p *peer) waitClosed(ctx context.Context) {
	for {
		p.mu.Lock()
		closed := p.closed
		p.mu.Unlock()
		if closed {
			return
		}
		select {
		case <-p.news:
		case <-ctx.Done():
			return
		}
	}
}

func (p *peer) wake() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

func (p *peer) write(text string) error {
	ctx, cancel := context.WithTimeout(p.s.ctx, gatewayPatience)
	defer cancel()
	return p.ws.Write(ctx, websocket.MessageText, []byte(text))
}

// send sends text, into which it puts the values as JSON at each %s. An error is no fault yet: a
// gateway may close the connection while the kit writes, and the rule sees that next.
func (p *peer) send(format string, values ...any) { _ = p.write(fillJSON(format, values...)) }

// rawJSON is a value that is JSON, or what a rule sends in its place.
type rawJSON string

// jsonNumber is a number of the gateway's, as it is written.
type jsonNumber = json.Number

// fillJSON puts values into a text as JSON.
func fillJSON(format string, values ...any) string {
	if len(values) == 0 {
		return format
	}
	texts := make([]any, len(values))
	for i, v := range values {
		if raw, ok := v.(rawJSON); ok {
			texts[i] = string(raw)
			continue
		}
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte("null")
		}
		texts[i] = string(text)
	}
	return fmt.Sprintf(format, texts...)
}

// find takes the first message that matches out of the inbox.
func (p *peer) find(match func(message) bool) (m message, closed, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, m := range p.inbox {
		if match(m) {
			p.before, p.inbox = i, append(p.inbox[:i:i], p.inbox[i+1:]...)
			return m, false, true
		}
	}
	return nil, p.closed, false
}

// wait waits for a message that matches and takes it. want says in a failure what is missing.
func (p *peer) wait(want string, match func(message) bool) message {
	timeout := time.NewTimer(gatewayPatience)
	defer timeout.Stop()
	for {
		m, closed, ok := p.find(match)
		if ok {
			return m
		}
		if closed {
			p.s.fail(want, "the gateway closed the connection (%s)", p.closeText())
		}
		select {
		case <-p.news:
		case <-timeout.C:
			p.s.fail(want, "nothing came within %v; unread: %s", gatewayPatience, p.unread())
		case <-p.s.stop:
			panic(skipf("the run was stopped"))
		}
	}
}

// await waits for a message of one of the types.
func (p *peer) await(types ...string) message {
	return p.wait(strings.Join(types, " or "), func(m message) bool {
		for _, t := range types {
			if m.text("type") == t {
				return true
			}
		}
		return false
	})
}

// none fails if the inbox has a message of one of the types. A fence comes before it.
func (p *peer) none(why string, types ...string) {
	for _, t := range types {
		if m, _, ok := p.find(func(m message) bool { return m.text("type") == t }); ok {
			p.s.fail("no "+t+": "+why, "%s", m)
		}
	}
}

// all returns everything that came, in its order.
func (p *peer) all() []message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

// drain empties the inbox and returns what it held.
func (p *peer) drain() []message {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.inbox
	p.inbox = nil
	return all
}

func (p *peer) unread() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.inbox) == 0 {
		return "nothing"
	}
	var texts []string
	for _, m := range p.inbox[max(0, len(p.inbox)-3):] {
		texts = append(texts, shortText(m.String()))
	}
	return strings.Join(texts, ", ")
}

func (p *peer) closeText() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.code < 0 {
		return "without a close frame"
	}
	return fmt.Sprintf("code %d", p.code)
}

// ends waits for the gateway to close the connection with a code.
func (p *peer) ends(code websocket.StatusCode) {
	want := fmt.Sprintf("the connection to be closed with code %d", code)
	timeout := time.NewTimer(gatewayPatience)
	defer timeout.Stop()
	for {
		p.mu.Lock()
		closed, got := p.closed, p.code
		p.mu.Unlock()
		switch {
		case closed && got != code:
			p.s.fail(want, "the gateway closed it (%s)", p.closeText())
		case closed:
			return
		}
		select {
		case <-p.news:
		case <-timeout.C:
			p.s.fail(want, "it is still open after %v", gatewayPatience)
		case <-p.s.stop:
			panic(skipf("the run was stopped"))
		}
	}
}

// cut ends the connection without a word.
func (p *peer) cut() { _ = p.ws.CloseNow() }

// fence waits until the gateway has read everything that this connection sent, and everything that it
// sent before is in the inbox: messages of a connection keep their order. The fence is a message of an
// unknown type, which changes nothing in any state.
func (p *peer) fence() {
	name := fmt.Sprintf("conformance.fence.%d", p.s.next())
	p.send(`{"type":%s,"requestId":%s}`, name, name)
	p.wait("an error about the type "+name, func(m message) bool {
		return m.text("type") == "error" &&
			(m.text("requestId") == name || m.text("replyTo") == name || strings.Contains(m.text("message"), name))
	})
}

// ask sends a message and returns its answer, which may be an error.
func (p *peer) ask(format string, values ...any) message {
	text := fillJSON(format, values...)
	auth := strings.HasPrefix(text, `{"type":"auth`)
	push := strings.HasPrefix(text, `{"type":"push`)
	_ = p.write(text)
	return p.wait("an answer to "+shortText(text), func(m message) bool {
		switch m.text("type") {
		case "error", "hello.ack", "stream.history", "auth.pairing":
			return true
		case "ack": // those with a fate are of pushes
			return push == (m["fate"] != nil)
		case "sessions": // later, it comes by itself too
			return auth
		}
		return false
	})
}

// accepted sends a message that the gateway must not refuse, and returns its answer. A call that came before a
// hello.ack is no matter of the binding that begins, so it leaves the inbox.
func (p *peer) accepted(want, format string, values ...any) message {
	m := p.ask(format, values...)
	if want == "hello.ack" {
		p.mu.Lock()
		before := min(p.before, len(p.inbox))
		early := slices.DeleteFunc(
			p.inbox[:before:before],
			func(m message) bool { return m.text("type") == "tool.call" },
		)
		p.inbox = slices.Concat(early, p.inbox[before:])
		p.mu.Unlock()
	}
	if m.text("type") != want {
		p.s.fail(want+", for "+shortText(fillJSON(format, values...)), "%s", m)
	}
	return m
}

// refused sends a message that the gateway must refuse with a code, and returns the error. names are
// texts that its message must have: the field that is wrong.
func (p *peer) refused(code string, names []string, format string, values ...any) message {
	m := p.ask(format, values...)
	if m.text("type") != "error" || m.text("code") != code {
		p.s.fail("error "+code+", for "+shortText(fillJSON(format, values...)), "%s", m)
	}
	for _, name := range names {
		if !strings.Contains(m.text("message"), name) {
			p.s.fail(
				"an error that names "+name+", for "+shortText(fillJSON(format, values...)),
				"%q",
				m.text("message"),
			)
		}
	}
	return m
}

// shortText shortens a text for a failure.
func shortText(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
