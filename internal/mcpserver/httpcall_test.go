package mcpserver_test

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"tapgw/internal/gateway"
	"tapgw/providers"
)

const initialize = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"capabilities":{},` +
	`"protocolVersion":"2025-11-25","clientInfo":{"name":"x","version":"1"}}}`

// caller makes calls by its own HTTP.
type caller struct {
	*world
	headers map[string]string
	meta    map[string]any // of each call
}

// caller connects a caller of a revision.
func (w *world) caller(version string) *caller {
	w.Helper()
	c := &caller{world: w, headers: map[string]string{"MCP-Protocol-Version": version}}
	if version >= "2026" {
		c.meta = map[string]any{
			"io.modelcontextprotocol/protocolVersion":    version,
			"io.modelcontextprotocol/clientCapabilities": map[string]any{"roots": struct{}{}},
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "x"},
		}
		return c
	}
	answer, _ := c.send(initialize, nil)
	c.headers["Mcp-Session-Id"] = answer.Header.Get("Mcp-Session-Id")
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil)
	return c
}

// send posts a message, with headers that replace the usual ones.
func (c *caller) send(body string, headers map[string]string) (*http.Response, string) {
	c.Helper()
	r, err := http.NewRequestWithContext(c.Context(), http.MethodPost, c.url+"/mcp",
		strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range c.headers {
		r.Header.Set(name, value)
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	answer, err := c.authorized().Do(r)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.Fatal(err)
	}
	return answer, string(text)
}

// call is a call with more members of its params and headers.
func (c *caller) call(tool string, args any, params map[string]any, headers map[string]string,
) (*http.Response, string) {
	c.Helper()
	all := map[string]any{"name": tool, "arguments": args}
	if c.meta != nil {
		all["_meta"] = c.meta
	}
	maps.Copy(all, params)
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 7, "method": "tools/call",
		"params": all})
	if err != nil {
		c.Fatal(err)
	}
	sent := map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": tool}
	maps.Copy(sent, headers)
	return c.send(string(body), sent)
}

// messages are the messages of an answer, of which each stands in one event.
func messages(t *testing.T, text string) (all []any) {
	t.Helper()
	for event := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "event: message\ndata: ")
		var v any
		if err := json.Unmarshal([]byte(data), &v); !ok || err != nil {
			t.Fatalf("got the event %q (%v), want a message in it", event, err)
		}
		all = append(all, v)
	}
	return all
}

// isDirect reports whether the gateway has answered without the SDK, which knows no length.
func isDirect(r *http.Response) bool { return r.ContentLength > 0 }

// A call that the gateway answers itself has the SDK's answer. A member of its parameters that has
// no meaning leaves a call to the SDK.
func TestAnswersBesideTheSDK(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		w.provide(w.session(),
			providers.Tool{Name: "lines", Description: "d",
				OutputSchema: json.RawMessage(`{"type":"object"}`),
				Handler: func(context.Context, json.RawMessage) (any, error) {
					return json.RawMessage("{\n\t\"a\" : [ 1, \"<\\u2028\" ]\r\n}"), nil
				}},
			providers.Tool{Name: "parts", Description: "d",
				Handler: func(context.Context, json.RawMessage) (any, error) {
					return providers.Content{Parts: []providers.Part{{Type: "text", Text: "look"},
						{Type: "image", MimeType: "image/png", Data: []byte("png")}}}, nil
				}})
		c := w.caller(version)
		text := map[string]any{"text": "a\"\\\n\r\u2028<&>é\x00😀"}
		for tool, args := range map[string]any{"echo": text, "shape": nil,
			"fails": map[string]any{}, "lines": nil, "parts": nil} {
			direct, got := c.call(tool, args, nil, nil)
			other, want := c.call(tool, args, map[string]any{"unknown": 1}, nil)
			if !isDirect(direct) || isDirect(other) {
				t.Errorf("%s: lengths %d and %d, want one without the SDK and one with it", tool,
					direct.ContentLength, other.ContentLength)
			}
			if got, want := messages(t, got), messages(t, want); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %v, with the SDK %v", tool, got, want)
			}
			for _, name := range []string{"Content-Type", "Cache-Control"} {
				if got, want := direct.Header.Get(name), other.Header.Get(name); got != want {
					t.Errorf("%s: %s is %q, with the SDK %q", tool, name, got, want)
				}
			}
		}
	})
}

// A gateway that exports spans leaves all calls to the SDK. Any other gives the same answers to the
// same bytes.
func TestSameBytesSameAnswers(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		var callers []*caller
		for _, change := range []func(*gateway.Options){
			func(*gateway.Options) {},
			func(o *gateway.Options) { o.Tracer = sdktrace.NewTracerProvider().Tracer("test") },
		} {
			w := newWorld(t, 60, change)
			w.provide(w.session())
			callers = append(callers, w.caller(version))
		}
		same := func(body string, headers map[string]string) {
			t.Helper()
			all := map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": "echo"}
			maps.Copy(all, headers)
			direct, got := callers[0].send(body, all)
			other, want := callers[1].send(body, all)
			isSame := got == want
			if direct.StatusCode == http.StatusOK && other.StatusCode == http.StatusOK {
				isSame = reflect.DeepEqual(messages(t, got), messages(t, want))
			}
			if !isSame || direct.StatusCode != other.StatusCode {
				t.Errorf("%.300q %v: got %d %s, with the SDK %d %s", body, headers,
					direct.StatusCode, got, other.StatusCode, want)
			}
		}
		envelope := func(id, params string) string {
			return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{` + params +
				`}}`
		}
		const in = `"name":"echo","arguments":{"text":"x"},"_meta":`
		inMeta := func(members string) string { return in + "{" + members + "}" }
		meta := func(more string) string { return inMeta(strings.TrimPrefix(more, ",")) }
		if callers[0].meta != nil {
			const name = `"io.modelcontextprotocol/`
			revision := name + `protocolVersion":"` + version + `",` + name + `clientCapabilities":`
			meta = func(more string) string { return inMeta(revision + "{}" + more) }
			for _, member := range []string{"1", "[]", `{"roots":{"listChanged":1}}`, `{"x":1}`,
				`{"sampling":{"tools":1}}`, `{"elicitation":null}`} {
				same(envelope("1", inMeta(revision+member)), nil)
			}
			for _, client := range []string{"null", "1", "{}", `{"name":1}`,
				`{"name":"x","icons":1}`} {
				same(envelope("1", meta(","+name+`clientInfo":`+client)), nil)
			}
		}
		plain := envelope("1", meta(""))
		for _, id := range []string{"-0", "1.0", "9007199254740993", `"\u0061"`, `""`, "null", "[]",
			"01"} {
			same(envelope(id, meta("")), nil)
		}
		for _, token := range []string{"1", `"p"`, "null", "1.5", "true", "[\n\n1]", "{\n}"} {
			same(envelope("1", meta(`,"progressToken":`+token)), nil)
		}
		for _, body := range []string{"", "null", "[" + plain + "]", "\ufeff" + plain, plain + "\n",
			plain + "x", plain + plain, envelope("1", meta("")+`,"name":"fails"`),
			envelope("1", meta("")+`,"Name":"fails"`), envelope("1", meta("")+`,"task":{}`),
			envelope("1", `"name":null`), envelope(`1,"id":2`, meta("")),
			envelope(`1,"result":{}`, meta("")), strings.Replace(plain, `{"text":"x"}`, "null", 1),
			strings.Replace(plain, `{"text":"x"}`, `{"text":"\ud800"}`, 1)} {
			same(body, nil)
		}
		for _, header := range [][2]string{{"Accept", "*/*"}, {"Accept", "application/json"},
			{"Accept", "application/jsonx, text/event-stream"},
			{"Accept", "application/json, text/event-streams"},
			{"Content-Type", "application/json; charset=utf-8"},
			{"Content-Type", "application/json;;"},
			{"Last-Event-ID", ""}, {"Last-Event-ID", "1"}, {"Mcp-Name", ""},
			{"MCP-Protocol-Version", "2025-06-18"}, {"MCP-Protocol-Version", "1"}} {
			same(plain, map[string]string{header[0]: header[1]})
		}
	})
}

