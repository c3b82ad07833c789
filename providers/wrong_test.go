package providers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tapgw/providers"
)

func TestWrongOptions(t *testing.T) {
	home(t)
	tests := map[string]struct {
		name string
		opts providers.Options
		env  string
		want string
	}{
		"no name":     {"", providers.Options{}, "", "its name must be"},
		"bad name":    {"_x", providers.Options{}, "", "its name must be"},
		"scheme":      {"sample", providers.Options{URL: "ftp://127.0.0.1"}, "", "Options.URL"},
		"no host":     {"sample", providers.Options{URL: "ws://"}, "", "Options.URL"},
		"no URL":      {"sample", providers.Options{URL: "ws://a b"}, "", "Options.URL"},
		"environment": {"sample", providers.Options{}, "localhost:9400", "TAP_GATEWAY_URL"},
		"metadata": {"sample", providers.Options{Metadata: map[string]any{"a": func() {}}}, "",
			"Options.Metadata"},
		"context": {"sample", providers.Options{Context: strings.Repeat("x", 8193)}, "",
			"hello.context: 8193 bytes are over the limit of 8192"},
		"startup": {"sample", providers.Options{StartupContext: strings.Repeat("x", 8193)}, "",
			"hello.startup_context: 8193 bytes are over the limit of 8192"},
		"concurrency": {"sample",
			providers.Options{Concurrency: providers.Concurrency{Max: 1, Scope: "world"}}, "",
			"hello.concurrency.scope: must be one of instance, provider, tool"},
		"no calls": {"sample",
			providers.Options{Concurrency: providers.Concurrency{Scope: providers.PerTool}}, "",
			"hello.concurrency.max: must be at least 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TAP_GATEWAY_URL", tt.env)
			tt.opts.Logger = quiet
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := providers.New(tt.name, &tt.opts).Run(ctx)
			if err == nil || !strings.Contains(err.Error(), tt.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("Run returned %v, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestWrongTools(t *testing.T) {
	ok := fixed("ok", nil, nil)
	with := func(change func(*providers.Tool)) providers.Tool { t := ok; change(&t); return t }
	tests := map[string]struct {
		tool providers.Tool
		want string
	}{
		"no name": {with(func(t *providers.Tool) {
			t.Name = ""
		}), `tool "": its name must be`},
		"bad name": {with(func(t *providers.Tool) {
			t.Name = "a b"
		}), `tool "a b": its name must be`},
		"no description": {with(func(t *providers.Tool) {
			t.Description = ""
		}), `tool "ok": it needs a description`},
		"no handler": {with(func(t *providers.Tool) {
			t.Handler = nil
		}), `tool "ok": it needs a handler`},
		"timeout": {with(providers.Timeout(2 * time.Hour)), `tool "ok": its timeout is 2h0m0s`},
		"not JSON": {with(func(t *providers.Tool) { t.Parameters = json.RawMessage(`{`) }),
			`tool "ok": its parameters: not valid JSON`},
		"not an object": {with(func(t *providers.Tool) {
			t.Parameters = json.RawMessage(`{"type":"string"}`)
		}),
			`tool "ok": its parameters: `},
		"bad schema": {with(func(t *providers.Tool) {
			t.Parameters = json.RawMessage(
				`{"type":"object","properties":7}`)
		}), `tool "ok": its parameters: `},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := providers.New("sample", nil)
			_, added := p.AddTool(t.Context(), tt.tool)
			_, set := p.SetTools(t.Context(), []providers.Tool{ok, tt.tool})
			for how, err := range map[string]error{"AddTool": added, "SetTools": set} {
				if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
					t.Errorf("%s: %v, want %s", how, err, tt.want)
				}
			}
		})
	}

	p := providers.New("sample", nil)
	if _, err := p.SetTools(t.Context(), []providers.Tool{ok, ok}); err == nil ||
		!strings.Contains(err.Error(), "twice") {
		t.Errorf(`the same tool twice: %v, want an error and "twice" in it`, err)
	}
	var many []providers.Tool
	for i := range 101 {
		many = append(many, fixed(fmt.Sprintf("t%d", i), nil, nil))
	}
	if _, err := p.SetTools(t.Context(), many); err == nil ||
		!strings.Contains(err.Error(), "100") {
		t.Errorf("101 tools: %v, want the limit", err)
	}
	if _, err := p.SetTools(t.Context(), many[:100]); err != nil {
		t.Errorf("100 tools: got %v, want no error", err)
	}
	if _, err := p.AddTool(t.Context(), many[100]); err == nil {
		t.Error("the 101st tool was taken, want an error")
	}
	if _, err := p.AddTool(t.Context(), many[99]); err != nil {
		t.Errorf("replacing a tool: got %v, want no error", err)
	}
}

