package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// eventsSchemaVar names the variable with the path of the schema of events.
const eventsSchemaVar = "LSCLIENT_TEST_EVENTS"

// exitUndocumented is the exit code of a program that has printed an event against the schema.
const exitUndocumented = 99

// mainWithCheckedEvents is main. It checks each line that agent, chat and orchestrate print with
// --json against the schema of events, so that every script shows whether its events are
// documented.
func mainWithCheckedEvents() {
	runsTurns := slices.ContainsFunc([]string{"agent", "chat", "orchestrate"},
		func(name string) bool {
			return slices.Contains(os.Args, name)
		})
	if !runsTurns || !slices.Contains(os.Args, "--json") || os.Getenv(eventsSchemaVar) == "" {
		main()
	}
	schema, err := readEventsSchema(os.Getenv(eventsSchemaVar))
	if err != nil {
		panic(err)
	}
	out := &eventChecker{out: os.Stdout, schema: schema}
	code := run(os.Args, os.Stdin, out, os.Stderr)
	if out.fault != nil {
		_, _ = fmt.Fprintln(os.Stderr, out.fault)
		code = exitUndocumented
	}
	os.Exit(code)
}

func readEventsSchema(file string) (*jsonschema.Schema, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	schema := &jsonschema.Schema{}
	return schema, json.Unmarshal(data, schema)
}

// eventChecker is a writer of lines. fault is the first line that is against the schema.
type eventChecker struct {
	out    io.Writer
	schema *jsonschema.Schema

	mu    sync.Mutex // guards the fields that follow
	rest  []byte     // of a line without its end
	fault error
}

func (c *eventChecker) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = append(c.rest, p...)
	for {
		line, rest, whole := bytes.Cut(c.rest, []byte("\n"))
		if !whole {
			break
		}
		c.rest = rest
		if err := checkEvent(c.schema, line); err != nil && c.fault == nil {
			c.fault = err
		}
	}
	return c.out.Write(p)
}

// checkEvent checks a line against the definition of its type, whose fault says more than that of
// all of them.
func checkEvent(schema *jsonschema.Schema, line []byte) error {
	var event map[string]any
	if err := json.Unmarshal(line, &event); err != nil {
		return fmt.Errorf("the event %s is no object: %w", line, err)
	}
	name, ok := event["type"].(string)
	if !ok {
		name = "failure"
	}
	if schema.Defs[name] == nil {
		return fmt.Errorf("the event %s has a type that is not documented", line)
	}
	one := &jsonschema.Schema{Ref: "#/$defs/" + name, Defs: schema.Defs}
	resolved, err := one.Resolve(nil)
	if err == nil {
		err = resolved.Validate(event)
	}
	if err != nil {
		return fmt.Errorf("the event %s is not as documented: %w", line, err)
	}
	return nil
}

func TestCheckEvent(t *testing.T) {
	for line, fault := range map[string]string{
		`{"type":"text","round":1,"delta":"x"}`:     "",
		`{"type":"text","delta":"x","color":"red"}`: "color",
		`{"type":"text"}`:                           "delta",
		`{"type":"news","delta":"x"}`:               "type that is not documented",
		`{"error":{"code":"USAGE","message":"x"}}`:  "",
		`{"type":"done","conversation":"c","text":"","usage":{"promptTokens":1,"completionTokens":1,"cachedTokens":1,"x":1}}`: "x",
		`text`: "is no object",
	} {
		schema, err := readEventsSchema("../../docs/lsclient-events.schema.json")
		if err != nil {
			t.Fatal(err)
		}
		err = checkEvent(schema, []byte(line))
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: got %v, want %q", line, err, fault)
		}
	}
}

// Every type of event is in the list of them.
func TestEventsSchemaIsWhole(t *testing.T) {
	schema, err := readEventsSchema("../../docs/lsclient-events.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range schema.OneOf {
		got = append(got, strings.TrimPrefix(s.Ref, "#/$defs/"))
	}
	for name, s := range schema.Defs {
		if s.Properties["type"] != nil && !slices.Contains(got, name) {
			t.Errorf("got %q, want %s too", got, name)
		}
	}
	if _, err := schema.Resolve(nil); err != nil {
		t.Error(err)
	}
}
