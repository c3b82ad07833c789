package mcpbridge

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/protocol"
)

// A part that a model can't be shown, or that is too large for a message, is whole in a private
// file that the result names.
func TestFilesOfResults(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", maxInline+1)
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "shoot", InputSchema: anyObject},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{
				&mcp.ImageContent{MIMEType: "image/png", Data: []byte(large)},
				&mcp.ImageContent{MIMEType: "image/png", Data: []byte("small")},
				&mcp.AudioContent{MIMEType: "audio/wav", Data: []byte("wav")},
			}}, nil
		})
	r := newRig(t)
	s, h := r.session("one", "/w")
	r.bridge(serveHTTP(t, server, eras[0]))
	h.has(t, "shoot")
	o := callTool(s, "shoot", "{}")
	if len(o.Content) != 3 {
		t.Fatalf("shoot() = %.500s, want three parts", o.Text())
	}
	for i, want := range []struct{ data, extension string }{{large, ".png"}, {"small", ""},
		{"wav", ".wav"}} {
		p := o.Content[i]
		if string(p.Data) != want.data {
			t.Errorf("part %d has %d bytes, want %d", i, len(p.Data), len(want.data))
		}
		if (p.File != nil) != (want.extension != "") {
			t.Errorf("part %d is in the file %v, want one: %v", i, p.File, want.extension != "")
		}
		if p.File == nil {
			continue
		}
		info, err := os.Stat(p.File.Path)
		if err != nil || info.Mode() != 0o600 || filepath.Ext(p.File.Path) != want.extension {
			t.Errorf("the file is %v (%v), want a private one that ends with %s", info, err,
				want.extension)
		}
		if !strings.Contains(o.Text(), p.File.Path) {
			t.Errorf("the text is %q, want the path %s in it", o.Text(), p.File.Path)
		}
	}
}

// A directory of results keeps the newest.
func TestOldFilesGo(t *testing.T) {
	dir := t.TempDir()
	for i := range maxFiles + 5 {
		if err := makeRoom(dir, 1); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != maxFiles {
		t.Fatalf("there are %d files (%v), want %d", len(entries), err, maxFiles)
	}
	// sparse
	if err := os.Truncate(filepath.Join(dir, entries[3].Name()), maxFileBytes); err != nil {
		t.Fatal(err)
	}
	if err := makeRoom(dir, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, entries[3].Name())); err == nil {
		t.Errorf("the file of %d bytes is still there, want it gone", maxFileBytes)
	}
}

// The largest result that the bridge makes has room in a message.
func TestResultHasRoom(t *testing.T) {
	text := strings.Repeat("x", maxText-20)
	v, err := convert(&mcp.CallToolResult{StructuredContent: map[string]any{"a": text},
		Content: []mcp.Content{
			&mcp.TextContent{Text: "and"}, &mcp.ImageContent{MIMEType: "image/png",
				Data: make([]byte, maxInline)},
		}}, keep)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(asJSON(t, v)); n < maxText+maxInline || n > protocol.MaxResult {
		t.Errorf("the result has %d bytes, want at most %d", n, protocol.MaxResult)
	}
	if !json.Valid([]byte(asJSON(t, v))) {
		t.Error("the result is no JSON, want some")
	}
}
