// Package cloud stands in for GitHub's side of the Copilot language server: the
// session token, the model list, chat completions behind a scripted model, inline
// completions, and the sign-in by device code, plain or through a proxy. The
// language server itself is the real one.
package cloud

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"tapgw/internal/scriptmodel"
)

// User is the GitHub login that every token of the stand-in belongs to.
const User = "octo-test"

// The models of the stand-in are "scripted" and these: defaultModel is the one of chats that name
// no model, and the reasoner takes the reasoning efforts low, medium and high, and sees images.
const (
	defaultModel = "gpt-4.1"
	reasoner     = "reasoner"
)

// Cloud is a running stand-in. The embedded server has the requests of its model and the script
// that answers them. Its methods may be called from any goroutine; settings take effect at the next
// request.
type Cloud struct {
	*scriptmodel.Server
	Base  string // URL of every endpoint
	Proxy string // URL of a proxy that leads every https host here

	plain *httptest.Server
	tls   *httptest.Server
	proxy *httptest.Server

	mu         sync.Mutex // guards the fields that follow
	flags      string
	completion string
	device     device
	refuse     int
	tunnels    []Tunnel
}

// Start starts a stand-in on free ports of loopback, with the models scripted, gpt-4.1 (the
// default) and reasoner, for which reply answers. No user is refused, and a sign-in waits. Call
// [Cloud.Close] to stop it.
func Start(reply scriptmodel.ReplyFunc) (*Cloud, error) {
	model, err := scriptmodel.Start("127.0.0.1:0", reply)
	if err != nil {
		return nil, err
	}
	c := &Cloud{Server: model}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /copilot_internal/v2/token", c.serveToken)
	mux.HandleFunc("GET /copilot_internal/user", c.serveUser)
	mux.HandleFunc("GET /user", c.serveUser)
	mux.HandleFunc("GET /models", serveModels)
	// The language server asks this after a failure, to find out whether the network works.
	mux.HandleFunc("GET /_ping", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /agents", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, object{"agents": []any{}})
	})
	mux.HandleFunc("POST /chat/completions", func(w http.ResponseWriter, r *http.Request) {
		model.ServeCompletions(reasoning{w}, r)
	})
	mux.HandleFunc("POST /v1/engines/{engine}/completions", c.serveCompletion)
	mux.HandleFunc("POST /login/device/code", c.serveDeviceCode)
	mux.HandleFunc("POST /login/oauth/access_token", c.serveAccessToken)
	all := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without this header the language server does not accept the answer as GitHub's.
		w.Header().Set("X-Github-Request-Id", "C0:DE")
		mux.ServeHTTP(w, r)
	})
	c.plain = httptest.NewServer(all)
	c.tls = httptest.NewUnstartedServer(all)
	c.tls.Config.ErrorLog = discard
	c.tls.StartTLS()
	c.proxy = httptest.NewServer(http.HandlerFunc(c.serveProxy))
	c.Base, c.Proxy = c.plain.URL, c.proxy.URL
	return c, nil
}

// Close stops the stand-in with its model and its proxy, and breaks off the connections under way.
// It returns when the model's handlers have ended.
func (c *Cloud) Close() {
	for _, s := range []*httptest.Server{c.proxy, c.tls, c.plain} {
		s.CloseClientConnections()
		s.Close()
	}
	c.Server.Close()
}

// Env returns the environment variables with which the language server is signed in as [User] and
// uses the stand-in in place of GitHub. The caller may change the map.
func (c *Cloud) Env() map[string]string {
	return map[string]string{
		"GH_COPILOT_TOKEN":      "gho_not_a_real_token",
		"GH_COPILOT_USER":       User,
		"GH_COPILOT_API_URL":    c.Base,
		"GH_COPILOT_SERVER_URL": c.Base,
	}
}

// SetFlags sets the switches in the session tokens from now on, as in "mcp=0;chat=1"; it may be "".
// mcp=0 is an organisation that forbids MCP servers.
func (c *Cloud) SetFlags(flags string) { c.set(func() { c.flags = flags }) }

