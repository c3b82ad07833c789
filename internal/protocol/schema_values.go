package protocol

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		if isWhole(v.String()) {
			return "integer"
		}
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

func hasType(v any, want string) bool {
	_, number := v.(json.Number)
	if number && want == "number" {
		return true
	}
	return jsonType(v) == want
}

// equal compares decoded JSON. Numbers are equal if their values are.
func equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(a, b)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equal)
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

// appendCanonical writes a value as JSON of its own, the same text for equal values.
func appendCanonical(dst []byte, v any) []byte {
	switch v := v.(type) {
	case json.Number:
		if n, err := exactNumber(v.String()); err == nil {
			return append(dst, n.RatString()...)
		}
		return append(dst, v...)
	case string:
		return strconv.AppendQuote(dst, v)
	case []any:
		dst = append(dst, '[')
		for _, e := range v {
			dst = append(appendCanonical(dst, e), ',')
		}
		return append(dst, ']')
	case map[string]any:
		dst = append(dst, '{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			dst = append(strconv.AppendQuote(dst, name), ':')
			dst = append(appendCanonical(dst, v[name]), ',')
		}
		return append(dst, '}')
	}
	return fmt.Append(dst, v)
}

// display returns a value as errors show it: short, and objects only by their kind.
func display(v any) string {
	switch v := v.(type) {
	case json.Number:
		return shorten(v.String())
	case string:
		return shorten(v)
	case nil:
		return "null"
	case []any:
		const most = 5
		var parts []string
		for _, e := range v[:min(len(v), most)] {
			parts = append(parts, display(e))
		}
		if len(v) > most {
			parts = append(parts, "…")
		}
		return shorten("[" + strings.Join(parts, " ") + "]")
	case map[string]any:
		return "an object"
	}
	return fmt.Sprint(v)
}
