package taptools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// The model starts goals of its own, within the gateway's bounds, and stops no goal of a person.
func TestGoals(t *testing.T) {
	w := newWorld(t)
	never := []object{{"type": "file", "path": "never"}}
	w.want("no goal", w.call("tap_goal_list", object{}), "Goals (0):")
	for want, args := range map[string]object{
		"checks: are missing": {"goal": "Do it.", "checks": []object{}},
		`checks[0]: type: "rumour" is none of`: {"goal": "Do it.",
			"checks": []object{{"type": "rumour"}}},
		"text: must say what the goal is": {"goal": " ", "checks": never},
		"turns: 51 is not from 1 to 50":   {"goal": "Do it.", "checks": never, "turns": 51},
		"minutes: -1 is not from 0": {"goal": "Do it.", "checks": never,
			"minutes": -1},
		"timeMs: must be more than 0": {"goal": "Do it.", "checks": never,
			"minutes": 241},
		"tokens: sessions of host test don't rep": {"goal": "Do it.", "checks": never, "tokens": 5},
	} {
		w.want(fmt.Sprint(args), w.call("tap_goal_start", args), "error: ", want)
	}
	w.want("a goal",
		w.call("tap_goal_start", object{"goal": "Do\nit.", "checks": never, "turns": 3}),
		"Started goal.",
		` state=active by=model turns=0/3 goal="Do\\nit."`)
	own := w.goals.List("s")[0].ID
	w.want(
		"another goal",
		w.call("tap_goal_start", object{"goal": "More.", "checks": never}),
		"error: ",
		"has the goal",
	)
	w.want("stopped", w.call("tap_goal_stop", object{"id": own, "reason": "no need"}),
		"Stopped goal.", "state=stopped", "stopped by the model: no need")
	w.want("the list", w.call("tap_goal_list", object{}), "Goals (1):", own)

	persons, err := w.goals.Start(adminapi.GoalRequest{Session: "s", Text: "Mine.",
		Checks: []json.RawMessage{json.RawMessage(`{"file": "never"}`)}}, adminapi.GoalByPerson)
	if err != nil {
		t.Fatal(err)
	}
	w.want("a person's goal", w.call("tap_goal_stop", object{"id": persons.ID}), "error: ",
		"only a person stops it")
	w.want("another goal beside it",
		w.call("tap_goal_start", object{"goal": "Less.", "checks": never}), "error: ",
		"has the goal "+persons.ID)
	defer w.gateway.Watch()()
	for { // until the gateway has looked at the checks
		changes := w.gateway.Changes()
		w.session.Idle() // the turn of the first goal has ended
		if len(w.goals.List("s")[1].Evidence) > 0 {
			break
		}
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		err := w.gateway.WaitChange(ctx, changes)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.want("the goal", w.call("tap_goal_show", object{"id": persons.ID}), "state=active by=person",
		"Checks: failed\n- FAIL file never — there is no such file")
	if _, err := w.gateway.Register(gateway.SessionSpec{ID: "other", CWD: w.dir},
		gateway.HostInfo{Kind: "test",
			Send: true}, &host{tools: make(chan []gateway.Tool, 100)}); err != nil {
		t.Fatal(err)
	}
	others, err := w.goals.Start(adminapi.GoalRequest{Session: "other", Text: "Theirs.",
		Checks: []json.RawMessage{json.RawMessage(`{"file": "never"}`)}}, adminapi.GoalByModel)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"tap_goal_show", "tap_goal_stop"} {
		w.want(
			"a goal of another session",
			w.call(tool, object{"id": others.ID}),
			"error: ",
			"this session has no goal",
		)
	}
}