// SetCompletion sets the text of all inline completions from now on. At the start it is "".
func (c *Cloud) SetCompletion(text string) { c.set(func() { c.completion = text }) }

// Refuse makes the endpoint of session tokens answer with an HTTP status, such as 401 or 403, so
// that the language server gets no token. 0 makes it work again.
func (c *Cloud) Refuse(status int) { c.set(func() { c.refuse = status }) }

func (c *Cloud) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *Cloud) serveToken(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	flags, refuse := c.flags, c.refuse
	c.mu.Unlock()
	if refuse != 0 {
		writeJSON(w, refuse, object{"message": "refused by the test"})
		return
	}
	base := c.Base
	writeJSON(w, http.StatusOK, object{
		"token":        "tid=test;exp=9999999999;chat=1;" + flags,
		"expires_at":   time.Now().Add(time.Hour).Unix(),
		"refresh_in":   1500,
		"chat_enabled": true,
		"endpoints": object{"api": base, "proxy": base, "telemetry": base,
			"origin-tracker": base},
	})
}

func (c *Cloud) serveUser(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, object{"login": User, "id": 1, "copilot_plan": "individual",
		"chat_enabled": true})
}

func serveModels(w http.ResponseWriter, _ *http.Request) {
	list := []any{}
	for _, id := range []string{"scripted", defaultModel, reasoner} {
		isDefault := id == defaultModel
		supports := object{"streaming": true, "tool_calls": true, "parallel_tool_calls": true}
		if id == reasoner {
			supports["vision"] = true
			supports["reasoning_effort"] = []string{"low", "medium", "high"}
		}
		list = append(list, object{
			"id": id, "name": "Test " + id, "vendor": "Test", "version": id, "object": "model",
			"model_picker_enabled": true, "is_chat_default": isDefault,
			"is_chat_fallback": isDefault,
			"capabilities": object{
				"type": "chat", "family": id, "object": "model_capabilities",
				"tokenizer": "o200k_base",
				"supports":  supports,
				"limits": object{
					"max_prompt_tokens": 64000, "max_output_tokens": 4096,
					"max_context_window_tokens": 128000,
				},
			},
		})
	}
	writeJSON(w, http.StatusOK, object{"data": list})
}

func (c *Cloud) serveCompletion(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	text := c.completion
	c.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	for _, choice := range []object{
		{"index": 0, "text": text, "finish_reason": nil},
		{"index": 0, "text": "", "finish_reason": "stop"},
	} {
		data, _ := json.Marshal(object{"id": "c", "created": 1, "choices": []any{choice}})
		_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
	}
	_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
}

// Prompt returns the user's text in a request's last message of the user's role, without the
// context that the language server adds. A message without the server's tags is returned whole.
func Prompt(r *scriptmodel.Request) string { return unwrap(r.LastUser()) }

func unwrap(text string) string {
	const begin, end = "<userRequest>", "</userRequest>"
	i, j := strings.LastIndex(text, begin), strings.LastIndex(text, end)
	if i < 0 || j < i {
		return text
	}
	return strings.TrimSpace(text[i+len(begin) : j])
}

// Calls is [scriptmodel.Calls] for requests of the language server: it first removes the context
// that the server puts around the user's messages.
func Calls(r *scriptmodel.Request) scriptmodel.Reply {
	plain := &scriptmodel.Request{Tools: r.Tools}
	for _, m := range r.Messages {
		if m.Role == "user" {
			m.Text = unwrap(m.Text)
		}
		plain.Messages = append(plain.Messages, m)
	}
	return scriptmodel.Calls(plain)
}

// reasoning renames the model's reasoning to the name that GitHub's endpoint uses.
type reasoning struct{ http.ResponseWriter }

func (w reasoning) Write(p []byte) (int, error) {
	out := bytes.ReplaceAll(p, []byte(`"reasoning_content":`), []byte(`"reasoning_text":`))
	if n, err := w.ResponseWriter.Write(out); err != nil {
		return min(n, len(p)), err
	}
	return len(p), nil
}

// Unwrap lets [http.ResponseController] flush the answer.
func (w reasoning) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type object = map[string]any

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
