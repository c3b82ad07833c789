package agent

import (
	"testing"

	"tapgw/internal/langserver"
)

func TestExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, typ, result string
		want              int // -1: none
	}{
		{"run_in_terminal", "client", "all good\n[exit code 0]", 0},
		{"run_tests", "client", "(no output)\n[exit code 127]", 127},
		{"run_in_terminal", "client", "[exit code 0]\n[ended by signal: killed]", -1},
		{"run_in_terminal", "shared", "x\n[exit code 0]", -1},
		{"read_file", "client", "x\n[exit code 0]", -1},
	} {
		got, ok := exitCode(langserver.ToolCall{Name: c.name, Type: c.typ, Result: c.result})
		if !ok {
			got = -1
		}
		if got != c.want {
			t.Errorf("%s of type %s, %q: got %d, want %d", c.name, c.typ, c.result, got, c.want)
		}
	}
}
