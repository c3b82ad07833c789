package configs

import (
	"errors"
	"fmt"
	"strings"

	"tapgw/internal/lazyregexp"
)

// EventText is the text of a source's event. A placeholder {name} stands for a value of the event,
// and may be a path into an event that is JSON, such as pull_request.title.
type EventText []TemplatePart

// eventPlace is {path}; two braces stand for one.
var eventPlace = lazyregexp.New(`\{\{|\}\}|\{([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)\}|[{}]`)

// ParseEventText reads a text with {name}; {{ and }} are braces. A single brace elsewhere is an
// error.
func ParseEventText(s string) (EventText, error) {
	if len(s) > maxPromptBytes {
		return nil, fmt.Errorf("must have at most %d KiB", maxPromptBytes>>10)
	}
	if strings.TrimSpace(s) == "" {
		return nil, errors.New(`must be a text such as "{file} was {change}"`)
	}
	t, err := parseTemplate(s, eventPlace)
	return EventText(t), err
}

func (t *EventText) parseText(s string) (err error) {
	*t, err = ParseEventText(s)
	return err
}

// Expand returns the text with values in its places. value returns "" for a name that the event
// does not have.
func (t EventText) Expand(value func(name string) string) string {
	var b strings.Builder
	for _, p := range t {
		if p.Arg == "" {
			b.WriteString(p.Text)
		} else {
			b.WriteString(value(p.Arg))
		}
	}
	return b.String()
}
