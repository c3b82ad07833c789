package library_docs //nolint:revive,staticcheck // see doc.go

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

func TestResolve(t *testing.T) {
	mine := Library{ID: "mine", Aliases: []string{"jdk", "acme/mine"}}
	pw := Library{ID: "pw"}
	bundled := Bundled()
	tests := []struct {
		name string
		with Catalog // before the bundled ones
		want string
	}{
		{"playwright", nil, "playwright"},
		{"PlayWright", nil, "playwright"},
		{"  playwright\n", nil, "playwright"},
		{"pw", nil, "playwright"},
		{"@playwright/test", nil, "playwright"},
		{"playwright@1.65", nil, "playwright"},
		{"@playwright/test@latest", nil, "playwright"},
		{"microsoft/playwright", nil, "playwright"},
		{"/microsoft/playwright", nil, "playwright"},
		{"/microsoft/playwright/", nil, "playwright"},
		{"com.microsoft.playwright:playwright", nil, "playwright"},
		{"SeleniumHQ/selenium", nil, "selenium"},
		{"someone/selenium", nil, "selenium"},
		{"/someone/selenium", nil, ""}, // an ID of Context7
		{"webdriver", nil, "selenium"},
		{"org.seleniumhq.selenium:selenium-java:4.51.0", nil, "selenium"},
		{"io.cucumber:cucumber-java", nil, "cucumber"},
		{"Given-When-Then", nil, "gherkin"},
		{"BDD", nil, "gherkin"},
		{"java-lang", nil, "java"},
		{"react", nil, ""},
		{"", nil, ""},
		{"/", nil, ""},
		{"@", nil, ""},
		{"a:", nil, ""},
		{"javascript", nil, ""}, // whole names only
		{"jdk", Catalog{mine}, "mine java"},
		{"acme/mine", Catalog{mine}, "mine"},
		{"pw", Catalog{mine, pw}, "pw playwright"}, // an ID before an alias
		{"pw", Catalog{{ID: "other", Aliases: []string{"pw"}}, pw}, "pw other playwright"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found := Catalog(append(slices.Clone(tt.with), bundled...)).Resolve(tt.name)
			if got := strings.Join(Catalog(found).IDs(), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	for id, names := range aliases {
		for _, name := range append(names, id) {
			if found := bundled.Resolve(name); len(found) != 1 || found[0].ID != id {
				t.Errorf("%q does not find %s, want 1 of them and ID %v", name, id, id)
			}
		}
	}
}

// write lays files into a new directory.
func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoad(t *testing.T) {
	dir := write(t, map[string]string{
		"acme/2.md":       "## Second\n\nzebra\n",
		"acme/1.md":       "# Acme\n\nWhat it is.\n\n## First\n\nquagga\n",
		"acme/aliases":    "# other names\nAcme-Client\n\n@acme/sdk  # npm\n",
		"acme/notes.txt":  "ignored",
		"acme/sub/x.md":   "## Ignored\n",
		"java/mine.md":    "## Our Java\n\nhouse rules\n",
		"README.md":       "ignored\n",
		".git/x.md":       "## Ignored\n",
		"_drafts/x.md":    "## Ignored\n",
		"Upper/x.md":      "## X\n",
		"empty/README":    "no page\n",
		"blank/x.md":      " \n",
		"selenium/bad.md": "## \xff\xfe\n",
		"huge/x.md":       "## X\n" + strings.Repeat("x", maxLibraryBytes),
	})
	c, err := Load(dir)
	if got, want := strings.Join(c.IDs(),
		" "), "acme java cucumber gherkin mermaid playwright selenium"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, want := range []string{
		dir,
		"Upper: not an ID",
		"empty: no documentation",
		"blank: no documentation",
		"selenium: selenium/bad.md: not UTF-8 text",
		"huge: huge/x.md: more than 4 MiB",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not in the error: %q: %v, want an error and %q in it", want, err, want)
		}
	}
	if err != nil && strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("the error is %v, want one line for each broken library", err)
	}

	acme := c.Resolve("@Acme/SDK")
	if len(acme) != 1 || acme[0].ID != "acme" || acme[0].Title != "Acme" ||
		acme[0].Description != "What it is." {
		t.Fatalf("got %+v, want acme alone", acme)
	}
	if got, want := headings(acme[0].Sections), "First Second"; got != want {
		t.Errorf("sections %q, want %q", got, want)
	}
	if got := acme[0].Search("zebra", 4000); got != "## Second\n\nzebra" {
		t.Errorf("got %q, want %q", got, "## Second\n\nzebra")
	}
	java := c.Resolve("java")
	if len(java) != 1 || java[0].Title != "java" || headings(java[0].Sections) != "Our Java" {
		t.Errorf(
			`the user's java does not replace the bundled one: got %+v, want 1 of them, Title "java" and "Our Java"`,
			java,
		)
	}
	if selenium := c.Resolve("selenium"); len(selenium) != 1 || len(selenium[0].Sections) < 15 {
		t.Error("a broken library replaces the bundled selenium, want the bundled one")
	}
}

func TestLoadWithoutDirectory(t *testing.T) {
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "none"), t.TempDir()} {
		c, err := Load(dir)
		if err != nil || len(c) != len(Bundled()) {
			t.Errorf("%q: %d libraries, %v, want no error and %d", dir, len(c), err, len(Bundled()))
		}
	}
	file := filepath.Join(write(t, map[string]string{"x": ""}), "x")
	if c, err := Load(file); err == nil || len(c) != len(Bundled()) {
		t.Errorf("a file: %d libraries, %v, want an error and %d", len(c), err, len(Bundled()))
	}
}

func TestLoadOddFiles(t *testing.T) {
	dir := write(t, map[string]string{"real/x.md": "## X\n", "pipe/y.md": "## Y\n",
		"locked/x.md": "## X\n"})
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe", "x.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "real"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "locked", "aliases"), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := Load(dir)
	if got, want := strings.Join(c.IDs()[:2], " "), "link real"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, want := range []string{"pipe: pipe/x.md: not a regular file",
		"locked: locked/aliases: not a regular file"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not in the error: %q: %v, want an error and %q in it", want, err, want)
		}
	}
}

// TestLoadUnreadable uses a file system that refuses, since root may read all.
func TestLoadUnreadable(t *testing.T) {
	c, err := load(refusing{fstest.MapFS{"bad/x.md": {}, "good/x.md": {Data: []byte("## X\n")}}})
	if got := strings.Join(c.IDs(), " "); got != "good" {
		t.Errorf("got %q, want %q", got, "good")
	}
	if err == nil || !strings.HasPrefix(err.Error(), "bad: ") ||
		!strings.Contains(err.Error(), "permission denied") {
		t.Errorf("got %v, want %q at the beginning and %q in it", err, "bad: ", "permission denied")
	}
}

type refusing struct{ fstest.MapFS }

func (f refusing) Open(name string) (fs.File, error) {
	if name == "bad/x.md" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.MapFS.Open(name)
}
