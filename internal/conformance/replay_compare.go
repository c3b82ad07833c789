package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/protocol"
)

// This file compares a message of a replay with the recorded one, with the ids and texts that may
// differ.

// unknownText finds the placeholders whose text is lost: they match any text.
var unknownText = lazyregexp.New(`<(?:token|secret|code|answer|label|cwd|redacted)-[0-9]+>`)

// unknownValue is a placeholder that may stand for a value of any kind.
var unknownValue = lazyregexp.New(`^<answer-[0-9]+>$`)

// dirPlaceholder finds the placeholders of directories that a replay has, too.
var dirPlaceholder = lazyregexp.New(`<persistDir-[0-9]+>`)

// correlating is the member that names the request of an answer, by the answer's type. An id that
// the other party makes up does not help to find a message.
var correlating = map[string]string{
	"tool.result": "id", "tool.progress": "id", "gate.result": "callId",
	"transform.result": "callId", "ack": "requestId", "error": "requestId",
	"stream.history": "queryId", "tool.cancel": "id",
}

// decodeReplayed decodes JSON with numbers as they are written. It is nil for invalid JSON.
func decodeReplayed(text []byte) any {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}

// sameKind reports whether a message may be the one that a step expects: it has the same type, and
// answers the same.
func (r *replayer) sameKind(s replayStep, got received) bool {
	kind := s.kind()
	if kind != got.kind {
		return false
	}
	name := correlating[kind]
	if name == "" || got.value == nil {
		return true
	}
	recorded, _ := decodeReplayed(s.line.Message).(object)
	replayed, _ := got.value.(object)
	want, _ := recorded[name].(string)
	if id, ok := r.ids[want]; ok {
		want = id
	}
	is, _ := replayed[name].(string)
	return want == is
}

// compare returns how a message differs from that of a step, and the ids that the other party made
// up in it.
func (r *replayer) compare(s replayStep, got received) ([]Difference, map[string]string) {
	c := comparison{r: r, ids: map[string]string{}}
	if s.line.Message == nil {
		c.value("", s.line.Text, string(got.text))
		return c.found, nil
	}
	recorded, _ := decodeReplayed(s.line.Message).(object)
	replayed, _ := got.value.(object)
	recorded, replayed = maps.Clone(recorded), maps.Clone(replayed)
	for _, name := range r.made {
		want, isText := recorded[name].(string)
		is, isTextToo := replayed[name].(string)
		if !isText || !isTextToo {
			continue
		}
		if known, ok := r.ids[want]; !ok || known == is {
			c.ids[want] = is
			delete(recorded, name)
			delete(replayed, name)
		}
	}
	if s.isState {
		recorded, replayed = offered(recorded), offered(replayed)
	}
	c.value("", recorded, replayed)
	return c.found, c.ids
}

// offered is the part of a message that counts at the beginning: a provider's offer, without
// members that are empty.
func offered(m object) object {
	left := object{}
	for _, name := range []string{"type", "name", "instance", "context", "startup_context", "tools",
		"hooks",
		"subscribe", "concurrency"} {
		if m["type"] != "hello" && name != "type" || m[name] == nil {
			continue
		}
		if text, _ := json.Marshal(m[name]); !slices.Contains([]string{`[]`, `{}`, `""`},
			string(text)) {
			left[name] = m[name]
		}
	}
	return left
}

// comparison compares two values.
type comparison struct {
	r     *replayer
	ids   map[string]string
	found []Difference
}

// maxDifferences bounds the differences of one message that are reported.
const maxDifferences = 20

func (c *comparison) value(path string, recorded, replayed any) {
	if len(c.found) >= maxDifferences || c.r.isIgnored(path) {
		return
	}
	switch want := recorded.(type) {
	case object:
		if is, ok := replayed.(object); ok {
			c.object(path, want, is)
			return
		}
	case []any:
		if is, ok := replayed.([]any); ok {
			for i := range max(len(want), len(is)) {
				c.member(fmt.Sprintf("%s/%d", path, i), elementAt(want, i), elementAt(is, i))
			}
			return
		}
	case string:
		if is, ok := replayed.(string); ok && c.r.sameText(want, is) ||
			unknownValue.MatchString(want) {
			return
		}
	case json.Number:
		if is, ok := replayed.(json.Number); ok && sameNumber(want, is) {
			return
		}
	default:
		if recorded == replayed {
			return
		}
	}
	c.found = append(c.found, Difference{Path: path, Recorded: encoded(recorded),
		Replayed: encoded(replayed)})
}

