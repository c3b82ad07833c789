package copilot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestDeniedBelow(t *testing.T) {
	cwd := t.TempDir()
	for _, name := range []string{"a/b/.env", "plain/x", "real/key", "empty/private"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(cwd, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if name == "empty/private" {
			continue
		}
		if err := os.WriteFile(filepath.Join(cwd, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"plain/link": "../a/b/.env", "plain/dir": "../a",
		"named": "real"} {
		if err := os.Symlink(to, filepath.Join(cwd, from)); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		root string
		deny []string
		want bool
	}{
		"two levels":              {"a", []string{"**/.env"}, true},
		"the session's directory": {".", []string{"a/b/.env"}, true},
		// the search follows no link
		"beside":                {"plain", []string{"**/.env", "a/**"}, false},
		"by a link":             {"named", []string{"named/**"}, true},
		"by its target":         {"named", []string{"real/*"}, true},
		"a glob through a link": {"real", []string{"named/key"}, true},
		"no file":               {"empty", []string{"empty/**"}, false},
		"a file":                {"plain/x", []string{"**"}, false},
		"nothing":               {"none", []string{"**"}, false},
	} {
		_, err := deniedBelow(filepath.Join(cwd, tt.root), cwd, tt.deny)
		if errors.Is(err, errFound) != tt.want || err != nil && !tt.want {
			t.Errorf("%s: deniedBelow(%s, %q) = %v, want found %v", name, tt.root, tt.deny, err,
				tt.want)
		}
	}
}
