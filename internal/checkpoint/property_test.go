package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// held is a version of a file in the simulated world.
type held struct {
	content string
	mode    fs.FileMode
	user    bool // the user wrote it
}

// world is a workspace in which a model and a user edit files, and edits are undone and redone.
type world struct {
	t    *rapid.T
	w    *Workspace
	root string
	n    int // of contents so far

	turn     int
	files    map[string]held         // the content of the files
	before   map[int]map[string]held // their content when a turn began
	edited   map[int]map[string]bool // by the turn
	touched  map[string]int          // the turn in or after which the user last changed a file
	replaced []string                // contents of the user that the model replaced
}

var worldFiles = []string{"a", "d/b", "d/e/c", "../outside/x"}

func (x *world) path(name string) string { return filepath.Join(x.root, name) }

// read compares the disk with the expected content of the files.
func (x *world) read() map[string]held {
	x.t.Helper()
	now := map[string]held{}
	for _, name := range worldFiles {
		data, err := os.ReadFile(x.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		info, statErr := os.Stat(x.path(name))
		if err := errors.Join(err, statErr); err != nil {
			x.t.Fatal(err)
		}
		was := x.files[name]
		now[name] = held{string(data), info.Mode(), was.user && was.content == string(data)}
	}
	return now
}

func (x *world) write(name, content string, mode fs.FileMode) {
	path := x.path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(content), 0o600),
		os.Chmod(path, mode)); err != nil {
		x.t.Fatal(err)
	}
}

// content returns a content that has not been written before.
func (x *world) content(who string) string {
	x.n++
	return fmt.Sprintf(
		"%s %d",
		who,
		x.n,
	) + rapid.SampledFrom([]string{"", "\n", "\r\n\r\n", "\x00\xff"}).
		Draw(x.t, "end")
}

func (x *world) begin(t *rapid.T) {
	x.turn++
	x.before[x.turn], x.edited[x.turn] = maps.Clone(x.files), map[string]bool{}
}

// edit is an edit of the model, of one file or several. The process may die before, amid or after
// the writing.
func (x *world) edit(t *rapid.T) {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom(worldFiles), 1, 3, rapid.ID).Draw(t, "names")
	var changes []Change
	next := map[string]*string{}
	for _, name := range names {
		c := Change{Path: x.path(name)}
		if was, ok := x.files[name]; ok {
			c.Was, c.Mode = &was.content, was.mode
		}
		if c.Was == nil || rapid.IntRange(0, 3).Draw(t, "delete") > 0 {
			now := x.content("model")
			c.Now = &now
		}
		next[name] = c.Now
		changes = append(changes, c)
	}
	e, err := x.w.Begin(t.Context(), Place{"v", x.turn}, changes)
	if err != nil {
		t.Fatal(err)
	}
	dies := rapid.SampledFrom([]int{len(names) + 1, len(names) + 1, len(names) + 1, 0, 1,
		len(names)}).
		Draw(t, "dies after")
	for i, name := range names {
		if i >= dies {
			break
		}
		was, existed := x.files[name]
		if was.user {
			x.replaced = append(x.replaced, was.content)
		}
		x.edited[x.turn][name] = true
		if next[name] == nil {
			delete(x.files, name)
			_ = os.Remove(x.path(name))
			continue
		}
		mode := fs.FileMode(0o644)
		if existed {
			mode = was.mode
		}
		x.write(name, *next[name], mode)
		x.files[name] = held{*next[name], mode, false}
	}
	if dies <= len(names) {
		e.lock.Unlock() // as the system does for a process that has died
		return
	}
	e.Done(nil)
}

// fail is an edit of the model that is not made.
func (x *world) fail(t *rapid.T) {
	name := rapid.SampledFrom(worldFiles).Draw(t, "name")
	now := x.content("never")
	c := Change{Path: x.path(name), Now: &now}
	if was, ok := x.files[name]; ok {
		c.Was, c.Mode = &was.content, was.mode
	}
	e, err := x.w.Begin(t.Context(), Place{"v", x.turn}, []Change{c})
	if err != nil {
		t.Fatal(err)
	}
	e.Done(errors.New("no"))
}

func (x *world) userWrites(t *rapid.T) {
	name := rapid.SampledFrom(worldFiles).Draw(t, "name")
	mode := rapid.SampledFrom([]fs.FileMode{0o644, 0o600, 0o755}).Draw(t, "mode")
	content := x.content("user")
	x.write(name, content, mode)
	x.files[name] = held{content, mode, true}
	x.touched[name] = x.turn
}

func (x *world) userDeletes(t *rapid.T) {
	name := rapid.SampledFrom(worldFiles).Draw(t, "name")
	_ = os.Remove(x.path(name))
	delete(x.files, name)
	x.touched[name] = x.turn
}

// undo undoes turns, and now and then redoes them at once.
func (x *world) undo(t *rapid.T) {
	x.undoFrom(t, rapid.SampledFrom([]int{0, 0, 1, x.turn}).Draw(t, "from"))
}

