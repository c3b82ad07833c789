package conversations

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// keep writes a conversation of n whole turns and returns its id.
func keep(t testing.TB, s Store, workspace string, n int) string {
	t.Helper()
	w := s.New(workspace)
	defer w.Close()
	for i := range n {
		must(t, w.Prompt(fmt.Sprintf("prompt %d", i), ""))
		w.Text("answer ")
		w.Text(fmt.Sprint(i))
		must(t, w.End(End{Model: "GPT", Usage: []byte(`{"promptTokens":1}`), Outcome: Completed}))
	}
	return w.ID()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRoundTrip(t *testing.T) {
	s := In(filepath.Join(t.TempDir(), "state", "conversations"))
	w := s.New("/work")
	must(t, w.Prompt("\n fix <it>\nnow", "gpt-x"))
	w.Text("I look.")
	must(t, w.Tool(Tool{Name: "read_file", State: "completed", Input: []byte(`{"filePath":"a"}`),
		Result: "A\x1b[31m"}))
	w.Text("It is ")
	w.Text("A.")
	must(t, w.End(End{Model: "GPT X", Usage: []byte(`{"promptTokens":3}`), Outcome: Completed}))
	must(t, w.Prompt("again", ""))
	must(t, w.End(End{Outcome: Failed, Error: "on fire"}))
	w.Close()

	got, err := s.Read(w.ID())
	must(t, err)
	want := Conversation{
		Info: Info{ID: w.ID(), Title: "fix <it>", Workspace: "/work", Model: "GPT X", Turns: 2},
		Turns: []Turn{
			{Prompt: "\n fix <it>\nnow", Chosen: "gpt-x", Steps: []Step{{Text: "I look."},
				{Tool: &Tool{Name: "read_file", State: "completed",
					Input:  []byte(`{"filePath":"a"}`),
					Result: "A\x1b[31m"}},
				{Text: "It is A."}}, Model: "GPT X", Usage: []byte(`{"promptTokens":3}`),
				Outcome: Completed},
			{Prompt: "again", Steps: []Step{}, Outcome: Failed, Error: "on fire"},
		},
	}
	noTimes := cmp.FilterPath(func(p cmp.Path) bool {
		return strings.HasSuffix(p.String(), "At")
	}, cmp.Ignore())
	if diff := cmp.Diff(want, got, noTimes); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got.CreatedAt.IsZero() || got.UpdatedAt.Before(got.CreatedAt) || got.Turns[0].At.IsZero() {
		t.Errorf(
			"created at %v, updated at %v, the first turn at %v; want none zero, and no update before the creation",
			got.CreatedAt,
			got.UpdatedAt,
			got.Turns[0].At,
		)
	}
	list, faults, err := s.List()
	if err != nil || len(faults) > 0 || len(list) != 1 {
		t.Fatalf("list: got %v, the faults %v and %v, want one conversation and no fault", list,
			faults, err)
	}
	if diff := cmp.Diff(want.Info, list[0], cmpopts.IgnoreFields(Info{}, "CreatedAt",
		"UpdatedAt")); diff != "" {
		t.Errorf("list -want +got:\n%s", diff)
	}
}

// Only the owner may read what is kept.
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "conversations")
	must(t, os.Mkdir(dir, 0o755))
	keep(t, In(dir), "/w", 1)
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, _ error) error {
		info, err := e.Info()
		must(t, err)
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v, want no rights for others", path, info.Mode())
		}
		return nil
	})
}

// A conversation without a turn leaves nothing behind.
func TestNothingWithoutPrompt(t *testing.T) {
	s := In(filepath.Join(t.TempDir(), "conversations"))
	s.New("/w").Close()
	if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory: %v, want none", err)
	}
	if list, _, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("list without a directory: got %v and %v, want no conversation and no error", list,
			err)
	}
}

// Whatever byte a file ends at, the whole lines before it are read, and a writer goes on behind
// them.
func TestTornAnywhere(t *testing.T) {
	s := In(t.TempDir())
	id := keep(t, s, "/w", 2)
	whole, err := os.ReadFile(s.path(id))
	must(t, err)
	header := bytes.IndexByte(whole, '\n') + 1
	for n := header; n < len(whole); n++ {
		must(t, os.WriteFile(s.path(id), whole[:n], 0o600))
		w, c, err := s.Open(id)
		if err != nil {
			t.Fatalf("cut after %d bytes: got %v, want that it can be read", n, err)
		}
		prompts := bytes.Count(whole[:n], []byte(`{"type":"prompt"`))
		if tail := whole[bytes.LastIndexByte(whole[:n], '\n')+1 : n]; bytes.HasPrefix(
			tail,
			[]byte(`{"type":"prompt"`),
		) {
			prompts--
		}
		if len(c.Turns) != prompts {
			t.Fatalf("cut after %d bytes: %d turns, want %d", n, len(c.Turns), prompts)
		}
		must(t, w.Prompt("more", ""))
		must(t, w.End(End{Outcome: Completed}))
		w.Close()
		if c, err = s.Read(id); err != nil || len(c.Turns) != prompts+1 {
			t.Fatalf("cut after %d bytes and gone on: %d turns, %v; want %d", n, len(c.Turns), err,
				prompts+1)
		}
	}
}