// A request that is wrong or unusual is the SDK's to answer.
func TestCallsForTheSDK(t *testing.T) {
	const modern, handshake = "2026-07-28", "2025-11-25"
	meta := func(name string, value any) map[string]any {
		return map[string]any{"_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    modern,
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
			"io.modelcontextprotocol/" + name:            value}}
	}
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	header := func(name, value string) map[string]string { return map[string]string{name: value} }
	for name, tc := range map[string]struct {
		version string
		tool    string // "": echo
		args    any
		params  map[string]any
		headers map[string]string
		status  int
		want    string // in the answer
	}{
		"another name in the header": {version: modern, headers: header("Mcp-Name", "fails"),
			status: 400, want: "mismatch"},
		"another method in it": {version: modern, headers: header("Mcp-Method", "ping"),
			status: 400, want: "mismatch"},
		"no capabilities": {version: modern, params: meta("clientCapabilities", nil),
			status: 400, want: "clientCapabilities"},
		"wrong capabilities": {version: modern, params: meta("clientCapabilities", 1),
			status: 400, want: "clientCapabilities"},
		"a wrong client": {version: modern, params: meta("clientInfo", 1),
			status: 400, want: "clientInfo"},
		"another revision": {version: modern, params: meta("protocolVersion", "2027-01-01"),
			status: 400, want: "2027-01-01"},
		"no events": {version: modern, headers: header("Accept", "application/json"),
			status: 400, want: "Accept"},
		"no JSON": {version: handshake, headers: header("Content-Type", "text/plain"),
			status: 415, want: "Content-Type"},
		"an unknown client": {version: handshake, headers: header("Mcp-Session-Id", "x"),
			status: 404, want: "session not found"},
		"an unknown revision": {version: handshake, headers: header("MCP-Protocol-Version", "1"),
			status: 400, want: "Unsupported"},
		"an unknown tool": {version: handshake, tool: "x", status: 200,
			want: "unknown tool"},
		"the gateway's own tool": {version: handshake, tool: "query", status: 200, want: "cursor"},
		"deep arguments": {version: handshake, args: json.RawMessage(deep),
			status: 400, want: "depth"},
		"a tool with headers": {version: modern, tool: "headed", args: map[string]any{"a": "x"},
			status: 400, want: "Mcp-Param-A"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 60)
			w.provide(w.session(), providers.Tool{Name: "headed", Description: "d",
				Parameters: json.RawMessage(
					`{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}`),
				Handler: func(context.Context, json.RawMessage) (any, error) { return "", nil }})
			tool := cmp.Or(tc.tool, "echo")
			answer, text := w.caller(tc.version).call(tool, tc.args, tc.params, tc.headers)
			if answer.StatusCode != tc.status || !strings.Contains(text, tc.want) {
				t.Errorf("got %d %s, want %d and %q", answer.StatusCode, text, tc.status, tc.want)
			}
		})
	}
}

