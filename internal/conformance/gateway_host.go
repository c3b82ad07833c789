package conformance

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/coder/websocket"

	"tapgw/internal/protocol"
)

// host is a session host of the kit, with one session.
type host struct {
	*peer
	id          string // of the session
	registering string // the request that begins the session, until it is answered
	ended       bool
}

// hostCapabilities are what a session host of the kit can do.
const hostCapabilities = `{"send":true,"log":true,"hooks":true,"transforms":true,"interrupt":true,"liveTools":true}`

// session begins a session whose host asks the gates itself.
func (s *scene) session() *host { return s.sessionWith(hostCapabilities) }

// sessionWith begins a session whose host has these capabilities.
func (s *scene) sessionWith(capabilities string) *host {
	h := s.connectHost()
	h.initialize(capabilities)
	h.register(s.name + "-" + strings.ToLower(rand.Text()[:8]))
	return h
}

// connectHost opens a session host's connection.
func (s *scene) connectHost() *host {
	ws, answer, err := s.dial("/host", nil)
	if answer != nil && answer.StatusCode == http.StatusNotFound {
		panic(skipf("the gateway has no session hosts at /host, so the kit has no session to judge it in"))
	}
	if err != nil {
		s.fail("a WebSocket at /host", "%v", err)
	}
	h := &host{peer: newPeer(s, ws, answerHost)}
	s.hosts = append(s.hosts, h)
	return h
}

func (h *host) initialize(capabilities string) {
	h.mustCall("initialize", `{"protocolVersion":%s,"token":%s,"host":{"name":"tapctl conformance","version":"1"},`+
		`"capabilities":%s,"aliases":{"shell":["run_command"],"edit":["write_file"],"read":["read_file"]}}`,
		protocol.HostVersion, h.s.run.Token, rawJSON(capabilities))
}

// register begins the host's session, or goes on with it. The kit chooses the id, so that it can end the session also
// if the run is stopped before the answer.
func (h *host) register(id string) {
	h.id = id
	h.registering = h.start("session/register", `{"id":%s,"label":%s,"cwd":"/"}`, id, h.s.name)
	m := h.answer(h.registering)
	h.registering = ""
	h.s.equal("the id in the answer to session/register", m.at("result", "id"), id)
}

// answerHost says yes to each request of the gateway.
func answerHost(m message) string {
	if m["method"] == nil || m["id"] == nil {
		return ""
	}
	return fillJSON(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m["id"])
}

// start sends a request and returns its id.
func (h *host) start(method, params string, values ...any) string {
	id := fmt.Sprintf("kit-%d", h.s.next())
	h.send(`{"jsonrpc":"2.0","id":"`+id+`","method":"`+method+`","params":`+params+`}`, values...)
	return id
}

// answer waits for the answer to a request.
func (h *host) answer(id string) message {
	return h.wait("the answer to the session host's request", func(m message) bool { return isAnswer(m, id) })
}

func isAnswer(m message, id string) bool { return m["method"] == nil && m.text("id") == id }

func (h *host) request(method, params string, values ...any) message {
	return h.answer(h.start(method, params, values...))
}

// mustCall makes a request that must succeed.
func (h *host) mustCall(method, params string, values ...any) message {
	m := h.request(method, params, values...)
	if m["error"] != nil {
		h.s.fail("a result of "+method, "%s", m)
	}
	return m
}

// awaitMethod waits for a request or a notification of the gateway.
func (h *host) awaitMethod(method string) message {
	return h.wait(method, func(m message) bool { return m.text("method") == method })
}

// awaitLog waits for a line in the session's timeline with that text.
func (h *host) awaitLog(match func(line string) bool, want string) string {
	m := h.wait("session/log "+want, func(m message) bool {
		return m.text("method") == "session/log" && match(m.text("params", "message"))
	})
	return m.text("params", "message")
}

// call starts a call of a tool. The request's id is the call's id for cancel, too.
func (h *host) call(tool, args string) string { return h.callWith(tool, args, "") }

// callWith is call with further members of the params.
func (h *host) callWith(tool, args, more string) string {
	id := fmt.Sprintf("kit-%d", h.s.next())
	h.send(`{"jsonrpc":"2.0","id":%s,"method":"tool/call","params":{"sessionId":%s,"callId":%s,"name":%s,"args":`+
		args+more+`}}`, id, h.id, id, tool)
	return id
}

// succeeds waits for a call to end and compares its data, which is given as a Go value.
func (h *host) succeeds(call string, want any) {
	m := h.answer(call)
	if m.at("result", "errorCode") != nil || m["error"] != nil {
		h.s.fail("that the session gets the data "+shortText(fillJSON("%s", want)), "%s", shortText(m.String()))
	}
	h.s.equal("the data that the session got", m.at("result", "data"), want)
}

