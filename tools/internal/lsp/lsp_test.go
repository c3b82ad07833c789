package lsp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tapgw/tools"
)

// space is a workspace with two files, and its pool.
func space(t *testing.T) (p *Pool, root string, files, paths []string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files = []string{"a b.fake", "b.fake", "readme"}
	write(t, root, "a b.fake", "fine\n𝄞 bad one")
	write(t, root, "b.fake", "bad two")
	write(t, root, "readme", "")
	p = &Pool{}
	t.Cleanup(p.Close)
	return p, root, files, []string{filepath.Join(root, "a b.fake"), filepath.Join(root, "b.fake")}
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Servers report problems in three ways, with the same result.
func TestProblems(t *testing.T) {
	for _, temper := range []string{"tells", "answers", "answers later"} {
		t.Run(temper, func(t *testing.T) {
			lang := fakeLanguage(t, temper)
			p, root, files, paths := space(t)
			want := []Problem{
				{Place{paths[0], 2, 4}, "error", "𝄞 bad one", "fake 42"},
				{Place{paths[1], 1, 1}, "error", "bad two", "fake 42"},
			}
			for range 2 {
				got, err := p.Problems(t.Context(), root, lang, files, paths)
				if err != nil || !slices.Equal(got, want) {
					t.Fatalf("got %v, %v, want %v", got, err, want)
				}
			}
			write(t, root, "a b.fake", "fine")
			if got, err := p.Problems(t.Context(), root, lang, files, paths[:1]); err != nil ||
				len(got) != 0 {
				t.Errorf("after it was mended: %v, %v, want no error and none", got, err)
			}
			if _, err := p.Problems(t.Context(), root, lang, files,
				[]string{filepath.Join(root, "none.fake")}); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("no file: %v, want no file", err)
			}
		})
	}
}

func TestUsagesAndSymbols(t *testing.T) {
	lang := fakeLanguage(t, "answers")
	p, root, files, paths := space(t)
	for from, want := range map[int]Place{1: {paths[0], 2, 4}, 2: {paths[0], 2, 4}, 3: {}} {
		got, err := p.Usages(t.Context(), root, lang, files, Place{Path: paths[0], Line: from},
			"bad")
		if err != nil || want.Line > 0 && !slices.Equal(got, []Place{want}) || want.Line == 0 &&
			len(got) > 0 {
			t.Errorf("from line %d: %v, %v, want %v", from, got, err, want)
		}
	}
	for query, want := range map[string]string{
		"settings":        "[map[set:true] <nil>] <nil>",
		"unknown request": "no/such: no such method: no/such",
	} {
		got, err := p.Symbols(t.Context(), root, lang, files, query)
		if err != nil || len(got) != 1 ||
			got[0] != (Symbol{Place{filepath.Join(root, "a.fake"), 5, 3}, want, "function", ""}) {
			t.Errorf("%s: %+v, %v, want one of %s in a.fake:5:3", query, got, err, want)
		}
	}
	// A refusal is no reason to give the server up.
	if _, err := p.Symbols(t.Context(), root, lang, files, "refuse"); err == nil ||
		!strings.Contains(err.Error(), "not today") {
		t.Errorf("refused with %v, want %q in it", err, "not today")
	}
	if _, err := p.Symbols(t.Context(), root, lang, files, "log"); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
}

