package code

import (
	"slices"
	"testing"

	"tapgw/tools/internal/lsp"
)

func TestNames(t *testing.T) {
	for symbol, want := range map[string]string{"f": "f", "T.f": "f", "a::b": "b", "A#m()": "m",
		"pkg/x.T.f": "f",
		"":          ""} {
		if got := lastPart(symbol); got != want {
			t.Errorf("the last part of %q is %q, want %q", symbol, got, want)
		}
	}
	tests := []struct {
		name, container, asked string
		want                   bool
	}{
		{"f", "", "f", true}, {"f", "x", "f", true}, {"f", "T", "T.f", true},
		{"T.f", "x", "T.f", true}, {"T.f", "x", "f", true},
		{"ff", "", "f", false}, {"f", "x", "T.f", false}, {"UT.f", "x", "T.f", false},
		{"F", "", "f", false},
	}
	for _, tt := range tests {
		if got := isNamed(lsp.Symbol{Name: tt.name, Container: tt.container},
			tt.asked); got != tt.want {
			t.Errorf("%s in %q for %s: %v, want %v", tt.name, tt.container, tt.asked, got, tt.want)
		}
	}
}

func TestSortByLine(t *testing.T) {
	lines := []string{"b.go:2: x", "a.go:10: x", "a.go:9: y", "a.go:9: x", "no line"}
	sortByLine(lines)
	if want := []string{"a.go:9: y", "a.go:9: x", "a.go:10: x", "b.go:2: x",
		"no line"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}