// fails waits for a call to end with an error code, and returns the error's text.
func (h *host) fails(call, code string) string {
	m := h.answer(call)
	if m.text("result", "errorCode") != code {
		h.s.fail("that the session gets the errorCode "+code, "%s", shortText(m.String()))
	}
	return m.text("result", "error")
}

// allows asks before a tool call and returns the context of an answer that allows it.
func (h *host) allows(tool, args string) string { return h.allowed(h.pretool(tool, args)) }

func (h *host) allowed(request string) string {
	m := h.answer(request)
	if m.text("result", "decision") != "allow" {
		h.s.fail("that hook/preToolUse allows the call", "%s", m)
	}
	return m.text("result", "context")
}

// deniedFor waits for the answer to a request, which must deny the call with a reason that has a rule's
// own in it: a gateway may name the provider before it.
func (h *host) deniedFor(reason, request string) {
	if got := h.denied(request); !strings.Contains(got, reason) {
		h.s.fail(fmt.Sprintf("a denial with the reason %q", reason), "%q", got)
	}
}

// denied waits for the denial of a tool call and returns its reason.
func (h *host) denied(request string) string {
	m := h.answer(request)
	if m.text("result", "decision") != "deny" {
		h.s.fail("that hook/preToolUse denies the call", "%s", m)
	}
	return m.text("result", "reason")
}

// pretool starts to ask before a tool call.
func (h *host) pretool(tool, args string) string {
	return h.start("hook/preToolUse", `{"sessionId":%s,"tool":%s,"args":`+args+`}`, h.id, tool)
}

// prompt returns what the providers add to a prompt of the user.
func (h *host) prompt() string {
	m := h.mustCall("hook/userPrompt", `{"sessionId":%s,"prompt":"Hello."}`, h.id)
	return m.text("result", "context")
}

// transform starts to ask for the text of a section.
func (h *host) transform(section, text string) string {
	return h.start("prompt/transform", `{"sessionId":%s,"sections":{%s:%s}}`, h.id, section, text)
}

// section waits for the text of a section.
func (h *host) section(request, section string) string {
	return h.answer(request).text("result", "sections", section)
}

// set changes the session's state: idle or busy.
func (h *host) set(state string) {
	h.mustCall("session/update", `{"id":%s,"state":%s}`, h.id, state)
}

// ownTools is how the names of the tools begin that a gateway may give to each session by itself (docs/tap.md).
const ownTools = "tap_"

// tools waits for a list of tools that match, the gateway's own aside.
func (h *host) tools(want string, match func(names []string) bool) []map[string]any {
	var found []map[string]any
	h.wait("tools/set with "+want, func(m message) bool {
		if m.text("method") != "tools/set" {
			return false
		}
		list, _ := m.at("params", "tools").([]any)
		found = nil
		var names []string
		for _, t := range list {
			object, _ := t.(map[string]any)
			name, _ := object["name"].(string)
			if strings.HasPrefix(name, ownTools) {
				continue
			}
			found, names = append(found, object), append(names, name)
		}
		return match(names)
	})
	return found
}

// toolNamed waits for a list with a tool.
func (h *host) toolNamed(name string) map[string]any {
	list := h.tools("the tool "+name, func(names []string) bool { return slices.Contains(names, name) })
	for _, t := range list {
		if t["name"] == name {
			return t
		}
	}
	return nil
}

// end ends the session, if it goes on.
func (h *host) end() {
	if h.id == "" || h.ended {
		return
	}
	err := h.s.try(func() {
		if h.registering != "" { // requests run side by side: the end must not come first
			h.answer(h.registering)
		}
		h.answer(h.start("session/end", `{"id":%s,"reason":"the conformance kit is done"}`, h.id))
	})
	if h.ended = err == nil; h.ended {
		return
	}
	// The gateway keeps the session of a connection that is gone for a while: come back to end it.
	_ = h.s.try(func() {
		again := h.s.connectHost()
		defer func() { _ = again.ws.Close(websocket.StatusNormalClosure, "") }()
		again.initialize(hostCapabilities)
		again.register(h.id)
		again.answer(again.start("session/end", `{"id":%s}`, h.id))
	})
}

// event reports an event of the session.
func (h *host) event(name, data string) {
	h.send(`{"jsonrpc":"2.0","method":"session/event","params":{"sessionId":%s,"event":%s,"data":%s}}`, h.id, name,
		rawJSON(data))
}

// fence waits until the gateway has answered what this connection asked before. The gateway may work on requests side
// by side, so the fence says nothing about a call that still runs.
func (h *host) fence() { h.request("conformance/fence", `{}`) }