func (c *comparison) object(path string, want, is object) {
	names := slices.Concat(slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(is)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		w, inWant := want[name]
		g, inIs := is[name]
		escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		c.member(path+"/"+escaped, part{w, inWant}, part{g, inIs})
	}
}

// part is a member or an element, which may not be there.
type part struct {
	value  any
	exists bool
}

func elementAt(list []any, i int) part {
	if i < len(list) {
		return part{list[i], true}
	}
	return part{}
}

func (c *comparison) member(path string, want, is part) {
	switch {
	case want.exists && is.exists:
		c.value(path, want.value, is.value)
	case len(c.found) >= maxDifferences || c.r.isIgnored(path):
	case want.exists:
		c.found = append(c.found, Difference{Path: path, Recorded: encoded(want.value)})
	case is.exists:
		c.found = append(c.found, Difference{Path: path, Replayed: encoded(is.value)})
	}
}

func encoded(v any) json.RawMessage {
	data, _ := protocol.Marshal(v) // can't fail: it was JSON
	return data
}

func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, errX := a.Float64()
	y, errY := b.Float64()
	return errX == nil && errY == nil && x == y
}

// sameText compares texts. A placeholder whose text is lost matches any text, and an id of the
// recording the one that stands for it now.
func (r *replayer) sameText(recorded, replayed string) bool {
	if recorded == replayed {
		return true
	}
	if recorded = r.translated(recorded); recorded == replayed || r.ids[recorded] == replayed &&
		replayed != "" {
		return true
	}
	places := unknownText.FindAllStringSubmatchIndex(recorded, -1)
	if places == nil {
		return false
	}
	begin, ok := strings.CutPrefix(replayed, recorded[:places[0][0]])
	for i := 0; ok && i < len(places)-1; i++ {
		_, begin, ok = strings.Cut(begin, recorded[places[i][1]:places[i+1][0]])
	}
	return ok && strings.HasSuffix(begin, recorded[places[len(places)-1][1]:])
}

// translated is a text with the ids of this replay in place of those of the recording.
func (r *replayer) translated(text string) string {
	if r.translator == nil || r.translates != len(r.ids) {
		var pairs []string
		for was, is := range r.ids {
			if len(was) >= minLongID {
				pairs = append(pairs, was, is)
			}
		}
		r.translator, r.translates = strings.NewReplacer(pairs...), len(r.ids)
	}
	return r.translator.Replace(text)
}

// minLongID is the length from which an id is looked for within texts; a shorter one may be a word.
const minLongID = 8

// isIgnored reports whether a value may differ.
func (r *replayer) isIgnored(path string) bool {
	parts := strings.Split(path, "/")
	return slices.ContainsFunc(r.Ignore, func(pointer string) bool {
		want := strings.Split(pointer, "/")
		if len(want) != len(parts) {
			return false
		}
		for i := range want {
			if want[i] != "*" && want[i] != parts[i] {
				return false
			}
		}
		return true
	})
}

// filled is a recorded message as it is sent: with the ids of this replay, and with directories in
// place of their placeholders. All other bytes stay.
func (r *replayer) filled(message []byte) []byte {
	if kind := protocol.Peek(message).Type; kind == protocol.TypeAuth {
		return r.auth(message)
	}
	out := []byte{'{'}
	_ = protocol.Object(message, func(name string, value protocol.Raw) error {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(protocol.AppendText(out, name), ':')
		if text, isText := protocol.Text(value); isText && slices.Contains(idMembers, name) {
			if id, ok := r.ids[text]; ok {
				out = protocol.AppendText(out, id)
				return nil
			}
		}
		out = append(out, value...)
		return nil
	})
	out = append(out, '}')
	for placeholder, dir := range r.dirs {
		quoted := protocol.AppendText(nil, dir)
		out = bytes.ReplaceAll(out, []byte(placeholder), quoted[1:len(quoted)-1])
	}
	return out
}

// auth is a recorded auth with the token of this replay, and the reconnect token that stands for
// the recorded one.
func (r *replayer) auth(message []byte) []byte {
	var m struct{ ReconnectToken string }
	_ = json.Unmarshal(message, &m)
	out := append([]byte(`{"type":"auth","token":`), protocol.AppendText(nil, r.token)...)
	if token, ok := r.ids[m.ReconnectToken]; ok {
		out = append(append(out, `,"reconnectToken":`...), protocol.AppendText(nil, token)...)
	}
	return append(out, '}')
}

// idMembers are the members of messages that are ids.
var idMembers = []string{"id", "callId", "requestId", "queryId", "sessionId", "session",
	"providerId", "reconnectToken"}
