// Package orchestrate divides a goal among several workers: it reads the plan that a model wrote,
// and runs its tasks at the same time where they don't wait for each other.
package orchestrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxTasks is how many tasks a plan may have.
const MaxTasks = 20

// Task is a part of a goal for one worker. Name is the role, with a number from the role's second
// task on. After has the indices of the tasks whose results it needs; they all stand before it in
// the plan.
type Task struct {
	Name  string
	Role  string
	Text  string
	After []int
}

// maxArrays is how many beginnings of an array a text may have before the plan.
const maxArrays = 20

// ParsePlan reads the plan in a model's answer: a JSON array of {role, task, dependsOn}, with text
// around it or not. dependsOn has numbers of earlier tasks, the first one being 1. The error names
// the fault of the plan.
func ParsePlan(answer string, roles []string) ([]Task, error) {
	type item struct {
		Role      string
		Task      string
		DependsOn []int
	}
	var items []item
	err := errors.New("it has no JSON array")
	rest := answer
	for range maxArrays {
		at := strings.IndexByte(rest, '[')
		if at < 0 {
			break
		}
		items = nil
		if err = json.NewDecoder(strings.NewReader(rest[at:])).Decode(&items); err == nil &&
			len(items) > 0 {
			break
		}
		rest = rest[at+1:]
	}
	_, isWrongType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case isWrongType:
		return nil,
			errors.New(
				"its array is no list of {role, task, dependsOn} with texts, and " +
					"numbers in dependsOn")
	case err != nil:
		return nil, err
	case len(items) == 0:
		return nil, errors.New("it has no task")
	case len(items) > MaxTasks:
		return nil, fmt.Errorf("it has %d tasks, at most %d are allowed", len(items), MaxTasks)
	}
	tasks := make([]Task, len(items))
	count := map[string]int{}
	for i, item := range items {
		t := Task{Name: item.Role, Role: item.Role, Text: strings.TrimSpace(item.Task)}
		if count[t.Role]++; count[t.Role] > 1 {
			t.Name = fmt.Sprintf("%s-%d", t.Role, count[t.Role])
		}
		switch {
		case !slices.Contains(roles, t.Role):
			return nil, fmt.Errorf("task %d has the role %q, there are %s", i+1, t.Role,
				strings.Join(roles, ", "))
		case t.Text == "":
			return nil, fmt.Errorf("task %d says nothing", i+1)
		}
		for _, n := range item.DependsOn {
			if n < 1 || n > i {
				return nil, fmt.Errorf("task %d depends on task %d, which is not an earlier one",
					i+1, n)
			}
			if !slices.Contains(t.After, n-1) {
				t.After = append(t.After, n-1)
			}
		}
		tasks[i] = t
	}
	return tasks, nil
}
