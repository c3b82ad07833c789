//go:build e2e && linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// contract is a client of the session API that was written to
// spec/session-api.md: it has no token, and knows nothing but the contract.
type contract struct {
	t    testing.TB
	base string
}

// response is any document that the contract has.
type response struct {
	SessionID    string `json:"sessionId"`
	Result       json.RawMessage
	Error        json.RawMessage // a word, or what a tool's end says
	SessionError string
	Callback     string

	ReasoningID, MessageID, ToolCallID, TurnID string
	ParentToolCallID                           *string
	Delta, CompleteContent, Prompt             string
	ToolName, ToolArguments                    string

	text string // the document
}

// serveContract starts a gateway that serves the contract without a token, on a
// model endpoint of the user's own.
func (h *home) serveContract(m *scriptmodel.Server) (*gateway, *contract) {
	h.t.Helper()
	config := "[api]\nauth = \"none\"\n[copilot]\nprovider_url = \"" + m.URL +
		"\"\n[copilot.permissions]\nshell = \"allow\"\n"
	if err := os.WriteFile(h.path("tapgw.toml"), []byte(config), 0o600); err != nil {
		h.t.Fatal(err)
	}
	g := h.serve("--config", h.path("tapgw.toml"))
	g.expect("api.auth is none")
	return g, &contract{h.t, "http" + strings.TrimPrefix(g.url, "ws") + "/api/"}
}

func (c *contract) ask(title, body string) response {
	c.t.Helper()
	r, err := http.Post(c.base+title, "text/plain;charset=UTF-8", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	data, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		c.t.Fatalf("%s: %s %s %v, want %d", title, r.Status, data, err, http.StatusOK)
	}
	answer := decode[response](c.t, string(data))
	answer.text = strings.TrimSpace(string(data))
	return answer
}

// check checks a whole answer.
func (c *contract) check(title, body, want string) {
	c.t.Helper()
	if got := c.ask(title, body).text; got != want {
		c.t.Errorf("%s says %s, want %s", title, got, want)
	}
}

func (c *contract) start(model, dir string) string {
	c.t.Helper()
	answer := c.ask("copilot/session/start/"+model, dir)
	if answer.SessionID == "" {
		c.t.Fatalf("starting a session: %s, want its id", answer.text)
	}
	return answer.SessionID
}

// until reads live, as the contract's clients do, until a response is the one.
func (c *contract) until(session string, is func(response) bool) []response {
	c.t.Helper()
	var all []response
	for {
		r := c.ask("copilot/session/"+session+"/live", "")
		if string(r.Error) == `"HttpRequestTimeout"` {
			continue
		}
		all = append(all, r)
		if is(r) {
			return all
		}
		if r.Callback == "" && r.SessionError == "" {
			c.t.Fatalf("live says %s, want a callback or an error of the session", r.text)
		}
	}
}

func callback(name string) func(response) bool {
	return func(r response) bool { return r.Callback == name }
}

// idle reads live to the end of a turn.
func (c *contract) idle(session string) []response {
	c.t.Helper()
	return c.until(session, callback("onIdle"))
}

// block is what the responses say about one thing: a message, a reasoning, a tool
// execution or a turn of the agent.
type block struct {
	callbacks []string // without the deltas
	deltas    string
	complete  string
	tool      string // name and arguments
}

