package consent

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/configs"
	"tapgw/tools"
)

func nothingAllowed() configs.LSClient { return configs.LSClient{} }

// script answers questions without a terminal, and records them.
type script struct {
	answers []Answer
	asked   []Question
}

func (s *script) Ask(_ context.Context, q Question) (Answer, error) {
	s.asked = append(s.asked, q)
	a := s.answers[0]
	s.answers = s.answers[1:]
	return a, nil
}

func change(path, was, now string) tools.FileEdit {
	return tools.FileEdit{Path: filepath.Join("/work", path), Name: path, Was: &was, Now: &now}
}

// Edits are asked about with their diff; the answers cover what they say, and no more.
func TestAskForEdits(t *testing.T) {
	type step struct {
		edits   []tools.FileEdit
		answer  Answer
		choices string // offered beyond yes and session; "-": nobody is asked
		err     string
	}
	edits := func(paths ...string) (list []tools.FileEdit) {
		for _, p := range paths {
			list = append(list, change(p, "a\n", "b\n"))
		}
		return list
	}
	tests := map[string][]step{
		"once": {{edits("d/x"), Answer{Word: Once}, "d/**", ""}, {edits("d/x"), Answer{}, "d/**",
			"the user said no to: the change of d/x"}},
		"a reason": {{edits("d/x", "d/e/y"), Answer{Reason: "use tabs"}, "d/**",
			"the user said no to: the change of d/x, d/e/y\nThe user's reason: use tabs"}},
		"session": {{edits("d/x"), Answer{Word: Session}, "d/**", ""},
			{edits("e/x", "../out"), Answer{}, "-", ""}},
		"always": {{edits("d/x", "d/e/y"), Answer{Word: Always}, "d/**", ""},
			{edits("d/e/f/z"), Answer{}, "-", ""}, {edits("dd/x"), Answer{}, "dd/**", "said no"},
			{edits("d/x", "f"), Answer{}, "", "said no"}},
		"at the root": {{edits("x", "y"), Answer{Word: Always}, "*", ""},
			{edits("z"), Answer{}, "-", ""}, {edits("d/x"), Answer{}, "d/**", "said no"}},
		"outside":       {{edits("../out/x"), Answer{}, "", "said no"}},
		"a hostile dir": {{edits("d\x1b[2J/x"), Answer{}, `d\x1b[2J/**`, "said no"}},
		"a new directory": {{[]tools.FileEdit{{Path: "/work/d/new", Name: "d/new", Dir: true}},
			Answer{}, "d/**",
			"said no"}},
	}
	for name, steps := range tests {
		s := &script{}
		p := New(nothingAllowed, false, s)
		for i, step := range steps {
			s.answers, s.asked = []Answer{step.answer}, nil
			_, err := p.Edit(t.Context(), "/work", step.edits, nil)
			if step.err == "" && err != nil || step.err != "" &&
				(err == nil || !strings.Contains(err.Error(), step.err)) {
				t.Errorf("%s, step %d: error %v, want %q", name, i, err, step.err)
			}
			offered := "-"
			if len(s.asked) > 0 {
				offered = ""
				if c := s.asked[0].Choices; len(c) > 2 {
					offered = c[2].Covers
				}
			}
			if offered != step.choices {
				t.Errorf("%s, step %d: offered %q, want %q", name, i, offered, step.choices)
			}
		}
	}
	forgetful := New(nothingAllowed, false, &script{answers: []Answer{{Word: Session}, {}}})
	_, _ = forgetful.Edit(t.Context(), "/work", edits("x"), nil)
	forgetful.ForgetSession()
	if _, err := forgetful.Edit(t.Context(), "/work", edits("x"), nil); err == nil {
		t.Error(
			"editing in a new conversation with the consent of the last one: got no error, want a refusal")
	}
}

// A person must allow each write to a protected place; the answer always is not offered.
func TestProtectedEachTime(t *testing.T) {
	s := &script{answers: []Answer{{}, {Word: Once}, {}}}
	env := &tools.Env{}
	New(nothingAllowed, false, s).Guard(env)
	for i, ok := range []bool{false, true, false} {
		if err := env.Protected(t.Context(), "/x/.git/config", "why"); (err == nil) != ok {
			t.Errorf("question %d: got %v, want consent: %v", i, err, ok)
		}
	}
	want := []Choice{{Answer: Once}}
	for i, q := range s.asked {
		if !slices.Equal(q.Choices, want) ||
			q.Text != "write /x/.git/config, which is protected: why" {
			t.Errorf(
				"question %d is %q with the choices %v, want the path and why, and the choices %v",
				i, q.Text, q.Choices, want)
		}
	}
	if len(s.asked) != 3 {
		t.Errorf("got %d questions, want 3", len(s.asked))
	}
}

func TestAllowed(t *testing.T) {
	a := configs.AllowList{Terminal: []string{"a"}, Outside: []string{"/b"}, Web: []string{"c"},
		Tools: []string{"d"}}
	got := Allowed(configs.LSClient{Allow: a})
	if got.Terminal[0] != "a" || got.Outside[0] != "/b" || got.Web[0] != "c" ||
		got.Tools[0] != "d" {
		t.Errorf("got %+v, want what the configuration allows: %+v", got, a)
	}
}

// A question names the worker that asks, where several work.
func TestQuestionNamesWorker(t *testing.T) {
	s := &script{answers: []Answer{{}, {}}}
	p := New(nothingAllowed, false, s)
	tool := &tools.Tool{Name: "deploy", Source: "deploy.py"}
	_ = p.Tool(WithWorker(t.Context(), "coder"), tool, []byte(`{}`))
	_ = p.Tool(t.Context(), tool, []byte(`{}`))
	if len(s.asked) != 2 || s.asked[0].Worker != "coder" || s.asked[1].Worker != "" {
		t.Errorf("got the questions %+v, want one of the worker coder and one of no worker",
			s.asked)
	}
}
