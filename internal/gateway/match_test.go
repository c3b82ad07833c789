package gateway

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
			if !newToolGlob(tt.glob).match(name) {
				t.Errorf("%q does not match %q", tt.glob, name)
			}
		}
		for name := range strings.FieldsSeq(tt.not) {
			if newToolGlob(tt.glob).match(name) {
				t.Errorf("%q matches %q", tt.glob, name)
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
		re, err := compileGlob(tt.glob)
		if err != nil {
			t.Errorf("%q: %v", tt.glob, err)
			continue
		}
		r := &rule{Rule: protocol.Rule{Match: protocol.Match{File: tt.glob}}, file: re}
		for name := range strings.FieldsSeq(tt.match) {
			if f := newFile(name); r.matchFile(&f) != yes {
				t.Errorf("%q does not match %q", tt.glob, name)
			}
		}
		for name := range strings.FieldsSeq(tt.not) {
			if f := newFile(name); r.matchFile(&f) != no {
				t.Errorf("%q matches %q", tt.glob, name)
			}
		}
	}
	for _, glob := range []string{"[", "[]", "[!]", "a[b", "{", "{a", "}", "a}", `\`, "[z-a]", strings.Repeat("x", protocol.MaxPattern+1)} {
		if _, err := compileGlob(glob); err == nil {
			t.Errorf("%.20q is taken for a glob", glob)
		}
	}
}

// TestMatchEnds: whatever the pattern, a match ends. How soon is the benchmark's to say.
func TestMatchEnds(t *testing.T) {
	long := strings.Repeat("x", maxSubject-1)
	patterns := []string{`(x+)+y`, `(x*)*y`, `(x|xx)+y`, `^(\w+\s?)*$!`, `(.*)*\1y`, `(?=(x+))\1*y`, strings.Repeat("x*", 400) + "y", `(?:x?){200}x{200}y`}
	globs := []string{strings.Repeat("*x", 200) + "*y", strings.Repeat("{x,*}", 40) + "y", strings.Repeat("**/", 100) + "y", strings.Repeat("[x]*", 200) + "y"}
	var all []*pattern
	for _, p := range patterns {
		re, err := compilePattern(p)
		if err != nil {
			t.Fatalf("%.30q: %v", p, err)
		}
		all = append(all, re)
	}
	for _, g := range globs {
		re, err := compileGlob(g)
		if err != nil {
			t.Fatalf("%.30q: %v", g, err)
		}
		all = append(all, re)
	}
	for i, re := range all {
		for _, text := range []string{long, long[:200], strings.Repeat("x/", 2000)} {
			done := make(chan struct{})
			go func() { re.match(&subject{text: text}); close(done) }()
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				t.Fatalf("pattern %d does not end on %d bytes", i, len(text))
			}
		}
	}
}

// TestHarmlessPatternsAreSure: the clock that stops patterns is coarse, yet what
// takes microseconds is never taken for endless.
func TestHarmlessPatternsAreSure(t *testing.T) {
	re, err := compilePattern(`rm (?!-i)-\w*r`)
	if err != nil {
		t.Fatal(err)
	}
	text := `{"command":"` + strings.Repeat("rm -i x; ", 10) + `"}`
	for range 2000 {
		if got := re.match(&subject{text: text}); got != no {
			t.Fatalf("got %v, want no", got)
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
		{`{"a":1.0,"b":1e3,"c":-0,"d":0.10,"e":1E-7,"f":1e21,"g":12345678901234567890}`, `{"a":1,"b":1000,"c":0,"d":0.1,"e":1e-7,"f":1e+21,"g":12345678901234567000}`},
		{`{"a":1,"a":2}`, `{"a":1,"a":2}`},
		{`{"a":"\uD800","\udc00x":"\ud83d\ude00 \ud83d\ud83d\ude00 \\ud800 \uDE00\ud83d"}`, `{"a":"\ud800","\udc00x":"😀 \ud83d😀 \\ud800 \ude00\ud83d"}`},
		{`not JSON`, `not JSON`},
	}
	for _, tt := range tests {
		if got := argsText(protocol.Raw(tt.args)); got != tt.want {
			t.Errorf("argsText(%s) = %s, want %s", tt.args, got, tt.want)
		}
	}
}

// TestMatrix is the capability matrix of v2, row by row, and what a provider file
// may add to a column.
func TestMatrix(t *testing.T) {
	all := []capability{mayGate, mayCallback, mayTransform, mayContext, mayReadOthers, mayHearMessages, mayBindAll}
	tests := []struct {
		name string
		id   identity
		may  []capability
	}{
		{"internal", identity{trust: TrustInternal}, all},
		{"project", identity{trust: TrustProject}, []capability{mayGate, mayCallback, mayTransform, mayContext, mayHearMessages}},
		{"external", identity{trust: TrustExternal}, nil},
		{"external with transforms", identity{trust: TrustExternal, grants: []string{"transforms"}}, []capability{mayCallback, mayTransform}},
		{"external with gates", identity{trust: TrustExternal, grants: []string{"gates"}}, []capability{mayGate}},
		{"external with context", identity{trust: TrustExternal, grants: []string{"context"}}, []capability{mayContext}},
		{"external with all three", identity{trust: TrustExternal, grants: []string{"transforms", "gates", "context"}}, []capability{mayGate, mayCallback, mayTransform, mayContext}},
		{"project for all sessions", identity{trust: TrustProject, grants: []string{"all"}}, []capability{mayGate, mayCallback, mayTransform, mayContext, mayHearMessages, mayBindAll}},
		{"a word that is none", identity{trust: TrustExternal, grants: []string{"everything", ""}}, nil},
		{"no trust at all", identity{}, nil},
	}
	for _, tt := range tests {
		for _, c := range all {
			want := false
			for _, m := range tt.may {
				want = want || m == c
			}
			if got := tt.id.may(c); got != want {
				t.Errorf("%s: capability %d is %v, want %v", tt.name, c, got, want)
			}
		}
	}
}
