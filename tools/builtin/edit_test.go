package builtin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

type files = map[string]string

func TestCreateFile(t *testing.T) {
	runTools(t, "create_file", []toolTest{
		{"new, with parents", nil, args{"filePath": "a/b/c.go", "content": "package c\n"},
			"Created a/b/c.go.", "",
			files{"a/b/c.go": "package c\n"}},
		{"absolute", nil, args{"filePath": "ROOT/x", "content": ""}, "Created x.", "",
			files{"x": ""}},
		{"URI", nil, args{"filePath": "file:///nowhere/x", "content": ""}, "",
			"file:///nowhere/x is outside the workspace", nil},
		{"replaced, with BOM and CRLF as given", files{"x": "old"},
			args{"filePath": "x", "content": "\uFEFFa\r\n"}, "Changed x.", "",
			files{"x": "\uFEFFa\r\n"}},
		{"more arguments than asked for", nil,
			args{"filePath": "x", "content": "a", "explanation": "why", "toolType": "file_write"},
			"Created x.", "",
			files{"x": "a"}},
		{"on a directory", files{"d/x": ""}, args{"filePath": "d", "content": "a"}, "",
			"d is a directory", nil},
		{"below a file", files{"x": ""}, args{"filePath": "x/y", "content": "a"}, "",
			"x/y: a part of this path is a file", nil},
		{"outside", nil, args{"filePath": "../x", "content": "a"}, "", "outside the workspace",
			nil},
		{"no content", nil, args{"filePath": "x"}, "", `"content"`, nil},
		{"no path", nil, args{"filePath": "", "content": "a"}, "", "the path is empty", nil},
	})
}

func TestInsertEdit(t *testing.T) {
	const abridged = "a\n// ...existing code...\nb\n"
	runTools(t, "insert_edit_into_file", []toolTest{
		{"whole", files{"x": "old"}, args{"filePath": "x", "code": "new\n", "explanation": "e"},
			"Changed x.", "",
			files{"x": "new\n"}},
		{"new", nil, args{"filePath": "d/x", "code": "new\n"}, "Created d/x.", "",
			files{"d/x": "new\n"}},
		{"abridged", files{"x": "old"}, args{"filePath": "x", "code": abridged}, "",
			"leaves out parts of x", nil},
		{"abridged, new", nil, args{"filePath": "x", "code": "# … existing code …\n"}, "",
			"leaves out parts of x",
			nil},
		{"the file says so itself", files{"x": abridged},
			args{"filePath": "x", "code": abridged + "c\n"}, "Changed x.", "",
			files{"x": abridged + "c\n"}},
	})
}

func TestReplaceString(t *testing.T) {
	runTools(t, "replace_string_in_file", []toolTest{
		{"one", files{"x": "a\nb\nc\n"},
			args{"filePath": "x", "oldString": "b\n", "newString": "B\n", "explanation": "e"},
			"Changed x.", "",
			files{"x": "a\nB\nc\n"}},
		{"twice", files{"x": "a\nb\na\n"},
			args{"filePath": "x", "oldString": "a\n", "newString": "A\n", "explanation": "e"}, "",
			"occurs 2 times in x, on lines 1, 3", nil},
		{"never", files{"x": "a\n"}, args{"filePath": "x", "oldString": "q", "newString": "A",
			"explanation": "e"}, "",
			"does not occur in x", nil},
		{"missing", nil, args{"filePath": "x", "oldString": "q", "newString": "A",
			"explanation": "e"}, "",
			"x does not exist", nil},
		{"binary", files{"x": "a\x00b"}, args{"filePath": "x", "oldString": "a", "newString": "A",
			"explanation": "e"},
			"", "x is a binary file", nil},
		{"directory", files{"d/x": ""}, args{"filePath": "d", "oldString": "a", "newString": "A",
			"explanation": "e"},
			"", "d is a directory", nil},
	})
}

func TestMultiReplace(t *testing.T) {
	three := files{"x": "a b c\n", "y": "d e f\n"}
	r := func(file, oldText, newText string) args {
		return args{"filePath": file, "oldString": oldText, "newString": newText,
			"explanation": "e"}
	}
	runTools(t, "multi_replace_string", []toolTest{
		{"two files, one twice", three,
			args{"explanation": "e", "replacements": []args{r("x", "a", "A"), r("y", "e", "E"),
				r("./x", "A b", "AB")}},
			"Changed x.\nChanged y.", "", files{"x": "AB c\n", "y": "d E f\n"}},
		{"two are wrong", three,
			args{"explanation": "e", "replacements": []args{r("x", "a", "A"), r("y", "q", "E"),
				r("z", "q", "E")}},
			"",
			"nothing was changed: replacement 2 of 3: the text to replace does not occur in y: read the file " +
				"again and copy the text exactly; replacement 3 of 3: z does not exist", nil},
		{"none", three, args{"explanation": "e", "replacements": []args{}}, "",
			"replacements is empty", nil},
		{"back and forth", three,
			args{"explanation": "e", "replacements": []args{r("x", "a", "A"), r("x", "A", "a")}},
			"~Nothing to change", "", nil},
		{"no explanation", three, args{"replacements": []args{r("x", "a", "A")}}, "",
			`"explanation"`, nil},
		{"item without newString", three,
			args{"explanation": "e", "replacements": []args{{"filePath": "x", "oldString": "a"}}},
			"", `"newString"`,
			nil},
	})
}

