package mcpbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/protocol"
	"tapgw/providers"
)

// keep is a stand-in for the directory of results.
func keep(mimeType string, data []byte) (string, error) {
	if mimeType == "audio/full" {
		return "", errors.New("the disk is full")
	}
	return fmt.Sprintf("/kept/%d", len(data)), nil
}

// asJSON writes a result as the wire has it.
func asJSON(t *testing.T, v any) string {
	t.Helper()
	if c, ok := v.(providers.Content); ok {
		message := string(protocol.Append(nil, &protocol.ToolResult{Content: c.Parts}))
		text, ok := strings.CutPrefix(message, `{"type":"tool.result","id":"",`)
		if !ok {
			t.Fatalf("the message %s, want it to begin with its type", message)
		}
		if c.Data == nil {
			return "{" + text
		}
		return "{" + strings.TrimSuffix(text, "}") + `,"data":` + asJSON(t, c.Data) + "}"
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// A server's result keeps its parts; a part that is too large for a message is in a file.
func TestConvert(t *testing.T) {
	png := []byte("\x89PNG")
	size := int64(7)
	for name, tt := range map[string]struct {
		result mcp.CallToolResult
		want   string // as JSON, or the error
	}{
		"nothing": {mcp.CallToolResult{}, `""`},
		"structured": {mcp.CallToolResult{StructuredContent: map[string]any{"a": "<"}},
			`{"a":"<"}`},
		"structured list": {mcp.CallToolResult{StructuredContent: []any{1.0}}, `"[1]"`},
		"a key twice": {mcp.CallToolResult{
			Content:           []mcp.Content{&mcp.TextContent{Text: `{"n":1,"n":2}`}},
			StructuredContent: map[string]any{"n": 2.0},
		}, `{"n":2}`},
		"structured again": {mcp.CallToolResult{
			Content:           []mcp.Content{&mcp.TextContent{Text: `{ "n": 12345678901234567890 }`}},
			StructuredContent: map[string]any{"n": 12345678901234567890.0},
		}, `{"n":12345678901234567890}`},
		"structured beside": {mcp.CallToolResult{
			Content:           []mcp.Content{&mcp.TextContent{Text: "it is 1"}},
			StructuredContent: map[string]any{"n": 1.0},
		},
			`{"content":[{"type":"text","text":"it is 1"},{"type":"text","text":"{\"n\":1}"}],"data":{"n":1}}`},
		"images": {mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: "look"}, &mcp.ImageContent{MIMEType: "image/png", Data: png},
			&mcp.ImageContent{MIMEType: "image/gif", Data: png},
		}},
			`{"content":[{"type":"text","text":"look"},{"type":"image","data":"iVBORw==","mimeType":"image/png"},` +
				`{"type":"image","data":"iVBORw==","mimeType":"image/gif"}]}`},
		"no image": {mcp.CallToolResult{Content: []mcp.Content{
			&mcp.ImageContent{MIMEType: "image/png,x", Data: png},
			&mcp.ImageContent{MIMEType: "text/html", Data: png},
			&mcp.ImageContent{MIMEType: "image/png", Data: make([]byte, maxInline+1)},
		}},
			`{"content":[{"type":"text","text":"[image, image/png,x, 4 bytes: its type is not that of image]"},` +
				`{"type":"text","text":"[image, text/html, 4 bytes: its type is not that of image]"},` +
				`{"type":"image","mimeType":"image/png","file":{"path":"/kept/2097153","mimeType":"image/png"}}]}`},
		"others": {mcp.CallToolResult{Content: []mcp.Content{
			&mcp.AudioContent{MIMEType: "audio/wav", Data: png},
			&mcp.ResourceLink{URI: "file:///a\x1b", Name: "a", MIMEType: "text/plain", Size: &size},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "mem://b", Text: "b"}},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "mem://c", MIMEType: "x/y",
				Blob: png}},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "mem://d",
				MIMEType: "image/png", Blob: png}},
			&mcp.EmbeddedResource{},
		}},
			`{"content":[{"type":"audio","mimeType":"audio/wav","file":{"path":"/kept/4","mimeType":"audio/wav"}},` +
				`{"type":"resource","mimeType":"text/plain","uri":"file:///a\u001b","name":"a","description":"7 bytes"},` +
				`{"type":"resource","text":"b","uri":"mem://b"},` +
				`{"type":"resource","mimeType":"x/y","uri":"mem://c","file":{"path":"/kept/4","mimeType":"x/y"}},` +
				`{"type":"resource","data":"iVBORw==","mimeType":"image/png","uri":"mem://d"},` +
				`{"type":"text","text":"[a resource without content]"}]}`},
		"nothing kept": {mcp.CallToolResult{Content: []mcp.Content{
			&mcp.AudioContent{MIMEType: "audio/full", Data: png},
		}}, `"[audio, audio/full, 4 bytes: it can't be kept: the disk is full]"`},
		"error": {mcp.CallToolResult{
			IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no"}},
		}, `no`},
		"error of none": {mcp.CallToolResult{IsError: true}, `the MCP server gave no reason`},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := convert(&tt.result, keep)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = asJSON(t, v)
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A long text is cut, and says so.
func TestConvertCuts(t *testing.T) {
	v, err := convert(&mcp.CallToolResult{Content: []mcp.Content{
		&mcp.TextContent{Text: strings.Repeat("ä", maxText)},
	}}, keep)
	got, _ := v.(string)
	if err != nil || len(got) > maxText+100 ||
		!strings.HasSuffix(got, "ä\n[cut here: the whole text has 2097152 bytes]") {
		t.Errorf(
			"got %d bytes that end with %q (%v), want at most %d and a note",
			len(got),
			got[max(0, len(got)-80):],
			err,
			maxText+100,
		)
	}
}

