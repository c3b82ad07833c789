package code

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// sortByLine sorts lines of the form PATH:LINE: TEXT by path and line number.
func sortByLine(lines []string) {
	at := func(s string) (string, int) {
		path, rest, _ := strings.Cut(s, ":")
		number, _, _ := strings.Cut(rest, ":")
		n, _ := strconv.Atoi(number)
		return path, n
	}
	slices.SortStableFunc(lines, func(a, b string) int {
		pa, na := at(a)
		pb, nb := at(b)
		return cmp.Or(strings.Compare(pa, pb), cmp.Compare(na, nb))
	})
}

// sortedValues are a map's values in the order of their keys.
func sortedValues(m map[string][]string) (values [][]string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[k])
	}
	return values
}
