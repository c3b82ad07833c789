package match

import (
	"strings"
	"testing"
	"time"

	"tapgw/internal/protocol"
)

func TestMatchTool(t *testing.T) {
	tests := []struct {
		glob  string
		match string // names, space separated
		not   string
	}{
		{"bash", "bash", "bas bash2 Bash xbash"},
		{"*", "bash a/b list_x_y", ""},
		{"edit*", "edit edit_file edit/x", "redit Edit"},
		{"*edit", "edit re/edit", "edits"},
		{"a*c", "ac abc a/b/c acc", "ab bc abcd"},
		{"*b*", "b abc bb", "a"},
		{"a*a", "aa aba", "a"},
		{"*-*-end", "a-b-end --end", "a-end -end"},
		{"**", "bash", ""},
		{"a?[b]*", "a?[b] a?[b]c", "axb ax[b]"},
		{`a\*`, `a\x`, "a* ax"},
	}
	for _, tt := range tests {
		for name := range strings.FieldsSeq(tt.match) {
			if !NewToolGlob(tt.glob).Match(name) {
				t.Errorf("%q does not match %q, want a match", tt.glob, name)
			}
		}
		for name := range strings.FieldsSeq(tt.not) {
			if NewToolGlob(tt.glob).Match(name) {
				t.Errorf("%q matches %q, want no match", tt.glob, name)
			}
		}
	}
}

