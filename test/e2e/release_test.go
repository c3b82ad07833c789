//go:build e2e && linux

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRelease builds the programs as a release does: they tell its version, and
// their manual pages have every command and every flag that the shell completes.
func TestRelease(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile(filepath.Join(repo, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ldflags := regexp.MustCompile(`(?m)^ +- (.*-X tapgw/.*)$`).FindSubmatch(config)
	if ldflags == nil {
		t.Fatal("the release has no linker flags, want some")
	}
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath",
		"-ldflags", strings.ReplaceAll(string(ldflags[1]), "{{ .Tag }}", "v9.8.7"), "-o", bin+"/",
		"./cmd/...")
	build.Dir = repo
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	programs, err := filepath.Glob(filepath.Join(bin, "*"))
	if err != nil || len(programs) != 3 {
		t.Fatalf("it has %v (%v), want three programs", programs, err)
	}
	for _, program := range programs {
		name := filepath.Base(program)
		if !strings.Contains(string(config), "main: ./cmd/"+name+"\n") {
			t.Errorf("the release leaves out %s, want it in the builds", name)
		}
		p := printer{t, program}
		if got := p.print("--version"); !strings.HasPrefix(got, name+" v9.8.7 (") {
			t.Errorf("version %s, want %q at its start", got, name+" v9.8.7 (")
		}
		page := newManual(p.print("man"))
		p.check(page, nil, page.sections["COMMON FLAGS"])
		if commands := len(page.sections); commands < 10 {
			t.Errorf("%s: the page has %d sections, want at least 10", name, commands)
		}
	}
}

// printer runs a program that prints something and ends.
type printer struct {
	t       *testing.T
	program string
}

func (p printer) print(args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), p.program, args...)
	cmd.Env = []string{"HOME=" + root, "COPILOT_HOME=" + filepath.Join(root, "none")}
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("%s %q: %v", filepath.Base(p.program), args, err)
	}
	return string(out)
}

// check looks for a command and those below it. Flags of the commands above hold
// for it, too.
func (p printer) check(page manual, path []string, above string) {
	p.t.Helper()
	name := strings.Join(append([]string{filepath.Base(p.program)}, path...), " ")
	section := above
	if len(path) > 0 {
		own, ok := page.sections[name]
		if !ok {
			p.t.Errorf("no section on %s, want one", name)
			return
		}
		section += own
	}
	for line := range strings.Lines(p.print(slices.Concat([]string{"__complete"}, path,
		[]string{"--"})...)) {
		flag, _, _ := strings.Cut(line, "\t")
		if !strings.Contains(section, `\fB`+strings.ReplaceAll(flag, "-", `\-`)+`\fR`) {
			p.t.Errorf("%s: nothing on %s, want it named", name, flag)
		}
	}
	for line := range strings.Lines(p.print(slices.Concat([]string{"__complete"}, path,
		[]string{""})...)) {
		word, _, _ := strings.Cut(line, "\t")
		below := slices.Concat(path, []string{word})
		// Else it is an argument.
		if help := p.print(append(slices.Clone(below), "--help")...); strings.Contains(help,
			"Usage:\n  "+name+" "+word+" ") {
			p.check(page, below, section)
		}
	}
}

// manual is a page by its sections; those on commands are named after them.
type manual struct{ sections map[string]string }

// arguments are what stands behind a command in its title: ID, [FILE], bash|zsh, -- CMD.
var arguments = regexp.MustCompile(` (--|[a-z]*[^a-z -]).*`)

func newManual(page string) manual {
	m := manual{map[string]string{}}
	for _, part := range regexp.MustCompile(`(?m)^\.S[HS] "`).Split(page, -1)[1:] {
		title, text, _ := strings.Cut(part, "\"\n")
		if title = strings.ReplaceAll(title, `\-`, "-"); strings.ToUpper(title) != title {
			title = arguments.ReplaceAllString(title, "")
		}
		m.sections[title] += text
	}
	return m
}
