package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/proof"
	"tapgw/internal/protocol"
)

// broken is a provider that keeps every rule but one: fault names its fault, "" for a correct
// provider. It speaks the protocol by hand, because an SDK would not let it.
type broken struct {
	fault string
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	token string

	reconnect, first string // reconnect tokens: the last one, and the first
	hellos           int
	late             []object // results that are sent on the next connection
	killed           context.Context
	code             chan string // for a provider that pairs
}

// is reports whether the provider has a fault.
func (b *broken) is(fault string) bool { return b.fault == fault }

// errGivesUp ends the provider.
var errGivesUp = errors.New("the provider gives up")

// start starts the provider in this process. It is killed if it does not stop in time.
func (b *broken) start(_, token string) (Program, error) {
	stopped, stop := context.WithCancel(context.Background())
	killed, kill := context.WithCancelCause(context.Background())
	b.token, b.killed = token, killed
	b.reconnect, b.first, b.hellos, b.late = "", "", 0, nil
	done, returned := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(returned)
		err := b.run(stopped)
		if cause := context.Cause(killed); errors.Is(cause, errKilled) {
			err = cause
		}
		done <- err
	}()
	var timer *time.Timer
	return Program{
		Stop: func() { stop(); timer = time.AfterFunc(stopLimit, func() { kill(errKilled) }) },
		Kill: func() {
			if timer != nil {
				timer.Stop()
			}
			kill(context.Canceled)
			stop()
			<-returned
		},
		Done: done,
	}, nil
}

// run connects again and again until ctx ends.
func (b *broken) run(ctx context.Context) error {
	wait := 200 * time.Millisecond
	for {
		bound, err := b.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errGivesUp):
			return err
		case bound:
			wait = 200 * time.Millisecond
			takenOver := websocket.CloseStatus(err) == websocket.StatusCode(protocol.CloseTakenOver)
			if takenOver && !b.is("takes its place back") ||
				b.is("gone after a cut") && websocket.CloseStatus(err) == -1 ||
				b.is("gone after 1001") && websocket.CloseStatus(err) == websocket.StatusGoingAway {
				return errGivesUp
			}
		}
		if b.is("no pause") {
			wait = 0
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
		wait = wait * 3 / 2
	}
}

// brokenLink is one connection of the provider.
type brokenLink struct {
	*broken
	ws    *websocket.Conn
	ctx   context.Context
	wg    sync.WaitGroup
	bound bool
	state string // auth, sessions, hello, bound, unbound

	session, persist string

	mu      sync.Mutex
	calls   map[string]context.CancelFunc
	running int
	ended   map[string]bool
	last    chan struct{} // closed when the call that came last has ended
}

// connect serves one connection until its end. bound says whether it came to work.
func (b *broken) connect(stop context.Context) (bound bool, err error) {
	question := proof.NewQuestion(b.token)
	o := &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: b.dial,
			DisableKeepAlives: true}},
		HTTPHeader: http.Header{},
	}
	if b.token != "" {
		o.HTTPHeader.Set(proof.AskHeader, question.Header())
	}
	ws, resp, err := websocket.Dial(stop, "ws://gateway.test", o)
	if err != nil {
		return false, err
	}
	defer func() { _ = ws.CloseNow() }()
	answer := resp.Header.Get(proof.AnswerHeader)
	trusts := b.is("sends to a wrong proof") && b.reconnect == "" && answer != "" ||
		b.is("sends without a proof") && answer == "" ||
		b.is("sends its reconnect token to anyone") && b.reconnect != ""
	if b.token != "" && question.Check(answer, pipeAddress(answer)) != nil && !trusts {
		return false, errors.New("it is not the gateway")
	}
	ws.SetReadLimit(protocol.MaxFrame)
	if b.is("small frames") {
		ws.SetReadLimit(1 << 20)
	}
	ctx, cancel := context.WithCancel(b.killed)
	l := &brokenLink{broken: b, ws: ws, ctx: ctx, calls: map[string]context.CancelFunc{},
		ended: map[string]bool{}, last: make(chan struct{})}
	close(l.last)
	leaving := make(chan struct{})
	defer l.wg.Wait()
	defer func() { <-leaving }()
	defer cancel()
	go func() {
		defer close(leaving)
		select {
		case <-stop.Done():
			l.leave()
		case <-ctx.Done():
		}
	}()
	l.auth()
	for {
		typ, data, err := ws.Read(ctx)
		if err == nil {
			err = l.receive(typ, data)
		}
		if err != nil {
			return l.bound, err
		}
	}
}

// pipeAddress is the address that a pipe has on both ends.
func pipeAddress(answer string) net.Addr {
	_, address, _ := strings.Cut(answer, " ")
	return textAddress(address)
}

func (l *brokenLink) send(m object) { l.sendText(websocket.MessageText, encode(m)) }

func (l *brokenLink) sendText(typ websocket.MessageType, text []byte) {
	ctx, cancel := context.WithTimeout(l.killed, 10*time.Second)
	defer cancel()
	_ = l.ws.Write(ctx, typ, text)
}

