package diff

import (
	"slices"
	"sort"

	"github.com/aymanbagabas/go-udiff/lcs"
)

// change says that the lines a to aEnd of the old version become the lines b to bEnd of the new one.
type change struct{ a, aEnd, b, bEnd int }

// pair is a line that both versions have, at a in the old one and at b in the new one.
type pair struct{ a, b int }

// compare returns the changes from a to b in their order. Lines that occur exactly once in both versions divide the
// texts into passages, and the library compares each passage. The library looks for at most 50 differences and then
// replaces the rest, so without this division a file with 60 changed lines would be replaced as a whole.
func compare(a, b []string) (changes []change) {
	add := func(c change) {
		if c.a == c.aEnd && c.b == c.bEnd {
			return
		}
		if n := len(changes); n > 0 && changes[n-1].aEnd == c.a && changes[n-1].bEnd == c.b {
			changes[n-1].aEnd, changes[n-1].bEnd = c.aEnd, c.bEnd
			return
		}
		changes = append(changes, c)
	}
	at := pair{}
	for _, next := range append(anchors(a, b), pair{len(a), len(b)}) {
		passage(a, b, change{at.a, next.a, at.b, next.b}, add)
		at = pair{next.a + 1, next.b + 1}
	}
	return changes
}

// passage adds the changes within the passage p.
func passage(a, b []string, p change, add func(change)) {
	for p.a < p.aEnd && p.b < p.bEnd && a[p.a] == b[p.b] {
		p.a++
		p.b++
	}
	for p.a < p.aEnd && p.b < p.bEnd && a[p.aEnd-1] == b[p.bEnd-1] {
		p.aEnd--
		p.bEnd--
	}
	if p.a == p.aEnd || p.b == p.bEnd {
		add(p)
		return
	}
	for _, d := range lcs.DiffLines(a[p.a:p.aEnd], b[p.b:p.bEnd]) {
		add(change{p.a + d.Start, p.a + d.End, p.b + d.ReplStart, p.b + d.ReplEnd})
	}
}

// anchors returns lines that occur once in a and once in b, as many as stand in the same order in both.
func anchors(a, b []string) []pair {
	const several = -1
	place := make(map[string]pair, len(a)) // of lines: indexes from 1, 0 for none, or several
	for i, l := range a {
		if _, ok := place[l]; ok {
			place[l] = pair{several, several}
		} else {
			place[l] = pair{a: i + 1}
		}
	}
	for i, l := range b {
		switch p, ok := place[l]; {
		case !ok || p.a == several:
		case p.b != 0:
			place[l] = pair{several, several}
		default:
			place[l] = pair{p.a, i + 1}
		}
	}
	var pairs []pair
	for i, l := range a {
		if p := place[l]; p.a == i+1 && p.b > 0 {
			pairs = append(pairs, pair{i, p.b - 1})
		}
	}
	return rising(pairs)
}

// rising returns a longest part of the pairs, which are in the order of a, that is also in the order of b.
func rising(pairs []pair) []pair {
	var last []int                    // last[n] ends a rising part of n+1 pairs
	before := make([]int, len(pairs)) // the pair before in that part, -1 for none
	for i, p := range pairs {
		n := sort.Search(len(last), func(n int) bool { return pairs[last[n]].b >= p.b })
		before[i] = -1
		if n > 0 {
			before[i] = last[n-1]
		}
		if n == len(last) {
			last = append(last, i)
		} else {
			last[n] = i
		}
	}
	if len(last) == 0 {
		return nil
	}
	var list []pair
	for i := last[len(last)-1]; i >= 0; i = before[i] {
		list = append(list, pairs[i])
	}
	slices.Reverse(list)
	return list
}
