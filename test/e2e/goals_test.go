//go:build e2e && linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

var goalTurn = regexp.MustCompile(`Goal g-[0-9a-f]+ \(turn (\d+) of`)

// goalModel claims in each turn of a goal that it is met. In some turns, by number, it first runs a
// command; in others its answer waits for a gate.
func goalModel(commands map[int]string, gates map[int]chan struct{}) scriptmodel.ReplyFunc {
	return func(r *scriptmodel.Request) scriptmodel.Reply {
		n, hasRun := 0, false
		for _, m := range r.Messages {
			if found := goalTurn.FindStringSubmatch(m.Text); found != nil && m.Role == "user" {
				n, _ = strconv.Atoi(found[1])
				hasRun = false
			}
			hasRun = hasRun || m.Role == "tool"
		}
		if command := commands[n]; command != "" && !hasRun {
			args, _ := json.Marshal(map[string]string{"command": command,
				"description": "work on the goal"})
			return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: "bash",
				Args: string(args)}}}
		}
		p := scriptmodel.Reply{Text: "All tests pass. The goal is met. COMPLETE"}
		if gate := gates[n]; gate != nil {
			p.Gate = gate
		}
		return p
	}
}

// startGoal starts a goal for the only session.
func (h *home) startGoal(args ...string) adminapi.Goal {
	h.t.Helper()
	return decode[adminapi.Goal](h.t,
		h.tapctl(append([]string{"goals", "start", "--json"}, args...)...))
}

// waitGoal waits until a goal is as is says, and returns it.
func (h *home) waitGoal(id string, is func(adminapi.Goal) bool) (g adminapi.Goal) {
	h.t.Helper()
	eventually(h.t, patience, func() error {
		if g = decode[adminapi.Goal](h.t, h.tapctl("goals", "show", id, "--json")); !is(g) {
			return fmt.Errorf("the goal is not as it should be: %+v", g)
		}
		return nil
	})
	return g
}

func hasEnded(g adminapi.Goal) bool { return g.State != adminapi.GoalActive }

// missing is what was missing after a turn, in one text.
func missing(g adminapi.Goal, turn int) string {
	if len(g.Iterations) < turn {
		return "no such turn"
	}
	return strings.Join(g.Iterations[turn-1].Missing, "; ")
}

// A goal is met by what the gateway saw, here the exit code of a command and a file, and by no
// claim. The model is told what is missing.
func TestGoalIsMetWithEvidenceOnly(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("check.sh", "test -e "+h.path("work", "fixed")+"\n")
	check := "sh " + h.path("check.sh")
	m := model(t, goalModel(map[int]string{
		2: "echo " + check, // looks like it
		3: check,           // fails
		4: "echo fixed > " + h.path("work", "fixed"),
		5: check,
	}, nil))
	h.put("tapgw.toml", "[copilot.permissions]\nshell = \"allow\"\n")
	h.serve("--config", h.path("tapgw.toml"))
	session := h.copilot(m, "--cwd", h.path("work"))
	g := h.startGoal("--check", fmt.Sprintf(`{"call":%q}`, check), "--check", `{"file":"fixed"}`,
		"--turns", "9", "Make the check pass.")
	g = h.waitGoal(g.ID, hasEnded)
	if g.State != adminapi.GoalMet || g.Spent.Turns != 5 || len(g.Iterations) != 5 {
		t.Errorf("the goal is %s after %d turns (%s), want it met after 5: %+v", g.State,
			g.Spent.Turns, g.Reason, g)
	}
	for turn, want := range map[int]string{
		1: "no such call is recorded: run exactly", 2: "no such call is recorded",
		3: "ended with exit code 1",
		4: "ended with exit code 1",
	} {
		if got := missing(g, turn); !strings.Contains(got, want) {
			t.Errorf("after turn %d: missing %q, want %q in it", turn, got, want)
		}
	}
	if got := prompts(m, "file fixed: there is no such file"); got == 0 {
		t.Error(
			"the model was never told that the file is missing, want that each prompt names what is")
	}
	var states []string
	for _, r := range decode[[]adminapi.Record](t,
		h.tapctl("records", "--kind", "goal", "--json")) {
		if r.Session != session || r.ID != g.ID {
			t.Errorf("got the record %+v, want one of the goal", r)
		}
		states = append(states, r.State)
	}
	if len(states) == 0 || states[0] != adminapi.GoalActive ||
		states[len(states)-1] != adminapi.GoalMet {
		t.Errorf("the records have the states %q, want from active to met", states)
	}

	g = h.startGoal("--check", `{"file":"never"}`, "--turns", "4", "Say that it is met.")
	g = h.waitGoal(g.ID, hasEnded)
	if g.State != adminapi.GoalOverBudget || g.Spent.Turns != 4 ||
		!strings.Contains(g.Reason, "budget of 4 turns") {
		t.Errorf("the goal is %s after %d turns: %q; want its budget used up", g.State,
			g.Spent.Turns, g.Reason)
	}
	g = h.startGoal("--check", `{"file":"never"}`, "--tokens", "1", "Say that it is met.")
	g = h.waitGoal(g.ID, hasEnded)
	if g.State != adminapi.GoalOverBudget || g.Spent.Turns != 1 ||
		!strings.Contains(g.Reason, "of 1 tokens") {
		t.Errorf("the goal is %s after %d turns: %q; want its tokens used up", g.State,
			g.Spent.Turns, g.Reason)
	}
}