// A server gets the changes since its last question.
func TestServerCatchesUp(t *testing.T) {
	lang := fakeLanguage(t, "answers")
	p, root, files, paths := space(t)
	log := func() (lines []string) {
		t.Helper()
		got, err := p.Symbols(t.Context(), root, lang, files, "log")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range got {
			lines = append(lines, s.Name)
		}
		return lines
	}
	if got := log(); !slices.Equal(got, []string{"open a%20b.fake"}) {
		t.Errorf("at first: got %q, want %q", got, []string{"open a%20b.fake"})
	}
	write(t, root, "b.fake", "something else")
	write(t, root, "new.fake", "")
	write(t, root, "fake.mod", "")
	write(t, root, "readme", "changed")
	if err := os.Remove(paths[0]); err != nil {
		t.Fatal(err)
	}
	files = []string{"b.fake", "fake.mod", "new.fake", "readme"}
	want := []string{"open a%20b.fake", "close a%20b.fake",
		"changed a%20b.fake 3, b.fake 2, fake.mod 1, new.fake 1", "open b.fake"}
	if got := log(); !slices.Equal(got, want) {
		t.Errorf("then: got %q, want %q", got, want)
	}
	if got := log(); !slices.Equal(got, want) {
		t.Errorf("nothing has changed: got %q, want %q", got, want)
	}
	// The file that it keeps open is never open twice, nor with an old text.
	if _, err := p.Problems(t.Context(), root, lang, files, paths[1:]); err != nil {
		t.Fatal(err)
	}
	want = append(want, "close b.fake", "open b.fake", "close b.fake", "open b.fake")
	if got := log(); !slices.Equal(got, want) {
		t.Errorf("after a question about it: got %q, want %q", got, want)
	}
	write(t, root, "b.fake", "changed again")
	want = append(want, "close b.fake", "changed b.fake 2", "open b.fake")
	if got := log(); !slices.Equal(got, want) {
		t.Errorf("after it has changed: got %q, want %q", got, want)
	}
}

// A server that fails costs a bounded time once, and then is not asked for a while.
func TestServerThatFails(t *testing.T) {
	tests := []struct{ temper, want string }{
		{"dies at once", "starting fakels"},
		{"hangs at once", "starting fakels"},
		{"prints", "starting fakels"},
		{"dies when told", "fakels ended"},
		{"dies when asked", "fakels ended"},
		{"hangs when asked", "fakels does not answer within 50ms"},
		{"stops reading", "fakels does not answer within 1s"},
	}
	for _, tt := range tests {
		t.Run(tt.temper, func(t *testing.T) {
			lang := fakeLanguage(t, tt.temper)
			p, root, files, _ := space(t)
			switch tt.temper {
			case "hangs at once":
				p.start = 50 * time.Millisecond
			case "stops reading": // and we have much to say
				write(t, root, "a b.fake", strings.Repeat("x", 8<<20))
				p.answer = time.Second // by then it is in the midst of it
			case "hangs when asked":
				p.answer = 50 * time.Millisecond
			}
			_, err := p.Symbols(t.Context(), root, lang, files, "x")
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			t.Setenv(fakeVar, "answers") // it would do now
			_, again := p.Symbols(t.Context(), root, lang, files, "x")
			if again == nil || again.Error() != err.Error() {
				t.Errorf("asked again: %v, want %v", again, err)
			}
		})
	}
	t.Run("not installed", func(t *testing.T) {
		lang := &Language{Server: "no-such-server"}
		p, root, files, _ := space(t)
		if _, err := p.Symbols(t.Context(), root, lang, files, "x"); err == nil ||
			lang.Installed(root) {
			t.Errorf("error %v, installed %v, want an error and false", err, lang.Installed(root))
		}
	})
}

// After an unused server has died, the next question starts another one.
func TestServerThatDiedIsReplaced(t *testing.T) {
	lang := fakeLanguage(t, "answers")
	p, root, files, _ := space(t)
	for range 2 {
		if _, err := p.Symbols(t.Context(), root, lang, files, "log"); err != nil {
			t.Fatal(err)
		}
		s := running(p)[0]
		s.process.Stop()
		<-s.conn.Done()
	}
}

func running(p *Pool) (all []*server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		if e.server != nil {
			all = append(all, e.server)
		}
	}
	return all
}

