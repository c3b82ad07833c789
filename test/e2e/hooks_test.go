//go:build e2e && linux

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/scriptmodel"
)

// gate is a rule as the documents write it.
var gate = message{"match": message{"tool": "shell", "args": "git push"}, "action": "gate",
	"gateId": "check-before-push"}

// with is a rule, or another object, with more members.
func with(m message, more message) message {
	all := maps.Clone(m)
	maps.Copy(all, more)
	return all
}

// agents is a gateway for Copilot sessions.
type agents struct {
	*home
	g *gateway
}

// newAgents starts a gateway whose sessions may do anything, so that nothing but
// a gate stops them.
func newAgents(t *testing.T) *agents {
	t.Helper()
	h := newHome(t)
	config := h.path("tapgw.toml")
	if err := os.WriteFile(config,
		[]byte("[copilot.permissions]\nshell = \"allow\"\nwrite = \"allow\"\nread = \"allow\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	return &agents{h, h.serve("--config", config)}
}

// agent is one of the sessions, with a model of its own.
type agent struct {
	*home
	g       *gateway
	log     *process // the gateway, with what it says of all sessions
	m       *scriptmodel.Server
	session string
	dir     string // where it works
}

// start starts a session for a test, or a part of one. The runtime reads the
// instructions of its directory at once, so they are there before.
func (a *agents) start(t *testing.T, instructions ...string) *agent {
	t.Helper()
	h := *a.home
	h.t = t
	s := &agent{home: &h, g: &gateway{process: &process{t: t}, home: &h, url: a.g.url},
		log: a.g.process, m: model(t, scriptmodel.Calls)}
	s.dir = filepath.Join(h.path("work"), strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()))
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, text := range instructions {
		if err := os.WriteFile(s.file("AGENTS.md"), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.session = h.copilot(s.m, "--cwd", s.dir)
	return s
}

// bindProvider binds a provider in this process with what its hello says besides.
func (s *agent) bindProvider(name string, hello message) *peer {
	s.t.Helper()
	c := s.g.connect()
	c.send(message{"type": "auth", "token": s.read(".provider-token")})
	c.next("sessions")
	c.send(with(message{"type": "hello", "name": name, "protocolVersion": 2, "session": s.session},
		hello))
	c.next("hello.ack")
	return c
}

// rules is what a hello says that has rules only.
func rules(rules ...message) message {
	return message{"hooks": message{"onPreToolUse": rules}}
}

// file is a file that a command or a tool makes, if it runs.
func (s *agent) file(name string) string { return filepath.Join(s.dir, name) }

// checkMade checks whether there is such a file.
func (s *agent) checkMade(name string, want bool) {
	s.t.Helper()
	_, err := os.Stat(s.file(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	if got := err == nil; got != want {
		s.t.Errorf("%s was made: %v, want %v", name, got, want)
	}
}

// call is a prompt that makes the model call a tool.
func call(t testing.TB, tool string, args message) string {
	t.Helper()
	data, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return "call:" + tool + " " + string(data)
}

// push is a prompt that makes the model push, as far as a gate can tell, and
// make a file. It is long enough for some patterns to take for ever.
func (s *agent) push(file string) string {
	command := ": git push origin " + strings.Repeat("a", 64) + "; touch " + s.file(file)
	return call(s.t, "bash", message{"command": command, "description": "push"})
}

// last is the last request that the model got.
func (s *agent) last() *scriptmodel.Request {
	s.t.Helper()
	requests := s.m.Requests()
	if len(requests) == 0 {
		s.t.Fatal("the model was asked nothing, want a request")
	}
	return requests[len(requests)-1]
}

// lastResult is what the model was last told about a call of its own.
func (s *agent) lastResult() string {
	s.t.Helper()
	return s.last().LastResult()
}

// stuck are providers that do not say what a gate wants to hear.
var stuck = []struct {
	name string
	// fail lets the provider fail while turn, which it begins, asks the gate.
	fail   func(s *agent, rule message, turn func() *process) *process
	reason string // of the denial
}{
	{"killed", func(s *agent, rule message, turn func() *process) *process {
		p := s.gatekeeper(rule)
		q := turn()
		p.expect("asked check-before-push")
		p.kill()
		return q
	}, "Gate provider 'gatekeeper' disconnected before it answered."},
	{"frozen", func(s *agent, rule message, turn func() *process) *process {
		p := s.gatekeeper(rule)
		p.freeze()
		return turn()
	}, "Gate provider 'gatekeeper' did not respond in time."},
	{"slow", func(s *agent, rule message, turn func() *process) *process {
		c := s.bindProvider("gatekeeper", rules(rule))
		q := turn()
		id := c.next("gate.check")["callId"]
		request(s.t, s.m, 2) // by now the call has ended
		late := "allow"
		if rule["failOpen"] == true {
			late = "deny"
		}
		c.send(message{"type": "gate.result", "gateId": "check-before-push", "callId": id,
			"decision": late, "reason": "too late"})
		return q
	}, "Gate provider 'gatekeeper' did not respond in time."},
	{"answers nonsense", func(s *agent, rule message, turn func() *process) *process {
		c := s.bindProvider("gatekeeper", rules(rule))
		q := turn()
		c.send(message{"type": "gate.result", "gateId": "check-before-push",
			"callId": c.next("gate.check")["callId"], "decision": "perhaps"})
		return q
	}, "Gate provider 'gatekeeper' answered with a malformed message."},
	{"answers garbage", func(s *agent, rule message, turn func() *process) *process {
		c := s.bindProvider("gatekeeper", rules(rule))
		q := turn()
		c.raw(fmt.Appendf(nil, `{"type":"gate.result","decision":"allow","callId":%q`,
			c.next("gate.check")["callId"]))
		return q
	}, "Gate provider 'gatekeeper' did not respond in time."},
	{"answers another call", func(s *agent, rule message, turn func() *process) *process {
		c := s.bindProvider("gatekeeper", rules(rule))
		q := turn()
		c.next("gate.check")
		c.send(message{"type": "gate.result", "gateId": "check-before-push",
			"callId": "0199aa00-0000-7000-8000-000000000000", "decision": "allow"})
		return q
	}, "Gate provider 'gatekeeper' did not respond in time."},
	{"has a pattern that explodes", func(s *agent, rule message, turn func() *process) *process {
		// That it matches can't be known, so the provider is asked.
		c := s.bindProvider(
			"gatekeeper",
			rules(with(rule, message{"match": message{"tool": "shell", "args": explosive}})),
		)
		q := turn()
		if id := c.next("gate.check")["gateId"]; id != "check-before-push" {
			s.t.Errorf(`gate %v was asked, want "check-before-push"`, id)
		}
		s.waitSlowPattern("gatekeeper")
		return q
	}, "Gate provider 'gatekeeper' did not respond in time."},
}

// explosive is a pattern that takes for ever on what [agent.push] runs, and
// matches none of it.
const explosive = `(a+)+$`

// waitSlowPattern waits until the gateway says that a pattern of a provider took too long.
func (s *agent) waitSlowPattern(provider string) {
	s.t.Helper()
	eventually(s.t, patience, func() error {
		lines, _ := s.log.matches("a pattern took too long")
		if !slices.ContainsFunc(lines,
			func(l string) bool { return strings.Contains(l, `"provider":"`+provider+`"`) }) {
			return fmt.Errorf("no pattern of provider %s took too long: %q", provider, lines)
		}
		return nil
	})
}

// TestGateFails has gates whose providers fail: the command does not run, or,
// where the rule says so, it does.
func TestGateFails(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	for _, c := range stuck {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, open %v", c.name, open), func(t *testing.T) {
				t.Parallel()
				s := a.start(t)
				rule := gate
				if open {
					rule = with(gate, message{"failOpen": true})
				}
				turn := c.fail(s, rule, func() *process {
					return s.asking(s.session, s.push("pushed"))
				})
				if code := turn.wait(patience); code != 0 {
					t.Errorf("the turn ended with code %d, want 0", code)
				}
				s.checkMade("pushed", open)
				if told := s.lastResult(); strings.Contains(told, c.reason) == open {
					t.Errorf("the model was told %q, want %q in it: %v", told, c.reason, !open)
				}
			})
		}
	}
}

// TestGateHolds has gates whose providers do as they should, and what no gate is
// about.
func TestGateHolds(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	run := func(name string, test func(t *testing.T, s *agent)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, a.start(t))
		})
	}
	run("no gate", func(t *testing.T, s *agent) {
		s.ask(s.session, s.push("pushed"))
		s.checkMade("pushed", true)
	})
	run("about something else", func(t *testing.T, s *agent) {
		c := s.bindProvider("gatekeeper", rules(gate))
		s.ask(s.session, call(t, "bash", message{"command": ": git pull; touch " + s.file("pulled"),
			"description": "pull"}))
		s.checkMade("pulled", true)
		if n := c.count("gate.check"); n != 0 {
			t.Errorf("the gate was asked %d times, want 0", n)
		}
	})
	run("allows", func(t *testing.T, s *agent) {
		c := s.bindProvider("gatekeeper", rules(gate))
		turn := s.asking(s.session, s.push("pushed"))
		check := c.next("gate.check")
		args, _ := check["args"].(map[string]any)
		command, _ := args["command"].(string)
		if check["gateId"] != "check-before-push" || check["sessionId"] != s.session ||
			check["tool"] != "bash" || !strings.HasPrefix(command, ": git push origin ") {
			t.Errorf(
				"the gate was asked %v, want check-before-push of session %v about git push origin",
				check, s.session,
			)
		}
		s.checkMade("pushed", false)
		c.send(message{"type": "gate.result", "callId": check["callId"], "decision": "allow"})
		turn.wait(patience)
		s.checkMade("pushed", true)
	})
	run("denies", func(t *testing.T, s *agent) {
		c := s.bindProvider("gatekeeper", rules(gate))
		turn := s.asking(s.session, s.push("pushed"))
		c.send(message{"type": "gate.result", "callId": c.next("gate.check")["callId"],
			"decision": "deny", "reason": "CI is failing on this branch. Fix tests first."})
		turn.wait(patience)
		s.checkMade("pushed", false)
		if told := s.lastResult(); !strings.Contains(told,
			"CI is failing on this branch. Fix tests first.") {
			t.Errorf(
				`the model was told %q, want "CI is failing on this branch. Fix tests first." in it`, told)
		}
	})
	run("allows with a word", func(t *testing.T, s *agent) {
		c := s.bindProvider("gatekeeper", rules(gate))
		turn := s.asking(s.session, s.push("pushed"))
		c.send(message{"type": "gate.result", "callId": c.next("gate.check")["callId"],
			"decision": "context", "reason": "Main is frozen on Fridays."})
		turn.wait(patience)
		s.checkMade("pushed", true)
		s.checkToldAfterCall(2, "Main is frozen on Fridays.")
	})
	run("all at once", func(t *testing.T, s *agent) {
		one, two := s.bindProvider("one", rules(gate)), s.bindProvider("two", rules(gate))
		turn := s.asking(s.session, s.push("pushed"))
		first, second := one.next("gate.check"), two.next("gate.check") // neither has answered
		one.send(message{"type": "gate.result", "callId": first["callId"], "decision": "allow"})
		two.send(message{"type": "gate.result", "callId": second["callId"], "decision": "deny",
			"reason": "two says no"})
		turn.wait(patience)
		s.checkMade("pushed", false)
		if told := s.lastResult(); !strings.Contains(told, "two says no") {
			t.Errorf(`the model was told %q, want "two says no" in it`, told)
		}
	})
	run("of a sub-agent", func(t *testing.T, s *agent) {
		c := s.bindProvider("gatekeeper", rules(gate))
		turn := s.asking(s.session, call(t, "task", message{"agent_type": "task", "name": "helper",
			"description": "help", "mode": "sync", "prompt": s.push("pushed")}))
		c.send(message{"type": "gate.result", "callId": c.next("gate.check")["callId"],
			"decision": "deny", "reason": "nor may your helpers"})
		turn.wait(patience)
		s.checkMade("pushed", false)
		if told := s.lastResult(); !strings.Contains(told, "nor may your helpers") {
			t.Errorf(`the model was told %q, want "nor may your helpers" in it`, told)
		}
	})
}

