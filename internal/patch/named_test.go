package patch

import (
	"slices"
	"strings"
	"testing"
)

// TestNamed: each file that a patch reads, writes or removes is named, and a patch that programs
// may read in two ways is refused.
func TestNamed(t *testing.T) {
	const update = "*** Begin Patch\n*** Update File: a\n"
	tests := map[string]struct {
		text string
		want []string // nil: refused
	}{
		"all kinds": {"*** Begin Patch\n*** Add File: new\n+x\n*** Delete File: old\n*** Update File: a b\n@@ f\n-x\n+y\n" +
			" z\n" +
			"*** End of File\n*** End Patch\n", []string{"new", "old", "a b"}},
		"moved": {update + "*** Move to: b\n@@\n-x\n*** End Patch", []string{"a", "b"}},
		"CRLF": {strings.ReplaceAll(update+"*** Move to: b\n-x\n*** End Patch\n", "\n", "\r\n"),
			[]string{"a", "b"}},
		"blanks at ends": {
			"\n*** Begin Patch \n*** Update File:  a\t\n*** Move to:  b \n-x\n\n*** End Patch\n\n",
			[]string{"a", "b"},
		},
		"twice": {update + "-x\n*** Update File: a\n+x\n*** End Patch", []string{"a"}},
		"text of a patch": {update + "+*** Delete File: b\n-*** Move to: c\n*** End Patch",
			[]string{"a"}},
		"unified":          {"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", []string{"x"}},
		"unified, renamed": {"diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n", []string{"x", "y"}},

		"nothing":   {"", nil},
		"no end":    {update + "-x\n", nil},
		"no change": {"*** Begin Patch\n*** End Patch", nil},
		"more behind the end": {update + "-x\n*** End Patch\n*** Delete File: b\n*** End Patch",
			nil},
		"text before":           {"here:\n" + update + "-x\n*** End Patch", nil},
		"here document":         {"<<EOF\n" + update + "-x\n*** End Patch\nEOF", nil},
		"move behind blanks":    {update + "  *** Move to: b\n-x\n*** End Patch", nil},
		"header behind a blank": {update + "-x\n *** Delete File: b\n*** End Patch", nil},
		"header behind a tab":   {update + "-x\n\t*** Delete File: b\n*** End Patch", nil},
		"header behind U+00A0":  {update + "-x\n\u00a0*** Delete File: b\n*** End Patch", nil},
		"move in the middle":    {update + "-x\n*** Move to: b\n*** End Patch", nil},
		"second move": {update + "*** Move to: b\n*** Move to: c\n-x\n*** End Patch",
			nil},
		"unknown header":         {update + "-x\n*** Rename File: b\n*** End Patch", nil},
		"line without a mark":    {update + "-x\ny\n*** End Patch", nil},
		"lines of a removed one": {"*** Begin Patch\n*** Delete File: a\n-x\n*** End Patch", nil},
		"no path":                {"*** Begin Patch\n*** Delete File: \n*** End Patch", nil},
		"NUL":                    {"*** Begin Patch\n*** Delete File: a\x00b\n*** End Patch", nil},
		"CR alone":               {"*** Begin Patch\n*** Delete File: a\r*** Delete File: b\n*** End Patch", nil},
		"CR in a file":           {update + "+x\r*** Delete File: b\n*** End Patch", nil},
		"CR at the end":          {update + "+x\n*** End Patch\r", nil},
		"CR CR LF":               {update + "+x\r\r\n*** End Patch", nil},
		"line separator":         {update + "+x\u2028*** Delete File: b\n*** End Patch", nil},
		"next line":              {update + "+x\u0085*** Delete File: b\n*** End Patch", nil},
		"form feed":              {update + "+x\f*** Delete File: b\n*** End Patch", nil},
		"JSON": {`{"input":"*** Begin Patch\n*** Delete File: a\n*** End Patch"}`,
			nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Named(tt.text)
			if !slices.Equal(got, tt.want) || (err != nil) != (tt.want == nil) {
				t.Errorf("got %q and %v, want %q", got, err, tt.want)
			}
		})
	}
}

// Whatever line of a patch a program may take for the header of a file, the file is named or the
// patch is refused.
func FuzzReadStrict(f *testing.F) {
	f.Add(
		"*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@\n-x\n+y\n*** End of File\n*** End Patch\n")
	f.Add("*** Begin Patch\r\n*** Add File: a\r\n+x\r\n*** Delete File: b\r\n*** End Patch")
	f.Add(
		"*** Begin Patch\n*** Update File: a\n  *** Move to: b\n *** Delete File: c\n*** End Patch")
	f.Fuzz(func(t *testing.T, text string) {
		files, err := ReadStrict(text)
		if err != nil {
			return
		}
		names := Names(files)
		isBreak := func(r rune) bool {
			return strings.ContainsRune("\n\v\f\r\x1c\x1d\x1e\u0085\u2028\u2029", r)
		}
		for line := range strings.FieldsFuncSeq(text, isBreak) {
			line = strings.TrimSpace(line)
			for _, word := range []string{addFile, deleteFile, updateFile, moveTo} {
				if name, ok := strings.CutPrefix(line, word); ok &&
					!slices.Contains(names, strings.TrimSpace(name)) {
					t.Errorf("%q names %q, want %q among them", text, names, name)
				}
			}
		}
		if loose, err := Parse(text); err == nil && !slices.Equal(Names(loose), names) {
			t.Errorf("%q names %q, and our own tool finds %q; want the same", text, names,
				Names(loose))
		}
	})
}
