package shellrule_test

import (
	"slices"
	"testing"

	"tapgw/internal/shellrule"
)

// Only a part without which the line can't end with 0 decides.
func TestDeciding(t *testing.T) {
	for line, want := range map[string][]string{
		"make test":                             {"make test"},
		"  make test # slow":                    {"make test"},
		"A=1 make test 2>&1 >log":               {"A=1 make test 2>&1 >log"},
		"cd a && make test":                     {"cd a && make test"},
		"cd a; make test":                       {"make test"},
		"cd a\nmake test\n":                     {"make test"},
		"make test; true":                       {"true"},
		"make test\necho done":                  {"echo done"},
		"make test || true":                     nil,
		"cd a && make test || true":             nil,
		"make test || exit 1":                   nil,
		"true || false && make test":            {"make test"},
		"! make test":                           nil,
		"make test &":                           nil,
		"make test & wait":                      {"wait"},
		"make test | tail -5":                   {"tail -5"},
		"make test |& tee log | tail":           {"tail"},
		"make test | tail && make lint":         {"tail", "make lint"},
		"set -o pipefail; make test | tail":     {"make test | tail"},
		"set -euo pipefail\nmake test | tail":   {"make test | tail"},
		"set -o pipefail && make test | tail":   {"set -o pipefail && make test | tail"},
		"set -o pipefail; make test; a | b":     {"a | b"},
		"set +o pipefail; make test | tail":     {"tail"},
		"set -o pipefail; set +o pipefail; a|b": {"b"},
		"false && set -o pipefail; a | b":       {"b"},
		"set -o pipefail | true; a | b":         {"b"},
		"x | { set -o pipefail; }; a | b":       {"b"},
		"find . -exec rm {} \\; ;":              {"find . -exec rm {} \\;"},
		"(set -o pipefail); a | b":              {"b"},
		"echo set -o pipefail; a | b":           {"b"},
		"(cd a && make test)":                   {"cd a && make test"},
		"{ make test; }":                        {"make test"},
		"{ make test; true; }":                  {"true"},
		"(make test; true) && a":                {"true", "a"},
		"time make test":                        {"make test"},
		"time":                                  nil,
		"if make test; then true; fi":           nil,
		"while ! make test; do sleep 1; done":   nil,
		"make() { true; }":                      nil,
		"true # make test":                      {"true"},
		"":                                      nil,
	} {
		if got, ok := shellrule.Deciding(line); !ok || !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v, want %q", line, got, ok, want)
		}
	}
	for _, line := range []string{"make test; (", "'", string(make([]byte, 5<<10))} {
		if got, ok := shellrule.Deciding(line); ok {
			t.Errorf("%.20q: got %q, want that it can't be read", line, got)
		}
	}
}