// TestPatternExplodes has rules that ask nobody: one that denies guards when its
// pattern takes too long, one that informs does not speak.
func TestPatternExplodes(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	for _, c := range []struct {
		name  string
		rule  message
		ran   bool // the command
		heard bool // the rule's text, by the model
	}{
		{"deny", message{"match": message{"tool": "shell", "args": explosive}, "action": "deny",
			"reason": "no exploding"}, false, true},
		{"deny something else", message{"match": message{"tool": "shell", "args": "(b+)+$"},
			"action": "deny", "reason": "no exploding"}, true, false},
		{"context", message{"match": message{"tool": "shell", "args": explosive},
			"action": "context", "content": "no exploding"}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := a.start(t)
			provider := strings.ReplaceAll(c.name, " ", "-")
			s.bindProvider(provider, rules(c.rule))
			s.ask(s.session, s.push("pushed"))
			s.checkMade("pushed", c.ran)
			if said := strings.Contains(string(s.last().Body), "no exploding"); said != c.heard {
				t.Errorf("the model was told of it: got %v, want %v; its call said %q", said,
					c.heard, s.lastResult())
			}
			if c.rule["match"].(message)["args"] == explosive {
				s.waitSlowPattern(provider)
			}
		})
	}
}

// TestShellIsDenied has a gateway without a word on permissions: what a gate
// allows is still not allowed.
func TestShellIsDenied(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := (&agents{h, h.serve()}).start(t)
	s.ask(s.session, s.push("pushed"))
	s.checkMade("pushed", false)
	const how = `allow_commands in [copilot.permissions] of tapgw.toml has no pattern for the `
	if told := s.lastResult(); !strings.Contains(told, how) {
		t.Errorf("the model was told %q, want %q in it", told, how)
	}
	s.waitTimeline(s.session, how)

	c := s.bindProvider("gatekeeper", rules(gate))
	turn := s.asking(s.session, s.push("pushed"))
	c.send(message{"type": "gate.result", "callId": c.next("gate.check")["callId"],
		"decision": "allow"})
	turn.wait(patience)
	s.checkMade("pushed", false)
	if told := s.lastResult(); !strings.Contains(told, how) {
		t.Errorf("when a gate allows it the model was told %q, want %q in it", told, how)
	}
}

