package mcpserver_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/providers"
)

// described are tools with all fields. Their results have the data of the test.
func described() (tools []providers.Tool) {
	result := func(_ context.Context, args json.RawMessage) (any, error) {
		var in struct {
			Result json.RawMessage `json:"result"`
		}
		err := json.Unmarshal(args, &in)
		return in.Result, err
	}
	for name, schema := range map[string]string{
		"count": `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`,
		"any":   `{"required":["n"]}`,
	} {
		tools = append(tools, providers.Tool{Name: name, Title: "Count things",
			Description: "Counts", OutputSchema: json.RawMessage(schema), Handler: result,
			Annotations: &providers.Annotations{ReadOnlyHint: new(true),
				OpenWorldHint: new(false)}})
	}
	return tools
}

// A client gets a tool's annotations as fields, and the description without them.
func TestToolFields(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		w.provide(w.session(), described()...)
		c := w.connect(version, "/mcp", w.gateway.AdminToken())
		c.hasTools(with("echo", "shape", "fails", "hang", "count", "any")...)
		list, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			schema, _ := tool.OutputSchema.(map[string]any)
			hints := tool.Annotations
			switch tool.Name {
			case "count", "any":
				if tool.Title != "Count things" || tool.Description != "Counts" ||
					schema["type"] != "object" ||
					hints == nil || !hints.ReadOnlyHint || hints.DestructiveHint != nil ||
					*hints.OpenWorldHint {
					t.Errorf("%s: got %+v with the hints %+v, want all its fields", tool.Name, tool,
						hints)
				}
			case "echo":
				if tool.Title != "" || hints != nil || schema != nil {
					t.Errorf("echo: got %+v, want no more than it has", tool)
				}
			}
		}
	})
}

// A result that does not fit the output schema comes as an error, whole: clients refuse others
// unread.
func TestResultThatDoesNotFit(t *testing.T) {
	w := newWorld(t, 60)
	w.provide(w.session(), described()...)
	c := w.connect(eras["modern"], "/mcp", w.gateway.AdminToken())
	c.hasTools(with("echo", "shape", "fails", "hang", "count", "any")...)
	for result, want := range map[string]string{
		`{"n":3}`:                                "",
		`{"n":"three"}`:                          "n: ",
		`"three"`:                                "it is not structured",
		`{"image":"data:image/png;base64,AAAA"}`: "it is not structured",
	} {
		r := c.call("count", map[string]any{"result": json.RawMessage(result)})
		var texts []string
		for _, part := range r.Content {
			if text, ok := part.(*mcp.TextContent); ok {
				texts = append(texts, text.Text)
			}
		}
		got := strings.Join(texts, "\n")
		if r.IsError != (want != "") || r.IsError == (r.StructuredContent != nil) ||
			!strings.Contains(got, want) ||
			r.IsError && (!strings.HasPrefix(got, "INTERNAL: the tool ran, but ") ||
				len(r.Content) < 2) {
			t.Errorf("%s: got %q, error %v, structure %v; want the result, and %q", result, got,
				r.IsError, r.StructuredContent, want)
		}
	}
}

// Parts of a result come as parts, those in files too, and the data beside them as the structure.
func TestPartsOfAResult(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		w.provide(w.session(), providers.Tool{Name: "parts", Description: "Gives parts",
			Handler: func(ctx context.Context, _ json.RawMessage) (any, error) {
				call, _ := providers.CallFrom(ctx)
				file := filepath.Join(call.PersistDir, "large.gif")
				return providers.Content{Data: map[string]int{"n": 1}, Parts: []providers.Part{
					{Type: "text", Text: "look"},
					{Type: "image", MimeType: "image/png", Data: []byte("png")},
					{Type: "image", MimeType: "image/gif", File: &providers.FileRef{Path: file}},
					{Type: "audio", MimeType: "audio/wav", Data: []byte("wav")},
					{Type: "resource", URI: "mem://a", Name: "a"},
					{Type: "resource", URI: "mem://b", Text: "b"},
					{Type: "resource", URI: "mem://c", Data: []byte("c")},
				}}, os.WriteFile(file, []byte("gif"), 0o600)
			}})
		c := w.connect(version, "/mcp", w.gateway.AdminToken())
		c.hasTools(with("echo", "shape", "fails", "hang", "parts")...)
		r := c.call("parts", nil)
		got, err := json.Marshal(r.Content)
		if err != nil {
			t.Fatal(err)
		}
		want :=
			`[{"type":"text","text":"look"},{"type":"image","mimeType":"image/png","data":"cG5n"},` +
				`{"type":"image","mimeType":"image/gif","data":"Z2lm"},{"type":"audio","mimeType":"audio/wav","data":"d2F2"},` +
				`{"type":"resource_link","uri":"mem://a","name":"a"},` +
				`{"type":"resource","resource":{"uri":"mem://b","text":"b"}},` +
				`{"type":"resource","resource":{"uri":"mem://c","blob":"Yw=="}}]`
		if structure, _ := json.Marshal(r.StructuredContent); string(got) != want ||
			string(structure) != `{"n":1}` {
			t.Errorf("got %s and the structure %s, want %s and {\"n\":1}", got, structure, want)
		}
	})
}
