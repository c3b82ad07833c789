package dashboard

import (
	"compress/gzip"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// ask returns the answer to a request, with a header where there is one.
func ask(method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	// As behind the guard, which says the contrary for everything else.
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'")
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/", 200, "text/html; charset=utf-8"},
		{"GET", "/?a=query", 200, "text/html; charset=utf-8"},
		{"GET", "/page/main.js", 200, "text/javascript; charset=utf-8"},
		{"HEAD", "/page/main.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/page/style.css", 200, "text/css; charset=utf-8"},
		{"GET", "/page/icon.svg", 200, "image/svg+xml"},
		{"GET", "/page/icon-waiting.svg", 200, "image/svg+xml"},
		{"POST", "/", 405, "text/plain; charset=utf-8"},
		{"DELETE", "/page/main.js", 405, "text/plain; charset=utf-8"},
		{"GET", "/page/", 404, "text/plain; charset=utf-8"},
		{"GET", "/page", 404, "text/plain; charset=utf-8"},
		{"GET", "/page/index.html", 404, "text/plain; charset=utf-8"},
		{"GET", "/page/nothing.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/page/../dashboard.go", 404, "text/plain; charset=utf-8"},
		{"GET", "/dashboard.go", 404, "text/plain; charset=utf-8"},
	} {
		r := ask(test.method, test.path)
		if r.StatusCode != test.status || r.Header.Get("Content-Type") != test.kind {
			t.Errorf("%s %s: %d %s, want %d %s", test.method, test.path, r.StatusCode,
				r.Header.Get("Content-Type"), test.status, test.kind)
		}
		if text := body(t, r); (text == "") != (test.method == "HEAD") {
			t.Errorf(
				"%s %s has a body of %d bytes, want one: %v",
				test.method, test.path, len(text), test.method != "HEAD",
			)
		}
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "/page/main.js", "/page/filter-worker.js"} {
		h := ask("GET", path).Header
		directives := strings.Split(h.Get("Content-Security-Policy"), "; ")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'",
			"connect-src 'self'", "img-src 'self'",
			"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
			"require-trusted-types-for 'script'"} {
			if !slices.Contains(directives, want) {
				t.Errorf("%s: the policy is %q, want %s in it", path, directives, want)
			}
		}
		if text := strings.Join(directives, " "); strings.Contains(text, "unsafe") ||
			strings.Contains(text, "http") || strings.Contains(text, "*") {
			t.Errorf(`%s: the policy is %q, want no "unsafe", no "http" and no "*" in it`, path,
				text)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s may be sniffed, want nosniff", path)
		}
	}
}

func TestCaching(t *testing.T) {
	t.Parallel()
	tags := map[string]bool{}
	for _, path := range []string{"/", "/page/main.js", "/page/style.css"} {
		first := ask("GET", path)
		tag := first.Header.Get("ETag")
		if first.Header.Get("Cache-Control") != "no-cache" || !strings.HasPrefix(tag, `"`) ||
			tags[tag] {
			t.Errorf(
				`%s is cached by %q %q, want "no-cache" and a tag of its own`,
				path, first.Header.Get("Cache-Control"), tag,
			)
		}
		tags[tag] = true
		if again := ask("GET", path, "If-None-Match",
			tag); again.StatusCode != http.StatusNotModified ||
			body(t, again) != "" {
			t.Errorf(
				`%s, which has not changed, is answered with %d, want StatusCode %v and ""`,
				path, again.StatusCode, http.StatusNotModified,
			)
		}
		if changed := ask("GET", path, "If-None-Match",
			`"another"`); changed.StatusCode != http.StatusOK {
			t.Errorf("%s, which has changed, is answered with %d, want %v", path,
				changed.StatusCode, http.StatusOK)
		}
	}
}

// A browser that takes gzip gets the same bytes in fewer, with an ETag of their own.
func TestCompressed(t *testing.T) {
	t.Parallel()
	plain := ask("GET", "/page/main.js")
	want := body(t, plain)
	for accepted, isPacked := range map[string]bool{"gzip": true, "gzip, deflate, br, zstd": true,
		"br;q=1.0, GZIP;q=0.5": true, "": false, "identity": false, "gzip;q=0": false,
		"br, gzip; q=0.0": false,
		"xgzip":           false} {
		r := ask("GET", "/page/main.js", "Accept-Encoding", accepted)
		hasOwnTag := r.Header.Get("ETag") != plain.Header.Get("ETag")
		if got := r.Header.Get("Content-Encoding") == "gzip"; got != isPacked ||
			hasOwnTag != isPacked || r.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("Accept-Encoding %q: compressed %v, %v, want %v", accepted, got, r.Header,
				isPacked)
		}
		text := body(t, r)
		if isPacked {
			unpacked, err := gzip.NewReader(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(unpacked)
			if err != nil || len(text) > len(want)/2 {
				t.Errorf("%d bytes of %d, %v; want fewer than half", len(text), len(want), err)
			}
			text = string(all)
		}
		if text != want {
			t.Errorf("Accept-Encoding %q: another text of %d bytes, want the file's %d", accepted,
				len(text), len(want))
		}
		again := ask("GET", "/page/main.js", "Accept-Encoding", accepted, "If-None-Match",
			r.Header.Get("ETag"))
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("Accept-Encoding %q, again: %d, want %d", accepted, again.StatusCode,
				http.StatusNotModified)
		}
	}
}

