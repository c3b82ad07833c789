package gateway

// subject is a text that patterns are tried on, one after the other.
type subject struct {
	text   string
	absent pairs  // from text, as far as that was looked into
	runes  []rune // of text, as the engine wants it; made when the first pattern asks
}

func (s *subject) decoded() []rune {
	if s.runes == nil {
		s.runes = []rune(s.text)
	}
	return s.runes
}

// lookInto notes what is absent from the text. It pays where many patterns follow.
func (s *subject) lookInto() {
	const most = 1 << 10 // a longer text has nearly all pairs
	if len(s.text) > most {
		return
	}
	s.absent.add(s.text)
	for i := range s.absent {
		s.absent[i] = ^s.absent[i]
	}
}

// pairs is a set of pairs of neighbouring bytes, some of which it takes for each
// other: what it has may not be there, what it does not have is not.
type pairs [4]uint64

func (p *pairs) add(text string) {
	for i := 1; i < len(text); i++ {
		h := text[i-1]*31 + text[i]
		p[h>>6] |= 1 << (h & 63)
	}
}

func (p *pairs) overlaps(q *pairs) bool {
	return p[0]&q[0]|p[1]&q[1]|p[2]&q[2]|p[3]&q[3] != 0
}
