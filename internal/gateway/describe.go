package gateway

import (
	"strings"

	"tapgw/internal/protocol"
)

// maxDescribedSchema bounds the output schema that a description repeats, in bytes.
const maxDescribedSchema = 2 << 10

// describe is a tool's description for a model whose host has no fields for a title, hints and an
// output schema.
func describe(t *protocol.Tool) string {
	var parts []string
	if t.Title != "" && !strings.Contains(strings.ToLower(t.Description),
		strings.ToLower(t.Title)) {
		parts = append(parts, t.Title+".")
	}
	parts = append(parts, t.Description)
	if hints := describeHints(t.Annotations); len(hints) > 0 {
		parts = append(parts, "(Its provider says: "+strings.Join(hints, "; ")+".)")
	}
	if text := DescribeResult(t.OutputSchema); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, "\n")
}

// DescribeResult returns a paragraph for a tool's description that holds the schema of its results,
// for clients that have no field for the schema. It is "" without a schema, and for one of more
// than 2 KiB.
func DescribeResult(schema []byte) string {
	if len(schema) == 0 || len(schema) > maxDescribedSchema {
		return ""
	}
	return "The result is JSON by this schema: " + string(schema)
}

// describeHints names the hints that a model would not assume by itself.
func describeHints(a *protocol.Annotations) (hints []string) {
	if a == nil {
		return nil
	}
	given := func(hint *bool) bool { return hint != nil && *hint }
	switch {
	case given(a.ReadOnlyHint):
		return []string{"changes nothing"}
	case given(a.DestructiveHint):
		hints = append(hints, "may destroy data")
	}
	if given(a.IdempotentHint) {
		hints = append(hints, "a second call with the same arguments changes nothing more")
	}
	return hints
}
