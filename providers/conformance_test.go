package providers_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"tapgw/internal/conformance"
)

// conforms judges a provider by the rules of the protocol.
func conforms(t *testing.T, o conformance.ProviderOptions, command ...string) {
	t.Helper()
	o.Command = command
	report, err := conformance.Provider(t.Context(), o, func(conformance.Result) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Outcome == conformance.Failed || r.Outcome == conformance.Advice {
			t.Errorf("rule %s: %s, want passed\n%s", r.ID, r.Outcome, r.Explanation())
		}
	}
	if report.Passed < 40 {
		t.Errorf("%d rules passed, want at least 40", report.Passed)
	}
	if t.Failed() {
		t.Logf("it wrote: %q", report.Stderr)
	}
}

// playSDK plays the scenarios with the sample program of an SDK.
func playSDK(t *testing.T, command ...string) {
	t.Helper()
	t.Parallel()
	report, err := conformance.SDK(t.Context(), command, nil, func(r conformance.Result) {
		if r.Outcome != conformance.Passed {
			t.Errorf("%s: %s, want passed\n%s", r.ID, r.Outcome, r.Explanation())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if t.Failed() {
		t.Logf("the samples wrote: %q", report.Stderr)
	}
}

// kitCalls are the calls that the kit makes to a sample.
func kitCalls() conformance.ProviderOptions {
	return conformance.ProviderOptions{Tool: "echo", Args: json.RawMessage(`{"text":"hi"}`),
		SlowTool: "slow"}
}

// TestGoConforms judges the templates in Go.
func TestGoConforms(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	bin := t.TempDir()
	for _, name := range []string{"hello", "guard", "ci-review"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(bin, name)
			build := exec.CommandContext(t.Context(), "go", "build", "-o", program,
				"./templates/"+name)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("building %s: %v\n%s", name, err, out)
			}
			conforms(t, conformance.ProviderOptions{}, program)
		})
	}
}

// TestPythonConforms judges the samples of the Python SDK, and the templates in Python.
func TestPythonConforms(t *testing.T) {
	_ = python(t) // not in a short run
	sdk, err := filepath.Abs("python")
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, o conformance.ProviderOptions, program ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conforms(t, o, append([]string{"env", "PYTHONPATH=" + sdk, systemPython, "-B"},
				program...)...)
		})
	}
	for _, name := range []string{"echo", "all"} {
		run(name, kitCalls(), filepath.Join("python", "tests", "sample.py"), name)
	}
	for _, file := range []string{"python/provider.py", "git-watch/git_watch.py",
		"sast-triage/sast_triage.py"} {
		run(filepath.Dir(file), conformance.ProviderOptions{}, filepath.Join("templates", file))
	}
}