// leave says goodbye.
func (l *brokenLink) leave() {
	if l.is("waits for its calls at the end") {
		l.wg.Wait()
	}
	if !l.is("leaves without a word") {
		l.send(object{"type": "goodbye", "reason": "stopped"})
	}
	if l.is("talks after goodbye") {
		l.send(object{"type": "push", "level": "keep", "event": "still here"})
	}
	_ = l.ws.Close(websocket.StatusNormalClosure, "")
	if l.is("never ends") {
		<-l.killed.Done()
	}
}

func (l *brokenLink) auth() {
	m := object{"type": "auth", "token": l.token}
	if l.reconnect != "" {
		m = object{"type": "auth", "reconnectToken": l.reconnect, "name": "broken"}
		if l.is("sends an old reconnect token") {
			m["reconnectToken"] = l.first
		}
	}
	if l.is("sends another token") && l.reconnect == "" {
		m["token"] = "ptk-another"
	}
	if l.code != nil && l.token == "" {
		m = object{"type": "auth", "mode": "pair", "name": "broken"}
	}
	l.state = "auth"
	l.send(m)
	if l.is("authenticates twice") {
		l.send(m)
	}
	if l.is("hello before sessions") {
		l.state = "sessions"
		l.hello("")
	}
}

// receive handles a frame.
func (l *brokenLink) receive(typ websocket.MessageType, data []byte) error {
	var m object
	err := json.Unmarshal(data, &m)
	name, isText := m["type"].(string)
	switch {
	case typ == websocket.MessageBinary && l.is("dies of binary frames"),
		typ == websocket.MessageText && (err != nil || m == nil || !isText) &&
			l.is("dies of what is no JSON"):
		return errors.New("a frame that it does not understand")
	case typ == websocket.MessageBinary || err != nil || m == nil:
		return nil
	}
	switch name {
	case "auth.pairing":
		l.send(object{"type": "auth.confirm", "code": <-l.code})
	case "sessions", "sessions.updated":
		if token, paired := m["token"].(string); paired {
			l.broken.token = token
		}
		return l.sessions(name, m)
	case "hello.ack":
		l.ack(m)
	case "error":
		return l.refused(m)
	case "tool.call":
		l.call(m)
	case "tool.cancel":
		l.cancel(m)
	case "gate.check":
		l.gate(m)
	case "transform.request":
		l.transform(m)
	case "session.lifecycle":
		return l.lifecycle(m)
	case "session.event":
		if m["event"] == "x.unknown" && l.is("dies of unknown events") {
			return errors.New("an event that it does not know")
		}
		return l.question(m)
	case "ack", "stream.history":
		if _, known := m["requestId"].(string); known && m["requestId"] == "never" &&
			l.is("dies of unknown answers") {
			return errors.New("an answer to nothing")
		}
	default:
		if l.is("dies of unknown types") && isText {
			return errors.New("a type that it does not know")
		}
	}
	return nil
}

// sessions handles a list.
func (l *brokenLink) sessions(typ string, m object) error {
	active, ok := m["active"].([]any)
	switch {
	case !ok && l.is("dies of wrong fields"):
		return errors.New("a list without sessions")
	case m["x-new"] != nil && l.is("dies of unknown fields"):
		return errors.New("a field that it does not know")
	case len(active) == 2 && typ == "sessions.updated" && l.is("dies of new sessions"):
		return errors.New("a second session")
	case l.state != "auth" && l.state != "unbound", l.state == "unbound" && l.is("stays unbound"):
		return nil
	case len(active) == 0 && !l.is("hello to an empty list"):
		return nil
	}
	id := ""
	if len(active) > 0 {
		id, _ = active[0].(object)["id"].(string)
	}
	if l.is("hello to another session") {
		id = "another-session"
	}
	if !l.is("never says hello") {
		l.hello(id)
	}
	return nil
}

// tools are those of the provider.
func (l *brokenLink) tools() []object {
	text := object{"type": "object", "properties": object{"text": object{"type": "string"}},
		"required": []string{"text"}}
	echo := object{"name": "echo", "description": "Returns its text", "parameters": text}
	switch l.fault {
	case "a tool's name":
		echo["name"] = "bad name!"
	case "a tool's schema":
		echo["parameters"] = object{"type": "array"}
	case "a tool's description":
		delete(echo, "description")
	}
	return []object{echo, {"name": "slow", "description": "Waits to be cancelled",
		"parameters": object{}}}
}

