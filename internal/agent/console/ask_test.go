package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"tapgw/configs"
	"tapgw/internal/agent/consent"
	"tapgw/internal/diff"
	"tapgw/tools"
	"tapgw/tools/provide"
)

// Only the words of choices that are offered are a yes; the text of a no is its reason.
func TestReadAnswer(t *testing.T) {
	q := question{Choices: []consent.Choice{{Answer: consent.Once}, {Answer: consent.Always}}}
	for line, want := range map[string]consent.Answer{
		"y\n": {Word: consent.Once}, " YES \r\n": {Word: consent.Once},
		"a\n": {Word: consent.Always}, "": {}, "\n": {}, "n\n": {},
		"No\n": {}, "n: use tabs\n": {Reason: "use tabs"},
		"no, Use Tabs: x\n": {Reason: "Use Tabs: x"},
		"n use tabs\n":      {Reason: "use tabs"}, "not now\n": {Reason: "not now"},
		"use tabs\n": {Reason: "use tabs"}, "session\n": {}, "w\n": {},
		"yes please\n": {Reason: "yes please"},
	} {
		if got := q.read(line); got != want {
			t.Errorf("%q is read as %+v, want %+v", line, got, want)
		}
	}
}

func change(path, was, now string) tools.FileEdit {
	return tools.FileEdit{Path: filepath.Join("/work", path), Name: path, Was: &was, Now: &now}
}

// The question has the diff, and of a long one its ends and how to see all.
func TestEditText(t *testing.T) {
	list := []tools.FileEdit{change("x", "a\n", "b\x1b[2J\n"),
		change("y", "", strings.Repeat("line\n", 100))}
	var diffs []diff.Diff
	for _, e := range list {
		diffs = append(diffs, diff.New(e.Name, e.Was, e.Now))
	}
	text, whole := editText(list, diffs, diffView{})
	if !strings.HasPrefix(text,
		"change files:\nchanged x +1 -1\n  @@ -1 +1 @@\n  -a\n  +b\\x1b[2J\nchanged y +100 -0\n") ||
		!strings.HasSuffix(text, "… 61 more lines; w shows all") ||
		strings.Count(whole, "line") != 100 {
		t.Errorf(
			"the question is\n%s\nand whole\n%s\nwant both diffs, the second cut to its ends, and whole 100 lines",
			text, whole)
	}
	if text, whole = editText(list[:1], diffs[:1], diffView{}); whole != "" {
		t.Errorf("the question is\n%s\nand has a whole text, want none, because nothing is cut",
			text)
	}
}

// A no of a person to a command tells the model why.
func TestNoWithReason(t *testing.T) {
	p := askingPolicy(answering("n: use make\n", io.Discard))
	err := p.Tool(
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
	a := &answers{in: bufio.NewReader(in), out: writerFunc(func(b []byte) { shown <- string(b) })}
	p := askingPolicy(&asker{mu: &sync.Mutex{}, read: a.read})
	run := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			done <- p.Tool(ctx, &tools.Tool{Name: "run_in_terminal", Kind: tools.Terminal},
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

// answering is a person who types the lines.
func answering(lines string, shown io.Writer) consent.Asker {
	a := &answers{in: bufio.NewReader(strings.NewReader(lines)), out: shown}
	return &asker{mu: &sync.Mutex{}, read: a.read}
}

// askingPolicy is a policy that allows nothing without asking.
func askingPolicy(asker consent.Asker) *consent.Policy {
	return consent.New(func() configs.LSClient { return configs.LSClient{} }, false, asker)
}

// A question shows everything that the person allows.
func TestAskShowsAll(t *testing.T) {
	ask := func(answers, tool, args string) (shown string, err error) {
		var out strings.Builder
		p := askingPolicy(answering(answers, &out))
		kind, source := tools.Terminal, ""
		if tool != "run_in_terminal" {
			source = tool + ".py"
		}
		err = p.Tool(t.Context(), &tools.Tool{Name: tool, Kind: kind, Source: source},
			json.RawMessage(args))
		return out.String(), err
	}
	command := func(c string) string {
		b, err := json.Marshal(map[string]string{"command": c})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	long := "git status " + strings.Repeat("x", 5000) + "; rm -rf MIDDLE;" + strings.Repeat("y",
		5000) + "; rm -rf END"
	shown, err := ask("n\n", "run_in_terminal", command(long))
	if err == nil || !strings.Contains(shown, "git status x") ||
		!strings.Contains(shown, "rm -rf END") || strings.Contains(shown, "MIDDLE") ||
		!strings.Contains(shown, fmt.Sprintf("of %d bytes are left out", len("run: "+long))) ||
		!strings.Contains(shown, "[w]hole") {
		t.Errorf(
			"refusing a long command: got the error %v and\n%s\nwant an error, the command's ends, "+
				"how much is left out, and the choice w", err, shown)
	}
	if shown, err = ask("w\ny\n", "run_in_terminal", command(long)); err != nil ||
		!strings.Contains(shown, long) {
		t.Errorf(
			"a long command after w: got the error %v and\n%s\nwant no error and the whole command",
			err, shown)
	}
	if shown, err = ask("y\n", "run_in_terminal",
		command(strings.Repeat("x", 64<<10))); err == nil || shown != "" ||
		!strings.Contains(err.Error(), "65541 bytes long") {
		t.Errorf(
			"a command over 64 KiB: got the error %v and %.100q, want its length in the error, and no question",
			err, shown)
	}
	shown, _ = ask("n\n", "run_in_terminal", command("ls '\x1b]'; rm x; '\a' \u202eb\nAllow it? "))
	if !strings.Contains(shown, `run: ls '\x1b]'; rm x; '\x07' \u202eb`+"\n  Allow it?") {
		t.Errorf("a command with control characters is shown as %q, want them escaped", shown)
	}
	if shown, _ = ask("n\n", "deploy", `{"stage":"production"}`); !strings.Contains(shown,
		`use the tool deploy with {"stage":"production"}`) {
		t.Errorf("the question about a drop-in is %q, want the tool's name and its arguments in it",
			shown)
	}
}
