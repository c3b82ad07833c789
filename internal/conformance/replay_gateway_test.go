package conformance

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"tapgw/internal/gateway"
	"tapgw/internal/recording"
)

// replayAtGateway replays a recording against a real gateway in this process.
func replayAtGateway(t *testing.T, file *recording.File) *ReplayReport {
	t.Helper()
	rig := newGatewayRig(t)
	defer rig.stop(t)
	session, err := gateway.LocalStarter{}.Start(t.Context(), rig.gateway,
		gateway.StartRequest{CWD: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	report, err := ReplayGateway(t.Context(), ReplayOptions{Recording: file, Provider: "p"},
		ReplayTarget{
			URL: "ws://gateway.test", Token: rig.gateway.AdminToken(), Session: session.ID(),
			Dial: rig.pipes.dialWebSocket,
			Call: func(ctx context.Context, tool string, args json.RawMessage) {
				session.Execute(ctx, gateway.Call{Name: tool, Args: []byte(args)})
			},
		})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// handshake begins a provider with a tool and a gate before it.
var handshake = []string{
	`1 provider>gateway {"type":"auth","token":"<token-1>"}`,
	`1 gateway>provider {"type":"sessions","active":[]}`,
	`1 provider>gateway {"type":"hello","name":"p","protocolVersion":2,"session":"session-1","tools":[{"name":"t",` +
		`"description":"d","parameters":{"type":"object"}}],"hooks":{"onPreToolUse":[{"match":{"tool":"t"},` +
		`"action":"gate","gateId":"g"}]}}`,
	`1 gateway>provider {"type":"hello.ack","protocolVersion":2,"providerId":"p-1","sessionId":"session-1",` +
		`"reconnectToken":"<token-2>","persistDir":"<persistDir-1>"}`,
}

func TestReplayGateway(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		want  []string
	}{
		{"a call behind its gate, and a push", []string{
			`1 gateway>provider {"type":"gate.check","gateId":"g","callId":"k1","sessionId":"session-1","tool":"t","args":{"n":1}}`,
			`1 provider>gateway {"type":"gate.result","callId":"k1","decision":"allow"}`,
			`1 gateway>provider {"type":"tool.call","id":"c1","sessionId":"session-1","tool":"t","args":{"n":1}}`,
			`1 provider>gateway {"type":"tool.result","id":"c1","data":1}`,
			`1 provider>gateway {"type":"push","level":"keep","event":"e","requestId":"r"}`,
			`1 gateway>provider {"type":"ack","requestId":"r","sessionId":"session-1","seq":9,"fate":"stored"}`,
		}, nil},
		{"another answer", []string{
			`1 provider>gateway {"type":"context.update","requestId":"r","context":"x"}`,
			`1 gateway>provider {"type":"ack","requestId":"r","sessionId":"session-1","revision":7}`,
		}, []string{"differs 7 ack /revision:7/1"}},
		{"an error that names the session", []string{
			`1 provider>gateway {"type":"push","level":"keep","event":"e","requestId":"r","sessionId":"other-session"}`,
			`1 gateway>provider {"type":"error","code":"INVALID_SESSION","message":"push.sessionId: this provider is not ` +
				`bound to session \"other-session\"","replyTo":"push","requestId":"r","providerId":"p-1","sessionId":"other-session"}`,
		}, nil},
		{"a call that was interrupted", []string{
			`1 gateway>provider {"type":"gate.check","gateId":"g","callId":"k1","sessionId":"session-1","tool":"t","args":{}}`,
			`1 provider>gateway {"type":"gate.result","callId":"k1","decision":"deny","reason":"no"}`,
			`1 provider>gateway {"type":"hooks.update","requestId":"r","onPreToolUse":[]}`,
			`1 gateway>provider {"type":"ack","requestId":"r","sessionId":"session-1","revision":1}`,
			`1 gateway>provider {"type":"tool.call","id":"c1","sessionId":"session-1","tool":"t","args":{}}`,
			`1 gateway>provider {"type":"tool.cancel","id":"c1","sessionId":"session-1","reason":"interrupted"}`,
		}, nil},
		{"a second connection with the reconnect token", []string{
			`1 provider>gateway closed`,
			`2 provider>gateway {"type":"auth","token":"<token-1>","reconnectToken":"<token-2>"}`,
			`2 gateway>provider {"type":"sessions","active":[]}`,
			`2 provider>gateway {"type":"hello","name":"p","protocolVersion":2}`,
			`2 gateway>provider {"type":"hello.ack","protocolVersion":2,"providerId":"p-1","sessionId":"session-1",` +
				`"reconnectToken":"<token-3>","persistDir":"<persistDir-1>"}`,
		}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				report := replayAtGateway(
					t,
					readLines(t, "", append(append([]string{}, handshake...), test.lines...)...),
				)
				if diff := cmp.Diff(test.want, brief(report.Findings)); diff != "" {
					t.Errorf("findings (-want +got):\n%s\n%+v", diff, report)
				}
			})
		})
	}
}

// TestReplayGatewayBeginsInMidSession shows that the replayed provider first gives the gateway the
// offer that it had, and that a provider of all sessions is bound to the replay's alone.
func TestReplayGatewayBeginsInMidSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const connection = `{"conn":1,"provider":"p","trust":"project","hello":{"type":"hello","name":"p",` +
			`"protocolVersion":2,"session":"all","tools":[{"name":"t","description":"d","parameters":{"type":"object"}}]},` +
			`"pending":[{"type":"tool.call","id":"c0","sessionId":"session-1","tool":"t","args":{}}]}`
		report := replayAtGateway(
			t,
			readLines(t, connection,
				`1 provider>gateway {"type":"tool.result","id":"c0","data":1}`),
		)
		if len(report.Findings) > 0 || report.Sent != 3 || report.Equal != 3 {
			t.Errorf(
				"report: got %+v, want 3 sent (auth, hello, the result), 3 equal (sessions, hello.ack, the call)",
				report,
			)
		}
	})
}