// A gateway is killed in the middle of a goal's turn. The next one goes on as the goal's file says:
// no turn counts twice, and none is lost.
func TestGoalAfterTheGatewayWasKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	gate := make(chan struct{})
	m := model(t, goalModel(map[int]string{4: "touch " + h.path("work", "done")},
		map[int]chan struct{}{2: gate}))
	h.put("tapgw.toml", "[copilot.permissions]\nshell = \"allow\"\n")
	first := h.serve("--config", h.path("tapgw.toml"))
	session := h.copilot(m, "--cwd", h.path("work"))
	g := h.startGoal("--check", `{"file":"done"}`, "--turns", "9", "Make the file done.")
	eventually(t, patience, func() error {
		if prompts(m, "(turn 2 of 9)") == 0 {
			return fmt.Errorf("the second turn has not begun")
		}
		return nil
	})
	h.saved(session, "turn 2 of 9")
	first.kill()
	h.waitNoRuntime(patience)
	close(gate)

	h.serve("--config", h.path("tapgw.toml"))
	waiting := h.waitGoal(g.ID, func(g adminapi.Goal) bool { return g.Reason != "" })
	if waiting.State != adminapi.GoalActive || waiting.Spent.Turns != 2 ||
		!strings.Contains(waiting.Reason, "tapctl sessions resume "+session) {
		t.Errorf(
			"after the restart the goal is %s after %d turns: %q; want that it waits for its session",
			waiting.State, waiting.Spent.Turns, waiting.Reason)
	}
	h.tapctl(append([]string{"sessions", "resume", session}, endpoint(m)...)...)
	g = h.waitGoal(g.ID, hasEnded)
	if g.State != adminapi.GoalMet || g.Spent.Turns != 4 || len(g.Iterations) != 4 {
		t.Errorf("the goal is %s after %d turns (%s), want it met after 4: %+v", g.State,
			g.Spent.Turns, g.Reason, g)
	}
	for i, it := range g.Iterations {
		if it.N != i+1 || it.EndedAt.IsZero() || (it.Reason != "") != (it.N == 2) {
			t.Errorf("turn %d is %+v, want it ended, and a reason for the second only", i+1, it)
		}
	}
	if got := prompts(m, "(turn 3 of 9)"); got != 1 {
		t.Errorf("the model got the third prompt %d times, want once", got)
	}
}

// The model starts a goal for its own session, within the gateway's bounds, and stops none of a
// person.
func TestGoalOfTheModel(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	h.put("tapgw.toml", "[tap]\ntools = true\n")
	h.serve("--config", h.path("tapgw.toml"))
	session := h.copilot(m, "--cwd", h.path("work"))
	h.waitTool(session, "tap_goal_start")
	const start = `call:tap_goal_start {"goal":"Write it.","checks":[{"type":"file","path":"never"}],"turns":`
	if got := h.ask(session, start+"51}"); !strings.Contains(got, "turns: 51 is not from 1 to 50") {
		t.Errorf("a budget over the gateway's: the model was told %q, want that it is refused", got)
	}
	if got := h.ask(session, start+"2}"); !strings.Contains(got, "Started goal.") {
		t.Errorf("the model was told %q, want that the goal is started", got)
	}
	list := decode[[]adminapi.Goal](t, h.tapctl("goals", "--json"))
	if len(list) != 1 || list[0].By != adminapi.GoalByModel || list[0].Session != session {
		t.Fatalf("got the goals %+v, want one of the model", list)
	}
	g := h.waitGoal(list[0].ID, hasEnded)
	if g.State != adminapi.GoalOverBudget || g.Spent.Turns != 2 {
		t.Errorf("the goal is %s after %d turns: %q; want its budget used up after 2", g.State,
			g.Spent.Turns, g.Reason)
	}
	mine := h.startGoal("--check", `{"file":"never"}`, "--turns", "500", "Mine.")
	got := h.ask(session, `call:tap_goal_stop {"id":"`+mine.ID+`"}`)
	if !strings.Contains(got, "only a person stops it") {
		t.Errorf("the model was told %q, want that it stops no goal of a person", got)
	}
	h.tapctl("goals", "stop", mine.ID)
}
