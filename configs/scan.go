package configs

import (
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
)

// The TOML library reports the position of a syntax error, but not the position of a key in a file
// without errors. The scanner below finds that position. It runs only on text that the library
// accepted, so it checks nothing, and it ends on any input.

// scanner walks over TOML text and notes where keys begin.
type scanner struct {
	text string
	pos  int
	keys map[string]int
	// arrays counts the elements so far of arrays of tables, by their path.
	arrays map[string]int
	// sections are the text's beginning and the tables with a header, with their keys.
	sections []Section
}

// element is the part of a path that stands for the nth element of an array.
func element(n int) string { return fmt.Sprintf("[%d]", n) }

// scanKeys returns the offset of the first letter of every key, by its path. Of
// a table that is continued elsewhere it is the first place.
func scanKeys(text string) map[string]int { return scan(text).keys }

func scan(text string) *scanner {
	s := &scanner{text: text, keys: map[string]int{}, arrays: map[string]int{},
		sections: []Section{{}}}
	var header toml.Key
	for s.skipBlank("\n"); s.pos < len(s.text); s.skipBlank("\n") {
		begin := s.pos
		if s.skipByte('[') {
			array := s.skipByte('[')
			header = s.readKey(nil)
			if array {
				name := header.String()
				s.arrays[name]++
				header = append(header, element(s.arrays[name]-1))
				s.record(header, begin)
			}
			s.skipByte(']')
			if array {
				s.skipByte(']')
			}
			s.sections = append(s.sections, Section{Path: header, Start: begin, End: s.pos})
			continue
		}
		key := s.readPair(header)
		in := &s.sections[len(s.sections)-1]
		in.Pairs, in.End = append(in.Pairs, Pair{key[len(header):], begin, s.pos}), s.pos
	}
	return s
}

// skipBlank skips white space and comments, and line ends where they may stand.
func (s *scanner) skipBlank(lineEnds string) {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' && lineEnds != "":
			s.pos++
		case c == '#':
			if end := strings.IndexByte(s.text[s.pos:], '\n'); end >= 0 {
				s.pos += end
			} else {
				s.pos = len(s.text)
			}
		default:
			return
		}
	}
}

// skipByte skips a letter if it comes next, with the white space before it.
func (s *scanner) skipByte(c byte) bool {
	at := s.pos
	for at < len(s.text) && (s.text[at] == ' ' || s.text[at] == '\t') {
		at++
	}
	if at < len(s.text) && s.text[at] == c {
		s.pos = at + 1
		return true
	}
	return false
}

// readPair reads key = value and returns the key's whole path.
func (s *scanner) readPair(table toml.Key) toml.Key {
	before := s.pos
	path := s.readKey(table)
	if s.skipByte('=') {
		s.skipBlank("")
		s.skipValue(path)
	}
	if s.pos == before {
		s.pos++
	}
	return path
}

// readKey reads a key, dotted or not, notes its parts and returns the whole path.
func (s *scanner) readKey(table toml.Key) toml.Key {
	path := append(toml.Key(nil), table...)
	for {
		s.skipBlank("")
		begin := s.pos
		part := ""
		if s.pos < len(s.text) && (s.text[s.pos] == '"' || s.text[s.pos] == '\'') {
			part = unquote(s.skipQuoted())
		} else {
			for s.pos < len(s.text) && isBareKeyChar(s.text[s.pos]) {
				s.pos++
			}
			part = s.text[begin:s.pos]
		}
		path = append(path, part)
		s.record(path, begin)
		if !s.skipByte('.') {
			return path
		}
		if n := s.arrays[path.String()]; n > 0 { // the keys that follow belong to its last element
			path = append(path, element(n-1))
		}
	}
}

func isBareKeyChar(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c &&
		c <= 'z'
}

func (s *scanner) record(path toml.Key, offset int) {
	if _, ok := s.keys[path.String()]; !ok {
		s.keys[path.String()] = offset
	}
}

// skipValue skips a value and notes the keys and arrays inside it.
func (s *scanner) skipValue(path toml.Key) {
	if s.pos >= len(s.text) {
		return
	}
	switch s.text[s.pos] {
	case '"', '\'':
		s.skipQuoted()
	case '[':
		s.pos++
		for n := 0; ; n++ {
			if s.skipBlank("\n"); s.pos >= len(s.text) || s.skipByte(']') {
				return
			}
			at := append(append(toml.Key(nil), path...), element(n))
			s.record(at, s.pos)
			s.skipValue(at)
			if s.skipBlank("\n"); !s.skipByte(',') {
				s.skipByte(']')
				return
			}
		}
	case '{':
		s.pos++
		for {
			if s.skipBlank("\n"); s.pos >= len(s.text) || s.skipByte('}') {
				return
			}
			s.readPair(path)
			if s.skipBlank("\n"); !s.skipByte(',') {
				s.skipByte('}')
				return
			}
		}
	default: // a number, a boolean, a date
		for s.pos < len(s.text) && !strings.ContainsRune(",]}#\n\r", rune(s.text[s.pos])) {
			s.pos++
		}
	}
}

// skipQuoted skips a string of any of the four kinds and returns it with its quotes.
func (s *scanner) skipQuoted() string {
	begin := s.pos
	quote := s.text[s.pos]
	end := string(quote)
	if strings.HasPrefix(s.text[s.pos:], strings.Repeat(end, 3)) {
		end = strings.Repeat(end, 3)
	}
	for s.pos += len(end); s.pos < len(s.text); s.pos++ {
		if quote == '"' && s.text[s.pos] == '\\' {
			s.pos++
			continue
		}
		if strings.HasPrefix(s.text[s.pos:], end) {
			s.pos += len(end)
			// Up to two quotes may stand right before the closing three.
			for len(end) == 3 && s.pos < len(s.text) && s.text[s.pos] == quote {
				s.pos++
			}
			break
		}
	}
	s.pos = min(s.pos, len(s.text))
	return s.text[begin:s.pos]
}

// unquote returns the text of a quoted key.
func unquote(quoted string) string {
	var out struct{ K string }
	if _, err := toml.Decode("K = "+quoted, &out); err != nil {
		return quoted
	}
	return out.K
}
