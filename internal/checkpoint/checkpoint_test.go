package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// space is a workspace with files, and its checkpoints.
type space struct {
	*Workspace
	t    *testing.T
	root string
}

func newSpace(t *testing.T, files map[string]string) *space {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &space{t: t, root: filepath.Join(dir, "work")}
	s.Workspace = In(filepath.Join(dir, "state", "checkpoints"), s.root)
	if err := os.Mkdir(s.root, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		s.put(name, content)
	}
	return s
}

func (s *space) put(name, content string) {
	s.t.Helper()
	path := filepath.Join(s.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(content), 0o644)); err != nil {
		s.t.Fatal(err)
	}
}

// edit makes an edit of the model: path and content in turn, "-" deletes.
func (s *space) edit(turn int, pairs ...string) {
	s.t.Helper()
	var list []Change
	for i := 0; i < len(pairs); i += 2 {
		c := Change{Path: filepath.Join(s.root, pairs[i])}
		if data, err := os.ReadFile(c.Path); err == nil {
			was := string(data)
			info, err := os.Stat(c.Path)
			if err != nil {
				s.t.Fatal(err)
			}
			c.Was, c.Mode = &was, info.Mode()
		}
		if pairs[i+1] != "-" {
			c.Now = &pairs[i+1]
		}
		list = append(list, c)
	}
	e, err := s.Begin(s.t.Context(), Place{"v", turn}, list)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range list {
		if c.Now == nil {
			err = errors.Join(err, os.Remove(c.Path))
		} else {
			err = errors.Join(err, os.MkdirAll(filepath.Dir(c.Path), 0o755),
				os.WriteFile(c.Path, []byte(*c.Now), 0o644))
		}
	}
	e.Done(err)
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *space) holds(name, want string) {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.root, name))
	if want == "-" {
		if !errors.Is(err, fs.ErrNotExist) {
			s.t.Errorf("%s holds %q, %v; want no file", name, data, err)
		}
		return
	}
	if err != nil || string(data) != want {
		s.t.Errorf("%s holds %q, %v; want %q", name, data, err, want)
	}
}

