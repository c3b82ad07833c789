package conformance

import (
	"strings"

	"github.com/google/uuid"

	"tapgw/internal/protocol"
)

// sends makes the run of a rule that frames change nothing: an object or a text is sent as a text
// frame, bytes as a binary one.
func sends(frames ...any) func(*kit) error {
	return bound(func(k *kit, l *providerConn) error {
		for _, f := range frames {
			switch f := f.(type) {
			case object:
				l.sendObject(f)
			case string:
				l.send([]byte(f))
			case []byte:
				l.sendBytes(f)
			}
		}
		return k.alive(l)
	})
}

// notMessages are texts that are no JSON object with a type.
var notMessages = []any{
	"", "{", "no JSON", "[]", "null", "7", `"tool.call"`, "{}", `{"type":7}`, `{"type":null}`,
}

// wrongMessages are known messages without their fields, or with fields of other types: neither
// calls nor cancels, which might be answered.
var wrongMessages = []any{
	`{"type":"session.lifecycle","sessionId":"` + firstSession + `","state":7}`,
	`{"type":"session.event","sessionId":"` + firstSession + `","event":"user.message","data":7}`,
	`{"type":"ack"}`,
	`{"type":"stream.history","streams":[]}`,
	`{"type":"sessions.updated","active":7}`,
	`{"type":"error"}`,
}

// unknownErrors are errors with a code, or about a request, that the provider does not know.
var unknownErrors = []any{
	object{"type": "error", "code": "X_UNKNOWN", "message": "an error of a later version",
		"replyTo": "push"},
	object{"type": "error", "code": string(protocol.CodeRateLimited), "message": "too fast"},
	object{"type": "error", "code": string(protocol.CodeInvalidJSON), "message": "not valid JSON",
		"replyTo": "", "requestId": "never"},
}

func ignoreField(k *kit, l *providerConn) error {
	more := object{"x-new": object{"a": []any{1, nil}}}
	list := object{"type": "sessions.updated", "active": []object{k.info(firstSession)},
		"x-new": more}
	list["active"].([]object)[0]["x-new"] = more
	l.sendObject(list)
	if k.noTool == nil {
		id := uuid.NewString()
		k.ledger.called(l, id, false)
		args := rawArgs(k.tool.args)
		l.sendObject(object{"type": "tool.call", "id": id, "sessionId": k.session,
			"tool": k.tool.name, "args": args,
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			"x-new":       more})
		if _, err := k.result(l, id); err != nil {
			return fail("a result", "%s for a call with an unknown field", got(err))
		}
	}
	return k.alive(l)
}

// acceptLarge sends a list of sessions that is almost as large as a frame may be.
func acceptLarge(k *kit, l *providerConn) error {
	session := k.info(k.session)
	session["label"] = strings.Repeat("x", k.large)
	l.sendObject(object{"type": "sessions.updated", "active": []object{session}})
	return k.alive(l)
}
