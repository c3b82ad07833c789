package workspace

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"tapgw/tools"
	"tapgw/tools/builtin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A drop-in replaces the built-in tool of its name, and stands behind the built-in ones else.
func TestTogether(t *testing.T) {
	mine, other := &tools.Tool{Name: "memory", Source: "memory.py"},
		&tools.Tool{Name: "a", Source: "a.py"}
	all := withBuiltins([]*tools.Tool{other, mine})
	if len(all) != len(builtin.All())+1 || !slices.Contains(all, mine) || all[len(all)-1] != other {
		t.Errorf(
			"together they are %d tools, built in are %d; want these first, with memory.py in its place",
			len(all), len(builtin.All()))
	}
}