func (x *world) undoFrom(t *rapid.T, from int) {
	records, err := x.w.load()
	if err != nil {
		t.Fatal(err)
	}
	turns := replay(records, "v").applied(from)
	was := maps.Clone(x.files)
	out, err := x.w.Undo(t.Context(), "v", from)
	if len(turns) == 0 {
		if !errors.Is(err, ErrNothing) {
			t.Fatalf("undoing from turn %d, where no turn is: got %v, want ErrNothing", from, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	now := x.read()
	x.kept(t, was, now)
	first := turns[0].number
	for _, name := range worldFiles {
		before, existed := x.before[first][name]
		after, exists := now[name]
		before.user, after.user = false, false
		touched, ok := x.touched[name]
		if x.edited[first][name] && (!ok || touched < first) &&
			(before != after || existed != exists) {
			t.Fatalf(
				"%s holds %+v after undoing the turns from %d on, want %+v, because only the model changed it: %+v",
				name,
				after,
				first,
				before,
				out,
			)
		}
	}
	x.files = now
	defer x.begin(t) // the expected content at the turn's beginning would not fit
	if len(out.Turns) == 0 || rapid.Bool().Draw(t, "no redo") {
		return
	}
	if out, err = x.w.Redo(t.Context(), "v"); err != nil || len(out.Left) > 0 {
		t.Fatalf("redoing at once: got %+v and %v, want no file left as it is and no error", out,
			err)
	}
	if again := x.read(); !maps.EqualFunc(again, was, func(a, b held) bool {
		return a.content == b.content && a.mode == b.mode
	}) {
		t.Fatalf("after undo and redo the files hold %v, want %v", again, was)
	}
	x.files = was
}

// undoDies is an undo whose process dies before it notes its work. The same undo completes it. To
// any other undo or redo it looks as if a person had changed the files.
func (x *world) undoDies(t *rapid.T) {
	was := maps.Clone(x.files)
	records, err := x.w.load()
	if err != nil {
		t.Fatal(err)
	}
	from := rapid.SampledFrom([]int{0, 1}).Draw(t, "from")
	turns := replay(records, "v").applied(from)
	list := paths(turns)
	for _, path := range list[:rapid.IntRange(0, len(list)).Draw(t, "files")] {
		if m, _ := x.w.back(path, editsOf(turns, path)); m != nil {
			if err := x.w.move(*m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if rapid.Bool().Draw(t, "again") {
		now := x.read()
		x.kept(t, was, now)
		x.files = now
		x.undoFrom(t, from)
	}
	x.survive(t, was)
}

// redoDies is a redo whose process dies before it notes its work.
func (x *world) redoDies(t *rapid.T) {
	was := maps.Clone(x.files)
	records, err := x.w.load()
	if err != nil {
		t.Fatal(err)
	}
	undos := replay(records, "v").undos
	if len(undos) == 0 {
		return
	}
	moves := undos[len(undos)-1].Moves
	for _, m := range moves[:rapid.IntRange(0, len(moves)).Draw(t, "files")] {
		_ = x.w.move(m.reversed()) // it may refuse
	}
	x.survive(t, was)
}

// survive takes the files' present content as the expected one, if nothing of the user was lost.
func (x *world) survive(t *rapid.T, was map[string]held) {
	now := x.read()
	x.kept(t, was, now)
	for _, name := range worldFiles {
		if was[name] != now[name] {
			x.touched[name] = x.turn
		}
	}
	x.files = now
	x.begin(t)
}

func (x *world) redo(t *rapid.T) {
	was := maps.Clone(x.files)
	if _, err := x.w.Redo(t.Context(), "v"); err != nil && !errors.Is(err, ErrNothing) {
		t.Fatal(err)
	}
	touched := maps.Clone(x.touched)
	x.survive(t, was)
	x.touched = touched // a redo does not count as a change of the user
}

// kept fails if a content of the user was lost.
func (x *world) kept(t *rapid.T, was, now map[string]held) {
	for name, w := range was {
		if w.user && now[name].content != w.content {
			t.Fatalf("%s now holds %q, want what the user wrote, %q", name, now[name].content,
				w.content)
		}
	}
	for _, content := range x.replaced {
		if got, err := x.w.get(hashOf(&content)); err != nil || *got != content {
			t.Fatalf("looking up what the user wrote, %q: got %v, want the same text kept", content,
				err)
		}
	}
}

// After any edits of files by a model and a user in turn, undo and redo lose no byte that the user
// wrote. A file that only the model changed is byte for byte as before the turn. Processes die at
// any point of an edit, undo or redo.
func TestNothingIsLost(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		root := filepath.Join(dir, fmt.Sprint(n), "work")
		if err := os.MkdirAll(root, 0o755); err != nil {
			t.Fatal(err)
		}
		x := &world{t: t, root: root, w: In(filepath.Join(dir, fmt.Sprint(n), "store"), root),
			files:  map[string]held{},
			before: map[int]map[string]held{}, edited: map[int]map[string]bool{},
			touched: map[string]int{}}
		x.begin(t)
		t.Repeat(map[string]func(*rapid.T){
			"begin": x.begin, "edit": x.edit, "edit more": x.edit, "fail": x.fail,
			"write": x.userWrites, "delete": x.userDeletes, "undo": x.undo, "redo": x.redo,
			"undo dies": x.undoDies, "redo dies": x.redoDies,
			"": func(t *rapid.T) {
				if now := x.read(); !maps.Equal(now, x.files) {
					t.Fatalf("the files hold %v, want %v", now, x.files)
				}
			},
		})
		if left := strayFiles(root); len(left) > 0 {
			t.Fatalf("the temporary files %q are left, want none", left)
		}
		_ = os.RemoveAll(filepath.Dir(root))
	})
}

func strayFiles(root string) (list []string) {
	_ = filepath.WalkDir(filepath.Dir(root), func(path string, d fs.DirEntry, _ error) error {
		if name := filepath.Base(path); slices.ContainsFunc([]string{".tapgw-*", ".new-*"},
			func(glob string) bool {
				ok, _ := filepath.Match(glob, name)
				return ok
			}) {
			list = append(list, path)
		}
		return nil
	})
	return list
}
