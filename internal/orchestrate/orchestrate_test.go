package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var roles = []string{"coder", "reviewer"}

func TestParsePlan(t *testing.T) {
	tests := map[string]struct {
		answer string
		want   []Task
		fault  string
	}{
		"one": {`[{"role":"coder","task":" do it "}]`,
			[]Task{{Name: "coder", Role: "coder", Text: "do it"}}, ""},
		"text around it, and names": {"Here [as you asked] it is:\n```json\n" +
			`[{"role":"coder","task":"a"},{"role":"coder","task":"b"},` +
			`{"role":"reviewer","task":"c","dependsOn":[2,1,2]}]` + "\n```\nGood?",
			[]Task{{"coder", "coder", "a", nil}, {"coder-2", "coder", "b", nil},
				{"reviewer", "reviewer", "c", []int{1, 0}}}, ""},
		"no array": {"I can't.", nil, "it has no JSON array"},
		"empty":    {"[]", nil, "it has no task"},
		"no JSON":  {"[coder: do it]", nil, "invalid character"},
		"unknown role": {`[{"role":"king","task":"a"}]`, nil,
			`task 1 has the role "king", there are coder, reviewer`},
		"no text": {`[{"role":"coder","task":" "}]`, nil, "task 1 says nothing"},
		"on itself": {`[{"role":"coder","task":"a","dependsOn":[1]}]`, nil,
			"task 1 depends on task 1"},
		"on a later one": {`[{"role":"coder","task":"a","dependsOn":[2]},{"role":"coder","task":"b"}]`, nil,
			"task 1 depends on task 2, which is not an earlier one"},
		"on none": {`[{"role":"coder","task":"a","dependsOn":[0]}]`, nil,
			"task 1 depends on task 0"},
		"wrong type": {`[{"role":"coder","task":"a","dependsOn":["1"]}]`, nil,
			"its array is no list of {role, task, dependsOn}"},
		"too many": {
			"[" + strings.Repeat(`{"role":"coder","task":"a"},`, MaxTasks) +
				`{"role":"coder","task":"a"}]`,
			nil,
			"it has 21 tasks, at most 20",
		},
	}
	for name, tt := range tests {
		got, err := ParsePlan(tt.answer, roles)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		if (err == nil) != (tt.fault == "") || err != nil &&
			!strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: got the error %v, want %q", name, err, tt.fault)
		}
	}
}

// A plan has tasks that only wait for earlier ones, for any answer of a model.
func FuzzParsePlan(f *testing.F) {
	f.Add(`[{"role":"coder","task":"a"},{"role":"reviewer","task":"b","dependsOn":[1]}]`)
	f.Add(`[[[`)
	f.Add(`[null]`)
	f.Fuzz(func(t *testing.T, answer string) {
		tasks, err := ParsePlan(answer, roles)
		if (err == nil) != (len(tasks) > 0) {
			t.Errorf("got %d tasks and the error %v, want either tasks or an error", len(tasks),
				err)
		}
		for i, task := range tasks {
			if task.Text == "" || !slices.Contains(roles, task.Role) ||
				slices.ContainsFunc(task.After, func(n int) bool { return n < 0 || n >= i }) {
				t.Errorf(
					"task %d is %+v, want a text, one of the roles %q, and that it waits for earlier tasks only",
					i, task, roles)
			}
		}
	})
}

// plan makes tasks from their dependencies; task i is named ti.
func plan(after ...[]int) (tasks []Task) {
	for i, a := range after {
		tasks = append(tasks, Task{Name: fmt.Sprintf("t%d", i), After: a})
	}
	return tasks
}

// Tasks run side by side up to the limit, and after those that they need.
func TestRunInParallel(t *testing.T) {
	for _, tt := range []struct {
		limit int
		want  time.Duration
	}{{3, 2 * time.Second}, {2, 3 * time.Second}, {1, 4 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var running, most int
			count := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				running += n
				most = max(most, running)
			}
			start := time.Now()
			results := Run(t.Context(), plan(nil, nil, nil, []int{0, 2}), tt.limit,
				func(_ context.Context, task Task, needs []Result) (string, error) {
					count(1)
					<-time.After(time.Second)
					count(-1)
					text := task.Name
					for _, n := range needs {
						text += "<" + n.Text
					}
					return text, nil
				})
			if got := time.Since(start); got != tt.want {
				t.Errorf("limit %d: took %v, want %v", tt.limit, got, tt.want)
			}
			if most != tt.limit {
				t.Errorf("%d tasks ran at once, want %d", most, tt.limit)
			}
			if got := results[3].Text; got != "t3<t0<t2" {
				t.Errorf("limit %d: the last task got %q, want the results of t0 and t2", tt.limit,
					got)
			}
		})
	}
}

// A failed task blocks those that need it, by name, and no others.
func TestRunBlocks(t *testing.T) {
	results := Run(t.Context(), plan(nil, []int{0}, []int{1}, nil), 4,
		func(_ context.Context, task Task, _ []Result) (string, error) {
			if task.Name == "t0" {
				return "half", errors.New("on fire")
			}
			return "fine", nil
		})
	var got []string
	for _, r := range results {
		got = append(got, fmt.Sprint(r.Text, " ", r.Err))
	}
	want := []string{"half on fire", " it needs the result of t0, which failed",
		" it needs the result of t1, which failed", "fine <nil>"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// After the end of the context nothing starts, and Run waits for running tasks.
func TestRunCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		go func() {
			<-time.After(time.Second)
			cancel()
		}()
		results := Run(ctx, plan(nil, nil), 1,
			func(ctx context.Context, _ Task, _ []Result) (string, error) {
				<-ctx.Done()
				<-time.After(time.Second)
				ended = true
				return "", ctx.Err()
			})
		if !ended {
			t.Error("Run returned while the task still ran, want that it waits for the task's end")
		}
		for _, r := range results {
			if !errors.Is(r.Err, context.Canceled) {
				t.Errorf("%s: got %v, want that it was cancelled", r.Task.Name, r.Err)
			}
		}
	})
}