// TestBundle checks that a script has the modules that it imports in it, behind those that they
// import, and that one that is loaded later takes them from there.
func TestBundle(t *testing.T) {
	t.Parallel()
	const loads = "run(() => import(\"./view.js\").then((m) => new m.View()));\n"
	for name, test := range map[string]struct {
		sources, want map[string]string
		fault         string
	}{
		"alone": {map[string]string{"main": "run();\n"}, map[string]string{
			"main": "let $;\n(() => {\nrun();\n$ = [];\n})();\nexport { $ };\n",
		}, ""},
		"others": {map[string]string{
			"main":   "import { a, b as c } from \"./first.js\";\nimport {\n  d,\n} from \"./second.js\";\na(c, d);\n",
			"first":  "import { d } from \"./second.js\";\nexport const a = d;\nexport async function b() {}\n",
			"second": "export class d {}\n",
		}, map[string]string{
			"main": "let $;\n(() => {\nclass d {}\nconst a = d;\nasync function b() {}\nconst c = b;\na(c, d);\n" +
				"$ = [];\n})();\nexport { $ };\n",
		}, ""},
		"later": {map[string]string{
			"main":     "import { a } from \"./first.js\";\n" + loads + "a();\n",
			"first":    "export const a = 1;\nexport const z = 2;\n",
			"view":     "import { a as x } from \"./first.js\";\nimport { b } from \"./last.js\";\nexport const View = x + b;\n",
			"last":     "import { a } from \"./first.js\";\nexport const b = () => a;\n",
			"a-worker": "import { b } from \"./last.js\";\nb();\n",
		}, map[string]string{
			"main": "let $;\n(() => {\nconst a = 1;\nconst z = 2;\n" +
				"run(() => import(\"./later.js\").then((m) => m.$).then((m) => new m.View()));\na();\n" +
				"$ = [a];\n})();\nexport { $ };\n",
			"later": "import { $ as lent } from \"./main.js\";\nlet $;\n(() => {\nconst [a] = lent;\n" +
				"const b = () => a;\nconst x = a;\nconst View = x + b;\n$ = { View };\n})();\nexport { $ };\n",
			"a-worker": "(() => {\nconst a = 1;\nconst z = 2;\nconst b = () => a;\nb();\n})();\n",
		}, ""},
		"none": {map[string]string{"main": "import { a } from \"./first.js\";\n"}, nil,
			"no module first"},
		"circle": {map[string]string{"main": "import { a } from \"./first.js\";\n",
			"first": "import { b } from \"./main.js\";\n"}, nil,
			"first and main import each other"},
		"a name twice": {map[string]string{"main": "import { a } from \"./first.js\";\nconst b = a;\n",
			"first": "export const a = 1;\nfunction b() {}\n"}, nil,
			"first and main both declare b"},
		"a name twice, later": {map[string]string{"main": "const b = 1;\n" + loads,
			"view": "export class View {}\nconst b = 1;\n"}, nil, "main and view both declare b"},
		"loaded later and at first": {map[string]string{"main": "import { View } from \"./view.js\";\n" + loads,
			"view": "export class View {}\n"}, nil,
			"main loads view later, which is there at first"},
	} {
		got, err := bundle(test.sources)
		if (err == nil) != (test.fault == "") || err != nil &&
			!strings.Contains(err.Error(), test.fault) {
			t.Errorf("%s: %v, want %q", name, err, test.fault)
		} else if !maps.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestScope checks that no module means something of the browser by a name that another one
// declares: all modules of a script share one scope.
func TestScope(t *testing.T) {
	t.Parallel()
	declared, used := map[string]string{}, map[string]string{}
	err := fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".js" {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		module, err := js.Parse(parse.NewInputBytes(text), js.Options{})
		if err != nil {
			return err
		}
		imported := map[string]bool{}
		for _, m := range importing.FindAllStringSubmatch(string(text), -1) {
			for _, word := range strings.Fields(strings.ReplaceAll(m[1], ",", " ")) {
				imported[word] = true
			}
		}
		for _, v := range module.Declared {
			declared[string(v.Data)] = name
		}
		for _, v := range module.Undeclared {
			if !imported[string(v.Data)] {
				used[string(v.Data)] = name
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(declared) < 100 || used["document"] == "" {
		t.Errorf("%d names are declared, want all of the page's modules", len(declared))
	}
	for name, by := range used {
		if module := declared[name]; module != "" {
			t.Errorf("%s declares %s, which is the browser's in %s; give it another name", module,
				name, by)
		}
	}
}

// TestFiles checks what the files say of each other, and that none says anything
// that the policy forbids.
func TestFiles(t *testing.T) {
	t.Parallel()
	served, err := read(files)
	if err != nil {
		t.Fatal(err)
	}
	page := string(served["/"].plain.content)
	size, packed := 0, 0
	for at, f := range served {
		text := string(f.plain.content)
		size, packed = size+len(text), packed+len(f.packed.content)
		imports := regexp.MustCompile(`(?:from|import)\s*\(?"\./([^"]+)"|new URL\("([^"]+)"`)
		for _, m := range imports.FindAllStringSubmatch(text, -1) {
			if name := m[1] + m[2]; served["/page/"+name].plain.content == nil {
				t.Errorf("%s imports %s, which is not there, want not nil", at, name)
			}
		}
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML",
			"document.write", "eval(",
			"new Function", `style="`, "cssText", "onclick=\""} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %s, want no %q in it", at, bad, bad)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(m[1], "api/v1/") && served["/"+m[1]].plain.content == nil {
			t.Errorf("the document names %s, which is not there, want not nil", m[1])
		}
	}
	if most, mostPacked := 200_000, 70_000; size > most || packed > mostPacked {
		t.Errorf("the page has %d bytes, %d compressed, want at most %d and %d", size, packed, most,
			mostPacked)
	}
	t.Logf("the page has %d bytes, %d compressed", size, packed)
}
