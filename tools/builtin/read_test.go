package builtin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tapgw/tools"
)

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

func TestReadFile(t *testing.T) {
	five := files{"x": numbered(5), "d/y": "", "tail": "a\nb", "bin": "GIF\x00",
		"latin": "caf\xe9\n"}
	runTools(t, "read_file", []toolTest{
		{"whole", five, args{"filePath": "x"}, numbered(5), "", nil},
		{"no newline at the end", five, args{"filePath": "tail"}, "a\nb", "", nil},
		{"part", five, args{"filePath": "x", "startLineNumberBaseOne": 2,
			"endLineNumberBaseOne": 3},
			"line 2\nline 3\n[lines 2-3 of 5: go on with startLineNumberBaseOne 4]", "", nil},
		{"offset and limit", five, args{"filePath": "x", "offset": 2, "limit": 2},
			"line 2\nline 3\n[lines 2-3 of 5: go on with startLineNumberBaseOne 4]", "", nil},
		{"to the end", five, args{"filePath": "x", "startLineNumberBaseOne": 5},
			"line 5\n[lines 5-5: the end of the file]", "", nil},
		{"beyond the end", five, args{"filePath": "x", "startLineNumberBaseOne": 4,
			"endLineNumberBaseOne": 90},
			"line 4\nline 5\n[lines 4-5: the end of the file]", "", nil},
		{"all by number", five, args{"filePath": "x", "startLineNumberBaseOne": 1,
			"endLineNumberBaseOne": 5},
			numbered(5), "", nil},
		{"limit alone", five, args{"filePath": "tail", "limit": 1},
			"a\n[lines 1-1 of 2: go on with startLineNumberBaseOne 2]", "", nil},
		{"empty", five, args{"filePath": "d/y"}, "d/y is empty.", "", nil},
		{"not UTF-8", five, args{"filePath": "latin"}, "~[the file is not UTF-8", "", nil},
		{"after the end", five, args{"filePath": "x", "startLineNumberBaseOne": 6}, "",
			"x has no line 6: it has 5",
			nil},
		{"end before start", five, args{"filePath": "x", "startLineNumberBaseOne": 3,
			"endLineNumberBaseOne": 2}, "",
			"lines 3 to 2 cannot be read", nil},
		{"negative", five, args{"filePath": "x", "startLineNumberBaseOne": -3}, "",
			"cannot be read", nil},
		{"binary", five, args{"filePath": "bin"}, "", "bin is a binary file of 4 bytes", nil},
		{"directory", five, args{"filePath": "d"}, "", "d is a directory, not a file", nil},
		{"missing", five, args{"filePath": "q"}, "", "q does not exist", nil},
		{"outside", five, args{"filePath": "/etc/passwd"}, "",
			"/etc/passwd is outside the workspace", nil},
		{"no number", five, args{"filePath": "x", "offset": "2"}, "", "offset", nil},
	})
}

// A long file is cut, and a note tells how to go on. The parts make up the whole file.
func TestReadFileCaps(t *testing.T) {
	whole := numbered(40_000)
	env := space(t, files{"long": whole, "wide": strings.Repeat("é", maxRead) + "\nend\n"})
	var got strings.Builder
	for next := 1; ; {
		res, err := call(t, env, "read_file",
			args{"filePath": "long", "startLineNumberBaseOne": next})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Parts) != 2 || len(res.Parts[0]) > maxRead {
			t.Fatalf(
				"%d parts, the first of %d bytes, want 2 and at most %d",
				len(res.Parts), len(res.Parts[0]), maxRead,
			)
		}
		got.WriteString(res.Parts[0] + "\n")
		var first, last, total int
		if n, _ := fmt.Sscanf(res.Parts[1],
			"[lines %d-%d of %d: go on with startLineNumberBaseOne %d]", &first, &last,
			&total, &next); n != 4 {
			break
		}
		if next != last+1 || total != 40_000 {
			t.Fatalf("the note is %q, want the next line %d of 40000", res.Parts[1], last+1)
		}
	}
	if got.String() != whole {
		t.Errorf("the parts have %d bytes, the file %d, want the same text", got.Len(), len(whole))
	}
	res, err := call(t, env, "read_file", args{"filePath": "wide"})
	if err != nil || res.Parts[0] != strings.Repeat("é", maxRead/2) ||
		res.Parts[1] != "[line 1 of 2 was cut: it is longer than can be shown]" {
		t.Errorf("got %d bytes, %q, %v, want %q", len(res.Parts[0]), res.Parts[1:], err,
			"[line 1 of 2 was cut: it is longer than can be shown]")
	}
}

