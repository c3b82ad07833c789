package protocol

import (
	"regexp"
	"strings"
	"testing"
)

// normal are names as people spell them and as they are known.
var normal = map[string]string{
	"a": "a", "": "", "My Provider": "my-provider", "@scope/name": "scope-name",
	"my stream":            "my-stream",
	"ci/main":              "ci-main",
	"  Tabs\t\nand  such ": "tabs-and-such", "a.b_c-d": "a.b_c-d", "--a--b--": "a--b",
	"a - b": "a---b", "é": "", "Über": "ber", "a日本b": "a-b",
	"../..": "..-..", "_x": "_x", "\xff\xfe": "", "A\x00B": "a-b",
}

func TestNormalName(t *testing.T) {
	for name, want := range normal {
		if got := NormalName(name); got != want {
			t.Errorf("%q is known as %q, want %q", name, got, want)
		}
	}
	for spelled, want := range map[string][3]string{
		"a": {"a", "", ""}, "a@b": {"a", "b", "@"}, "@scope/name": {"@scope/name", "", ""},
		"@scope/name@p": {"@scope/name", "p", "@"}, "a@": {"a", "", "@"}, "@": {"@", "", ""},
	} {
		stream, provider, owned := SplitStream(spelled)
		if stream != want[0] || provider != want[1] || owned != (want[2] != "") {
			t.Errorf("%q: %q, %q, %v, want %v", spelled, stream, provider, owned, (want[2] != ""))
		}
	}
}

// FuzzNormalName holds the names to what they are written to be: the same again when
// they are normalised again, and as JavaScript's replace makes them.
func FuzzNormalName(f *testing.F) {
	for name := range normal {
		f.Add(name)
	}
	others := regexp.MustCompile(`[^a-z0-9._-]+`)
	f.Fuzz(func(t *testing.T, s string) {
		got := NormalName(s)
		if again := NormalName(got); again != got {
			t.Errorf("%q: %q, then %q, want %q", s, got, again, got)
		}
		lower := strings.Map(func(r rune) rune {
			if 'A' <= r && r <= 'Z' {
				return r + 'a' - 'A'
			}
			return r
		}, s)
		if want := strings.Trim(others.ReplaceAllString(lower, "-"), "-"); got != want {
			t.Errorf("%q is known as %q, want %q", s, got, want)
		}
		if ValidName(s) && (got == "" || len(got) > 64 || strings.ContainsAny(got, "/\\@") ||
			strings.Contains("._-", got[:1])) {
			t.Errorf("%q is a name: %q", s, got)
		}
	})
}
