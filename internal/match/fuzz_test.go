package match

import (
	"path"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"github.com/go-json-experiment/json/jsontext"

	"tapgw/internal/protocol"
	"tapgw/internal/taptest"
)

// Limits of the memory that one pattern may take, in bytes. Most take a thousandth.
const (
	memoryToCompile = 16 << 20
	memoryToMatch   = 64 << 20
)

// FuzzPattern shows that compiling and matching end for any pattern and text, and that
// the result is the engine's.
func FuzzPattern(f *testing.F) {
	for _, expr := range []string{`git push`, `rm (?!-i)-\w*r`, `^(?<a>x|y)\k<a>$`, `(x+x+)+y`,
		`(?:push|fetch)\b.*origin`, `(?i)[a-z\d_-]{2,5}?`, `\u0041\x41\cA\p{L}[^\]]`,
		`a{1000}{1000}`, `(?=(?<=a)b)*c|`,
		`(`, `[z-a]`, ``, `\bgit\b|[\b]\B`, `(?#\b)git`, strings.Repeat(`\B`, 500)} {
		f.Add(expr, `{"command":"git push origin main"}`)
		f.Add(expr, `{"command":"égit push ſé"}`)
		f.Add(expr, strings.Repeat("x", 100)+"\n")
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		if !utf8.ValidString(expr) || !utf8.ValidString(text) {
			return // messages are UTF-8
		}
		var p *Pattern
		var err error
		taptest.Bounded(t, "compiling", memoryToCompile, func() { p, err = Compile(expr) })
		if err != nil {
			if len(err.Error()) > 2*protocol.MaxPattern+1000 {
				t.Errorf("the error has %d bytes, want at most %d", len(err.Error()),
					2*protocol.MaxPattern+1000)
			}
			return
		}
		if len(expr) > protocol.MaxPattern {
			t.Fatalf("a pattern of %d bytes compiles, want at most %d", len(expr),
				protocol.MaxPattern)
		}
		s := NewIndexedText(text)
		var got Result
		taptest.Bounded(t, "matching", memoryToMatch, func() { got = p.Match(s) })
		if len(text) > maxText && got != Undecided {
			t.Fatalf("%d bytes of text give %v, want %v over %d", len(text), got, Undecided,
				maxText)
		}
		re, err := regexp2.Compile(expr, regexp2.ECMAScript)
		if err != nil {
			t.Fatalf("it is no pattern: %v", err)
		}
		if p.beyond != nil && len([]rune(text)) != len(text) {
			return // a boundary is JavaScript's, and TestPatternsAsInJavaScript judges it
		}
		re.MatchTimeout = 100 * time.Millisecond
		// Of what explodes nothing can be said.
		if want, err := re.MatchString(text); err == nil && got != Undecided &&
			got != resultOf(want) {
			t.Fatalf("got %v, the engine says %v, want the same, or undecided", got, want)
		}
	})
}

var plainGlob = regexp.MustCompile(`^[a-z0-9._?*-]+$`)

// FuzzFileGlob shows that compiling and matching end for any glob and path, and that
// plain globs match as path.Match does.
func FuzzFileGlob(f *testing.F) {
	for _, glob := range []string{"*.sql", "src/**/*.go", "/etc/**", "{a,{b,c}d}.go", "[!a-c]?",
		`\*[\^]`, "**/x**", "*a*b*c*d*e*", strings.Repeat("{", 100), "[", "a{", `\`, ""} {
		f.Add(glob, "src/x/../a.go")
		f.Add(glob, `C:\db\1.sql`)
	}
	f.Fuzz(func(t *testing.T, glob, name string) {
		if !utf8.ValidString(glob) || !utf8.ValidString(name) {
			return
		}
		var p *FileGlob
		var err error
		taptest.Bounded(t, "compiling", memoryToCompile, func() { p, err = CompileFileGlob(glob) })
		if err != nil {
			return
		}
		if len(glob) > protocol.MaxPattern {
			t.Fatalf("a glob of %d bytes compiles, want at most %d", len(glob), protocol.MaxPattern)
		}
		file := NewFile(name)
		var got Result
		taptest.Bounded(t, "matching", memoryToMatch, func() { got = p.Match(file) })
		if !plainGlob.MatchString(glob) || got == Undecided {
			return
		}
		base := path.Base(path.Clean(strings.ReplaceAll(name, `\`, "/")))
		want, err := path.Match(glob, base)
		if err != nil {
			t.Fatal(err)
		}
		if base != "/" && got != resultOf(want) {
			t.Fatalf("%q and %q: got %v, want %v", glob, base, got, want)
		}
	})
}

// FuzzToolGlob shows that * stands for any text and that nothing else is special.
func FuzzToolGlob(f *testing.F) {
	for _, glob := range []string{"bash", "*", "edit*", "*-*-end", "a?[b]*", "**", "", `\*`} {
		f.Add(glob, "bash")
		f.Add(glob, "a-b-end")
	}
	f.Fuzz(func(t *testing.T, glob, tool string) {
		re, err := regexp.Compile(`(?s)^` + strings.ReplaceAll(regexp.QuoteMeta(glob), `\*`,
			".*") + `$`)
		if err != nil {
			return // too long, or no text
		}
		if got, want := NewToolGlob(glob).Match(tool), re.MatchString(tool); got != want {
			t.Fatalf("%q and %q: got %v, want %v", glob, tool, got, want)
		}
	})
}

// FuzzArgsText shows that the text of arguments means what the arguments mean, and that
// it does not depend on how they are written.
func FuzzArgsText(f *testing.F) {
	for _, args := range []string{`{"b":1,"a":[true,null]}`, `{ "a" : 1.50 }`,
		`{"a":"git\u0020push"}`,
		`{"a":1e3,"b":-0,"c":12345678901234567890,"d":0.1}`, `{"a":"<&>\u2028é"}`,
		`{"\ud800":"\/"}`} {
		f.Add([]byte(args))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		if protocol.Object(args, func(string, protocol.Raw) error { return nil }) != nil {
			return // the gateway refuses it before
		}
		formatted := func(text string) string { // halves of surrogate pairs become U+FFFD
			v := protocol.Raw(text).Clone()
			err := v.Format(jsontext.AllowInvalidUTF8(true),
				jsontext.CanonicalizeRawInts(true), jsontext.CanonicalizeRawFloats(true),
				jsontext.Multiline(false), jsontext.SpaceAfterColon(false),
				jsontext.SpaceAfterComma(false))
			if err != nil {
				t.Fatal(err)
			}
			return string(v)
		}
		got := ArgsText(args)
		if want := formatted(string(args)); formatted(got) != want {
			t.Fatalf("%s\nbecame %s\nwant   %s", args, got, want)
		}
		if again := ArgsText(protocol.Raw(got)); again != got {
			t.Fatalf("%s is not left as it is, want %v", got, got)
		}
	})
}