// Of any output of a program, however it is cut, the lines that may be messages get through whole,
// and no others.
func FuzzMessages(f *testing.F) {
	f.Add("starting\n{\"a\":1}\n\n  [1]\nlistening on {x}\n", 3)
	f.Add("{\n}\n"+strings.Repeat("n", maxNoise*2), 1000)
	f.Fuzz(func(t *testing.T, printed string, size int) {
		var got, noise []string
		m := &messages{
			ReadCloser: io.NopCloser(strings.NewReader(printed)),
			noise:      func(line string) { noise = append(noise, line) },
		}
		var out bytes.Buffer
		if _, err := io.CopyBuffer(struct{ io.Writer }{&out}, m,
			make([]byte, min(max(size, 1), 1<<16))); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(printed) {
			if line = strings.TrimLeft(line, " \t\r\n"); line != "" &&
				(line[0] == '{' || line[0] == '[') {
				got = append(got, line)
			}
		}
		if want := strings.Join(got, ""); out.String() != want {
			t.Errorf("what gets through of %q is %q, want %q", printed, out.String(), want)
		}
		for _, line := range noise {
			if len(line) > maxNoise || strings.ContainsRune(line, '\n') {
				t.Errorf("the noise %q, want one line of at most %d bytes", line, maxNoise)
			}
		}
	})
}

// A server that is at work on a call is not lost because it lists nothing meanwhile.
func TestBusy(t *testing.T) {
	u := &upstream{}
	late := fmt.Errorf("listing: %w", context.DeadlineExceeded)
	if u.isBusy(late) {
		t.Error("without a call, a server that does not answer is busy, want it lost")
	}
	_, done := u.calls.begin(t.Context())
	if !u.isBusy(late) || u.isBusy(errors.New("EOF")) || u.isBusy(nil) {
		t.Errorf("with a call: late %v, broken %v, no error %v, want busy for the first only",
			u.isBusy(late), u.isBusy(errors.New("EOF")), u.isBusy(nil))
	}
	if done(); u.isBusy(late) {
		t.Error("after the call, a server that does not answer is busy, want it lost")
	}
}

func TestValidName(t *testing.T) {
	long := strings.Repeat("x", 70)
	for name, want := range map[string]string{
		"a": "a", "a.b/c": "a_b_c", "Ä": "_", "": withHash("", "", 64),
		long:     strings.Repeat("x", 55) + withHash("", long, 64),
		"{|}@[`": "______",
	} {
		if got := validName(name, 64); got != want || got == "" || len(got) > 64 {
			t.Errorf("validName(%q) = %q, want %q", name, got, want)
		}
	}
}

// A tool is offered without an output schema that is too large, or that a provider can't have.
func TestToolOf(t *testing.T) {
	for name, tt := range map[string]struct {
		schema, description string
		isKept              bool
	}{
		"fits": {`{"type":"object"}`, "d", true},
		"a list": {`{"type":"array"}`,
			"d\nThe result is JSON by this schema: {\"type\":\"array\"}", false},
		"too large": {`{"type":"object","title":"` + strings.Repeat("x", maxResultSchema) + `"}`,
			"d", false},
		"nonsense": {`{"type":7}`, "d\nThe result is JSON by this schema: {\"type\":7}", false},
	} {
		tool := toolOf(&mcp.Tool{Name: "t", Description: "d",
			OutputSchema: json.RawMessage(tt.schema)})
		if tool.Description != tt.description || (tool.OutputSchema != nil) != tt.isKept {
			t.Errorf("%s: got the description %q and the schema %.80s, want %q and one: %v", name,
				tool.Description, tool.OutputSchema, tt.description, tt.isKept)
		}
	}
	tool := toolOf(&mcp.Tool{Name: "t", Title: "\x1b[2JT", Description: "line\r\n\x07two é"})
	if tool.Title != `\x1b[2JT` || tool.Description != "line\n\\x07two é" {
		t.Errorf("got the title %q and the description %q, want no control character in them",
			tool.Title, tool.Description)
	}
}