// wellFormed checks that everything begins, goes on and ends in this order, once,
// and that the deltas make up the content. It returns the blocks by id, and
// the callbacks that came.
func (c *contract) wellFormed(all []response) (by map[string]*block, came map[string]int) {
	c.t.Helper()
	by, came = map[string]*block{}, map[string]int{}
	for _, r := range all {
		came[r.Callback]++
		kind, id := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(r.Callback, "onStart"),
			"onEnd"), "on"),
			r.ReasoningID+r.MessageID+r.ToolCallID
		if r.Callback == "onAgentStart" || r.Callback == "onAgentEnd" {
			kind, id = "Agent", r.TurnID
		}
		if id == "" {
			continue
		}
		key := kind + " " + id
		if r.Callback == "onAgentStart" {
			delete(by, key) // turns are counted anew for each prompt
		}
		if by[key] == nil {
			by[key] = &block{}
		}
		of := by[key]
		if r.Callback == "on"+kind {
			if len(of.callbacks) != 1 {
				c.t.Errorf("%s comes after %q, want it to be the first", r.text, of.callbacks)
			}
			of.deltas += r.Delta
			continue
		}
		of.callbacks = append(of.callbacks, r.Callback)
		of.complete += r.CompleteContent
		if r.ToolName != "" {
			of.tool = r.ToolName + " " + r.ToolArguments
		}
	}
	for key, of := range by {
		kind, _, _ := strings.Cut(key, " ")
		want := []string{"onStart" + kind, "onEnd" + kind}
		if kind == "Agent" {
			want = []string{"onAgentStart", "onAgentEnd"}
		}
		if !slices.Equal(of.callbacks, want) {
			c.t.Errorf("the callbacks of %s are %q, want a whole block %q", key, of.callbacks, want)
		}
		if (kind == "Message" || kind == "Reasoning") && of.deltas != of.complete {
			c.t.Errorf("%s has the deltas %.100q and the content %.100q, want the same", key,
				of.deltas, of.complete)
		}
	}
	return by, came
}

// of returns the only block of a kind with a content.
func of(t testing.TB, by map[string]*block, kind, content string) *block {
	t.Helper()
	for key, it := range by {
		if strings.HasPrefix(key, kind+" ") && (it.complete == content || it.tool == content) {
			return it
		}
	}
	t.Fatalf("there is no %s %q, want one", kind, content)
	return nil
}

// TestSessionAPI walks the contract on a session of the real runtime: what it
// needs no model for, then turns with every callback, then the end.
func TestSessionAPI(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	story := strings.TrimSpace(strings.Repeat("so it goes on ", 700))
	m := model(t, func(r *scriptmodel.Request) scriptmodel.Reply {
		last := r.Messages[len(r.Messages)-1]
		switch prompt := r.LastUser(); {
		case last.Role == "tool" && last.Text == "Hello, Ada!":
			return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{
				{
					Name: "bash",
					Args: `{"command":"echo one; while [ ! -e go ]; do sleep 0.1; done; echo two","description":"Counting"}`,
				},
			}}
		case last.Role == "tool":
			return scriptmodel.Reply{Text: "The tools are done."}
		case strings.Contains(prompt, "use your tools"):
			return scriptmodel.Reply{Reasoning: "let me think about that", Text: "I will.",
				ToolCalls: []scriptmodel.ToolCall{
					{Name: "greet", Args: `{"name":"Ada"}`},
				}}
		case strings.Contains(prompt, "tell me a story"):
			return scriptmodel.Reply{Text: story}
		case strings.Contains(prompt, "break"):
			return scriptmodel.Reply{Status: http.StatusBadRequest, Text: "the model is broken"}
		}
		return scriptmodel.Reply{Text: "So I was told."}
	})
	_, c := h.serveContract(m)
	c.check("test", "", `{"message":"Hello, world!"}`)
	c.check("config", "", fmt.Sprintf(`{"repoRoot":%q}`, h.path("work")))
	c.check("copilot/models", "", `{"models":[{"name":"scripted","id":"scripted","multiplier":0}]}`)
	c.check("copilot/session/start/gpt-0", "relative", `{"error":"ModelIdNotFound"}`)
	c.check("copilot/session/start/scripted", "relative",
		`{"error":"WorkingDirectoryNotAbsolutePath"}`)
	c.check("copilot/session/start/scripted", h.path("nowhere"),
		`{"error":"WorkingDirectoryNotExists"}`)

	session := c.start("scripted", h.path("work"))
	at := "copilot/session/" + session
	var both sync.WaitGroup
	answers := make([]string, 2)
	for i := range answers {
		both.Go(func() { answers[i] = c.ask(at+"/live", "").text })
	}
	both.Wait()
	slices.Sort(answers)
	if want := []string{`{"error":"HttpRequestTimeout"}`,
		`{"error":"ParallelCallNotSupported"}`}; !slices.Equal(
		answers, want) {
		t.Errorf("two calls of live at once get %q, want %q", answers, want)
	}

	p := h.bindProvider(session, "greeter", "greet")
	apiTurn(t, h, c, session)
	p.writeLine("push", "inject", "the build is red")
	apiPush(t, c, session)
	apiEnd(t, h, c, session, story)
}

