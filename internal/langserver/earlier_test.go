package langserver

import (
	"strings"
	"testing"
)

func TestFitEarlier(t *testing.T) {
	turn := func(n int) EarlierTurn {
		return EarlierTurn{strings.Repeat("p", n), strings.Repeat("a", n)}
	}
	const limit = 2000 // tokens: 3000 bytes of earlier turns
	tests := map[string]struct {
		sizes     []int // of prompt and answer each
		fit, left int
		shortened bool
	}{
		"none":                   {},
		"all":                    {[]int{500, 500, 500}, 3, 0, false},
		"the newest":             {[]int{10, 1000, 500}, 2, 1, false},
		"only the newest":        {[]int{10, 10, 1500}, 1, 2, false},
		"too long by itself":     {[]int{10, 1501}, 1, 1, true},
		"one, too long":          {[]int{100_000}, 1, 0, true},
		"a long one breaks off":  {[]int{10, 5000, 10}, 1, 2, false},
		"newest empty, then big": {[]int{5000, 0}, 1, 1, false},
	}
	for name, tt := range tests {
		var all []EarlierTurn
		for _, n := range tt.sizes {
			all = append(all, turn(n))
		}
		fit, left := fitEarlier(all, limit)
		if len(fit) != tt.fit || left != tt.left {
			t.Errorf("%s: got %d turns and %d left out, want %d and %d", name, len(fit), left,
				tt.fit, tt.left)
			continue
		}
		size := 0
		for i, got := range fit {
			size += len(got.Prompt) + len(got.Answer)
			cut := got.Answer != all[left+i].Answer
			if cut != tt.shortened {
				t.Errorf("%s: turn %d is shortened: %v, want %v", name, i, cut, tt.shortened)
			}
		}
		if size > limit*bytesOfToken/earlierShare+300 {
			t.Errorf(
				"%s: %d bytes for %d tokens, want at most %d",
				name, size, limit, limit*bytesOfToken/earlierShare+300,
			)
		}
		isTold := len(fit) > 0 &&
			strings.Contains(fit[0].Prompt, "turns of this conversation are left out")
		if isTold != (left > 0) {
			t.Errorf("%s: the model is told of missing turns: %v, want %v", name, isTold, left > 0)
		}
	}
}