func TestFaultsNameFileAndLine(t *testing.T) {
	const header = `{"type":"conversation","version":1,"id":"A","workspace":"/w"}` + "\n"
	tests := map[string]struct{ text, want string }{
		"empty":             {"", "1: has no whole line"},
		"torn header":       {`{"type":"conv`, "1: has no whole line"},
		"no JSON":           {header + "rubbish\n", "2: is not a line of a conversation"},
		"JSON of no object": {header + "[1]\n", "2: is not a line of a conversation"},
		"no header": {`{"type":"prompt","text":"x"}` + "\n",
			`1: a line "prompt" stands in the wrong place`},
		"second header": {header + header, `2: a line "conversation" stands in the wrong place`},
		"text first": {header + `{"type":"text","text":"x"}` + "\n",
			`2: a line "text" stands before`},
		"unknown": {header + `{"type":"prompt"}` + "\n" + `{"type":"what"}` + "\n",
			`3: there is no line "what"`},
		"tool of nothing": {header + `{"type":"prompt"}` + "\n" + `{"type":"tool"}` + "\n",
			`3: there is no line "tool"`},
		"later version": {`{"type":"conversation","version":2}` + "\n",
			"1: a newer lsclient wrote the file"},
		"long line": {
			header + `{"type":"prompt","text":"` + strings.Repeat("x", maxLine),
			"2: the line is longer than",
		},
	}
	for name, tt := range tests {
		s := In(t.TempDir())
		must(t, os.WriteFile(s.path("A"), []byte(tt.text), 0o600))
		for what, err := range map[string]error{"read": second(s.Read("A")),
			"open": third(s.Open("A"))} {
			if want := s.path("A") + ":" + tt.want; err == nil ||
				!strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %s: got %v, want %s", name, what, err, want)
			}
		}
	}
}

func second[A, B any](_ A, b B) B        { return b }
func third[A, B, C any](_ A, _ B, c C) C { return c }

// A pipe in place of a file must not be waited for.
func TestNotAFile(t *testing.T) {
	s := In(t.TempDir())
	must(t, syscall.Mkfifo(s.path("P"), 0o600))
	must(t, os.Symlink("/dev/zero", s.path("Z")))
	for _, id := range []string{"P", "Z"} {
		if _, err := s.Read(id); err == nil ||
			!strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("%s: got %v, want that it is not a regular file", id, err)
		}
	}
	if list, faults, err := s.List(); err != nil || len(list) != 0 || len(faults) != 2 {
		t.Errorf("list: got %v %v %v, want two faults", list, faults, err)
	}
}

// The second writer of a conversation is refused, and the first one's file stays.
func TestOneWriter(t *testing.T) {
	s := In(t.TempDir())
	w := s.New("/w")
	must(t, w.Prompt("hello", ""))
	_, _, err := s.Open(w.ID())
	busy, ok := errors.AsType[*BusyError](err)
	if !ok || busy.ID != w.ID() || busy.PID != os.Getpid() {
		t.Errorf("opening it again: got %v, want that process %d has it", err, os.Getpid())
	}
	err = s.Delete(w.ID())
	if _, ok := errors.AsType[*BusyError](err); !ok {
		t.Errorf("deleting an open conversation: got %v, want a BusyError", err)
	}
	must(t, s.Prune(Retention{Count: 0, Days: 1}))
	w.Close()
	again, c, err := s.Open(w.ID())
	if err != nil || len(c.Turns) != 1 {
		t.Fatalf("opening it once its writer is closed: got %v and %v, want its one turn", c, err)
	}
	again.Close()
	must(t, s.Delete(w.ID()))
	if entries, _ := os.ReadDir(s.dir); len(entries) != 0 {
		t.Errorf("deleting it left %v, want no file", entries)
	}
	err = s.Delete(w.ID())
	if _, ok := errors.AsType[*UnknownError](err); !ok {
		t.Errorf("deleting it again: got %v, want an UnknownError", err)
	}
}

