package taptools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/visible"
	"tapgw/providers"
)

// Goals are the goals of sessions. The errors are for the model.
type Goals interface {
	List(session string) []adminapi.Goal
	Start(r adminapi.GoalRequest, by string) (adminapi.Goal, error)
	Stop(id, by, reason string) (adminapi.Goal, error)
}

func (t *toolset) addGoals() {
	addTool(t, "tap_goal_start", "Start a goal for this session: whenever your turn ends, the "+
		"gateway looks at the checks, and while one does not hold you get another turn that says "+
		"what is missing, "+
		"until the budget is used up. Only what the gateway sees counts, not what you say.",
		t.startGoal)
	addTool(t, "tap_goal_list", "List the goals of this session, also those that have ended: "+
		"their states, who started them, and how much of their turns is used.", t.listGoals,
		isReadOnly)
	addTool(t, "tap_goal_show", "Show a goal of this session: what each of its checks showed at "+
		"the last look, and what was missing after each turn.", t.showGoal, isReadOnly)
	addTool(t, "tap_goal_stop", "Stop a goal of this session that you have started yourself. A "+
		"goal that a person has started is only stopped by a person.", t.stopGoal)
}

type startGoalArgs struct {
	Goal    string  `json:"goal"              jsonschema:"what is to be true in the end"`
	Checks  []check `json:"checks"            jsonschema:"what shows it; all must hold"`
	Turns   int     `json:"turns,omitempty"   jsonschema:"how many turns at most, up to 50; 10 if left out"`
	Minutes float64 `json:"minutes,omitempty" jsonschema:"how long at most, up to 240; 240 if left out"`
	Tokens  int64   `json:"tokens,omitempty"  jsonschema:"how many tokens of this session's model at most; no limit if left out"`
}

func (t *toolset) startGoal(_ context.Context, in startGoalArgs) (string, error) {
	r := adminapi.GoalRequest{Session: t.Session.ID(), Text: in.Goal, Turns: in.Turns,
		Tokens: in.Tokens, TimeMs: int64(in.Minutes * float64(time.Minute/time.Millisecond))}
	if in.Minutes < 0 || in.Minutes > 24*60 {
		return "", fmt.Errorf("minutes: %v is not from 0 to 240", in.Minutes)
	}
	for _, c := range in.Checks {
		data, err := json.Marshal(c)
		if err != nil {
			return "", err
		}
		r.Checks = append(r.Checks, data)
	}
	g, err := t.Goals.Start(r, adminapi.GoalByModel)
	if err != nil {
		return "", err
	}
	return "Started goal. The first look is when your turn ends.\n" + goalLine(g), nil
}

// goalLine describes a goal in a line.
func goalLine(g adminapi.Goal) string {
	line := fmt.Sprintf("- %s state=%s by=%s turns=%d/%d goal=%q", g.ID, g.State, g.By,
		g.Spent.Turns, g.Budget.Turns, visible.Ends(visible.Line(g.Contract.Text), maxDescription,
			1))
	if g.Reason != "" {
		line += fmt.Sprintf(" reason=%q", g.Reason)
	}
	return line
}

func (t *toolset) listGoals(context.Context, struct{}) (string, error) {
	list := t.Goals.List(t.Session.ID())
	lines := []string{fmt.Sprintf("Goals (%d):", len(list))}
	for _, g := range list {
		lines = append(lines, goalLine(g))
	}
	return strings.Join(lines, "\n"), nil
}

type goalArgs struct {
	ID string `json:"id" jsonschema:"the goal, as tap_goal_list shows it"`
}

// goal finds a goal of this session.
func (t *toolset) goal(id string) (adminapi.Goal, error) {
	for _, g := range t.Goals.List(t.Session.ID()) {
		if g.ID == id {
			return g, nil
		}
	}
	return adminapi.Goal{},
		providers.NotFound("this session has no goal %q: tap_goal_list lists its goals", id)
}

func (t *toolset) showGoal(_ context.Context, in goalArgs) (string, error) {
	g, err := t.goal(in.ID)
	if err != nil {
		return "", err
	}
	r := report{title: goalLine(g) + "\nChecks"}
	for _, e := range g.Evidence {
		var why error
		if !e.Holds {
			why = fmt.Errorf("%s", e.Why)
		}
		r.add(e.Check, why)
	}
	text := r.String()
	if len(g.Evidence) == 0 {
		text = goalLine(g) + "\nNobody has looked at the checks yet."
	}
	for _, it := range g.Iterations {
		text += fmt.Sprintf("\nTurn %d: %s missing", it.N, visible.Count(len(it.Missing), "check"))
		if it.Reason != "" {
			text += ", " + it.Reason
		}
	}
	return visible.Ends(text, maxAnswer, maxAnswer), nil
}

type stopGoalArgs struct {
	ID     string `json:"id"               jsonschema:"the goal, as tap_goal_list shows it"`
	Reason string `json:"reason,omitempty" jsonschema:"why, for the person"`
}

func (t *toolset) stopGoal(_ context.Context, in stopGoalArgs) (string, error) {
	if _, err := t.goal(in.ID); err != nil {
		return "", err
	}
	g, err := t.Goals.Stop(in.ID, adminapi.GoalByModel, in.Reason)
	if err != nil {
		return "", err
	}
	return "Stopped goal.\n" + goalLine(g), nil
}
