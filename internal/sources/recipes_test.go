package sources_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

const recipeDir = "../../configs/providers/recipes"

func recipe(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(recipeDir, name+".toml.sample"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// commandRecipes are the recipes that run a program, the output of each run, and the events that
// come of it.
var commandRecipes = []struct {
	name, program string
	runs          []string // a script in the program's place, for each run
	want          []string // level and text
}{
	{"heartbeat", "node",
		[]string{"echo booting; echo healthy; echo warning: slow; echo tick; exec sleep 1000"},
		[]string{"surface healthy", "inject warning: slow", "keep tick"}},
	{"app-log", "tail",
		[]string{"echo GET /healthz; echo GET /; echo ERROR no disk; echo noise >&2; exec sleep 1000"}, []string{"keep GET /", "inject ERROR no disk"}},
	{"tests", "npm", []string{"echo 3 passed", "echo 1 failed; exit 1", "echo 1 failed; exit 1",
		"echo 3 passed"},
		[]string{"inject the command ended with exit status 1\n1 failed",
			"inject the command works again\n3 passed"}},
	{"ci-status", "gh", []string{"echo success", "echo failure", "echo failure", "echo success"},
		[]string{"inject CI on main: failure", "surface CI on main: success"}},
	{"new-issues", "gh", []string{"echo '#1 old'", "echo '#2 typo'; echo '#1 old'",
		"echo '#3 a crash'; echo '#1 old'"},
		[]string{"surface new issue #2 typo", "inject new issue #3 a crash"}},
	{"disk-full", "df", []string{"echo; echo / 9 9 9 40% /", "echo; echo / 9 9 9 95% /",
		"echo; echo / 9 9 9 96% /"},
		[]string{"inject the command ended with exit status 1\n95% of the disk is in use"}},
}

func TestCommandRecipes(t *testing.T) {
	for _, test := range commandRecipes {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			s := w.session()
			program := filepath.Join(w.state, "bin", test.program)
			if err := os.Mkdir(filepath.Dir(program), 0o700); err != nil {
				t.Fatal(err)
			}
			install := func(script string) {
				next := program + ".next"
				script = "#!/bin/sh\n" + script + "\n"
				// A program.
				if err := os.WriteFile(next, []byte(script), 0o700); err != nil { //nolint:gosec
					t.Fatal(err)
				}
				if err := os.Rename(next, program); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", filepath.Dir(program)+":/usr/bin:/bin")
			install(test.runs[0])
			stop := w.run(recipe(t, test.name), s.ID())
			for n, script := range test.runs[1:] {
				w.waitRuns(n + 1)
				install(script)
				if got := w.set.Trigger("watch"); got != 1 {
					t.Fatalf("run %d: got %d started, want 1", n+2, got)
				}
			}
			if len(test.runs) > 1 {
				w.waitRuns(len(test.runs))
			}
			if got := w.waitLevels(s, len(test.want)); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			w.end()
		})
	}
}

// waitRuns waits until a number of runs has ended.
func (w *world) waitRuns(n int) {
	w.Helper()
	defer w.gateway.Watch()()
	for {
		changes := w.gateway.Changes()
		list := w.set.List()
		if len(list) == 1 && list[0].Runs == n && list[0].State == adminapi.SourceWaiting {
			return
		}
		if err := w.gateway.WaitChange(w.patient(), changes); err != nil {
			w.Fatal(err)
		}
	}
}

// waitLevels waits for events of any stream, and returns them with their levels.
func (w *world) waitLevels(s *gateway.Session, n int) (list []string) {
	w.Helper()
	for {
		cursor := s.HistoryCursor()
		rows := s.History(nil, 200, time.Time{})
		if len(rows) >= n {
			for _, row := range slices.Backward(rows) {
				list = append(list, row.Level+" "+row.Event)
			}
			return list
		}
		if err := s.WaitHistory(w.patient(), cursor); err != nil {
			w.Fatal(err)
		}
	}
}

// The recipes that prompt come when they say, and no oftener than they may.
func TestPromptRecipes(t *testing.T) {
	tests := []struct {
		name string
		in   time.Duration // after the start, which is on a Saturday at midnight, UTC
		want int
	}{
		{"repo-maintenance", time.Hour - 1, 4},
		{"repo-maintenance", 24 * time.Hour, 32},
		{"standup", 56*time.Hour - 1, 0},
		{"standup", 7*24*time.Hour - 1, 5},
		{"goal", 24 * time.Hour, 50},
		{"review", time.Minute, 3},
		{"review", 24 * time.Hour, 20},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := w.session()
				stop := w.run(recipe(t, test.name), s.ID())
				<-time.After(test.in)
				synctest.Wait()
				if got := len(s.History(nil, 200, time.Time{})); got != test.want {
					t.Errorf("prompts after %s: got %d, want %d", test.in, got, test.want)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				w.end()
			})
		})
	}
}

// Each recipe has a test.
func TestRecipesAreTested(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(recipeDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	tested := []string{"goal", "repo-maintenance", "review", "standup"}
	for _, test := range commandRecipes {
		tested = append(tested, test.name)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".toml.sample"); !slices.Contains(tested,
			name) {
			t.Errorf("no test runs %s", file)
		}
	}
	if len(files) != len(tested) {
		t.Errorf("recipes: got %d, want %d", len(files), len(tested))
	}
}
