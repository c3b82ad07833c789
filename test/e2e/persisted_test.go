//go:build e2e && linux

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// endpoint are the flags of a session on a scripted model.
func endpoint(m *scriptmodel.Server) []string { return []string{"--provider-url", m.URL} }

// persisted lists the sessions on disk.
func (h *home) persisted(args ...string) []adminapi.Persisted {
	h.t.Helper()
	return decode[[]adminapi.Persisted](h.t,
		h.tapctl(append([]string{"sessions", "list", "--persisted", "--json"}, args...)...))
}

// saved waits until the runtime has written something of a session to the disk.
func (h *home) saved(session, text string) {
	h.t.Helper()
	eventually(h.t, patience, func() error {
		data, err := os.ReadFile(h.path("copilot", "session-state", session, "events.jsonl"))
		if err == nil && !strings.Contains(string(data), text) {
			err = fmt.Errorf("%q is not in what is saved of session %s", text, session)
		}
		return err
	})
}

// A gateway is killed. The next one finds its session and goes on with all that
// was said.
func TestResumeAfterTheGatewayWasKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	work := h.path("work", "tea")
	if err := os.MkdirAll(filepath.Join(work, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, ".git", "HEAD"), []byte("ref: refs/heads/brew\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	g := h.serve()
	session := h.copilot(m, "--cwd", work)
	p := h.bindProvider(session, "greeter", "greet")
	h.ask(session, "remember the kettle")
	if got := h.ask(session, `call:greet {"name":"Ada"}`); got != "Hello, Ada!" {
		t.Errorf("the session answers %q, want %q", got, "Hello, Ada!")
	}
	h.saved(session, "Hello, Ada!")
	g.kill()
	h.waitNoRuntime(patience)

	h.serve()
	found := h.persisted()
	if len(found) != 1 || found[0].ID != session || found[0].Label != "tea@brew" ||
		found[0].Branch != "brew" || found[0].State != "stored" || found[0].CWD != work {
		t.Fatalf(
			"the next gateway offers %+v, want session %v, tea@brew of branch brew, stored, of %v",
			found, session, work,
		)
	}
	if got := h.persisted("--cwd", "tea", "--branch", "brew", "--last", "1"); len(got) != 1 {
		t.Errorf("by directory and branch it offers %+v, want one", got)
	}
	h.tapctl(append([]string{"sessions", "resume", session[:8]}, endpoint(m)...)...)
	p.expectNth("bound "+session, 2)
	if got := h.ask(session, `call:greet {"name":"Bob"}`); got != "Hello, Bob!" {
		t.Errorf("the resumed session answers %q, want %q", got, "Hello, Bob!")
	}
	requests := m.Requests()
	body := string(requests[len(requests)-1].Body)
	for _, part := range []string{"remember the kettle", "Hello, Ada!", "Hello, Bob!"} {
		if !strings.Contains(body, part) {
			t.Errorf("the model was not told %q, want it in the request", part)
		}
	}
	if v := h.persisted(); len(v) != 1 || v[0].State != "live" {
		t.Errorf(`on disk: %+v, want one, "live"`, v)
	}
	for args, code := range map[string]int{"resume " + session: 1,
		"delete " + session + " --yes": 1, "delete " +
			session: 2, "resume none": 4, "resume": 2} {
		if r := h.run(tapctl,
			append([]string{"sessions"}, strings.Fields(args)...)...); r.code != code ||
			strings.Count(r.stderr, "\n") != 1 {
			t.Errorf(
				"sessions %s of a session that runs: exit code %d, %q, want code %d and one line",
				args, r.code, r.stderr, code,
			)
		}
	}
	h.tapctl("sessions", "stop", session)
	h.tapctl("sessions", "delete", session, "--yes")
	if v := h.persisted(); len(v) != 0 {
		t.Errorf("after its end there is %+v, want none", v)
	}
}

// A gateway is killed while a tool runs. The next one makes the call again, once the
// provider is back, and the turn ends as if nothing had been.
func TestResumeWithAToolCallPending(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	g := h.serve()
	session := h.copilot(m)
	p := h.bindProvider(session, "waiter", "wait")
	h.ask(session, "remember the kettle")
	h.asking(session, "call:wait")
	p.expect("called wait")
	h.saved(session, `"external_tool.requested"`)
	g.kill()
	p.expect("ended wait ")
	h.waitNoRuntime(patience)

	h.serve()
	h.tapctl(append([]string{"sessions", "resume", session, "--continue"}, endpoint(m)...)...)
	p.expectNth("called wait", 2)
	eventually(t, patience, func() error {
		p.writeLine("finish") // it may come before the call waits for it
		if requests := m.Requests(); requests[len(requests)-1].LastResult() != "finished" {
			return errors.New("the turn does not go on")
		}
		return nil
	})
	h.waitIdle(session)
	requests := m.Requests()
	last := requests[len(requests)-1]
	if last.LastResult() != "finished" ||
		!strings.Contains(string(last.Body), "remember the kettle") {
		t.Errorf(`the model was given %q, want "finished" and "remember the kettle" in it`,
			last.LastResult())
	}
	if got := h.ask(session, "and now"); got != "You said: and now" {
		t.Errorf("the session goes on with %q, want %q", got, "You said: and now")
	}
}

// Without --continue the model is told that the call was interrupted.
func TestResumeWithoutThePendingCall(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	g := h.serve()
	session := h.copilot(m)
	p := h.bindProvider(session, "waiter", "wait")
	h.asking(session, "call:wait")
	p.expect("called wait")
	h.saved(session, `"external_tool.requested"`)
	g.kill()
	h.waitNoRuntime(patience)

	h.serve()
	h.tapctl(append([]string{"sessions", "resume", session}, endpoint(m)...)...)
	// what the model was told of the call
	if got := h.ask(session, "and now"); !strings.Contains(got, "interrupted") {
		t.Errorf(`the session goes on with %q, want "interrupted" in it`, got)
	}
	if got := h.ask(session, "and then"); got != "You said: and then" {
		t.Errorf("the session goes on with %q, want %q", got, "You said: and then")
	}
	if calls, _ := p.matches("called wait"); len(calls) != 1 {
		t.Errorf("the tool was called %d times, want 1", len(calls))
	}
}

// The model of a session that runs is changed from a shell.
func TestSetModel(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	h.serve()
	session := h.copilot(m)
	h.tapctl("sessions", "model", session[:8], "other", "--effort", "high")
	h.ask(session, "who are you")
	requests := m.Requests()
	if last := requests[len(requests)-1]; last.Model != "other" ||
		!strings.Contains(string(last.Body), `"reasoning_effort":"high"`) {
		t.Errorf(`the next request is to model %q, want "other" with effort "high"`, last.Model)
	}
	h.waitTimeline(session, "other")
	if got := decode[[]adminapi.Session](t, h.tapctl("sessions", "--json")); len(got) != 1 ||
		got[0].Model != "other" {
		t.Errorf(`sessions: %+v, want one of model "other"`, got)
	}
	for args, want := range map[string]string{"x --effort huge": "effort: there is no",
		"": "which model"} {
		if r := h.run(tapctl,
			append([]string{"sessions", "model"}, strings.Fields(args)...)...); r.code != 2 ||
			!strings.Contains(r.stderr, want) {
			t.Errorf("sessions model %s: exit code %d, %q, want code 2 and %q in it", args, r.code,
				r.stderr, want)
		}
	}
	local := h.local()
	if r := h.run(tapctl, "sessions", "model", local, "other"); r.code != 1 ||
		!strings.Contains(r.stderr, "has no model to change") {
		t.Errorf(
			`of a local session: exit code %d, %q, want code 1 and "has no model to change" in it`,
			r.code, r.stderr,
		)
	}
}

// A profile is chosen from a shell; what a flag says counts over it, and a token is
// in no argument and no log.
func TestStartWithAProfile(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	config := fmt.Sprintf(
		"[copilot]\nprovider_url = %q\nmodel = \"base\"\n[copilot.profile.review]\nmodel = \"reviewer\"\neffort = \"low\"\nsystem_message.text = \"Be brief.\"\n",
		m.URL,
	)
	if err := os.WriteFile(h.path("work", "tapgw.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	g := h.serve("--config", h.path("work", "tapgw.toml"))
	for _, tt := range []struct {
		args  []string
		model string
		brief bool
	}{
		{nil, "base", false},
		{[]string{"--profile", "review"}, "reviewer", true},
		{[]string{"--profile", "review", "--model", "asked"}, "asked", true},
	} {
		session := h.tapctl(append([]string{"sessions", "start"}, tt.args...)...)
		h.ask(session, "hello")
		requests := m.Requests()
		last := requests[len(requests)-1]
		if last.Model != tt.model || strings.Contains(last.System(), "Be brief.") != tt.brief {
			t.Errorf("%v: model %q, brief %v, want Model %q and %v", tt.args, last.Model, !tt.brief,
				tt.model, tt.brief)
		}
	}
	r := h.run(tapctl, "sessions", "start", "--profile", "nobody")
	if r.code != 2 ||
		!strings.Contains(r.stderr, `there is no profile "nobody"; there are review`) {
		t.Errorf(
			`a profile that is not there: exit code %d, %q, want code 2 and that there are: review`,
			r.code, r.stderr,
		)
	}
	if r := h.run(tapctl, "sessions", "start", "--github-token-env", "NOT_SET"); r.code != 2 ||
		!strings.Contains(r.stderr, "NOT_SET") {
		t.Errorf(`a token that is not there: exit code %d, %q, want code 2 and "NOT_SET" in it`,
			r.code, r.stderr)
	}
	if strings.Contains(g.output(), modelKey) {
		t.Error("the key is in the log, want it left out")
	}
}
