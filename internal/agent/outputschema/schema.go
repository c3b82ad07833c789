// Package outputschema holds the answers of a model to a JSON Schema.
package outputschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"tapgw/internal/cli"
	"tapgw/internal/protocol"
)

// maxSchema is the largest file in bytes. Its text goes into the prompt.
const maxSchema = 64 << 10

// Schema is the JSON Schema of an answer.
type Schema struct {
	text   []byte // without needless white space
	schema *protocol.Schema
}

// Read reads the schema in a file. The error names the file.
func Read(file string) (*Schema, error) {
	f, err := os.Open(file) //nolint:gosec // the user names the file
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxSchema+1))
	if err == nil && len(data) > maxSchema {
		err = fmt.Errorf("more than %d KiB", maxSchema>>10)
	}
	var s *Schema
	if err == nil {
		s, err = parse(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// parse reads a JSON Schema of draft 7 or 2020-12. The error says where it is wrong.
func parse(data []byte) (*Schema, error) {
	var root map[string]any
	if err := json.Unmarshal(data, &root); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			line := 1 + bytes.Count(data[:min(len(data), int(syntax.Offset))], []byte("\n"))
			return nil, fmt.Errorf("line %d: is not JSON: %w", line, err)
		}
		return nil, errors.New("is not a JSON object, as a schema is")
	}
	if root == nil {
		return nil, errors.New("is not a JSON object, as a schema is")
	}
	schema, err := protocol.CompileValueSchema(data)
	if err != nil {
		return nil, err
	}
	if schema.Partial() {
		return nil,
			errors.New(
				"has a pattern that needs JavaScript's engine; write it without look-around, " +
					"references back and \\u escapes")
	}
	var text bytes.Buffer
	if err := json.Compact(&text, data); err != nil {
		return nil, err
	}
	return &Schema{text.Bytes(), schema}, nil
}

// Request adds to a prompt the required form of the answer.
func (s *Schema) Request(prompt string) string {
	return fmt.Sprintf(
		"%s\n\nYour last message must be one JSON value and nothing else: no text around it. "+
			"It must be valid by this JSON Schema:\n%s", prompt, s.text)
}

// Read returns the JSON value of an answer: all of it, or of its last fenced block. The error tells
// the model, too, that there is no such value or how it differs from the schema.
func (s *Schema) Read(answer string) (json.RawMessage, error) {
	text := strings.TrimSpace(answer)
	if block, ok := lastFenced(text); ok && !json.Valid([]byte(text)) {
		text = block
	}
	if text == "" {
		return nil, errors.New("the answer is empty")
	}
	if err := json.Unmarshal([]byte(text), new(json.RawMessage)); err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	if err := s.schema.Check(protocol.Raw(text)); err != nil {
		return nil, fmt.Errorf("the answer does not match the schema: %s", printable(err.Error()))
	}
	return json.RawMessage(text), nil
}

// printable shortens a validator's message about a value of the model.
func printable(fault string) string {
	fault = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return ' '
		}
		return r
	}, fault)
	return cli.Shorten(fault, 500)
}

// lastFenced returns the text of the last fenced block of a Markdown text.
func lastFenced(text string) (block string, ok bool) {
	const fence = "```"
	end := strings.LastIndex(text, "\n"+fence)
	if end < 0 {
		return "", false
	}
	begin := strings.LastIndex(text[:end], fence)
	if begin < 0 {
		return "", false
	}
	_, block, ok = strings.Cut(text[begin:end], "\n") // without the language behind the fence
	return strings.TrimSpace(block), ok
}