// One server answers all questions about a workspace, and ends when it is unused.
func TestServerIsSharedAndEnds(t *testing.T) {
	lang := fakeLanguage(t, "answers")
	p, root, files, paths := space(t)
	_, other, _, _ := space(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := p.Problems(t.Context(), root, lang, files, paths); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := p.Symbols(t.Context(), other, lang, files, "log"); err != nil {
		t.Fatal(err)
	}
	if n := len(running(p)); n != 2 {
		t.Errorf("%d servers for two workspaces, want 2", n)
	}
	p.idle = time.Millisecond
	first := running(p)
	for _, dir := range []string{root, other} {
		if _, err := p.Symbols(t.Context(), dir, lang, files, "log"); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range first {
		<-s.process.Done()
	}
	p.Close()
	if n := len(running(p)); n != 0 {
		t.Errorf("%d servers after Close, want 0", n)
	}
}

// After a caller gives up, others can use the server.
func TestCallerGivesUp(t *testing.T) {
	lang := fakeLanguage(t, "answers")
	p, root, files, _ := space(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Symbols(ctx, root, lang, files, "log"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if _, err := p.Symbols(t.Context(), root, lang, files, "log"); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

func TestFind(t *testing.T) {
	const text = "worlds worldly\n  hello_world(𝄞, world) // world\nWorld é.world\n"
	for _, tt := range []struct {
		name string
		line int
		want string
	}{
		{"world", 1, "1:18"}, {"world", 2, "1:18"}, {"world", 3, "2:8"}, {"world", 4, "no"},
		{"World", 0, "2:0"}, {"hello_world", 1, "1:2"}, {"none", 1, "no"}, {"é", 1, "2:6"},
	} {
		at, ok := findWord(text, tt.name, tt.line)
		got := fmt.Sprintf("%d:%d", at.Line, at.Character)
		if !ok {
			got = "no"
		}
		if got != tt.want {
			t.Errorf("%s from %d: %s, want %s", tt.name, tt.line, got, tt.want)
		}
	}
}

func TestURIs(t *testing.T) {
	for _, path := range []string{"/a/b.go", "/a b/ü#%?.go", "/"} {
		if got := pathOf(uriOf(path)); got != path {
			t.Errorf("by %s: got %q, want %q", uriOf(path), got, path)
		}
	}
	if got := pathOf("file:///a%20b/c%3Ad"); got != "/a b/c:d" {
		t.Errorf("got %q, want %q", got, "/a b/c:d")
	}
	if pathOf("untitled:x") != "" || pathOf("%") != "" {
		t.Error("pathOf of something that is no file has a path, want none")
	}
}

func TestLanguages(t *testing.T) {
	for path, want := range map[string]string{"a.go": "Go", "x/a.pyi": "Python",
		"a.mts": "TypeScript",
		"a.jsx": "TypeScript", "a.txt": "", "go": ""} {
		var got string
		if l := Of(Languages, path); l != nil {
			got = l.Name
		}
		if got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	// The compiler beside the server, not the workspace's.
	dir := t.TempDir()
	bin := filepath.Join(dir, "node_modules", "typescript-language-server", "lib", "cli.mjs")
	lib := filepath.Join(dir, "node_modules", "typescript", "lib", "tsserver.js")
	for _, f := range []string{bin, lib} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(f), 0o755),
			os.WriteFile(f, nil, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "tls")
	if err := os.Symlink(bin, link); err != nil {
		t.Fatal(err)
	}
	resolved, _ := filepath.EvalSymlinks(lib)
	if got := fmt.Sprint(bundledTypeScript(link)); got != fmt.Sprintf(
		"map[disableAutomaticTypingAcquisition:true "+
			"tsserver:map[path:%s]]", resolved) {
		t.Errorf("got %s, want the resolved path %s", got, resolved)
	}
	if err := Of(Languages, "x.ts").check("/bin/sh"); err == nil ||
		!strings.Contains(err.Error(), "that of the workspace is not run") {
		t.Errorf("without one beside it: %v, want %q in it", err,
			"that of the workspace is not run")
	}
}

// A server of the user's takes the place of those that have one of its endings, and stays the same
// one.
func TestOwnServers(t *testing.T) {
	own := []tools.LanguageServer{
		{Name: "rust", Command: []string{"rust-analyzer"},
			Languages: map[string]string{".rs": "rust"}},
		{Name: "deno", Command: []string{"/opt/deno", "lsp"},
			Languages: map[string]string{".ts": "typescript"}},
	}
	all := With(own)
	for path, want := range map[string]string{"a.rs": "rust", "a.ts": "deno", "a.tsx": "",
		"a.go": "Go",
		"a.py": "Python"} {
		got := ""
		if l := Of(all, path); l != nil {
			got = l.Name
		}
		if got != want {
			t.Errorf("%s is of %q, want %q", path, got, want)
		}
	}
	if again := With(own); again[0] != all[0] {
		t.Error("the same server is another one, so it would be started again")
	}
	if all[1].Installed(t.TempDir()) {
		t.Error("/opt/deno is installed")
	}
}
