package conformance

import (
	"strings"

	"tapgw/internal/protocol"
)

// sends makes a check that sends messages which change nothing.
func sends(messages ...object) func(*kit) error {
	return func(k *kit) error {
		l, err := k.bound()
		if err != nil {
			return err
		}
		for _, m := range messages {
			l.sendObject(m)
		}
		return k.alive(l)
	}
}

func ignoreField(k *kit) error {
	l, err := k.bound()
	if err != nil {
		return err
	}
	more := object{"x-new": object{"a": []any{1, nil}}}
	list := object{"type": "sessions.updated", "active": []object{k.info(firstSession)}, "x-new": more}
	list["active"].([]object)[0]["x-new"] = more
	l.sendObject(list)
	if k.noTool == nil {
		id := randomID()
		k.ledger.called(l, id, false)
		args := rawArgs(k.tool.args)
		l.sendObject(object{"type": "tool.call", "id": id, "sessionId": k.session, "tool": k.tool.name, "args": args,
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-new": more})
		if _, err := k.result(l, id); err != nil {
			return fail("a result", "%s for a call with an unknown field", got(err))
		}
	}
	return k.alive(l)
}

func ignoreText(k *kit) error {
	l, err := k.bound()
	if err != nil {
		return err
	}
	for _, text := range []string{
		"", "{", "no JSON", "[]", "null", "7", `"tool.call"`, "{}", `{"type":7}`, `{"type":null}`,
	} {
		l.send([]byte(text))
	}
	return k.alive(l)
}

func ignoreBinary(k *kit) error {
	l, err := k.bound()
	if err != nil {
		return err
	}
	l.sendBytes([]byte{0, 1, 2, 0xff, 0xfe})
	return k.alive(l)
}

// ignoreWrong sends known messages without their fields, or with fields of other types. It sends
// neither calls nor cancels, which might be answered.
func ignoreWrong(k *kit) error {
	l, err := k.bound()
	if err != nil {
		return err
	}
	for _, text := range []string{
		`{"type":"session.lifecycle","sessionId":"` + firstSession + `","state":7}`,
		`{"type":"session.event","sessionId":"` + firstSession + `","event":"user.message","data":7}`,
		`{"type":"ack"}`,
		`{"type":"stream.history","streams":[]}`,
		`{"type":"sessions.updated","active":7}`,
		`{"type":"error"}`,
	} {
		l.send([]byte(text))
	}
	return k.alive(l)
}

func ignoreError(k *kit) error {
	l, err := k.bound()
	if err != nil {
		return err
	}
	l.sendObject(object{"type": "error", "code": "X_UNKNOWN", "message": "an error of a later version",
		"replyTo": "push"})
	l.sendObject(object{"type": "error", "code": string(protocol.CodeRateLimited), "message": "too fast"})
	l.sendObject(object{"type": "error", "code": string(protocol.CodeInvalidJSON), "message": "not valid JSON",
		"replyTo": "", "requestId": "never"})
	return k.alive(l)
}

// acceptLarge sends a list of sessions that is almost as large as a frame may be.
func acceptLarge(k *kit) error {
	l, err := k.bound()
	if err != nil {
		return err
	}
	session := k.info(k.session)
	session["label"] = strings.Repeat("x", k.large)
	l.sendObject(object{"type": "sessions.updated", "active": []object{session}})
	return k.alive(l)
}
