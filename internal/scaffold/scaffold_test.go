package scaffold

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// go.mod of a new provider requires the modules that the SDK imports, and no others.
func TestGoModules(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-f",
		`{{with .Module}}{{.Path}} {{.Version}}{{end}}`, "./providers")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("listing what the SDK imports: %v", err)
	}
	want := slices.Sorted(strings.Lines(string(out)))
	want = slices.DeleteFunc(slices.Compact(want), func(line string) bool {
		return strings.HasPrefix(line, "tapgw ")
	})

	files := map[string][]byte{}
	if err := addModules(files); err != nil {
		t.Fatal(err)
	}
	for name, more := range map[string][]string{"go.mod": {"tapgw v0.0.0\n"}, "tapgw/go.mod": nil} {
		_, block, _ := strings.Cut(string(files[name]), "require (\n")
		block, _, _ = strings.Cut(block, ")\n")
		got := slices.Sorted(strings.Lines(strings.ReplaceAll(block, "\t", "")))
		if want := slices.Concat(want, more); !slices.Equal(got, want) {
			t.Errorf("%s requires %q, want %q", name, got, want)
		}
	}
}

// A tool's name is a name in every language, and no longer than a tool's name may be.
func TestToolOf(t *testing.T) {
	for name, want := range map[string]string{
		"weather":               "greet_weather",
		"2.The-Weather":         "greet_2_The_Weather",
		strings.Repeat("n", 64): "greet_" + strings.Repeat("n", 58),
	} {
		if got := toolOf(name); got != want {
			t.Errorf("toolOf(%q): got %q, want %q", name, got, want)
		}
	}
}
