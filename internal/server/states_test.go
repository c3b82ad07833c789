package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"tapgw/internal/protocol"
)

// fromProvider is a right message of each type that a provider may send.
var fromProvider = map[protocol.Type]string{
	protocol.TypeAuth:            `{"type":"auth","token":"$instance"}`,
	protocol.TypeAuthConfirm:     `{"type":"auth.confirm","code":"$code"}`,
	protocol.TypeHello:           `{"type":"hello","name":"p","protocolVersion":2,"session":"s1"}`,
	protocol.TypeGoodbye:         `{"type":"goodbye"}`,
	protocol.TypeSessionReady:    `{"type":"session.ready","sessionId":"s1"}`,
	protocol.TypeToolResult:      `{"type":"tool.result","id":"x","data":1}`,
	protocol.TypeToolProgress:    `{"type":"tool.progress","id":"x","message":"m"}`,
	protocol.TypeGateResult:      `{"type":"gate.result","callId":"x","decision":"allow"}`,
	protocol.TypeTransformResult: `{"type":"transform.result","callId":"x","content":"c"}`,
	protocol.TypePush:            `{"type":"push","level":"keep","event":"e"}`,
	protocol.TypeToolsUpdate:     `{"type":"tools.update","tools":[]}`,
	protocol.TypeHooksUpdate:     `{"type":"hooks.update"}`,
	protocol.TypeContextUpdate:   `{"type":"context.update","context":""}`,
	protocol.TypeFilterSet:       `{"type":"filter.set","stream":"s","rules":[]}`,
	protocol.TypeStreamQuery:     `{"type":"stream.query","queryId":"q"}`,
	protocol.TypeShutdownReady:   `{"type":"shutdown.ready"}`,
}

// fromGateway are the types that only the gateway sends.
var fromGateway = []protocol.Type{
	protocol.TypeAuthPairing, protocol.TypeSessions, protocol.TypeSessionsUpdated,
	protocol.TypeHelloAck,
	protocol.TypeAck,
	protocol.TypeError, protocol.TypeToolCall, protocol.TypeToolCancel, protocol.TypeGateCheck,
	protocol.TypeTransformRequest,
	protocol.TypeSessionEvent, protocol.TypeSessionLifecycle, protocol.TypeStreamHistory,
}

// connState is a state of a connection: how it is reached, what is legal in it
// (v2, "Connection states"), and what shows that it is still the same.
type connState struct {
	name    string
	reach   []string // after "connect"; $NAME is the connection
	legal   []protocol.Type
	probe   protocol.Type
	answers string // to the probe
}

var connStates = []connState{
	{"awaitAuth", nil, []protocol.Type{protocol.TypeAuth}, protocol.TypeAuth, `"type":"sessions"`},
	{"awaitPairing", []string{`{"type":"auth","mode":"pair","session":"s1"}`},
		[]protocol.Type{protocol.TypeAuthConfirm}, protocol.TypeAuthConfirm, `"type":"sessions"`},
	{"awaitHello", []string{fromProvider[protocol.TypeAuth]}, []protocol.Type{protocol.TypeHello},
		protocol.TypeHello,
		`"type":"hello.ack"`},
	{"bound", []string{fromProvider[protocol.TypeAuth], fromProvider[protocol.TypeHello]},
		[]protocol.Type{protocol.TypeHello, protocol.TypeGoodbye, protocol.TypeSessionReady,
			protocol.TypeToolResult,
			protocol.TypeToolProgress, protocol.TypeGateResult, protocol.TypeTransformResult,
			protocol.TypePush,
			protocol.TypeToolsUpdate, protocol.TypeHooksUpdate, protocol.TypeContextUpdate,
			protocol.TypeFilterSet, protocol.TypeStreamQuery, protocol.TypeShutdownReady},
		protocol.TypeStreamQuery, `"type":"stream.history"`},
	{
		"unbound",
		[]string{fromProvider[protocol.TypeAuth], fromProvider[protocol.TypeHello],
			`{"type":"hello","name":"p","protocolVersion":2,"session":"none"}`},
		[]protocol.Type{protocol.TypeHello, protocol.TypeGoodbye},
		protocol.TypeHello,
		`"type":"hello.ack"`,
	},
}

// TestEveryMessageInEveryState: what is legal is not refused for its type, what
// is not is INVALID_STATE or UNKNOWN_TYPE and changes nothing, and a closed
// connection says no more.
func TestEveryMessageInEveryState(t *testing.T) {
	for _, over := range []string{"in-process", "websocket"} {
		for _, st := range connStates {
			t.Run(over+"/"+st.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { everyMessage(t, over, st) })
			})
		}
	}
}

func everyMessage(t *testing.T, over string, st connState) {
	s := newStage(t, over)
	defer s.close()
	do := func(line string) []string {
		t.Helper()
		if err := s.do(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		synctest.Wait()
		return s.collect()
	}
	do("session s1")
	n := 0
	enter := func() string {
		n++
		name := fmt.Sprintf("c%d", n)
		do("wait 1m") // the limit of pairings
		do("connect " + name)
		for _, line := range st.reach {
			do(name + "> " + line)
		}
		return name
	}
	check := func(typ protocol.Type, message string, code protocol.Code) {
		t.Helper()
		name := enter()
		came := do(name + "> " + message)
		if code == "" {
			for _, line := range came {
				if strings.Contains(line, `"INVALID_STATE"`) ||
					strings.Contains(line, `"UNKNOWN_TYPE"`) {
					t.Errorf(
						`%s is refused: %s, want no "INVALID_STATE" and no "UNKNOWN_TYPE" in it`,
						typ, line)
				}
			}
			do(name + ">close")
			return
		}
		want := fmt.Sprintf(`%s< {"type":"error","code":%q,`, name, code)
		if len(came) != 1 || !strings.HasPrefix(came[0], want) ||
			!strings.Contains(came[0], fmt.Sprintf(`"replyTo":%q`, typ)) {
			t.Errorf("%s: got %q, want one %s", typ, came, want)
		}
		if came := do(name + "> " + fromProvider[st.probe]); len(came) == 0 ||
			!strings.Contains(strings.Join(came, "\n"), st.answers) {
			t.Errorf("after %s, %s gets %q, want %q: the state must stay", typ, st.probe, came,
				st.answers)
		}
		do(name + ">close")
	}
	for typ, message := range fromProvider {
		code := protocol.CodeInvalidState
		if slices.Contains(st.legal, typ) {
			code = ""
		}
		check(typ, message, code)
	}
	for _, typ := range append(fromGateway, "no.such", "Hello", "hello ") {
		check(typ, fmt.Sprintf(`{"type":%q}`, typ), protocol.CodeUnknownType)
	}
	// closed
	name := enter()
	do(name + ">close")
	for _, message := range fromProvider {
		if came := do(name + "> " + message); len(came) > 0 {
			t.Errorf("a closed connection says %q, want none", came)
		}
	}
}

// TestProviderTypesAreAllThere holds the tables above to the protocol.
func TestProviderTypesAreAllThere(t *testing.T) {
	if len(fromProvider) != 16 || len(fromGateway) != 13 {
		t.Errorf("%d and %d types, want 16 and 13", len(fromProvider), len(fromGateway))
	}
	for typ := range fromProvider {
		if !typ.FromProvider() {
			t.Errorf("%s is no message of a provider, want one", typ)
		}
	}
	for _, typ := range fromGateway {
		if !typ.FromGateway() {
			t.Errorf("%s is no message of the gateway, want one", typ)
		}
	}
}
