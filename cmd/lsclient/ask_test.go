package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/configs"
	"tapgw/tools"
	"tapgw/tools/provide"
)

// Only the words of choices that are offered are a yes; the text of a no is its reason.
func TestReadAnswer(t *testing.T) {
	q := question{choices: []choice{{word: yesOnce}, {word: always}}}
	for line, want := range map[string]answer{
		"y\n": {word: yesOnce}, " YES \r\n": {word: yesOnce}, "a\n": {word: always}, "": {}, "\n": {}, "n\n": {},
		"No\n": {}, "n: use tabs\n": {reason: "use tabs"}, "no, Use Tabs: x\n": {reason: "Use Tabs: x"},
		"n use tabs\n": {reason: "use tabs"}, "not now\n": {reason: "not now"}, "use tabs\n": {reason: "use tabs"},
		"session\n": {}, "w\n": {}, "yes please\n": {reason: "yes please"},
	} {
		if got := q.read(line); got != want {
			t.Errorf("%q is read as %+v, want %+v", line, got, want)
		}
	}
}

// script answers questions without a terminal, and records them.
type script struct {
	answers []answer
	asked   []question
}

func (s *script) ask(_ context.Context, q question) (answer, error) {
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
		answer  answer
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
		"once": {{edits("d/x"), answer{word: yesOnce}, "d/**", ""}, {edits("d/x"), answer{}, "d/**",
			"the user said no to: the change of d/x"}},
		"a reason": {{edits("d/x", "d/e/y"), answer{reason: "use tabs"}, "d/**",
			"the user said no to: the change of d/x, d/e/y\nThe user's reason: use tabs"}},
		"session": {{edits("d/x"), answer{word: session}, "d/**", ""}, {edits("e/x", "../out"), answer{}, "-", ""}},
		"always": {{edits("d/x", "d/e/y"), answer{word: always}, "d/**", ""},
			{edits("d/e/f/z"), answer{}, "-", ""}, {edits("dd/x"), answer{}, "dd/**", "said no"},
			{edits("d/x", "f"), answer{}, "", "said no"}},
		"at the root": {{edits("x", "y"), answer{word: always}, "*", ""}, {edits("z"), answer{}, "-", ""},
			{edits("d/x"), answer{}, "d/**", "said no"}},
		"outside":       {{edits("../out/x"), answer{}, "", "said no"}},
		"a hostile dir": {{edits("d\x1b[2J/x"), answer{}, `d\x1b[2J/**`, "said no"}},
		"a new directory": {{[]tools.FileEdit{{Path: "/work/d/new", Name: "d/new", Dir: true}}, answer{}, "d/**",
			"said no"}},
	}
	for name, steps := range tests {
		s := &script{}
		p := &policy{conf: func() configs.LSClient { return configs.LSClient{} }, asker: s}
		for i, step := range steps {
			s.answers, s.asked = []answer{step.answer}, nil
			_, err := p.edit(t.Context(), "/work", step.edits, diffsOf(step.edits), diffView{})
			if step.err == "" && err != nil || step.err != "" &&
				(err == nil || !strings.Contains(err.Error(), step.err)) {
				t.Errorf("%s, step %d: error %v, want %q", name, i, err, step.err)
			}
			offered := "-"
			if len(s.asked) > 0 {
				offered = ""
				if c := s.asked[0].choices; len(c) > 2 {
					offered = c[2].covers
				}
			}
			if offered != step.choices {
				t.Errorf("%s, step %d: offered %q, want %q", name, i, offered, step.choices)
			}
		}
	}
	forgetful := &policy{asker: &script{answers: []answer{{word: session}, {}}}}
	_, _ = forgetful.edit(t.Context(), "/work", edits("x"), nil, diffView{})
	forgetful.forgetSession()
	if _, err := forgetful.edit(t.Context(), "/work", edits("x"), nil, diffView{}); err == nil {
		t.Error("editing in a new conversation with the consent of the last one: got no error, want a refusal")
	}
}

// The question has the diff, and of a long one its ends and how to see all.
func TestEditText(t *testing.T) {
	list := []tools.FileEdit{change("x", "a\n", "b\x1b[2J\n"), change("y", "", strings.Repeat("line\n", 100))}
	text, whole := editText(list, diffsOf(list), diffView{})
	if !strings.HasPrefix(text, "change files:\nchanged x +1 -1\n  @@ -1 +1 @@\n  -a\n  +b\\x1b[2J\nchanged y +100 -0\n") ||
		!strings.HasSuffix(text, "… 61 more lines; w shows all") ||
		strings.Count(whole, "line") != 100 {
		t.Errorf("the question is\n%s\nand whole\n%s\nwant both diffs, the second cut to its ends, and whole 100 lines",
			text, whole)
	}
	if text, whole = editText(list[:1], diffsOf(list[:1]), diffView{}); whole != "" {
		t.Errorf("the question is\n%s\nand has a whole text, want none, because nothing is cut", text)
	}
}

// A no of a person to a command tells the model why.
func TestNoWithReason(t *testing.T) {
	p := &policy{
		conf:  func() configs.LSClient { return configs.LSClient{} },
		asker: answering("n: use make\n", io.Discard),
	}
	err := p.tool(
		t.Context(),
		&tools.Tool{Name: "run_in_terminal", Kind: tools.Terminal},
		[]byte(`{"command":"go build"}`),
	)
	want := "the user said no to: run: go build\nThe user's reason: use make"
	if _, refused := errors.AsType[*provide.Refusal](err); !refused || err.Error() != want {
		t.Errorf("got error %v, want the refusal %q", err, want)
	}
}

// A question ends with its turn. A line from between two questions answers neither.
func TestInterruptedQuestion(t *testing.T) {
	in, typed := io.Pipe()
	shown := make(chan string, 10)
	a := &lineAsker{in: bufio.NewReader(in), out: writerFunc(func(b []byte) { shown <- string(b) })}
	p := &policy{conf: func() configs.LSClient { return configs.LSClient{} }, asker: a}
	run := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			done <- p.tool(ctx, &tools.Tool{Name: "run_in_terminal", Kind: tools.Terminal},
				[]byte(`{"command":"ls"}`))
		}()
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := run(ctx)
	<-shown
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the turn the error is %v, want %v", err, context.Canceled)
	}
	<-shown // the line end
	if _, err := typed.Write([]byte("y\n")); err != nil {
		t.Fatal(err)
	}
	for len(a.pending) == 0 { // until the stale line has come
		select {
		case <-t.Context().Done():
			t.Fatalf("%d lines came that were typed before the question, want 1", len(a.pending))
		default:
		}
	}
	done = run(t.Context())
	<-shown
	if _, err := typed.Write([]byte("n\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the answer n after a stale y: got no error, want a refusal")
	}
	_ = typed.Close()
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(slices.Clone(b))
	return len(b), nil
}