func TestFind(t *testing.T) {
	s := In(t.TempDir())
	for _, id := range []string{"ABC", "ABD", "AB", "X"} {
		must(t, os.WriteFile(s.path(id), nil, 0o600))
	}
	must(t, os.WriteFile(filepath.Join(s.dir, "Y.lock"), nil, 0o600))
	tests := map[string]string{"ABC": "ABC", "abd": "ABD", "AB": "AB", "x": "X", "ABCD": "",
		"Y": "", "": "", "../x": "", "a": "ambiguous"}
	for word, want := range tests {
		got, err := s.Find(word)
		if a, ok := errors.AsType[*AmbiguousError](err); ok {
			got = "ambiguous"
			if ids := []string{"AB", "ABC", "ABD"}; !slices.Equal(a.IDs, ids) {
				t.Errorf("%s is the beginning of %v, want %v", word, a.IDs, ids)
			}
		} else if _, ok := errors.AsType[*UnknownError](err); (want == "") != ok {
			t.Errorf("%q: got %v, want %q", word, err, want)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

func TestLatestAndPrune(t *testing.T) {
	s := In(t.TempDir())
	var ids []string
	for i := range 4 {
		id := keep(t, s, fmt.Sprintf("/w%d", i%2), 1)
		at := time.Now().AddDate(0, 0, -10*(3-i))
		must(t, os.Chtimes(s.path(id), at, at))
		ids = append(ids, id)
	}
	for workspace, want := range map[string]string{"/w0": ids[2], "/w1": ids[3], "/w": ""} {
		if got, err := s.Latest(workspace); err != nil || got != want {
			t.Errorf("the latest of %s: got %q %v, want %q", workspace, got, err, want)
		}
	}
	left := func() (left []string) {
		list, _, err := s.List()
		must(t, err)
		for _, i := range list {
			left = append(left, i.ID)
		}
		slices.Reverse(left)
		return left
	}
	for _, tt := range []struct {
		keep Retention
		want []string
	}{
		{Retention{}, ids},
		{Retention{Days: 25}, ids[1:]},
		{Retention{Days: 25, Count: 2}, ids[2:]},
		{Retention{Count: 1}, ids[3:]},
	} {
		must(t, s.Prune(tt.keep))
		if got := left(); !slices.Equal(got, tt.want) {
			t.Errorf("%+v leaves %v, want %v", tt.keep, got, tt.want)
		}
	}
}

// When the disk is full, the turn goes on, and the file ends with a whole line for the next writer.
func TestWriteFails(t *testing.T) {
	s := In(t.TempDir())
	w := s.New("/w")
	must(t, w.Prompt("hello", ""))
	must(t, w.file.Close())
	w.Text("text")
	if err := w.End(End{}); err == nil {
		t.Error("writing to a closed file: got no error, want one")
	}
	if err := w.Prompt("again", ""); err != nil {
		t.Errorf("the next line: got %v, want nothing, because it was said already", err)
	}
	w.Close()
	if c, err := s.Read(w.ID()); err != nil || len(c.Turns) != 1 {
		t.Errorf("got %d turns %v, want 1", len(c.Turns), err)
	}
}

// What is too long for a line is cut, so that the file stays readable.
func TestTooLongIsCut(t *testing.T) {
	s := In(t.TempDir())
	w := s.New("/w")
	must(t, w.Prompt(strings.Repeat("\x01", maxText+5), ""))
	must(t, w.Tool(Tool{Name: "x", Input: []byte(`"` + strings.Repeat("x", maxText) + `"`),
		Result: strings.Repeat("é", maxText)}))
	w.Close()
	c, err := s.Read(w.ID())
	must(t, err)
	if got := c.Turns[0].Prompt; !strings.HasSuffix(got, "[5 more bytes were not kept]") {
		t.Errorf("the prompt ends in %q, want that 5 more bytes were not kept", got[len(got)-40:])
	}
	tool := c.Turns[0].Steps[0].Tool
	if tool.Input != nil && string(tool.Input) != "null" ||
		!strings.Contains(tool.Result[maxText-1:], "were not kept") {
		t.Errorf("the tool call has %d bytes of input and a result that ends in %q; "+
			"want no input, and how many bytes of the result were not kept",
			len(tool.Input), tool.Result[max(0, len(tool.Result)-40):])
	}
}

// No bytes make the reader panic, and what it accepts a list shows too.
func FuzzRead(f *testing.F) {
	s := In(f.TempDir())
	seed, err := os.ReadFile(s.path(keep(f, s, "/w", 2)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"type":"conversation"}` + "\n" + `{"type":"prompt","at":"x"}` + "\n"))
	f.Add([]byte("{}\n\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, good, err := read(bytes.NewReader(data), "f")
		if err != nil {
			if _, ok := errors.AsType[*FileError](err); !ok {
				t.Errorf("got %v, want a FileError", err)
			}
			return
		}
		if good > int64(len(data)) || good == 0 || data[good-1] != '\n' {
			t.Errorf("got %d good bytes of %d, want whole lines, at least one", good, len(data))
		}
		again, n, err := read(bytes.NewReader(data[:good]), "f")
		if err != nil || n != good || len(again.Turns) != len(c.Turns) {
			t.Errorf(
				"reading the good bytes again: got %d turns, %d bytes, %v; want %d turns, %d bytes, no error",
				len(again.Turns), n, err, len(c.Turns), good)
		}
	})
}