// Pipes and devices are refused at once: no tool may block on them.
func TestSpecialFiles(t *testing.T) {
	env := space(t, nil)
	if err := syscall.Mkfifo(filepath.Join(env.Root, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		tool string
		args args
	}{
		{"read_file", args{"filePath": "pipe"}},
		{"create_file", args{"filePath": "pipe", "content": "a"}},
		{"insert_edit_into_file", args{"filePath": "pipe", "code": "a"}},
		{"replace_string_in_file", args{"filePath": "pipe", "oldString": "a", "newString": "b",
			"explanation": "e"}},
		{"apply_patch", args{"input": "--- pipe\n+++ pipe\n@@ -1 +1 @@\n-a\n+b\n",
			"explanation": "e"}},
	} {
		if _, err := call(t, env, tt.tool, tt.args); err == nil ||
			!strings.Contains(err.Error(), "pipe is a named pipe, not a file") {
			t.Errorf("%s: got error %v, want %q in it", tt.tool, err,
				"pipe is a named pipe, not a file")
		}
	}
}

// No tool follows a link out of the workspace.
func TestLinksOut(t *testing.T) {
	env := space(t, nil)
	secret := filepath.Join(filepath.Dir(env.Root), "secret")
	if err := os.Mkdir(secret, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secret, "key"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(env.Root, "out")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		tool string
		args args
	}{
		{"read_file", args{"filePath": "out/key"}},
		{"list_dir", args{"path": "out"}},
		{"create_file", args{"filePath": "out/new", "content": "a"}},
		{"create_directory", args{"dirPath": "out/new"}},
		{"insert_edit_into_file", args{"filePath": "out/key", "code": "a"}},
		{"replace_string_in_file",
			args{"filePath": "out/key", "oldString": "secret", "newString": "b",
				"explanation": "e"}},
		{"multi_replace_string",
			args{"explanation": "e",
				"replacements": []args{{"filePath": "out/key", "oldString": "secret",
					"newString": "b"}}}},
		{"get_doc_info", args{"filePaths": []string{"out/key"}}},
		{"get_changed_files", args{"repositoryPath": "out"}},
		{"find_test_files", args{"filePaths": []string{"out/key"}}},
		{"apply_patch", args{"input": "*** Begin Patch\n*** Delete File: out/key\n*** End Patch",
			"explanation": "e"}},
	} {
		res, err := call(t, env, tt.tool, tt.args)
		if said := res.Text() + fmt.Sprint(err); !strings.Contains(said, "outside the workspace") ||
			strings.Contains(said, "secret\n") {
			t.Errorf("%s: got %q, %v, want %q in it", tt.tool, res.Text(), err,
				"outside the workspace")
		}
	}
	entries, err := os.ReadDir(secret)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory outside holds %v, %v, want one file", entries, err)
	}
}

func TestListDir(t *testing.T) {
	tree := files{"b.go": "", "a/x": "", ".hidden": "", "empty/": ""}
	runTools(t, "list_dir", []toolTest{
		{"root", tree, args{"path": "."}, ".hidden\na/\nb.go\nempty/", "", nil},
		{"absolute", tree, args{"path": "ROOT/a"}, "x", "", nil},
		{"empty", tree, args{"path": "empty"}, "empty is empty.", "", nil},
		{"file", tree, args{"path": "b.go"}, "", "b.go is a file, not a directory", nil},
		{"missing", tree, args{"path": "q"}, "", "q does not exist", nil},
	})
	many := files{}
	for i := range maxEntries + 5 {
		many[fmt.Sprintf("f%05d", i)] = ""
	}
	res, err := call(t, space(t, many), "list_dir", args{"path": "."})
	if got := strings.Split(res.Text(), "\n"); err != nil || len(got) != maxEntries+1 ||
		!strings.HasPrefix(got[maxEntries], "[5 more entries") {
		t.Errorf("got %d lines, %v, want %q at the beginning", len(got), err, "[5 more entries")
	}
}

