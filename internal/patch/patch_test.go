package patch

import (
	"strings"
	"testing"
)

// patched applies the one file of a patch to a text.
func patched(t testing.TB, patch, text string) (string, error) {
	t.Helper()
	files, err := Parse(patch)
	if err != nil {
		return "", err
	}
	if len(files) != 1 {
		t.Fatalf("the patch has %d files, want 1", len(files))
	}
	return Apply("f", text, files[0].Hunks)
}

// update is the envelope of one updated file.
func update(hunks string) string {
	return "*** Begin Patch\n*** Update File: f\n" + hunks + "*** End Patch\n"
}

// diff is a unified diff of one file.
func diff(hunks string) string { return "--- a/f\n+++ b/f\n" + hunks }

const fruit = "apple\nbanana\ncherry\ndate\nelder\n"

const twins = `class A:
    def go(self):
        x = 1
        return x

class B:
    def go(self):
        x = 1
        return x
`

func TestApply(t *testing.T) {
	tests := []struct {
		name, patch, text string
		want, err         string
	}{
		{"envelope", update("@@\n banana\n-cherry\n+citrus\n date\n"), fruit,
			"apple\nbanana\ncitrus\ndate\nelder\n",
			""},
		{"first hunk without @@", update("-apple\n+avocado\n"), fruit,
			"avocado\nbanana\ncherry\ndate\nelder\n", ""},
		{"two hunks", update("@@\n-apple\n+avocado\n@@\n-elder\n+fig\n"), fruit,
			"avocado\nbanana\ncherry\ndate\nfig\n",
			""},
		{"inserted at the end", update("@@\n+fig\n"), fruit, fruit + "fig\n", ""},
		{"inserted behind an anchor", update("@@ cherry\n+citrus\n"), fruit,
			"apple\nbanana\ncherry\ncitrus\ndate\nelder\n", ""},
		{"anchor", update("@@ class B:\n         x = 1\n-        return x\n+        return -x\n"),
			twins, strings.TrimSuffix(twins, "return x\n") + "return -x\n", ""},
		{"two anchors", update("@@ class A:\n@@ def go(self):\n-        x = 1\n+        x = 2\n"),
			twins, strings.Replace(twins, "x = 1", "x = 2", 1), ""},
		{"anchor that is a part", update("@@ class B\n-        x = 1\n+        x = 2\n"), twins,
			twins[:70] + strings.Replace(twins[70:], "x = 1", "x = 2", 1), ""},
		{"end of file",
			update("@@\n         x = 1\n-        return x\n+        return 0\n*** End of File\n"),
			twins, strings.TrimSuffix(twins, "return x\n") + "return 0\n", ""},
		{"blank lines around", update("\n@@\n-apple\n+avocado\n\n"), fruit,
			"avocado\nbanana\ncherry\ndate\nelder\n",
			""},
		{"blank context without its space", update("@@\n a\n\n-b\n+c\n"), "a\n\nb\n", "a\n\nc\n",
			""},
		{"deep in prose", "Here it is:\n```\n" + update("-apple\n+fig\n") + "```\nDone.\n", fruit,
			"fig\nbanana\ncherry\ndate\nelder\n", ""},
		{"range lines in the envelope", update("@@ -9,1 +9,1 @@\n-apple\n+fig\n"), fruit,
			"fig\nbanana\ncherry\ndate\nelder\n", ""},
		{"the envelope's words in it", update("@@\n *** Begin Patch\n-x\n+y\n *** End Patch\n"),
			"*** Begin Patch\nx\n*** End Patch\n", "*** Begin Patch\ny\n*** End Patch\n", ""},
		{"CRLF file, LF patch", update("@@\n a\n-b\n+c\n+d\n"), "a\r\nb\r\ne\r\n",
			"a\r\nc\r\nd\r\ne\r\n", ""},
		{"LF file, CRLF patch", strings.ReplaceAll(update("@@\n a\n-b\n+c\n"), "\n", "\r\n"),
			"a\nb\ne\n", "a\nc\ne\n",
			""},
		{"white space at line ends", update("@@\n a\n-b\n+c\n"), "a  \nb\t\n", "a  \nc\n", ""},
		{"no newline at the end stays so", update("@@\n-b\n+c\n"), "a\nb", "a\nc", ""},
		{"appended to a text without newline", update("@@\n+c\n"), "a\nb", "a\nb\nc", ""},
		{"no newline at the end, change above it", update("@@\n-a\n+x\n"), "a\nb", "x\nb", ""},
		{"empty text", update("@@\n+a\n"), "", "a\n", ""},

		{"unified", diff("@@ -2,3 +2,3 @@\n banana\n-cherry\n+citrus\n date\n"), fruit,
			"apple\nbanana\ncitrus\ndate\nelder\n", ""},
		{"wrong position", diff("@@ -40,3 +40,3 @@ func\n banana\n-cherry\n+citrus\n date\n"),
			fruit, "apple\nbanana\ncitrus\ndate\nelder\n", ""},
		{"counts too small", diff("@@ -2,1 +2,1 @@\n banana\n-cherry\n+citrus\n date\n"), fruit,
			"apple\nbanana\ncitrus\ndate\nelder\n", ""},
		{"counts too large",
			diff(
				"@@ -2,30 +2,30 @@\n banana\n-cherry\n+citrus\n date\n@@ -5 +5 @@\n-elder\n+fig\n"),
			fruit, "apple\nbanana\ncitrus\ndate\nfig\n", ""},
		{"no numbers", diff("@@ ... @@\n-cherry\n+citrus\n"), fruit,
			"apple\nbanana\ncitrus\ndate\nelder\n", ""},
		{"half a range line", diff("@@ -3 +3\n-cherry\n+citrus\n"), fruit,
			"apple\nbanana\ncitrus\ndate\nelder\n", ""},
		{"position chooses",
			diff("@@ -8,2 +8,2 @@\n         x = 1\n-        return x\n+        return 0\n"), twins,
			strings.TrimSuffix(twins, "return x\n") + "return 0\n", ""},
		{"position chooses after a drift",
			diff(
				"@@ -1,1 +1,2 @@\n class A:\n+    pass\n@@ -9 +10 @@\n-        return x\n+        return 0\n"),
			twins, strings.TrimSuffix(strings.Replace(twins, "A:\n", "A:\n    pass\n", 1),
				"return x\n") + "return 0\n",
			""},
		{"inserted by position", diff("@@ -2,0 +3 @@\n+blueberry\n"), fruit,
			"apple\nbanana\nblueberry\ncherry\ndate\nelder\n", ""},
		{"inserted at the top", diff("@@ -0,0 +1 @@\n+aardvark\n"), fruit, "aardvark\n" + fruit,
			""},
		{"newline added at the end", diff("@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
			"a", "a\n", ""},
		{"newline taken from the end", diff("@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n"),
			"a\n", "a", ""},
		{"CRLF to LF", diff("@@ -1 +1 @@\n-a\r\n+a\n"), "a\r\nb\r\n", "a\nb\r\n", ""},
		{"a removed line that looks like a header", diff("@@ -1,3 +1,2 @@\n x\n--- y\n z\n"),
			"x\n-- y\nz\n", "x\nz\n",
			""},
		{"mailed",
			"From abc\nSubject: x\n---\n f | 2 +-\n\n" +
				diff("@@ -1 +1 @@\n-a\n+b\n-- \n2.40.1\n\n"), "a\n", "b\n", ""},
		{"last line without newline", strings.TrimSuffix(diff("@@ -1 +1 @@\n-a\n+b\n"), "\n"),
			"a\n", "b\n", ""},

		{"not there", update("@@\n-grape\n+x\n"), fruit, "",
			`line 3 of the patch does not fit f: its first line "grape" is not there after line 0`},
		{"differs", update("@@\n banana\n-berry\n+x\n"), fruit, "",
			`line 3 is "cherry" where the patch has "berry"`},
		{"ends early", update("@@\n elder\n-fig\n+x\n"), fruit, "",
			`the file ends where it goes on with "fig"`},
		{"twice", update("@@\n-        x = 1\n+        x = 2\n"), twins, "",
			"its lines occur 2 times, on lines 3, 8: add lines"},
		{"twice, position fits none", diff("@@ -5 +5 @@\n-        x = 1\n+        x = 2\n"), twins,
			"",
			"occur 2 times"},
		{"out of order", update("@@\n-elder\n+x\n@@\n-apple\n+y\n"), fruit, "",
			"is not there after line 5"},
		{"no such anchor", update("@@ class C\n-x\n+y\n"), twins, "",
			`there is no line "class C" after line 0`},
		{"not at the end", update("@@\n-apple\n+x\n*** End of File\n"), fruit, "", "does not fit"},
		{"inserted past the end", diff("@@ -40,0 +41 @@\n+x\n"), fruit, "", "there is no line 40"},
		{"on nothing", update("@@\n-a\n+b\n"), "", "", "is not there"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := patched(t, tt.patch, tt.text)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %q, error %v, want %q", got, err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	type file struct {
		op           Op
		path, target string
		content      string
		exec         bool
	}
	tests := []struct {
		name, patch string
		want        []file
	}{
		{"all of the envelope",
			"*** Begin Patch\n*** Add File: a/new.go\n+package a\n+\n+var x\n\n*** Delete File: old.go\n*** Update " +
				"File: /ws/x.go\n*** Move to: y.go\n@@\n-a\n+b\n*** Update File: m.go\n*** Move to: n.go\n*** End " +
				"Patch\n",
			[]file{{Add, "a/new.go", "", "package a\n\nvar x\n", false},
				{op: Delete, path: "old.go"},
				{op: Update, path: "/ws/x.go", target: "y.go"},
				{op: Update, path: "m.go", target: "n.go"}}},
		{"blank line without + in a new file",
			"*** Begin Patch\n*** Add File: a\n+x\n\n+y\n\n*** End Patch",
			[]file{{Add, "a", "", "x\n\ny\n", false}}},
		{"empty new file", "*** Begin Patch\n*** Add File: a\n*** End Patch",
			[]file{{op: Add, path: "a"}}},
		{"git",
			"diff --git a/d/x.go b/d/x.go\nindex 1..2 100644\n--- a/d/x.go\n+++ b/d/x.go\n@@ -1 +1 " +
				"@@\n-a\n+b\ndiff --git a/n b/n\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 " +
				"@@\n+n\ndiff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 " +
				"@@\n-x\n",
			[]file{{op: Update, path: "d/x.go"}, {Add, "n", "", "n\n", true},
				{op: Delete, path: "gone"}}},
		{"git rename",
			"diff --git a/x y b/z\nsimilarity index 90%\nrename from x y\nrename to z\nindex 1..2\n--- a/x y\n+++ " +
				"b/z\n@@ -1 +1 @@\n-a\n+b\n", []file{{op: Update, path: "x y", target: "z"}}},
		{"git rename alone",
			"diff --git a/x b/z\nsimilarity index 100%\nrename from x\nrename to z\n",
			[]file{{op: Update, path: "x", target: "z"}}},
		{"git copy", "diff --git a/x b/z\nsimilarity index 100%\ncopy from x\ncopy to z\n",
			[]file{{op: Copy, path: "x", target: "z"}}},
		{"git, empty files",
			"diff --git a/e f b/e f\nnew file mode 100644\nindex 0..e\ndiff --git \"a/\\303\\244\" " +
				"\"b/\\303\\244\"\ndeleted file mode 100644\nindex e..0\n",
			[]file{{op: Add, path: "e f"}, {op: Delete, path: "ä"}}},
		{"git, quoted",
			"diff --git \"a/\\\"q\\\"\" \"b/\\\"q\\\"\"\n--- \"a/\\\"q\\\"\"\n+++ \"b/\\\"q\\\"\"\n@@ -1 +1 " +
				"@@\n-a\n+b\n", []file{{op: Update, path: `"q"`}}},
		{"git without prefixes",
			"diff --git src/x src/x\n--- src/x\n+++ src/x\n@@ -1 +1 @@\n-a\n+b\n",
			[]file{{op: Update, path: "src/x"}}},
		{"a directory a", "--- a/x\n+++ a/x\n@@ -1 +1 @@\n-a\n+b\n",
			[]file{{op: Update, path: "a/x"}}},
		{"absolute", "--- /ws/x\n+++ /ws/x\n@@ -1 +1 @@\n-a\n+b\n",
			[]file{{op: Update, path: "/ws/x"}}},
		{"absolute, prefixed", "--- a//ws/x\n+++ b//ws/x\n@@ -1 +1 @@\n-a\n+b\n",
			[]file{{op: Update, path: "/ws/x"}}},
		{"diff -u",
			"--- x.orig\t2024-01-01 00:00:00\n+++ x\t2024-01-02 00:00:00\n@@ -1 +1 @@\n-a\n+b\n",
			[]file{{op: Update, path: "x"}}},
		{"new by /dev/null",
			"--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n",
			[]file{{Add, "n", "", "a\nb", false}}},
		{"gone by /dev/null", "--- a/n\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
			[]file{{op: Delete, path: "n"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files, err := Parse(tt.patch)
			if err != nil {
				t.Fatal(err)
			}
			if len(files) != len(tt.want) {
				t.Fatalf("got %d files, want %d: %v", len(files), len(tt.want), files)
			}
			for i, w := range tt.want {
				f := files[i]
				got := file{op: f.Op, path: f.Path, target: f.Target, exec: f.Exec}
				if f.Op == Add {
					got.content = f.Content()
				}
				if got != w {
					t.Errorf("file %d is %+v, want %+v", i, got, w)
				}
			}
		})
	}
}

// The error names what is wrong with a patch, and on which line.
func TestParseFaults(t *testing.T) {
	tests := []struct{ name, patch, want string }{
		{"nothing", "", "there is no patch"},
		{"prose", "I would change x to y.\n", "there is no patch"},
		{"cut off", "*** Begin Patch\n*** Add File: a\n+x\n", `"*** End Patch" is missing`},
		{"empty envelope", "*** Begin Patch\n*** End Patch\n", "changes nothing"},
		{"unknown section", "*** Begin Patch\n*** Rename File: a\n*** End Patch\n",
			"line 2 of the patch: \"*** Rename File: a\" is not expected"},
		{"no path", "*** Begin Patch\n*** Delete File:\n*** End Patch\n",
			"line 2 of the patch: the path is missing"},
		{"new file without +", "*** Begin Patch\n*** Add File: a\nx\n*** End Patch\n",
			"line 3 of the patch: every line of the new file a begins with +"},
		{"no change", "*** Begin Patch\n*** Update File: a\n*** End Patch\n",
			"no change of it follows"},
		{"context alone", "*** Begin Patch\n*** Update File: a\n@@\n x\n*** End Patch\n",
			"line 3 of the patch: this hunk has no line"},
		{"odd line", "*** Begin Patch\n*** Update File: a\n@@\n-x\n*y\n*** End Patch\n",
			`line 5 of the patch: a line of a change begins with " ", + or -`},
		{"hunk without file", "@@ -1 +1 @@\n-a\n+b\n", "line 1 of the patch: no file is named"},
		{"file without hunk", "--- a/x\n+++ b/x\n", "no hunk of it follows"},
		{"lines without hunk", "--- a/x\n+++ b/x\n-a\n+b\n",
			"line 3 of the patch: \"-a\" belongs to no hunk"},
		{"binary", "diff --git a/x b/x\nindex 1..2\nBinary files a/x and b/x differ\n",
			"line 3 of the patch: it changes a binary file"},
		{"git binary", "diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 3\n",
			"binary file"},
		{"mode", "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "changes the mode of x"},
		{"symbolic link",
			"diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc\n\\ No newline " +
				"at end of file\n", "symbolic link"},
		{"two names that can't be told", "diff --git a/x b/y\nindex 1..2\n", "cannot be told"},
		{"added and kept", "--- /dev/null\n+++ b/n\n@@ -1,2 +1,2 @@\n a\n+b\n-c\n", "as a whole"},
		{"both nothing", "--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "at once"},
		{"huge", strings.Repeat("x", maxSize+1), "4 MB is the most"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files, err := Parse(tt.patch)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, error %v, want an error with %q", files, err, tt.want)
			}
		})
	}
}
