package protocol

import "bytes"

// Most messages are small, plain and right. A scanner reads such a one in half the
// JSON library's time, which, four times for each call, is a tenth of what the call
// costs the gateway. Whatever it is not sure of, it leaves to the library: what is
// wrong, or has many members, or is deep, or has a key that is written with escapes.
type scanner struct {
	data []byte
	at   int // the first byte that was not read

	// The members of the objects that are being read, outer ones first.
	found [32]member
	n     int
}

// scanDepth is how deep values may lie in each other.
const scanDepth = 16

// member is one of an object, its name as it stood between the quotes.
type member struct {
	name  []byte
	value Raw
}

// members returns those of the object that data is, which must be valid UTF-8. It
// is false where it is not sure.
func (s *scanner) members() ([]member, bool) {
	ok := s.next() == '{' && s.object(scanDepth) && s.next() == 0 && s.at == len(s.data)
	return s.found[:s.n], ok
}

// next passes over white space and returns the byte that follows, 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// object reads an object from its brace on and leaves its members in found.
func (s *scanner) object(depth int) bool {
	first := s.n
	s.at++
	if s.next() == '}' {
		s.at++
		return true
	}
	for {
		if s.next() != '"' || s.n == len(s.found) {
			return false
		}
		begin := s.at + 1
		if plain, ok := s.text(); !ok || !plain {
			return false
		}
		m := member{name: s.data[begin : s.at-1]}
		for i := first; i < s.n; i++ {
			if bytes.Equal(s.found[i].name, m.name) {
				return false
			}
		}
		if s.next() != ':' {
			return false
		}
		s.at++
		s.next()
		begin = s.at
		if !s.value(depth - 1) {
			return false
		}
		m.value = Raw(s.data[begin:s.at:s.at])
		s.found[s.n] = m
		s.n++
		switch s.next() {
		case ',':
			s.at++
		case '}':
			s.at++
			return true
		default:
			return false
		}
	}
}

func (s *scanner) array(depth int) bool {
	s.at++
	if s.next() == ']' {
		s.at++
		return true
	}
	for {
		s.next()
		if !s.value(depth - 1) {
			return false
		}
		switch s.next() {
		case ',':
			s.at++
		case ']':
			s.at++
			return true
		default:
			return false
		}
	}
}

// value reads a value from its first byte on.
func (s *scanner) value(depth int) bool {
	if depth == 0 || s.at == len(s.data) {
		return false
	}
	switch s.data[s.at] {
	case '"':
		_, ok := s.text()
		return ok
	case '{':
		n := s.n
		ok := s.object(depth)
		s.n = n
		return ok
	case '[':
		return s.array(depth)
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	return s.number()
}

func (s *scanner) literal(word string) bool {
	rest := s.data[s.at:]
	if len(rest) < len(word) || string(rest[:len(word)]) != word {
		return false
	}
	s.at += len(word)
	return true
}

// text reads a string from its quote on. It is plain without escapes.
func (s *scanner) text() (plain, ok bool) {
	data, i := s.data, s.at+1
	plain = true
	for i < len(data) {
		switch c := data[i]; {
		case c == '"':
			s.at = i + 1
			return plain, true
		case c == '\\':
			plain = false
			n := escapeLength(data[i:])
			if n == 0 {
				return false, false
			}
			i += n
		case c < ' ':
			return false, false
		default:
			i++
		}
	}
	return false, false
}

// escapeLength returns the length of the escape that data begins with, 0 for a wrong one.
// Half a surrogate pair is a right one, see allowEscapes.
func escapeLength(data []byte) int {
	if len(data) < 2 {
		return 0
	}
	switch data[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(data) < 6 {
			return 0
		}
		for _, c := range data[2:6] {
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return 0
			}
		}
		return 6
	}
	return 0
}

func (s *scanner) number() bool {
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else if !s.digits() {
		return false
	}
	if s.peek() == '.' {
		s.at++
		if !s.digits() {
			return false
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		return s.digits()
	}
	return true
}

// peek returns the byte that is next, 0 at the end.
func (s *scanner) peek() byte {
	if s.at == len(s.data) {
		return 0
	}
	return s.data[s.at]
}

// digits reads at least one.
func (s *scanner) digits() bool {
	begin := s.at
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.at++
	}
	return s.at > begin
}
