package chat

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNamedFiles(t *testing.T) {
	tests := []struct {
		prompt string
		want   []named
	}{
		{"see @a/b.go and @c", []named{{path: "a/b.go"}, {path: "c"}}},
		{`@"a b.txt", please`, []named{{"a b.txt", true}}},
		{"mail me@example.com", nil},
		{"(@a.go)", []named{{path: "a.go)"}}}, // read finds a.go
		{"line\n@x", []named{{path: "x"}}},
		{"@", nil},
		{"@ a", nil},
		{`@"open`, []named{{path: `"open`}}},
		{"@@a", []named{{path: "@a"}}},
	}
	for _, test := range tests {
		if got := namedFiles(test.prompt); !slices.Equal(got, test.want) {
			t.Errorf("namedFiles(%q) = %v, want %v", test.prompt, got, test.want)
		}
	}
}

func FuzzNamedFiles(f *testing.F) {
	f.Add(`see @a "@b c" @"d e" x@y`)
	f.Fuzz(func(t *testing.T, prompt string) {
		for _, file := range namedFiles(prompt) {
			mark := "@" + file.path
			if file.quoted {
				mark = `@"` + file.path + `"`
			}
			if file.path == "" || strings.Contains(file.path, "\n") ||
				!strings.Contains(prompt, mark) {
				t.Errorf("%q names %+v, want a path that stands in it", prompt, file)
			}
		}
	})
}

func TestFrontMatter(t *testing.T) {
	tests := []struct{ text, description, rest string }{
		{"---\ndescription: what\nmodel: x\n---\nDo it.\n", "what", "Do it.\n"},
		{"---\r\ndescription: 'a: b'\r\n---\r\nDo.", "'a: b'", "Do."},
		{"---\ndescription: \"a\\u001b[2J\\nb\"\n---\nx", "a b", "x"},
		{"Do it.\n---\ndescription: no\n---\n", "", "Do it.\n---\ndescription: no\n---\n"},
		{"---\nnever ends", "", "---\nnever ends"},
		{"---\na: b\n--- c\nx", "", "---\na: b\n--- c\nx"},
		{"", "", ""},
	}
	for _, test := range tests {
		description, rest := frontMatter(test.text)
		if description != test.description || rest != test.rest {
			t.Errorf("frontMatter(%q) = %q, %q, want %q, %q", test.text, description, rest,
				test.description, test.rest)
		}
	}
}

func FuzzFrontMatter(f *testing.F) {
	f.Add("---\ndescription: what\n---\nDo it.\n")
	f.Fuzz(func(t *testing.T, text string) {
		description, rest := frontMatter(text)
		if strings.ContainsAny(description, "\n\x1b") {
			t.Errorf("frontMatter(%q) has the description %q, want one clean line", text,
				description)
		}
		if plain := strings.ReplaceAll(text, "\r\n", "\n"); !strings.HasSuffix(plain, rest) {
			t.Errorf("frontMatter(%q) leaves %q, want the end of it", text, rest)
		}
	})
}

func TestOwnCommandArguments(t *testing.T) {
	tests := []struct{ prompt, arguments, want string }{
		{"Review $1 for $2.", "a.go speed", "Review a.go for speed."},
		{"Review $1 for $2.", "a.go", "Review a.go for ."},
		{"Do: $ARGUMENTS", "this and that", "Do: this and that"},
		{"Review.", "a.go", "Review.\n\na.go"},
		{"Review.", "", "Review."},
		{"Pay $1", "$ARGUMENTS", "Pay $ARGUMENTS"}, // an argument is no place
	}
	for _, test := range tests {
		if got := (ownCommand{prompt: test.prompt}).fill(test.arguments); got != test.want {
			t.Errorf("%q with %q = %q, want %q", test.prompt, test.arguments, got, test.want)
		}
	}
}
