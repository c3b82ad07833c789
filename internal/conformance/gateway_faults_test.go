package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"
)

// TestGatewayFaults puts a proxy that breaks one rule between the kit and a real gateway. The kit names the rules that
// are broken, and no others.
func TestGatewayFaults(t *testing.T) {
	t.Parallel()
	for i, fault := range gatewayFaults {
		if (testing.Short() || raceEnabled) && i%8 > 0 {
			continue // each takes most of a second, or eight with the race detector; ci/test.sh plays all without it
		}
		t.Run(strings.ReplaceAll(fault.name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newFaultyGateway(t, &fault)
				defer g.stop(t)
				report, err := Gateway(t.Context(), g.rig.options(g.pipes), func(Result) {})
				if err != nil {
					t.Fatal(err)
				}
				var failed []string
				for _, r := range report.Results {
					if r.Outcome == Failed {
						failed = append(failed, r.ID)
					}
				}
				if !slices.Equal(failed, fault.want) {
					t.Errorf("failed rules: %v, want %v", failed, fault.want)
					for _, r := range report.Results {
						if r.Outcome == Failed {
							t.Logf("%s:\n%s", r.ID, r.Explanation())
						}
					}
				}
			})
		})
	}
}

// result returns the result of a session host's request; nil for other messages.
func (m message) result() map[string]any {
	result, _ := m["result"].(map[string]any)
	return result
}

// allowing turns the denials with such a reason into permissions.
func allowing(reason string) func(*proxied, message) []message {
	return func(_ *proxied, m message) []message {
		if m.text("result", "decision") == "deny" && strings.Contains(m.text("result", "reason"), reason) {
			m["result"] = map[string]any{"decision": "allow"}
		}
		return []message{m}
	}
}

// twice passes messages on twice if they match.
func twice(match func(m message) bool) func(*proxied, message) []message {
	return func(_ *proxied, m message) []message {
		if match(m) {
			return []message{m, m}
		}
		return []message{m}
	}
}

// dropping passes messages on unless they match.
func dropping(match func(m message) bool) func(*proxied, message) []message {
	return func(_ *proxied, m message) []message {
		if match(m) {
			return nil
		}
		return []message{m}
	}
}