// If the second file is read-only, the first one is not changed either.
func TestMultiReplaceReadOnly(t *testing.T) {
	env := space(t, files{"x": "a", "y": "b"})
	if err := os.Chmod(filepath.Join(env.Root, "y"), 0o444); err != nil {
		t.Fatal(err)
	}
	_, err := call(t, env, "multi_replace_string", args{"explanation": "e", "replacements": []args{
		{"filePath": "x", "oldString": "a", "newString": "A"},
		{"filePath": "y", "oldString": "b", "newString": "B"},
	}})
	if err == nil || err.Error() != "nothing was changed: y is read-only: it was not changed" {
		t.Errorf("got error %v, want %q", err,
			"nothing was changed: y is read-only: it was not changed")
	}
	if got := snapshot(t, env); got["x"] != "a" || got["y"] != "b" || len(got) != 2 {
		t.Errorf("the workspace holds %q, want a and b only", got)
	}
}

func TestCreateDirectory(t *testing.T) {
	runTools(t, "create_directory", []toolTest{
		{"new", nil, args{"dirPath": "a/b"}, "Created a/b.", "", files{"a/b/": ""}},
		{"there", files{"a/x": ""}, args{"dirPath": "a"}, "a exists already.", "", nil},
		{"a file", files{"a": ""}, args{"dirPath": "a"}, "", "a is a file, not a directory", nil},
		{"outside", nil, args{"dirPath": "/nowhere/at/all"}, "", "outside the workspace", nil},
	})
}

func TestApplyPatch(t *testing.T) {
	in := func(patch string) args { return args{"input": patch, "explanation": "e"} }
	one := files{"x.go": "package x\n\nvar a = 1\n", "y.go": "package y\n"}
	runTools(t, "apply_patch", []toolTest{
		{"envelope, all kinds", one,
			in(
				"*** Begin Patch\n*** Update File: x.go\n@@\n-var a = 1\n+var a = 2\n*** Add File: d/z.go\n+package " +
					"z\n*** Update File: y.go\n*** Move to: d/y.go\n*** End Patch\n"),
			"Changed x.go.\nCreated d/z.go.\nDeleted y.go.\nCreated d/y.go.", "",
			files{"x.go": "package x\n\nvar a = 2\n", "d/z.go": "package z\n", "-y.go": "",
				"d/y.go": "package y\n"}},
		{"git diff", one,
			in(
				"diff --git a/x.go b/x.go\n--- a/x.go\n+++ b/x.go\n@@ -3 +3 @@\n-var a = 1\n+var a = 2\ndiff --git " +
					"a/y.go b/y.go\ndeleted file mode 100644\n--- a/y.go\n+++ /dev/null\n@@ -1 +0,0 @@\n-package y\n"),
			"Changed x.go.\nDeleted y.go.", "", files{"x.go": "package x\n\nvar a = 2\n",
				"-y.go": ""}},
		{"copy", one,
			in(
				"diff --git a/x.go b/z.go\nsimilarity index 90%\ncopy from x.go\ncopy to z.go\n--- a/x.go\n+++ " +
					"b/z.go\n@@ -3 +3 @@\n-var a = 1\n+var b = 1\n"),
			"Created z.go.", "", files{"z.go": "package x\n\nvar b = 1\n"}},
		{"one file twice", one,
			in(
				"*** Begin Patch\n*** Update File: x.go\n-var a = 1\n+var a = 2\n*** Update File: ./x.go\n-var a = " +
					"2\n+var a = 3\n*** End Patch"),
			"Changed x.go.", "", files{"x.go": "package x\n\nvar a = 3\n"}},
		{"deleted and added again", one,
			in(
				"*** Begin Patch\n*** Delete File: y.go\n*** Add File: y.go\n+package q\n*** End Patch"),
			"Changed y.go.", "", files{"y.go": "package q\n"}},
		{"second file is wrong", one,
			in(
				"*** Begin Patch\n*** Update File: x.go\n-var a = 1\n+var a = 2\n*** Update File: y.go\n-package " +
					"q\n+package z\n*** Delete File: q.go\n*** End Patch"),
			"",
			"nothing was changed: the change at line 6 of the patch does not fit y.go: its first line \"package " +
				"q\" is not there after line 0: read the file again; q.go does not exist", nil},
		{"added over a file", one, in("*** Begin Patch\n*** Add File: x.go\n+a\n*** End Patch"), "",
			"x.go exists already", nil},
		{"moved over a file", one,
			in("*** Begin Patch\n*** Update File: x.go\n*** Move to: y.go\n*** End Patch"), "",
			"y.go exists already", nil},
		{"deleted, but it holds more", one,
			in("--- a/x.go\n+++ /dev/null\n@@ -1 +0,0 @@\n-package x\n"), "",
			"x.go holds more than the patch deletes", nil},
		{"outside", one, in("--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n"), "",
			"outside the workspace", nil},
		{"added outside", one, in("*** Begin Patch\n*** Add File: /nowhere/x\n+a\n*** End Patch"),
			"", "outside the workspace", nil},
		{"moved outside", one,
			in("*** Begin Patch\n*** Update File: x.go\n*** Move to: ../x.go\n*** End Patch"), "",
			"outside the workspace", nil},
		{"no patch", one, in("please"), "", "there is no patch", nil},
	})
}