func TestMatchFile(t *testing.T) {
	tests := []struct {
		glob  string
		match string
		not   string
	}{
		{"*.sql", "1.sql /a/b/1.sql ./1.sql a/../1.sql 1.sql/. .sql", "1.sqlx sql 1.SQL a.sql/b"},
		{"?.go", "a.go x/b.go", "ab.go .go"},
		{"[ab].go", "a.go b.go", "c.go ab.go"},
		{"[!ab].go", "c.go", "a.go"},
		{"[^ab].go", "c.go", "a.go"},
		{"[a-c].go", "b.go", "d.go -.go"},
		{`[\^].go`, `^.go`, "a.go"},
		{"{a,b}.go", "a.go b.go", "c.go a,b.go"},
		{"{a,{b,c}d}.go", "a.go bd.go cd.go", "b.go d.go"},
		{"{a,}.go", "a.go .go", "b.go"},
		{"a,b", "a,b", "a b"},
		{"src/*.go", "src/a.go /w/src/a.go ./src/a.go src/x/../a.go", "a.go src/x/a.go mysrc/a.go"},
		{"/src/*.go", "/src/a.go src/a.go /w/src/a.go", "srcs/a.go"},
		{"src/**", "src/a src/a/b /w/src/a/b", "src xsrc/a"},
		{"src/**/*.go", "src/a.go src/x/y/a.go", "src/a.js a.go"},
		{"**/*.go", "a.go x/y/a.go", "a.js"},
		{"**", "a", ""},
		{"a/**/b/**/c", "a/b/c a/x/b/y/z/c", "a/c a/b"},
		{"a**b", "ab axxb", "ax"},
		{"a/x**", "a/xy", "a/x/y"},
		{`\*.go`, "*.go", "a.go"},
		{`a+b(c).go`, "a+b(c).go", "aab(c).go abc.go"},
		{"a.b", "a.b", "axb"},
		{"$HOME", "$HOME", "HOME"},
	}
	for _, tt := range tests {
		re, err := CompileFileGlob(tt.glob)
		if err != nil {
			t.Errorf("%q: %v", tt.glob, err)
			continue
		}
		for name := range strings.FieldsSeq(tt.match) {
			if re.Match(NewFile(name)) != Yes {
				t.Errorf("%q does not match %q, want %v", tt.glob, name, Yes)
			}
		}
		for name := range strings.FieldsSeq(tt.not) {
			if re.Match(NewFile(name)) != No {
				t.Errorf("%q matches %q, want %v", tt.glob, name, No)
			}
		}
	}
	tooLong := strings.Repeat("x", protocol.MaxPattern+1)
	for _, glob := range []string{"[", "[]", "[!]", "a[b", "{", "{a", "}", "a}", `\`, "[z-a]",
		tooLong} {
		if _, err := CompileFileGlob(glob); err == nil {
			t.Errorf("%.20q compiles as a glob, want an error", glob)
		}
	}
}

// TestMatchEnds shows that every match ends; how soon is measured by the benchmark.
func TestMatchEnds(t *testing.T) {
	long := strings.Repeat("x", maxText-1)
	patterns := []string{
		`(x+)+y`,
		`(x*)*y`,
		`(x|xx)+y`,
		`^(\w+\s?)*$!`,
		`(.*)*\1y`,
		`(?=(x+))\1*y`,
		strings.Repeat("x*", 400) + "y",
		`(?:x?){200}x{200}y`,
	}
	globs := []string{
		strings.Repeat("*x", 200) + "*y",
		strings.Repeat("{x,*}", 40) + "y",
		strings.Repeat("**/", 100) + "y",
		strings.Repeat("[x]*", 200) + "y",
	}
	var all []*Pattern
	for _, p := range patterns {
		re, err := Compile(p)
		if err != nil {
			t.Fatalf("%.30q: %v", p, err)
		}
		all = append(all, re)
	}
	for _, g := range globs {
		re, err := CompileFileGlob(g)
		if err != nil {
			t.Fatalf("%.30q: %v", g, err)
		}
		all = append(all, re.pattern)
	}
	for i, re := range all {
		for _, text := range []string{long, long[:200], strings.Repeat("x/", 2000)} {
			done := make(chan struct{})
			go func() { re.Match(NewText(text)); close(done) }()
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				t.Fatalf("pattern %d does not end on %d bytes, want an end within its time", i,
					len(text))
			}
		}
	}
}

// TestHarmlessPatternsAreSure shows that a pattern that takes microseconds is never
// undecided, though the engine's clock is coarse.
func TestHarmlessPatternsAreSure(t *testing.T) {
	re, err := Compile(`rm (?!-i)-\w*r`)
	if err != nil {
		t.Fatal(err)
	}
	text := `{"command":"` + strings.Repeat("rm -i x; ", 10) + `"}`
	for range 2000 {
		if got := re.Match(NewText(text)); got != No {
			t.Fatalf("got %v, want No", got)
		}
	}
}

func TestArgsText(t *testing.T) {
	tests := []struct{ args, want string }{
		{``, ``},
		{`{}`, `{}`},
		{` { "b" : 1 , "a" : [ true , null ] } `, `{"b":1,"a":[true,null]}`},
		{`{"a":"git\u0020push"}`, `{"a":"git push"}`},
		{`{"\u0061":"\/"}`, `{"a":"/"}`},
		{`{"a":"<&>\u2028é\u00e9"}`, `{"a":"<&>` + "\u2028" + `éé"}`},
		{`{"a":"\u0001\n\t\"\\"}`, `{"a":"\u0001\n\t\"\\"}`},
		{
			`{"a":1.0,"b":1e3,"c":-0,"d":0.10,"e":1E-7,"f":1e21,"g":12345678901234567890}`,
			`{"a":1,"b":1000,"c":0,"d":0.1,"e":1e-7,"f":1e+21,"g":12345678901234567000}`,
		},
		{`{"a":1,"a":2}`, `{"a":1,"a":2}`},
		{
			`{"a":"\uD800","\udc00x":"\ud83d\ude00 \ud83d\ud83d\ude00 \\ud800 \uDE00\ud83d"}`,
			`{"a":"\ud800","\udc00x":"😀 \ud83d😀 \\ud800 \ude00\ud83d"}`,
		},
		{`not JSON`, `not JSON`},
	}
	for _, tt := range tests {
		if got := ArgsText(protocol.Raw(tt.args)); got != tt.want {
			t.Errorf("ArgsText(%s) = %s, want %s", tt.args, got, tt.want)
		}
	}
}
