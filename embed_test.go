package tapgw_test

import (
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"tapgw"
)

// The Go SDK is embedded with every package of the module that it imports, and without tests.
func TestGoSDKIsWhole(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f",
		`{{if eq .ImportPath "tapgw"}}{{else if .Module}}{{$p := .}}{{range .GoFiles}}{{$p.ImportPath}}/{{.}} {{end}}{{end}}`,
		"./providers").Output()
	if err != nil {
		t.Fatalf("listing what the SDK imports: %v", err)
	}
	files := 0
	for file := range strings.FieldsSeq(string(out)) {
		file, ours := strings.CutPrefix(file, "tapgw/")
		if !ours {
			continue // another module's
		}
		files++
		if _, err := fs.Stat(tapgw.Files, file); err != nil {
			t.Errorf("%s is not embedded: %v, want a pattern for it in embed.go", file, err)
		}
	}
	if files < 20 {
		t.Errorf("the SDK has %d files, want at least 20", files)
	}
	err = fs.WalkDir(tapgw.Files, ".", func(file string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, "providers/templates/") {
			t.Errorf("%s is embedded, want no tests of the SDK", file)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// The Python SDK is embedded with all its files.
func TestPythonSDKIsWhole(t *testing.T) {
	files, err := filepath.Glob("providers/python/tapgw/*.*")
	if err != nil || len(files) < 10 {
		t.Fatalf("the SDK has %d files (%v), want at least 10", len(files), err)
	}
	for _, file := range files {
		if _, err := fs.Stat(tapgw.Files, path.Clean(filepath.ToSlash(file))); err != nil {
			t.Errorf("%s is not embedded: %v, want a pattern for it in embed.go", file, err)
		}
	}
}

// The templates are embedded with each file that git has, and no other.
func TestTemplatesAreWhole(t *testing.T) {
	for _, lang := range []string{"hello", "node", "python"} {
		dir := "providers/templates/" + lang
		tracked, err := exec.Command("git", "ls-files", dir).Output()
		if err != nil {
			t.Fatalf("listing %s: %v", dir, err)
		}
		var embedded []string
		err = fs.WalkDir(tapgw.Files, dir, func(file string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				embedded = append(embedded, file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(embedded,
			"\n"), strings.TrimSpace(string(tracked)); got != want {
			t.Errorf("embedded of %s:\n%s\nwant\n%s", dir, got, want)
		}
	}
}