// Both forms of a patch accept absolute paths in the workspace.
func TestApplyPatchAbsolute(t *testing.T) {
	for _, form := range []string{
		"*** Begin Patch\n*** Update File: ROOT/x\n-a\n+b\n*** End Patch",
		"--- ROOT/x\n+++ ROOT/x\n@@ -1 +1 @@\n-a\n+b\n",
		"--- a/ROOT/x\n+++ b/ROOT/x\n@@ -1 +1 @@\n-a\n+b\n",
		"diff --git ROOT/x ROOT/x\n--- ROOT/x\n+++ ROOT/x\n@@ -1 +1 @@\n-a\n+b\n",
	} {
		env := space(t, files{"x": "a\n"})
		_, err := call(t, env, "apply_patch",
			args{"input": strings.ReplaceAll(form, "ROOT", env.Root), "explanation": "e"})
		if got := snapshot(t, env)["x"]; err != nil || got != "b\n" {
			t.Errorf("%s\nleft %q, %v, want %q", form, got, err, "b\n")
		}
	}
}

// A new file is executable if the patch says so, and a moved file keeps its mode.
func TestApplyPatchModes(t *testing.T) {
	env := space(t, files{"run": "a\n", "other": "x\n"})
	if err := os.Chmod(filepath.Join(env.Root, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("other", filepath.Join(env.Root, "link")); err != nil {
		t.Fatal(err)
	}
	_, err := call(t, env, "apply_patch",
		args{"explanation": "e",
			"input": "diff --git a/run b/bin/run\nrename from run\nrename to bin/run\ndiff --git a/new b/new\nnew " +
				"file mode 100755\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+a\n"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bin/run", "new"} {
		if info, err := os.Stat(filepath.Join(env.Root, name)); err != nil ||
			info.Mode()&0o100 == 0 {
			t.Errorf("%s: %v, want it executable", name, err)
		}
	}
	if _, err := call(t, env, "apply_patch",
		args{"explanation": "e",
			"input": "*** Begin Patch\n*** Delete File: link\n*** End Patch"}); err == nil ||
		!strings.Contains(err.Error(), "link is a symbolic link") {
		t.Errorf("got error %v, want %q in it", err, "link is a symbolic link")
	}
}

// Of many simultaneous edits of one file, none is lost.
func TestEditsAtOnce(t *testing.T) {
	const n = 20
	var before, after strings.Builder
	for i := range n {
		fmt.Fprintf(&before, "line %d.\n", i)
		fmt.Fprintf(&after, "LINE %d.\n", i)
	}
	env := space(t, files{"x": before.String()})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			_, err := call(t, env, "replace_string_in_file",
				args{"filePath": "x", "oldString": fmt.Sprintf("line %d.", i),
					"newString": fmt.Sprintf("LINE %d.", i), "explanation": "e"})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := snapshot(t, env)["x"]; got != after.String() {
		t.Errorf("the file holds %d bytes %.200q, want %d bytes %.200q", len(got), got, after.Len(),
			after.String())
	}
}

// Edits outside the workspace work if the policy allows them.
func TestEditOutside(t *testing.T) {
	env := space(t, nil)
	other := filepath.Join(filepath.Dir(env.Root), "other")
	env.Outside = allow(other)
	res, err := call(t, env, "create_file", args{"filePath": filepath.Join(other, "x"),
		"content": "a"})
	if err != nil || res.Text() != "Created "+filepath.Join(other, "x")+"." {
		t.Errorf("got %q, %v, want %q", res.Text(), err, "Created "+filepath.Join(other, "x")+".")
	}
	if _, err := call(t, env, "create_file",
		args{"filePath": "../another", "content": "a"}); err == nil ||
		!strings.Contains(err.Error(), "not on the list") {
		t.Errorf("got error %v, want the policy's", err)
	}
}