func (l *brokenLink) hello(session string) {
	if l.is("does not let one of all end") {
		session = protocol.AllSessions
	}
	l.state, l.session = "hello", session
	gate := object{"match": object{"tool": "shell", "args": `\bgit\b`}, "action": "gate",
		"gateId": "pushes"}
	m := object{"type": "hello", "name": "broken", "protocolVersion": 2, "session": session,
		"tools": l.tools(),
		"hooks": object{
			"onPreToolUse": []object{gate},
			"transforms":   object{"tone": object{"action": "callback"}},
		},
		"subscribe":   []string{"user.message", "question.asked", "question.ended"},
		"concurrency": object{"max": 40},
	}
	switch l.fault {
	case "an event that does not exist":
		m["subscribe"] = []string{"user.messages"}
	case "another version":
		m["protocolVersion"] = 1
	case "a gate without an id":
		delete(gate, "gateId")
	case "a pattern that does not compile":
		gate["match"] = object{"args": "("}
	case "another name when it comes back":
		m["name"] = fmt.Sprintf("broken-%d", min(l.hellos, 1))
	}
	l.hellos++
	l.send(m)
	if l.is("pushes before it is bound") {
		l.send(object{"type": "push", "level": "keep", "event": "too early"})
	}
}

// ack is the beginning of work: the provider sends all that it can send.
func (l *brokenLink) ack(m object) {
	l.state, l.bound = "bound", true
	l.reconnect, _ = m["reconnectToken"].(string)
	if l.first == "" {
		l.first = l.reconnect
	}
	l.persist, _ = m["persistDir"].(string)
	for _, result := range l.late {
		l.send(result)
	}
	l.late = nil
	event := object{"type": "push", "level": "keep", "event": "bound", "requestId": "push-1",
		"broadcast": l.session == protocol.AllSessions}
	update := object{"type": "tools.update", "tools": []object{}, "remove": []string{"nothing"},
		"requestId": "update-1"}
	switch l.fault {
	case "a level that does not exist":
		event["level"] = "loud"
	case "pushes into another session":
		event["sessionId"] = "another-session"
	case "pushes too much":
		for range 40 {
			l.send(object{"type": "push", "level": "keep", "event": "again"})
		}
	case "one id for two requests":
		update["requestId"] = event["requestId"]
	case "two updates at once":
		l.send(object{"type": "tools.update", "tools": []object{}, "remove": []string{},
			"requestId": "update-2"})
	case "a binary message":
		l.sendText(websocket.MessageBinary,
			encode(object{"type": "push", "level": "keep", "event": "binary"}))
	case "a key twice":
		l.sendText(websocket.MessageText,
			[]byte(`{"type":"push","level":"keep","event":"a","event":"b"}`))
	case "a type of its own":
		l.send(object{"type": "log", "text": "bound"})
	case "too long a message":
		l.send(object{"type": "push", "level": "keep",
			"event": strings.Repeat("x", protocol.MaxMessage)})
	case "progress without a text":
		l.send(object{"type": "tool.progress", "id": "c"})
	}
	l.send(event)
	l.send(update)
}

// refused handles an error. Only the fatal codes end something.
func (l *brokenLink) refused(m object) error {
	code, isText := m["code"].(string)
	switch {
	case !isText && l.is("dies of wrong fields"), code == "X_UNKNOWN" &&
		l.is("dies of unknown codes"):
		return errors.New("an error that it does not know")
	case code == "AUTH_FAILED" && l.reconnect != "" &&
		!l.is("gives up without its reconnect token"):
		l.reconnect = ""
	case code == "AUTH_FAILED" && !l.is("sends a refused token again"):
		return errGivesUp
	case code == "UNSUPPORTED_VERSION" && !l.is("comes back with its version"):
		return errGivesUp
	case code == "INVALID_SESSION" && l.is("repeats a refused hello"):
		l.hello(l.session)
	case code == "INVALID_SESSION":
		l.state = "unbound"
	}
	return nil
}

func (l *brokenLink) lifecycle(m object) error {
	state, isText := m["state"].(string)
	switch {
	case isText && state == "x.unknown" && l.is("dies of unknown states"):
		return errors.New("a state that it does not know")
	case state != "shutdown.pending", l.is("does not let its session end"),
		l.is("does not let one of all end"):
		return nil
	}
	l.state = "unbound"
	l.send(object{"type": "shutdown.ready", "sessionId": m["sessionId"]})
	return nil
}

func (l *brokenLink) gate(m object) {
	known := m["gateId"] == "pushes"
	answer := object{"type": "gate.result", "gateId": m["gateId"], "callId": m["callId"],
		"decision": "allow"}
	switch {
	case known && l.is("a silent gate"):
		return
	case !known && !l.is("allows what it does not know"):
		answer["decision"], answer["reason"] = "deny", "no such gate"
	case known && l.is("a decision that does not exist"):
		answer["decision"] = "yes"
	}
	l.send(answer)
	if l.is("decides twice") {
		l.send(answer)
	}
}

func (l *brokenLink) transform(m object) {
	if l.is("a silent transform") {
		return
	}
	answer := object{"type": "transform.result", "callId": m["callId"], "content": "Be brief."}
	if l.is("a transform without a text") {
		delete(answer, "content")
	}
	l.send(answer)
	if l.is("transforms twice") {
		l.send(answer)
	}
}
