package extension

import (
	"strings"
	"testing"
)

func TestSourceQuotesTheProgram(t *testing.T) {
	got := string(Source(`C:\a "b"\tapgw.exe`))
	if want := `spawn("C:\\a \"b\"\\tapgw.exe", ["terminal", "--ensure"]`; !strings.Contains(got,
		want) {
		t.Errorf("the source has no %s:\n%s", want, got)
	}
	if n := strings.Count(got, "\n"); n >= 40 {
		t.Errorf("the source has %d lines, want fewer than 40", n)
	}
}