func (s *space) undo(from int) Outcome {
	s.t.Helper()
	out, err := s.Undo(s.t.Context(), "v", from)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *space) redo() Outcome {
	s.t.Helper()
	out, err := s.Redo(s.t.Context(), "v")
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func TestUndoAndRedo(t *testing.T) {
	s := newSpace(t, map[string]string{"x": "one\r\n", "gone": "g", "bin": "\x00\xff"})
	if err := os.Chmod(filepath.Join(s.root, "gone"), 0o750); err != nil {
		t.Fatal(err)
	}
	s.edit(1, "x", "two", "gone", "-", "new/deep/y", "y")
	s.edit(1, "x", "three", "bin", "\x00")
	s.edit(2, "x", "four")
	if got := s.undo(0); len(got.Turns) != 1 || got.Turns[0] != 2 {
		t.Errorf("undid the turns %v, want the last", got.Turns)
	}
	s.holds("x", "three")
	if got := s.undo(0); len(got.Changed) != 4 || len(got.Left) != 0 {
		t.Errorf("undid %+v, want 4 files and none left", got)
	}
	s.holds("x", "one\r\n")
	s.holds("bin", "\x00\xff")
	s.holds("gone", "g")
	if info, err := os.Stat(filepath.Join(s.root, "gone")); err != nil || info.Mode() != 0o750 {
		t.Errorf("gone has the mode %v, %v; want 0750", info.Mode(), err)
	}
	if _, err := os.Stat(filepath.Join(s.root, "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory that the edit made: %v, want it gone", err)
	}
	if _, err := s.Undo(t.Context(), "v", 0); !errors.Is(err, ErrNothing) {
		t.Errorf("a third undo: %v, want ErrNothing", err)
	}
	s.redo()
	s.holds("x", "three")
	s.holds("gone", "-")
	s.holds("new/deep/y", "y")
	s.redo()
	s.holds("x", "four")
	if _, err := s.Redo(t.Context(), "v"); !errors.Is(err, ErrNothing) {
		t.Errorf("a third redo: %v, want ErrNothing", err)
	}
	if got := s.undo(1); len(got.Turns) != 2 {
		t.Errorf("undid the turns %v, want both", got.Turns)
	}
	s.holds("x", "one\r\n")
	s.edit(3, "x", "five")
	if _, err := s.Redo(t.Context(), "v"); !errors.Is(err, ErrNothing) {
		t.Errorf("a redo after a new edit: %v, want ErrNothing", err)
	}
	turns, err := s.Turns("v")
	if err != nil || len(turns) != 3 || !turns[0].Undone || !turns[1].Undone || turns[2].Undone ||
		len(turns[0].Files) != 4 || !turns[0].Files[1].Deleted || !turns[0].Files[2].Created {
		t.Errorf("got the turns %+v and %v; want three, the first two undone, "+
			"and of the first's four files one deleted and one created", turns, err)
	}
}

// Content that another program wrote stays, and is named.
func TestLeft(t *testing.T) {
	tests := map[string]struct {
		change func(s *space)
		name   string
		want   string // the reason
		after  string
	}{
		"changed": {func(s *space) { s.put("x", "mine") }, "x", "it was changed since", "mine"},
		"a new file that was changed": {func(s *space) {
			s.put("d/new", "mine")
		}, "d/new", "it was changed since",
			"mine"},
		"a deleted file that is there again": {func(s *space) { s.put("gone", "mine") }, "gone",
			"it was changed since", "mine"},
		"a file became a link": {func(s *space) { s.link("x", "../outside") }, "x",
			"it is no regular file any more", "outside"},
		"a directory became a link": {func(s *space) {
			_ = os.Rename(filepath.Join(s.root, "d"), filepath.Join(s.root, "e"))
			s.link("d", "e")
		}, "d/new", "d is a symbolic link now", "n"},
		"a file became a directory": {func(s *space) {
			s.link("x", "nothing")
			s.put("nothing/y", "")
		}, "x",
			"it is no regular file any more", ""},
		"read-only": {
			func(s *space) { _ = os.Chmod(filepath.Join(s.root, "x"), 0o444) },
			"x",
			"it is read-only",
			"two",
		},
		"too large now": {func(s *space) {
			s.put("x", strings.Repeat("x", MaxFile+1))
		}, "x", "it was changed since",
			strings.Repeat("x", MaxFile+1)},
		"changed between edits": {func(s *space) {
			s.put("x", "mine")
			s.edit(1, "x", "three")
		}, "x",
			"it holds what it held before the last of the edits; before that, somebody else changed it", "mine"},
		"what was kept is damaged": {func(s *space) {
			one := "one"
			_ = os.WriteFile(s.object(hashOf(&one)), []byte("eno"), 0o600)
		}, "x", "what it held before can't be read: what was kept of it is damaged", "two"},
	}
	for name, tt := range tests {
		s := newSpace(t, map[string]string{"x": "one", "other": "o", "gone": "g",
			"../outside": "outside"})
		s.edit(1, "x", "two", "other", "p", "d/new", "n", "gone", "-")
		tt.change(s)
		out := s.undo(0)
		if len(out.Left) != 1 || out.Left[0] != (Left{tt.name, tt.want}) {
			t.Errorf("%s: left %q, want %s: %s", name, out.Left, tt.name, tt.want)
		}
		s.holds("other", "o")
		if tt.after != "" {
			s.holds(tt.name, tt.after)
		}
		s.holds("../outside", "outside")
	}
}

// link replaces a file by a symbolic link.
func (s *space) link(name, target string) {
	s.t.Helper()
	path := filepath.Join(s.root, name)
	_ = os.Remove(path)
	if err := os.Symlink(target, path); err != nil {
		s.t.Fatal(err)
	}
}

// A file that changes between the look at it and its replacement stays.
func TestReplaceInTime(t *testing.T) {
	s := newSpace(t, map[string]string{"x": "one"})
	p, err := s.open(filepath.Join(s.root, "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	was, err := p.read()
	if err != nil {
		t.Fatal(err)
	}
	s.put("x", "mine")
	two := "two"
	for _, content := range []*string{&two, nil} {
		if err := p.replace(was, content, 0o600); !errors.Is(err, errChanged) {
			t.Errorf("replacing a file that has changed: error %v, want %v", err, errChanged)
		}
		s.holds("x", "mine")
	}
	if left := strayFiles(s.root); len(left) > 0 {
		t.Errorf("the temporary files %q are left, want none", left)
	}
}

// A directory that the model made goes if it is empty.
func TestUndoDirectory(t *testing.T) {
	s := newSpace(t, nil)
	for _, dir := range []string{"d/empty", "e/full"} {
		e, err := s.Begin(t.Context(), Place{"v", 1},
			[]Change{{Path: filepath.Join(s.root, dir), Dir: true}})
		if err != nil {
			t.Fatal(err)
		}
		e.Done(os.MkdirAll(filepath.Join(s.root, dir), 0o755))
	}
	s.put("e/full/mine", "")
	if got, want := s.undo(0).Dirs, []string{"d/empty", "d"}; !slices.Equal(got, want) {
		t.Errorf("undo removed %q, want %q", got, want)
	}
	if got, want := s.redo().Dirs, []string{"d", "d/empty"}; !slices.Equal(got, want) {
		t.Errorf("redo made %q, want %q", got, want)
	}
}

// If no file can be brought back, the turn can still be undone later.
func TestAllLeft(t *testing.T) {
	s := newSpace(t, map[string]string{"x": "one"})
	s.edit(1, "x", "two")
	s.put("x", "mine")
	if out := s.undo(0); len(out.Left) != 1 || len(out.Turns) != 0 {
		t.Errorf("undid %+v, want x left and no turn undone", out)
	}
	s.put("x", "two")
	if out := s.undo(0); len(out.Changed) != 1 {
		t.Errorf("undid %+v, want x", out)
	}
	s.holds("x", "one")
}

// A file of unknown content is not touched.
func TestTooLarge(t *testing.T) {
	s := newSpace(t, map[string]string{"x": "n"})
	now := "n"
	e, err := s.Begin(
		t.Context(),
		Place{"v", 1},
		[]Change{{Path: filepath.Join(s.root, "x"), Now: &now, TooLarge: true}},
	)
	if err != nil {
		t.Fatal(err)
	}
	e.Done(nil)
	if out := s.undo(0); len(out.Left) != 1 || out.Left[0].Reason != "it was too large to be kept" {
		t.Errorf("undid %+v, want x left because it was too large", out)
	}
	s.holds("x", "n")
}

// Only their owner can read the checkpoints.
func TestPrivate(t *testing.T) {
	s := newSpace(t, map[string]string{"x": "one"})
	s.edit(1, "x", "two")
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v, want no rights for others", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Checkpoints beyond the limits of age and size are removed, oldest first; the others can still be
// undone.
func TestPrune(t *testing.T) {
	s := newSpace(t, map[string]string{"x": strings.Repeat("0", 1000)})
	s.limits.bytes = 3500
	for turn := 1; turn <= 6; turn++ {
		s.edit(turn, "x", strings.Repeat(string(rune('0'+turn)), 1000))
	}
	turns, err := s.Turns("v")
	if err != nil || len(turns) < 3 || len(turns) > 4 || turns[len(turns)-1].Turn != 6 {
		t.Errorf("kept are the turns %+v, %v; want the last 3 or 4", turns, err)
	}
	if _, total := s.sizes(); total > 4000 {
		t.Errorf("the contents have %d bytes, want at most 4000", total)
	}
	s.undo(5)
	s.holds("x", strings.Repeat("4", 1000))

	old := newSpace(t, map[string]string{"x": "one"})
	other := In(filepath.Dir(old.dir), "/elsewhere")
	if e, err := other.Begin(t.Context(), Place{"w", 1}, nil); err != nil {
		t.Fatal(err)
	} else {
		e.Done(nil)
	}
	past := time.Now().Add(-31 * 24 * time.Hour)
	if err := os.Chtimes(other.journal(), past, past); err != nil {
		t.Fatal(err)
	}
	old.edit(1, "x", "two")
	if _, err := os.Stat(other.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the checkpoints of a workspace that nobody uses: %v, want them gone", err)
	}
	old.limits.age = 0
	if e, err := old.Begin(t.Context(), Place{"w", 1}, nil); err != nil {
		t.Fatal(err)
	} else {
		e.Done(nil)
	}
	if turns, err := old.Turns("v"); err != nil || len(turns) != 0 {
		t.Errorf("of a conversation that is too old: got the turns %+v and %v, want none", turns,
			err)
	}
}

// The checkpoints of a conversation can be removed; the others stay.
func TestForget(t *testing.T) {
	s := newSpace(t, map[string]string{"x": "one", "y": "other"})
	s.edit(1, "x", "two")
	was, now := "other", "now"
	e, err := s.Begin(t.Context(), Place{"w", 1},
		[]Change{{Path: filepath.Join(s.root, "y"), Was: &was, Now: &now}})
	if err != nil {
		t.Fatal(err)
	}
	s.put("y", now)
	e.Done(nil)
	if err := Forget(t.Context(), filepath.Dir(s.dir), "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Undo(t.Context(), "v", 0); !errors.Is(err, ErrNothing) {
		t.Errorf("undoing what was forgotten: error %v, want ErrNothing", err)
	}
	one := "one"
	if _, err := os.Stat(s.object(hashOf(&one))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the file held: %v, want it removed", err)
	}
	if _, err := s.Undo(t.Context(), "w", 0); err != nil {
		t.Error(err)
	}
	s.holds("y", "other")
	if err := Forget(t.Context(), filepath.Join(s.dir, "nothing"), "v"); err != nil {
		t.Errorf("in a store that does not exist: got %v, want no error", err)
	}
}

// Several processes edit and undo in one workspace. (Each has its own Workspace, as processes
// have.)
func TestTogether(t *testing.T) {
	s := newSpace(t, nil)
	var all sync.WaitGroup
	for i := range 4 {
		name := string(rune('a' + i))
		all.Go(func() {
			w := In(filepath.Dir(s.dir), s.root)
			for turn := 1; turn <= 5; turn++ {
				path := filepath.Join(s.root, name)
				c := Change{Path: path, Now: &name}
				if turn > 1 {
					c.Was = &name
				}
				now := strings.Repeat(name, turn)
				c.Now = &now
				if turn > 1 {
					was := strings.Repeat(name, turn-1)
					c.Was = &was
				}
				e, err := w.Begin(t.Context(), Place{name, turn}, []Change{c})
				if err == nil {
					err = os.WriteFile(path, []byte(now), 0o600)
					e.Done(err)
				}
				if err != nil {
					t.Error(err)
				}
			}
			if out, err := w.Undo(t.Context(), name, 3); err != nil || len(out.Left) > 0 {
				t.Errorf(
					"undoing turn 3 of %s: got %+v and %v, want no file left as it is and no error",
					name,
					out,
					err,
				)
			}
		})
	}
	all.Wait()
	for _, name := range []string{"a", "b", "c", "d"} {
		s.holds(name, strings.Repeat(name, 2))
	}
}

func BenchmarkEdit(b *testing.B) {
	root := b.TempDir()
	w := In(filepath.Join(root, "state"), root)
	was, now := strings.Repeat("a line of the file\n", 1000), "now"
	i := 0
	for b.Loop() {
		i++
		content := was + string(rune(i))
		e, err := w.Begin(
			b.Context(),
			Place{"v", 1},
			[]Change{{Path: filepath.Join(root, "x"), Was: &content, Now: &now}},
		)
		if err != nil {
			b.Fatal(err)
		}
		e.Done(nil)
	}
}