func TestMemory(t *testing.T) {
	env := space(t, nil)
	steps := []struct {
		args      args
		want, err string
	}{
		{args{"command": "list"}, "No memories saved yet.", ""},
		{args{"command": "save", "path": "notes.md", "content": "one"}, "Saved memory notes.md.",
			""},
		{args{"command": "save", "path": "Über uns 2.md", "content": "zwei"},
			"Saved memory Über uns 2.md.", ""},
		{args{"command": "save", "path": "notes.md", "content": "two"}, "Saved memory notes.md.",
			""},
		{args{"command": "read", "path": "notes.md"}, "two", ""},
		{args{"command": "list"}, "notes.md\nÜber uns 2.md", ""},
		{args{"command": "delete", "path": "notes.md"}, "Deleted memory notes.md.", ""},
		{args{"command": "read", "path": "notes.md"}, "",
			"there is no memory notes.md: list shows"},
		{args{"command": "delete", "path": "notes.md"}, "", "there is no memory notes.md"},
		{args{"command": "list"}, "Über uns 2.md", ""},
		{args{"command": "save", "path": "big", "content": strings.Repeat("x", maxMemory)},
			"Saved memory big.", ""},
		{args{"command": "save", "path": "big", "content": strings.Repeat("x", maxMemory+1)}, "",
			"a memory holds 262144 at most"},
		{args{"command": "save", "path": "e"}, "", "content is missing"},
		{args{"command": "save", "content": "x"}, "", "path is missing: save needs the name"},
		{args{"command": "rename", "path": "x"}, "", "command"},
	}
	for _, s := range steps {
		res, err := call(t, env, "memory", s.args)
		if s.err == "" && (err != nil || res.Text() != s.want) ||
			s.err != "" && (err == nil || !strings.Contains(err.Error(), s.err)) {
			t.Errorf("%.80v: got %.80q, %v, want %q %q", s.args, res.Text(), err, s.want, s.err)
		}
	}
	for _, name := range []string{
		"../x", "a/b", `a\b`, "/etc/passwd", "..", ".", ".hidden", "con", "NUL.txt", "Com1",
		"lpt9.md", "a\x00b",
		"a\nb", " a", "a.", "a ", "-rf", "file:///x", "a:b", strings.Repeat("n", 101),
	} {
		for _, command := range []string{"save", "read", "delete"} {
			if res, err := call(t, env, "memory",
				args{"command": command, "path": name, "content": "x"}); err == nil ||
				!strings.Contains(err.Error(), "is no name of a memory") {
				t.Errorf("%s %q: got %q, %v, want %q in it", command, name, res.Text(), err,
					"is no name of a memory")
			}
		}
	}
	if info, err := os.Stat(filepath.Join(env.Home, "memories")); err != nil ||
		info.Mode().Perm() != 0o700 {
		t.Errorf("the memories' directory: %v, %v, want no error and 0o700", info, err)
	}
	if _, err := call(t, &tools.Env{Root: env.Root}, "memory",
		args{"command": "list"}); err == nil {
		t.Error("memory without a home directory: no error, want one")
	}
}

func TestMemoriesAreBounded(t *testing.T) {
	env := space(t, nil)
	dir := filepath.Join(env.Home, "memories")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range maxMemories {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("m", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := call(t, env, "memory",
		args{"command": "save", "path": "m", "content": "x"}); err == nil ||
		!strings.Contains(err.Error(), "delete one first") {
		t.Errorf("got error %v for one too many, want %q in it", err, "delete one first")
	}
	if _, err := call(t, env, "memory",
		args{"command": "save", "path": "m1", "content": "x"}); err != nil {
		t.Errorf("one that is there: %v", err)
	}
}
