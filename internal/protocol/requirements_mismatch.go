package protocol

import (
	"fmt"
	"slices"
	"strings"
)

// mismatch says why a value does not fit a schema.
type mismatch struct {
	places []string // JSON pointers of the schemas, the innermost first
	text   string
}

func mismatchf(format string, args ...any) *mismatch {
	return &mismatch{text: fmt.Sprintf(format, args...)}
}

// within adds the place of the schema around. A nil mismatch stays nil.
func (m *mismatch) within(r *requirements) *mismatch {
	if m != nil {
		m.places = append(m.places, r.at)
	}
	return m
}

// String writes the places, outermost first, and the text. Of places that begin with each other it shows the longest;
// of a recursive schema it shows the first place and the last.
func (m *mismatch) String() string {
	var places []string
	for _, at := range slices.Backward(m.places) {
		switch n := len(places); {
		case n > 0 && strings.HasPrefix(at, places[n-1]+"/"):
			places[n-1] = at
		case at != "" && (n == 0 || places[n-1] != at):
			places = append(places, at)
		}
	}
	if n := len(places); n > 2 {
		places = []string{places[0], places[n-1]}
	}
	return strings.Join(append(places, m.text), ": ")
}

// evaluated notes which parts of a value a schema has checked. unevaluatedItems and unevaluatedProperties need it.
// A nil evaluated notes nothing.
type evaluated struct {
	allItems, allMembers bool
	tuple                int // the items before this index
	items                map[int]bool
	members              map[string]bool
}

func (e *evaluated) item(i int) {
	if e == nil {
		return
	}
	if e.items == nil {
		e.items = map[int]bool{}
	}
	e.items[i] = true
}

func (e *evaluated) member(name string) {
	if e == nil {
		return
	}
	if e.members == nil {
		e.members = map[string]bool{}
	}
	e.members[name] = true
}

func (e *evaluated) add(other *evaluated) {
	if e == nil || other == nil {
		return
	}
	e.allItems, e.allMembers = e.allItems || other.allItems, e.allMembers || other.allMembers
	e.tuple = max(e.tuple, other.tuple)
	for i := range other.items {
		e.item(i)
	}
	for name := range other.members {
		e.member(name)
	}
}
