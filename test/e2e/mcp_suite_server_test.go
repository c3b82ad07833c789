//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tapgw/providers"
)

// TestMCPSuiteServer runs the official conformance suite against /mcp of a gateway. A provider
// gives its session the tools that the suite calls.
func TestMCPSuiteServer(t *testing.T) {
	t.Parallel()
	for _, revision := range suiteRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			g := h.serveFiles()
			session := h.local()
			fixtures := start(t, "fixtures", h.program("fixtures", session))
			fixtures.expect("bound")
			h.askingFile()
			h.waitTool(session, "test_elicitation")
			s := &suite{home: h, role: "server", revision: revision}
			s.args = []string{"--url", g.withToken() + "/mcp/s/" + session}
			s.run()
		})
	}
}

// withToken returns the URL of a proxy that adds the admin token to each request, because the suite
// has none. Host and Origin stay as they are.
func (g *gateway) withToken() string {
	g.t.Helper()
	target, err := url.Parse("http" + strings.TrimPrefix(g.url, "ws"))
	if err != nil {
		g.t.Fatal(err)
	}
	token := "Bearer " + g.home.read(".admin-token")
	own := &http.Transport{} // other servers of this process close the default one's connections
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Transport: own, FlushInterval: -1, // event streams
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("Authorization", token)
		},
	})
	g.t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
		own.CloseIdleConnections()
	})
	return proxy.URL
}

// fixtures is a program: a provider with the tools that the suite asks of a server.
func fixtures(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p := providers.New("fixtures", &providers.Options{Session: args[0],
		OnBound: func(context.Context, providers.Binding) { fmt.Println("bound") }})
	for _, t := range fixtureTools(p) {
		t.Description = "A tool for the suite"
		if t.Parameters == nil {
			t.Parameters = json.RawMessage(`{"type":"object"}`)
		}
		if _, err := p.AddTool(ctx, t); err != nil {
			return err
		}
	}
	return p.Run(ctx)
}

// A red pixel, and silence.
const (
	pngBase64 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	wavBase64 = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)

// fixtureTools are the tools, by the names that the suite knows.
func fixtureTools(p *providers.Provider) []providers.Tool {
	type handler = func(ctx context.Context, args json.RawMessage) (any, error)
	says := func(text string) handler {
		return func(context.Context, json.RawMessage) (any, error) { return text, nil }
	}
	file := func(name, mimeType, base string) handler {
		return func(ctx context.Context, _ json.RawMessage) (any, error) {
			call, _ := providers.CallFrom(ctx)
			path := filepath.Join(call.PersistDir, name)
			return providers.File{Path: path, MIMEType: mimeType}, os.WriteFile(path,
				decode64(base), 0o600)
		}
	}
	isThere := false
	return []providers.Tool{
		// The suite tries headers on the first tool by name. That must be none that asks the user.
		{Name: "a_quick_one", Handler: says("done")},
		{Name: "test_simple_text", Handler: says("This is a simple text response for testing.")},
		{Name: "test_image_content", Handler: func(context.Context, json.RawMessage) (any, error) {
			return providers.Image{Data: decode64(pngBase64)}, nil
		}},
		{Name: "test_audio_content", Handler: file("silence.wav", "audio/wav", wavBase64)},
		{Name: "test_embedded_resource", Handler: file("noise.bin", "application/octet-stream",
			"AAH/")},
		{Name: "test_multiple_content_types", Handler: func(context.Context, json.RawMessage) (any,
			error) {
			return providers.Content{Parts: []providers.Part{
				{Type: "text", Text: "a text"},
				{Type: "image", Data: decode64(pngBase64), MimeType: "image/png"},
				{Type: "resource", URI: "test://mixed", MimeType: "application/json",
					Text: `{"test":"data"}`},
			}}, nil
		}},
		{Name: "test_error_handling", Handler: func(context.Context, json.RawMessage) (any, error) {
			return nil, errors.New("this tool intentionally returns an error for testing")
		}},
		{Name: "test_tool_with_progress",
			Handler: func(ctx context.Context, _ json.RawMessage) (any, error) {
				for _, step := range []string{"begun", "half", "done"} {
					providers.Progress(ctx, step)
				}
				return "done", nil
			}},
		{Name: "test_streaming_elicitation", Handler: says("There is nothing to ask.")},
		{Name: "test_logging_tool", Handler: says("There is nothing to log.")},
		{Name: "test_reconnection", Handler: says("There is no reason to.")},
		{
			Name:    "test_x_mcp_header",
			Handler: says("seen"),
			Parameters: json.RawMessage(`{"type":"object","properties":{` +
				`"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`),
		},
		{Name: "json_schema_2020_12_tool", Handler: says("seen"),
			Parameters: json.RawMessage(schema2020)},
		{Name: "test_trigger_tool_change",
			Handler: func(ctx context.Context, _ json.RawMessage) (any, error) {
				var err error
				if isThere = !isThere; isThere {
					_, err = p.AddTool(ctx, providers.Tool{
						Name: "transient", Description: "Comes and goes",
						Handler: says("here")})
				} else {
					_, err = p.RemoveTool(ctx, "transient")
				}
				return "changed", err
			}},
	}
}

// schema2020 is a schema with what the revision 2020-12 of JSON Schema has, as the suite looks for
// it.
const schema2020 = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
"$defs":{"address":{"$anchor":"addressDef","type":"object",
	"properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},
	"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},"email":{"type":"string"}},
"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},
"then":{"required":["phone"]},"else":{"required":["email"]},"additionalProperties":false}`

func decode64(text string) []byte {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return data
}