func TestNewTool(t *testing.T) {
	type nested struct {
		Tags []string       `json:"tags,omitempty"`
		When map[string]int `json:"when"`
	}
	fn := func(_ context.Context, in *nested) ([]string, error) { return in.Tags, nil }
	tool, err := providers.NewTool("pointer", "takes a pointer", fn)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"type":"object"`; !strings.HasPrefix(string(tool.Parameters), want) {
		t.Errorf("parameters %s, want %s…", tool.Parameters, want)
	}
	out, err := tool.Handler(t.Context(), json.RawMessage(`{"tags":["a"],"when":{}}`))
	if got, ok := out.([]string); err != nil || !ok || len(got) != 1 || got[0] != "a" {
		t.Errorf(`handler returned %v, %v, want ["a"]`, out, err)
	}
	if _, err := tool.Handler(t.Context(), nil); err != nil {
		t.Errorf("calling without arguments: got %v, want no error", err)
	}

	if _, err := providers.NewTool("loose", "takes anything",
		func(context.Context, map[string]any) (any,
			error) {
			return nil, nil
		}); err != nil {
		t.Errorf("a tool that takes a map: got %v, want no error", err)
	}
	if _, err := providers.NewTool("none", "takes nothing",
		func(context.Context, struct{}) (any, error) {
			return nil,
				nil
		}); err != nil {
		t.Errorf("a tool that takes an empty struct: got %v, want no error", err)
	}
	if _, err := providers.NewTool("text", "takes text",
		func(context.Context, string) (any, error) {
			return nil,
				nil
		}); err == nil || !strings.Contains(err.Error(), `tool "text"`) {
		t.Errorf("text for arguments: %v, want an error that names the tool", err)
	}
	if _, err := providers.NewTool("chan", "takes a channel",
		func(context.Context, struct{ C chan int }) (any,
			error) {
			return nil, nil
		}); err == nil {
		t.Error("a tool that takes a channel: got no error, want one")
	}

	defer func() {
		if v := recover(); v == nil || !strings.Contains(v.(string), `tool "no name"`) {
			t.Errorf("AddTool panicked with %v, want the tool's name in it", v)
		}
	}()
	providers.AddTool(providers.New("sample", nil), "no name", "says hello", greet)
}

// The reason why a connection fails is one plain line.
func TestConnectErrors(t *testing.T) {
	dir := home(t)
	writeState(t, dir, ".provider-token", "ptk-file")
	tests := map[string]struct {
		status int
		body   string
		want   string
	}{
		"a gateway that is full": {503,
			`{"error":{"code":"RATE_LIMITED","message":"50 providers are connected"}}`,
			"50 providers are connected"},
		"no gateway at all": {200, "<html>", "it answered 200 OK; is it a gateway?"},
		"nobody":            {0, "", "connection refused"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(tt.status)
					_, _ = io.WriteString(w, tt.body)
				}))
			defer srv.Close()
			if tt.status == 0 {
				srv.Close()
			}
			transport := &http.Transport{DisableKeepAlives: true}
			o := &providers.Options{URL: srv.URL, Logger: quiet,
				HTTPClient: &http.Client{Transport: transport}}
			errs := errorsOf(o)
			run(t, providers.New("sample", o))
			err := receive(t, errs)
			if got := err.Error(); !strings.HasPrefix(got, "connecting to "+srv.URL+": ") ||
				!strings.HasSuffix(got, tt.want) {
				t.Errorf("OnError heard %v, want %q", err, tt.want)
			}
		})
	}

	t.Run("closed with a reason", func(t *testing.T) {
		g := newGateway(t)
		o := &providers.Options{URL: g.url, Logger: quiet}
		errs := errorsOf(o)
		run(t, providers.New("sample", o))
		peer := g.accept()
		peer.next("auth")
		_ = peer.ws.Close(1001, "the gateway is shutting down")
		if err := receive(t, errs); !strings.HasSuffix(err.Error(),
			"the gateway closed it: the gateway is shutting down (1001)") {
			t.Errorf("OnError heard %v, want the reason", err)
		}
	})
}