// checkToldAfterCall checks that the model's n-th request has a text behind the
// result of its call.
func (s *agent) checkToldAfterCall(n int, text string) {
	s.t.Helper()
	after := false
	for _, m := range request(s.t, s.m, n).Messages {
		switch {
		case m.Role == "tool":
			after = true
			if !strings.Contains(m.Text, text) {
				continue
			}
		case !after || !strings.Contains(m.Text, text):
			continue
		}
		return
	}
	s.t.Errorf("after its call, want the model to be told %q:\n%s", text, request(s.t, s.m, n).Body)
}

// TestRules has rules that ask nobody, about the runtime's own tools by the
// documents' names, and about a provider's.
func TestRules(t *testing.T) {
	t.Parallel()
	s := newAgents(t).start(t)
	c := s.bindProvider("keeper", with(rules(
		message{"match": message{"tool": "edit", "file": "*.sql"}, "action": "deny",
			"reason": "migrations are made by hand"},
		message{"match": message{"tool": "edit", "file": "*.md"}, "action": "context",
			"content": "Keep it short."},
		message{"match": message{"tool": "read", "file": "**/secret/*"}, "action": "deny",
			"reason": "that is secret"},
		message{"match": message{"tool": "greet"}, "action": "context", "content": "Be polite."},
		message{"match": message{"tool": "no_such_tool"}, "action": "deny"},
	), message{"tools": []message{{"name": "greet", "description": "Greets",
		"parameters": message{"type": "object"}}}}))
	s.waitTimeline(s.session, `there is no "no_such_tool"`)
	if n := len(s.timeline(s.session, "matches no tool")); n != 1 {
		t.Errorf("%d rules are said to match no tool, want 1", n)
	}

	n := 0
	turn := func(prompt string) {
		s.ask(s.session, prompt)
		n += 2
	}
	turn(call(t, "create", message{"path": s.file("0001.sql"), "file_text": "drop table users"}))
	s.checkMade("0001.sql", false)
	if told := s.lastResult(); !strings.Contains(told, "migrations are made by hand") {
		t.Errorf(`of a migration the model was told %q, want "migrations are made by hand" in it`,
			told)
	}
	turn(call(t, "create", message{"path": s.file("notes.md"), "file_text": "notes"}))
	s.checkMade("notes.md", true)
	s.checkToldAfterCall(n, "Keep it short.")

	if err := os.Mkdir(s.file("secret"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"secret/key": "hunter2", "open": "sesame"} {
		if err := os.WriteFile(s.file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	turn(call(t, "view", message{"path": s.file("secret/key")}))
	if told := s.lastResult(); !strings.Contains(told, "that is secret") ||
		strings.Contains(told, "hunter2") {
		t.Errorf(`of a secret the model was told %q, want "that is secret" and no "hunter2" in it`,
			told)
	}
	turn(call(t, "view", message{"path": s.file("open")}))
	if told := s.lastResult(); !strings.Contains(told, "sesame") {
		t.Errorf(`of a file the model was told %q, want "sesame" in it`, told)
	}

	asking := s.asking(s.session, `call:greet {}`)
	c.send(message{"type": "tool.result", "id": c.next("tool.call")["id"], "data": "hello"})
	asking.wait(patience)
	n += 2
	s.checkToldAfterCall(n, "Be polite.")

	// New rules take the place of the old ones.
	c.send(message{"type": "hooks.update", "requestId": "r1", "onPreToolUse": []message{
		{"match": message{"tool": "shell"}, "action": "deny", "reason": "no shell today"}}})
	c.next("ack")
	turn(call(t, "create", message{"path": s.file("0002.sql"), "file_text": "drop table users"}))
	s.checkMade("0002.sql", true)
	turn(s.push("pushed"))
	s.checkMade("pushed", false)
	if told := s.lastResult(); !strings.Contains(told, "no shell today") {
		t.Errorf(`of the shell the model was told %q, want "no shell today" in it`, told)
	}
}