// apiTurn makes a turn with each kind of callback.
func apiTurn(t *testing.T, h *home, c *contract, session string) {
	t.Helper()
	at := "copilot/session/" + session
	c.check(at+"/query", "please use your tools", `{}`)
	all := c.until(session, callback("onToolExecution"))
	if err := os.WriteFile(h.path("work", "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all = append(all, c.idle(session)...)
	by, came := c.wellFormed(all)
	for _, name := range []string{"onStartReasoning", "onReasoning", "onEndReasoning",
		"onStartMessage", "onMessage",
		"onEndMessage",
		"onStartToolExecution", "onToolExecution", "onEndToolExecution", "onAgentStart",
		"onAgentEnd", "onIdle"} {
		if came[name] == 0 {
			t.Errorf("%s did not come, want it", name)
		}
	}
	of(t, by, "Reasoning", "let me think about that")
	of(t, by, "Message", "I will.")
	of(t, by, "Message", "The tools are done.")
	of(t, by, "ToolExecution", `greet {"name":"Ada"}`)
	if bash := of(t, by, "ToolExecution",
		`bash {"command":"echo one; while [ ! -e go ]; do sleep 0.1; done; echo two","description":"Counting"}`); !strings.HasPrefix("one\ntwo\n", bash.deltas) {
		t.Errorf("the deltas of bash are %q, want the beginning of its output", bash.deltas)
	}
	for _, r := range all {
		if r.Callback == "onStartToolExecution" && r.ParentToolCallID != nil ||
			r.Callback == "onEndToolExecution" &&
				r.Error != nil {
			t.Errorf("%s has more than it should", r.text)
		}
		if r.Callback == "onEndToolExecution" && r.ToolCallID == all[0].ToolCallID &&
			!strings.Contains(string(r.Result), `"content":`) {
			t.Errorf("%s has no result, want its content", r.text)
		}
	}
}

// apiPush reads a turn that a push has started, and one whose model fails.
func apiPush(t *testing.T, c *contract, session string) {
	t.Helper()
	at := "copilot/session/" + session
	all := c.idle(session)
	if all[0].text != `{"callback":"onGeneratedUserPrompt","prompt":"the build is red"}` {
		t.Errorf(
			"a turn that a push began begins with %s, want %q",
			all[0].text, `{"callback":"onGeneratedUserPrompt","prompt":"the build is red"}`,
		)
	}
	by, _ := c.wellFormed(all)
	of(t, by, "Message", "So I was told.")
	c.check(at+"/query", "break", `{}`)
	if !slices.ContainsFunc(c.idle(session),
		func(r response) bool { return strings.Contains(r.SessionError, "the model is broken") }) {
		t.Error("live lacks the error of a model that fails, want it")
	}
}

// apiEnd reads after the end of the session what was not read before.
func apiEnd(t *testing.T, h *home, c *contract, session, story string) {
	t.Helper()
	at := "copilot/session/" + session
	c.check(at+"/query", "tell me a story", `{}`)
	h.waitTimeline(session, story)
	h.waitIdle(session)
	c.check(at+"/stop", "", `{"result":"Closed"}`)
	for _, verb := range []string{"/stop", "/query"} {
		c.check(at+verb, "hello", `{"error":"SessionNotFound"}`)
	}
	by, came := c.wellFormed(c.idle(session))
	of(t, by, "Message", story)
	if want := len(strings.SplitAfter(story, " ")); came["onMessage"] != want {
		t.Errorf("%d deltas came, want %d", came["onMessage"], want)
	}
	c.check(at+"/live", "", `{"error":"SessionClosed"}`)
	c.check(at+"/live", "", `{"error":"SessionNotFound"}`)
}

// TestSessionAPIRuntimeDies kills the runtime in mid-turn: live tells of it, and
// the session goes on.
func TestSessionAPIRuntimeDies(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	hold := make(chan struct{})
	defer close(hold)
	m := model(t, func(r *scriptmodel.Request) scriptmodel.Reply {
		if strings.Contains(r.LastUser(), "take your time") {
			return scriptmodel.Reply{Text: "I never said this.", Gate: hold}
		}
		return scriptmodel.Reply{Text: "I am back."}
	})
	_, c := h.serveContract(m)
	session, local := c.start("scripted", h.path("work")), c.start("local", h.path("work"))
	other := h.local()
	c.check("copilot/session/"+session+"/query", "take your time", `{}`)
	request(t, m, 1)
	if err := syscall.Kill(h.runtime(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	all := c.idle(session)
	if !slices.ContainsFunc(all, func(r response) bool {
		return strings.Contains(r.SessionError,
			"the turn is lost")
	}) {
		t.Errorf("live, want that the turn is lost among\n%v", all)
	}
	c.wellFormed(all)
	c.check("copilot/session/"+session+"/query", "and now?", `{}`)
	by, _ := c.wellFormed(c.idle(session))
	of(t, by, "Message", "I am back.")

	// The end of all that clients of the contract started, and of nothing else.
	c.check("stop", "", `{}`)
	for _, id := range []string{session, local} {
		c.check("copilot/session/"+id+"/live", "", `{"error":"SessionClosed"}`)
	}
	c.check("copilot/session/"+other+"/query", "call:none", `{}`)
	h.waitIdle(other)
}

// pageCallsSessionAPI: without a token a page of another origin, or of a name that
// points here by now, gets nowhere all the same.
func pageCallsSessionAPI(t *testing.T, s *pageStage) {
	h := newHome(t)
	g, c := h.serveContract(model(t, scriptmodel.Calls))
	session := c.start("local", h.path("work"))
	b := s.talker()
	titles := []string{"stop", "config", "test", "token", "copilot/models",
		"copilot/session/start/local",
		"copilot/session/" + session + "/query", "copilot/session/" + session + "/live",
		"copilot/session/" + session +
			"/stop"}
	const image = `new Promise((done) => {
		const i = new Image();
		i.onload = () => done(true);
		i.onerror = () => done(false);
		i.src = %s;
	})`
	for _, title := range titles {
		for _, c := range []struct {
			what string
			does func(address string)
		}{
			{"fetch", func(a string) { eval[reading](b, "read(%s, %s)", a, message{}) }},
			{"post", func(a string) {
				eval[reading](b, "read(%s, %s)", a,
					message{"method": "POST", "body": h.path("work"),
						"mode": "no-cors"})
			}},
			{"get that is not read", func(a string) {
				eval[reading](b, "read(%s, %s)", a,
					message{"mode": "no-cors"})
			}},
			{"image", func(a string) { eval[bool](b, image, a) }},
		} {
			before := len(b.answers())
			c.does("http" + strings.TrimPrefix(g.url, "ws") + "/api/" + title)
			for _, status := range b.statuses(before) {
				if status != http.StatusForbidden {
					t.Errorf("%s, %s: the gateway answers %d, want %v", title, c.what, status,
						http.StatusForbidden)
				}
			}
		}
	}
	before := len(b.answers())
	eval[any](b, "void (location.href = %s)", "http"+strings.TrimPrefix(g.url, "ws")+"/api/stop")
	for _, status := range b.statuses(before) {
		if status != http.StatusForbidden {
			t.Errorf("a link: the gateway answers %d, want %v", status, http.StatusForbidden)
		}
	}

	_, port, _ := net.SplitHostPort(strings.TrimPrefix(g.url, "ws://"))
	rebound := s.profile.open("http://evil.example:" + port + "/")
	for _, title := range titles {
		if status := eval[int](rebound, "fetch(%s, %s).then(r => r.status)", "/api/"+title,
			message{"method": "POST",
				"body": h.path("work")}); status != http.StatusMisdirectedRequest {
			t.Errorf("%s of another name gives %d, want %v", title, status,
				http.StatusMisdirectedRequest)
		}
	}
	if sessions := decode[[]adminapi.Session](t,
		h.tapctl("sessions", "--json")); len(sessions) != 1 ||
		sessions[0].ID != session {
		t.Errorf("pages made the sessions %+v, want only %v", sessions, session)
	}
}
