package sources

import (
	"encoding/json"
	"strings"

	"tapgw/configs"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// origin is something that a source has noticed: the text of its event, and the values that the
// file's text may name.
type origin struct {
	text   string
	values map[string]string
	body   any  // decoded JSON, into which the file's text may point
	isLine bool // of a command: several become one push if they come fast
	level  protocol.Level

	traceparent string // of a request; may be ""
}

// Limits of the text of an event, in bytes and lines.
const (
	maxEvent      = 16 << 10
	maxEventLines = 400
)

// emit makes an event of an origin, and gives it to the outbox unless the filter drops it.
func (s *source) emit(e origin) {
	text, level := s.event(e)
	if s.try != nil {
		if text != "" {
			s.try(text, level)
		}
		return
	}
	if level == protocol.OutcomeDrop {
		s.dropped.Add(1)
		return
	}
	s.accepted.Add(1)
	p := push{event: text, level: level, traceparent: s.span.Traceparent}
	if e.isLine {
		p.joined = 1
	}
	s.outbox.add(p)
}

// event returns the text and the level of an event.
func (s *source) event(e origin) (string, protocol.Level) {
	text := e.text
	if e.isLine && strings.TrimSpace(text) == "" {
		return "", protocol.OutcomeDrop
	}
	if s.config.Text != nil {
		text = s.config.Text.Expand(e.value)
	}
	text = visible.Ends(strings.TrimSpace(text), maxEvent, maxEventLines)
	if text == "" {
		return "", protocol.OutcomeDrop
	}
	filter := s.filter.Load()
	level := filter.level
	if e.level != "" {
		level = e.level
	}
	return text, outcome(filter.rules, text, level)
}

// value returns the value of a name in the file's text.
func (e origin) value(name string) string {
	if v, ok := e.values[name]; ok {
		return v
	}
	v, _ := configs.ResolvePointer(e.body, "/"+strings.ReplaceAll(name, ".", "/"))
	return textOf(v)
}

// textOf is a value of decoded JSON as a text.
func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		data, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		return string(data)
	}
}
