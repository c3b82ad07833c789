package match

// Text is a text that several patterns are tried on, one after the other. It caches the results
// that one pattern computed for the next one, so it is not safe for concurrent use.
type Text struct {
	text    string
	missing pairSet // pairs of bytes that the text does not have; empty unless it is indexed
	runes   []rune  // the text as the engine takes it, made when the first pattern asks
}

// NewText returns a text without an index, for the few patterns of a filter.
func NewText(text string) *Text { return &Text{text: text} }

// NewIndexedText returns the text with an index of its pairs of bytes. The index
// takes longer to make than one pattern to try; it pays off for many patterns that
// mostly don't match, as the rules of a session.
func NewIndexedText(text string) *Text {
	t := &Text{text: text}
	if len(text) > maxIndexed {
		return t
	}
	t.missing.add(text)
	for i := range t.missing {
		t.missing[i] = ^t.missing[i]
	}
	return t
}

// maxIndexed bounds the texts that are indexed, in bytes. A longer one has nearly every pair, so
// its index would not rule out a pattern.
const maxIndexed = 1 << 10

func (t *Text) decoded() []rune {
	if t.runes == nil {
		t.runes = []rune(t.text)
	}
	return t.runes
}

// pairSet is a set of pairs of neighbouring bytes, as a bitmap of their hashes.
// Pairs with the same hash can't be told apart, so only absence is certain.
type pairSet [4]uint64

func (p *pairSet) add(text string) {
	for i := 1; i < len(text); i++ {
		h := text[i-1]*31 + text[i]
		p[h>>6] |= 1 << (h & 63)
	}
}

func (p *pairSet) overlaps(q *pairSet) bool {
	return p[0]&q[0]|p[1]&q[1]|p[2]&q[2]|p[3]&q[3] != 0
}
