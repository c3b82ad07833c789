package cluster

import (
	"slices"
	"testing"

	"tapgw/internal/protocol"
)

func TestMergedLists(t *testing.T) {
	list := func(ids ...string) (l []protocol.SessionInfo) {
		for _, id := range ids {
			l = append(l, protocol.SessionInfo{ID: id, Label: "of " + id, Foreground: id == "f" ||
				id == "g"})
		}
		return l
	}
	var l lists
	own := l.shared(list("a", "f"))
	if again := l.shared(list("a", "f")); !isSameList(own, again) {
		t.Error("an equal list of another provider is another one, want them to share it")
	}
	for _, tc := range []struct {
		parts [][]protocol.SessionInfo
		want  []string // with a star in the foreground
	}{
		{[][]protocol.SessionInfo{own}, []string{"a", "f*"}},
		{[][]protocol.SessionInfo{own, list("b", "g")}, []string{"a", "f*", "b", "g"}},
		{[][]protocol.SessionInfo{nil, list("b", "g"), list("g", "c", "f")},
			[]string{"b", "g*", "c", "f"}},
		{[][]protocol.SessionInfo{nil, nil}, nil},
		{[][]protocol.SessionInfo{own, list("b", "g")}, []string{"a", "f*", "b", "g"}},
	} {
		whole := l.merge(tc.parts)
		var got []string
		for _, s := range whole {
			if s.Foreground {
				s.ID += "*"
			}
			got = append(got, s.ID)
		}
		if !slices.Equal(got, tc.want) || whole == nil {
			t.Errorf("%v became %v, want %v", tc.parts, got, tc.want)
		}
		if !isSameList(whole, l.merge(slices.Clone(tc.parts))) {
			t.Errorf("%v: the next provider gets another list, want the same", got)
		}
	}
}