var gatewayFaults = []gatewayFault{
	{name: "it speaks before auth", want: []string{"auth.first"}, greet: `{"type":"welcome"}`},
	{
		name: "it answers any malformed question for a proof", want: []string{"proof.given"},
		request: func(r *http.Request) {
			if r.Header.Get("Tapgw-Prove") == "x" {
				r.Header.Del("Tapgw-Prove")
			}
		},
	},
	{
		name: "it takes its token from pages of other origins", want: []string{"auth.origin"},
		request: func(r *http.Request) { r.Header.Del("Origin") },
	},
	{
		name: "its lists have no cwd", want: []string{"sessions.list"},
		fromGateway: editing("sessions", func(_ *proxied, m message) {
			list, _ := m["active"].([]any)
			for _, s := range list {
				delete(s.(map[string]any), "cwd")
			}
		}),
	},
	{name: "errors have no replyTo", want: []string{"error.reply-to"}, fromGateway: without("error", "replyTo")},
	{name: "errors have no requestId", want: []string{"error.request-id"}, fromGateway: without("error", "requestId")},
	{name: "errors have no providerId", want: []string{"error.origin"}, fromGateway: without("error", "providerId")},
	{
		name: "an unknown type is INVALID_JSON", want: []string{"message.unknown-type"},
		fromGateway: editing("error", func(_ *proxied, m message) {
			if m["code"] == "UNKNOWN_TYPE" {
				m["code"] = "INVALID_JSON"
			}
		}),
	},
	{
		name: "broken JSON closes the connection", want: []string{"message.json", "result.unmatched"},
		fromGateway: on("error", func(c *proxied, m message) []message {
			if strings.Contains(m.text("message"), "not valid JSON") {
				_ = c.kit.Close(1003, "no JSON")
				return nil
			}
			return []message{m}
		}),
	},
	{
		name: "hello.ack has no persistDir", want: []string{"hello.ack"},
		fromGateway: without("hello.ack", "persistDir"),
	},
	{
		name: "any version is taken", want: []string{"hello.version"},
		toGateway: editing("hello", func(_ *proxied, m message) {
			if m["protocolVersion"] != nil {
				m["protocolVersion"] = 2
			}
		}),
	},
	{
		name: "started comes before hello.ack", want: []string{"hello.ack-first"},
		fromGateway: on("hello.ack", func(_ *proxied, m message) []message {
			return []message{{"type": "session.lifecycle", "sessionId": m["sessionId"], "state": "started"}, m}
		}),
	},
	{
		name: "a call comes before hello.ack", want: []string{"hello.ack-first"},
		fromGateway: on("hello.ack", func(_ *proxied, m message) []message {
			return []message{{"type": "tool.call", "id": "early", "sessionId": m["sessionId"], "tool": "t",
				"args": map[string]any{}}, m}
		}),
	},
	{
		name: "idle does not follow started", want: []string{"hello.ack-first"},
		fromGateway: dropping(func(m message) bool { return m["state"] == "idle" }),
	},
	{
		name: "a reconnectToken in hello is forgotten", want: []string{"reconnect.in-hello"},
		toGateway: without("hello", "reconnectToken"),
	},
	{
		name: "a reconnect token can be used again", want: []string{"reconnect.rotates"},
		// The kit gets one token for each provider, which stands for the last one.
		fromGateway: editing("hello.ack", func(c *proxied, m message) {
			c.remember("always "+m.text("providerId"), m.text("reconnectToken"))
			m["reconnectToken"] = "always " + m.text("providerId")
		}),
		toGateway: func(c *proxied, m message) []message {
			if token := c.recall(m.text("reconnectToken")); token != "" {
				m["reconnectToken"] = token
			}
			if m["type"] == "goodbye" { // what the gateway voids must not come back
				return []message{m}
			}
			return []message{m}
		},
	},
	{
		name: "what a hello leaves out is not restored", want: []string{"reconnect.restores"},
		toGateway: editing("hello", func(_ *proxied, m message) {
			if m["session"] == nil && m["context"] == nil {
				m["context"] = ""
			}
		}),
	},
	{
		name: "a connection that was taken over is closed as if it had left", want: []string{"reconnect.takeover"},
		closeCode: func(code websocket.StatusCode) websocket.StatusCode {
			if code == closeTakenOver {
				return closeNormal
			}
			return code
		},
	},
	{
		name: "shutdown.pending has no deadline", want: []string{"end.pending"},
		fromGateway: without("session.lifecycle", "deadline"),
	},
	{
		name: "a session ends without its providers", want: []string{"end.pending", "host.others"},
		toGateway: func(c *proxied, m message) []message {
			if m["method"] == "session/end" {
				_ = c.kit.Write(c.ctx, websocket.MessageText,
					[]byte(fillJSON(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m["id"])))
			}
			return []message{m}
		},
	},
	{
		name: "large numbers in arguments are rounded", want: []string{"call.shape"},
		fromGateway: editing("tool.call", func(_ *proxied, m message) {
			if m.at("args", "n") == jsonNumber("9007199254740993") {
				m["args"].(map[string]any)["n"] = jsonNumber("9007199254740992")
			}
		}),
	},
	{name: "traceparent is lost", want: []string{"call.trace"}, fromGateway: without("tool.call", "traceparent")},
	{
		name: "ids of calls are no UUIDs", want: []string{"call.ids"},
		fromGateway: func(c *proxied, m message) []message {
			if t := m["type"]; t == "tool.call" || t == "tool.cancel" {
				n := strings.ReplaceAll(m.text("id"), "-", "x")
				c.remember(n, m.text("id"))
				m["id"] = n
			}
			return []message{m}
		},
		toGateway: func(c *proxied, m message) []message {
			if id := c.recall(m.text("id")); id != "" {
				m["id"] = id
			}
			return []message{m}
		},
	},
	{
		name: "a call that succeeded is answered twice", want: []string{"call.once", "result.twice"},
		fromGateway: twice(func(m message) bool {
			text, ok := m.result()["data"].(string)
			return ok && text != ""
		}),
	},
	{
		name: "a call that timed out is answered once more", want: []string{"result.late"},
		fromGateway: twice(func(m message) bool { return m.result()["errorCode"] == "TIMEOUT" }),
	},
	{
		name: "a result of a call that has ended is an error", want: []string{"result.late", "result.twice"},
		toGateway: on("tool.result", func(c *proxied, m message) []message {
			if c.remember("result "+m.text("id"), "came") == "" || !uuid.MatchString(m.text("id")) {
				return []message{m}
			}
			_ = c.kit.Write(
				c.ctx,
				websocket.MessageText,
				[]byte(`{"type":"error","code":"UNKNOWN_CALL_ID","message":"x"}`),
			)
			return nil
		}),
	},
	{
		name: "a timeout cancels nothing", want: []string{"cancel.timeout"},
		fromGateway: dropping(func(m message) bool { return m["type"] == "tool.cancel" && m["reason"] == "timeout" }),
	},
	{
		name: "an interrupt cancels nothing", want: []string{"cancel.interrupted", "cancel.once", "host.returns"},
		fromGateway: dropping(
			func(m message) bool { return m["type"] == "tool.cancel" && m["reason"] == "interrupted" },
		),
	},
	{
		name: "every cancel says timeout", want: []string{"rebind.replaces", "cancel.interrupted"},
		fromGateway: editing("tool.cancel", func(_ *proxied, m message) { m["reason"] = "timeout" }),
	},
	{
		name: "a cancel comes twice", want: []string{"cancel.once"},
		fromGateway: twice(func(m message) bool { return m["type"] == "tool.cancel" }),
	},
	{
		name: "numbers in data are written anew", want: []string{"result.data"},
		fromGateway: func(_ *proxied, m message) []message {
			if m.result()["data"] == jsonNumber("1.50") {
				m.result()["data"] = jsonNumber("1.5")
			}
			return []message{m}
		},
	},
	{
		name: "a limit on calls is forgotten",
		want: []string{"concurrency.limit", "concurrency.queue", "concurrency.cancelled"},
		toGateway: editing("hello", func(_ *proxied, m message) {
			if limit, ok := m["concurrency"].(map[string]any); ok && limit["max"] != jsonNumber("0") &&
				limit["scope"] == nil {
				delete(m, "concurrency")
			}
		}),
	},
	{
		name: "a surfaced push has two receipts", want: []string{"push.fates"},
		fromGateway: twice(func(m message) bool { return m["fate"] == "surfaced" }),
	},
	{
		name: "nobody hears that an inject was delivered", want: []string{"push.inject", "push.order", "push.cycles"},
		fromGateway: dropping(func(m message) bool { return m["fate"] == "delivered" }),
	},
	{
		name: "pushes over the budget seem stored", want: []string{"push.waiting", "push.rate"},
		fromGateway: on("error", func(_ *proxied, m message) []message {
			if m["code"] == "RATE_LIMITED" && m["replyTo"] == "push" {
				return []message{{"type": "ack", "requestId": m["requestId"], "sessionId": m["sessionId"], "seq": 1,
					"fate": "stored"}}
			}
			return []message{m}
		}),
	},
	{
		name: "history comes oldest first", want: []string{"query.newest", "query.most"},
		fromGateway: editing("stream.history", func(_ *proxied, m message) {
			streams, _ := m["streams"].(map[string]any)
			for _, entries := range streams {
				slices.Reverse(entries.([]any))
			}
		}),
	},
	{
		name: "an event is lost", want: []string{"event.data"},
		fromGateway: dropping(func(m message) bool { return m["event"] == "assistant.message" }),
	},
	{
		name: "revisions stand still", want: []string{"ack.revision"},
		fromGateway: editing("ack", func(_ *proxied, m message) {
			if m["revision"] != nil {
				m["revision"] = 1
			}
		}),
	},
	{
		name: "an ack repeats the requestId in ASCII", want: []string{"ack.once"},
		fromGateway: editing("ack", func(_ *proxied, m message) {
			m["requestId"] = strings.ReplaceAll(m.text("requestId"), "ü", "u")
		}),
	},
	{
		name: "acks come in another order", want: []string{"update.order"},
		// The ack of "c" waits for that of "d".
		fromGateway: on("ack", func(c *proxied, m message) []message {
			held := fmt.Sprintf("%p", c)
			switch m["requestId"] {
			case "c":
				c.remember(held, m.String())
				return nil
			case "d":
				if before, err := decodeMessage([]byte(c.recall(held))); err == nil {
					return []message{m, before}
				}
			}
			return []message{m}
		}),
	},
	{
		name: "a gate does not hear the arguments", want: []string{"gate.check"},
		fromGateway: editing("gate.check", func(_ *proxied, m message) { m["args"] = map[string]any{} }),
	},
	{name: "a silent gate is open", want: []string{"gate.silent"}, fromGateway: allowing("did not respond in time")},
	{name: "a malformed answer opens a gate", want: []string{"gate.malformed"}, fromGateway: allowing("malformed")},
	{name: "a gate that is gone is open", want: []string{"gate.disconnected"}, fromGateway: allowing("disconnected")},
	{
		name: "a context beside it replaces a startup context", want: []string{"prompt.context"},
		toGateway: editing("hello", func(_ *proxied, m message) {
			if m["context"] != nil {
				delete(m, "startup_context")
			}
		}),
	},
	{
		name: "a callback does not get the section's text", want: []string{"transform.callback"},
		fromGateway: editing("transform.request", func(_ *proxied, m message) { m["current"] = "" }),
	},
	{
		name: "lists of tools have one revision", want: []string{"host.tools"},
		fromGateway: func(_ *proxied, m message) []message {
			if m["method"] == "tools/set" {
				m["params"].(map[string]any)["revision"] = 1
			}
			return []message{m}
		},
	},
	{
		name: "a session of another host is a wrong field", want: []string{"host.others"},
		fromGateway: func(_ *proxied, m message) []message {
			if m.at("error", "code") == jsonNumber("-32004") {
				m["error"].(map[string]any)["code"] = -32602
			}
			return []message{m}
		},
	},
}
