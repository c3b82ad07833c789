package builtin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The bundled libraries and those of the user are found without the network.
func TestLibraryTools(t *testing.T) {
	env := space(t, nil)
	dir := filepath.Join(env.Home, "library_docs", "ourlib")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.md"),
		[]byte("# Our library\n\nOf the house.\n\n## Frobnicating\n\nTurn the frob.\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		tool string
		in   args
		want string
	}{
		{"resolve_library_id", args{"libraryName": "pw"}, "playwright"},
		{"resolve_library_id", args{"libraryName": "ourlib", "query": "frob"}, "Our library"},
		{"get_library_docs", args{"libraryId": "playwright", "query": "wait for element"}, "wait"},
		{"get_library_docs", args{"libraryId": "ourlib", "query": "frobnicating"},
			"Turn the frob."},
	} {
		res, err := call(t, env, tt.tool, tt.in)
		if err != nil || !strings.Contains(res.Text(), tt.want) || len([]rune(res.Text())) > 4000 {
			t.Errorf("%s %v: %.300q, %v, want %q in at most 4000 bytes", tt.tool, tt.in, res.Text(),
				err, tt.want)
		}
	}
	if _, err := call(t, env, "get_library_docs", args{"libraryId": "playwright"}); err == nil ||
		!strings.Contains(err.Error(), "query") {
		t.Errorf("without a query: %v, want %q in it", err, "query")
	}
	if _, err := call(t, env, "resolve_library_id", args{"libraryName": ""}); err == nil ||
		!strings.Contains(err.Error(), "libraryName") {
		t.Errorf("without a name: %v, want %q in it", err, "libraryName")
	}
}