// A client of a handshake revision cancels a call by its id.
func TestCancelBesideTheSDK(t *testing.T) {
	w := newWorld(t, 60)
	p := w.provide(w.session())
	c := w.caller("2025-11-25")
	ended := make(chan bool, 1)
	go func() {
		answer, _ := c.call("hang", nil, nil, nil)
		ended <- isDirect(answer)
	}()
	w.receive("the call", p.begun)
	cancel := func(id string) {
		answer, text := c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled",`+
			`"params":{"requestId":`+id+`}}`, nil)
		if answer.StatusCode != http.StatusAccepted {
			t.Errorf("cancelling %s: got %d %s, want 202", id, answer.StatusCode, text)
		}
	}
	cancel("8")
	cancel("7")
	w.receive("the cancellation at the provider", p.cancelled)
	if !<-ended {
		t.Error("the SDK has answered the call, want the gateway")
	}
}

// Arguments that a provider's SDK drops with their message are refused: the call would never be
// answered.
func TestArgumentsThatProvidersDrop(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		w.provide(w.session(), providers.Tool{Name: "open", Description: "d",
			Handler: func(context.Context, json.RawMessage) (any, error) { return "ran", nil }})
		c := w.caller(version)
		plain, _ := json.Marshal(map[string]any{"name": "open", "_meta": c.meta,
			"arguments": map[string]any{"a": 1}})
		for _, args := range []string{`{"a":1,"a":2}`, `{"b":{"a":1,"\u0061":2}}`,
			"{\"a\":\"\xff\"}"} {
			params := strings.Replace(string(plain), `{"a":1}`, args, 1)
			_, got := c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`,
				map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": "open"})
			if !strings.Contains(got, "INVALID_ARGUMENTS") {
				t.Errorf("%q: got %s, want INVALID_ARGUMENTS", args, got)
			}
		}
	})
}
