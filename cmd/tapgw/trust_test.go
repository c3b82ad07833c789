package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/configs"
	"tapgw/internal/cli"
)

// TestTrustShowsAll: who trusts a file sees all of it. No terminal sequence takes a
// part of a difference or of a name away.
func TestTrustShowsAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a\x1b[2K\nb")
	file := filepath.Join(dir, ".tapgw", "tapgw.toml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	change := configs.Change{
		Path: "x\u202ey.toml",
		What: "changed",
		Old:  []byte("x\n"),
		New:  []byte("# \x1b]\ncommand = [\"evil\"]\n# \a\n"),
	}
	if err := showTrust(&cli.Output{W: &out, Err: &out}, dir, []configs.Change{change},
		false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`a\x1b[2K\nb`, `x\u202ey.toml`, `# \x1b]`, `command = ["evil"]`,
		`# \x07`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not shown: %s, in\n%q", want, out.String())
		}
	}
}
