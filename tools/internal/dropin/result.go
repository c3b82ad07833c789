package dropin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// errShape is the advice for a result of a wrong shape.
var errShape = errors.New(
	`a tool returns a list such as [{"type": "text", "value": "..."}], a text, ` +
		`{"result": "success"} or {"result": "error", "message": "..."}`)

// answerOf reads a result: a list of texts, a dict with the result success, a text, or a missing
// value. For a dict with the result error, the error is its message. For any other shape, the error
// wraps errShape.
func answerOf(raw json.RawMessage) (Answer, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return Answer{}, nil
	}
	switch raw[0] {
	case '[':
		return listOf(raw)
	case '{':
		return dictOf(raw)
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return Answer{}, err
		}
		return Answer{Parts: []string{s}}, nil
	case 'n':
		return Answer{}, nil
	}
	return Answer{}, fmt.Errorf("it returned %s: %w", brief(raw), errShape)
}

func listOf(raw json.RawMessage) (Answer, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return Answer{}, err
	}
	var a Answer
	for i, item := range items {
		part, ok := partOf(item)
		if !ok {
			return Answer{}, fmt.Errorf("item %d of the list that it returned is %s: %w", i+1,
				brief(item), errShape)
		}
		a.Parts = append(a.Parts, part)
	}
	return a, nil
}

// partOf reads a content part: {"type": "text", "value": ...}, the same with "text" for "value" as
// in MCP, or just a text. A value of another type becomes its JSON, because the server would not
// show it to the model.
func partOf(raw json.RawMessage) (string, bool) {
	var s string
	if json.Unmarshal(raw, &s) == nil && raw[0] == '"' {
		return s, true
	}
	var part struct {
		Type  *string         `json:"type"`
		Value json.RawMessage `json:"value"`
		Text  json.RawMessage `json:"text"`
	}
	if raw[0] != '{' || json.Unmarshal(raw, &part) != nil || part.Type != nil &&
		*part.Type != "text" {
		return "", false
	}
	value := part.Value
	if value == nil {
		value = part.Text
	}
	if value == nil {
		return "", false
	}
	if value[0] == '"' && json.Unmarshal(value, &s) == nil {
		return s, true
	}
	return string(value), true
}

func dictOf(raw json.RawMessage) (Answer, error) {
	var dict struct {
		Result  *string `json:"result"`
		Message any     `json:"message"`
	}
	err := json.Unmarshal(raw, &dict)
	if err != nil || dict.Result == nil {
		return Answer{}, fmt.Errorf("it returned the dict %s: %w", brief(raw), errShape)
	}
	switch *dict.Result {
	case "success":
		return Answer{Data: raw}, nil
	case "error":
		if s, ok := dict.Message.(string); ok && s != "" {
			return Answer{}, errors.New(s)
		}
		return Answer{}, fmt.Errorf("it failed without a message: %s", brief(raw))
	}
	return Answer{}, fmt.Errorf("it returned the result %q: %w", *dict.Result, errShape)
}

// brief returns the beginning of a value's JSON, for an error.
func brief(raw json.RawMessage) string {
	const maxRunes = 80
	s := string(bytes.ToValidUTF8(raw, nil))
	if r := []rune(s); len(r) > maxRunes {
		return string(r[:maxRunes]) + "..."
	}
	return s
}
