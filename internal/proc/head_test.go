package proc

import (
	"strings"
	"testing"
)

// A head takes all that is written, and keeps the beginning.
func TestHead(t *testing.T) {
	var h Head
	whole := strings.Repeat("0123456789", maxHead/9+2)
	for part := range strings.SplitSeq(whole, "9") {
		if n, err := h.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("Write(%q) = %d, %v; want %d, nil", part, n, err, len(part))
		}
	}
	if want := strings.ReplaceAll(whole, "9", "")[:maxHead]; h.String() != want {
		t.Errorf("kept %d bytes, want the first %d", len(h.String()), len(want))
	}
}
