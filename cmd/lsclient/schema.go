package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"tapgw/internal/cli"
)

// maxSchema is the largest file of --output-schema in bytes. Its text goes into the prompt.
const maxSchema = 64 << 10

// outputSchema is the JSON Schema of --output-schema.
type outputSchema struct {
	text     []byte // without needless white space
	resolved *jsonschema.Resolved
}

// outputSchema reads the file of --output-schema; nil without the flag. A wrong file is a usage error that names it.
func (c *command) outputSchema() (*outputSchema, error) {
	if !c.IsSet("output-schema") {
		if c.IsSet("schema-retries") {
			return nil, cli.Usage("flag --schema-retries: needs --output-schema FILE")
		}
		return nil, nil
	}
	if n := c.Int("schema-retries"); n < 0 || n > 10 {
		return nil, cli.Usage("flag --schema-retries: must be 0 to 10")
	}
	file := c.String("output-schema")
	f, err := os.Open(file) //nolint:gosec // the user names the file
	if err != nil {
		return nil, cli.Usage("flag --output-schema: %v", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxSchema+1))
	if err == nil && len(data) > maxSchema {
		err = fmt.Errorf("more than %d KiB", maxSchema>>10)
	}
	if err != nil {
		return nil, cli.Usage("flag --output-schema: %s: %v", file, err)
	}
	s, err := parseOutputSchema(data)
	if err != nil {
		return nil, cli.Usage("flag --output-schema: %s: %v", file, err)
	}
	return s, nil
}

// parseOutputSchema reads a JSON Schema of draft 7 or 2020-12. The error says where it is wrong.
func parseOutputSchema(data []byte) (*outputSchema, error) {
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
	var schema jsonschema.Schema
	if err := json.Unmarshal(data, &schema); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			keyword := wrong.Field[strings.LastIndex(wrong.Field, ".")+1:]
			return nil, fmt.Errorf("%q can't be a %s", keyword, wrong.Value)
		}
		return nil, err
	}
	if err := checkSchema(&schema); err != nil {
		return nil, err
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "jsonschema.Schema: <anonymous schema>: ", ""))
	}
	var text bytes.Buffer
	if err := json.Compact(&text, data); err != nil {
		return nil, err
	}
	if err := resolved.Validate(nil); err != nil && strings.Contains(err.Error(), "cannot validate version") {
		return nil, err
	}
	return &outputSchema{text.Bytes(), resolved}, nil
}

// request adds to a prompt what the answer must be.
func (s *outputSchema) request(prompt string) string {
	return fmt.Sprintf("%s\n\nYour last message must be one JSON value and nothing else: no text around it. "+
		"It must be valid by this JSON Schema:\n%s", prompt, s.text)
}

// read returns the JSON value of an answer: all of it, or of its last fenced block. The error says, to the model too,
// why there is none or how it differs from the schema.
func (s *outputSchema) read(answer string) (json.RawMessage, error) {
	text := strings.TrimSpace(answer)
	if block, ok := lastFenced(text); ok && !json.Valid([]byte(text)) {
		text = block
	}
	if text == "" {
		return nil, errors.New("the answer is empty")
	}
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	if err := s.resolved.Validate(value); err != nil {
		return nil, fmt.Errorf("the answer does not match the schema: %s", printable(err.Error()))
	}
	return json.RawMessage(text), nil
}

// printable shortens what a validator says about a value of the model.
func printable(fault string) string {
	fault = strings.ReplaceAll(fault, "<invalid reflect.Value>", "null") // the library's name for null
	fault = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ReplaceAll(fault, "validating root: ", ""))
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

// answer runs the turn of a prompt until its answer matches the schema, with up to retries more turns, and prints the
// answer.
func (r *agentRun) answer(ctx context.Context, schema *outputSchema, prompt string, retries int) error {
	result, err := r.turn(ctx, schema.request(prompt), "")
	for attempt := 0; err == nil; attempt++ {
		output, fault := schema.read(result.Answer)
		if fault == nil {
			r.printer.output = output
			break
		}
		if attempt == retries {
			err = &cli.Error{Exit: cli.ExitFailed, Code: "SCHEMA", Message: fault.Error(), Err: fault}
			break
		}
		r.printer.rejected(fault)
		before := result.Usage
		result, err = r.turn(
			ctx,
			fmt.Sprintf("This was rejected: %v. Answer again, with nothing but the JSON value.", fault),
			"",
		)
		result.Usage.Prompt += before.Prompt
		result.Usage.Completion += before.Completion
		result.Usage.Cached += before.Cached
	}
	return r.printer.done(result, err)
}
