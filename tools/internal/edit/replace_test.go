package edit

import (
	"strings"
	"testing"
)

func TestReplace(t *testing.T) {
	tests := []struct {
		name, text, old, new string
		want, err            string
	}{
		{"one", "a b c", "b", "x", "a x c", ""},
		{"all of it", "a", "a", "", "", ""},
		{"lines", "one\ntwo\nthree\n", "two\nthree\n", "2\n", "one\n2\n", ""},
		{"exact in CRLF", "one\r\ntwo\r\n", "one\r\n", "1\r\n", "1\r\ntwo\r\n", ""},
		{"LF in CRLF", "one\r\ntwo\r\nthree\r\n", "one\ntwo", "1\n2", "1\r\n2\r\nthree\r\n", ""},
		{"LF in CRLF, new is right already", "one\r\ntwo\r\n", "one\ntwo", "1\r\n2", "1\r\n2\r\n",
			""},
		{"after a BOM", "\uFEFFone\n", "one", "1", "\uFEFF1\n", ""},
		{"not UTF-8", "\xffa\xfe", "a", "b", "\xffb\xfe", ""},
		{"twice", "x\ny\nx\n", "x", "z", "", "occurs 2 times in f, on lines 1, 3:"},
		{"twice, overlapping", "aaa", "aa", "b", "", "occurs 2 times in f, on lines 1, 1:"},
		{"often", strings.Repeat("x\n", 20), "x", "z", "",
			"occurs 20 times in f, on lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and more"},
		{"never", "abc", "d", "e", "", "does not occur in f: read the file again"},
		{"other indentation", "if x {\n\t\treturn\n}\n", "if x {\n    return\n}", "", "",
			"white space begins on line 1;"},
		{"only white space", "abc", "\n\n", "e", "", "does not occur in f"},
		{"nothing", "abc", "", "e", "", "empty"},
		{"the same", "abc", "b", "b", "", "nothing to change"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Replace("f", tt.text, tt.old, tt.new)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}
