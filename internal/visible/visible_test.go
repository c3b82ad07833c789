package visible

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\nsecond größer 漢字 🙂": "plain\ttext\nsecond größer 漢字 🙂",
		"":                             "",
		"ls \x1b]0;\a; rm x \x1b[8m":   `ls \x1b]0;\x07; rm x \x1b[8m`,
		"a\rb\x00\x7f":                 `a\x0db\x00\x7f`,
		"a\u202eb\u2066\u200b\ufeff":   `a\u202eb\u2066\u200b\ufeff`,
		"git\u00a0status\u3000x\u2028": `git\u00a0status\u3000x\u2028`,
		"\u009b8m\u3164\u2800\ufe0f":   `\u009b8m\u3164\u2800\ufe0f`,
		"\U000e0041":                   `\U000e0041`,
		"a\xffb\xc3":                   `a\xffb\xc3`,
		"\ufffd":                       "\ufffd",
	} {
		if got := Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := Controls("a\n\u00a0\u200d\x1b[8m\u202e"); got != "a\n\u00a0\u200d\\x1b[8m\\u202e" {
		t.Errorf("got %q, want %q", got, "a\n\u00a0\u200d\\x1b[8m\\u202e")
	}
	if got := Line("a\nb\tc"); got != `a\nb\tc` {
		t.Errorf("got %q, want %q", got, `a\nb\tc`)
	}
}

func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		in          string
		most, lines int
		want        string
	}{
		{"short", 10, 5, "short"},
		{"0123456789", 10, 5, "0123456789"},
		{"0123456789x", 10, 5, "01234\n[… 1 of 11 bytes are left out here …]\n6789x"},
		{"a\nb\nc", 10, 3, "a\nb\nc"},
		{"a\nb\nc\nd\ne", 100, 4, "a\nb\n[… 3 of 9 bytes are left out here …]\nd\ne"},
		{"ééééééé", 6, 9, "é\n[… 10 of 14 bytes are left out here …]\né"},
	} {
		if got := Ends(tt.in, tt.most, tt.lines); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[2Jb\u202e\xff\n", 10, 3)
	f.Fuzz(func(t *testing.T, s string, most, lines int) {
		text := Text(s)
		if !utf8.ValidString(text) ||
			strings.ContainsFunc(text,
				func(r rune) bool {
					return unicode.IsControl(r) && r != '\n' && r != '\t' ||
						unicode.Is(unicode.Cf, r)
				}) {
			t.Errorf("%q: %q", s, text)
		}
		if strings.ContainsAny(Line(s), "\n\t") || Text(text) != text {
			t.Errorf("of %q Line is %q and Text twice %q, want %q", s, Line(s), Text(text), text)
		}
		most, lines = most&0xfff, lines&0xff
		ends := Ends(text, most, lines)
		if ends != text && (len(ends) > most+100 || strings.Count(ends, "\n") > lines+3) {
			t.Errorf("got %d bytes and %d lines, want about %d and %d", len(ends),
				strings.Count(ends, "\n"), most, lines)
		}
	})
}
