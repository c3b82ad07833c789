package conversations

import "testing"

func TestFenced(t *testing.T) {
	for text, want := range map[string]string{
		"x":          "```\nx\n```\n",
		"a ``` b":    "````\na ``` b\n````\n",
		"````\n````": "`````\n````\n````\n`````\n",
	} {
		if got := fenced("", text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
