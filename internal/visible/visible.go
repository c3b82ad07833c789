// Package visible prepares foreign text for a person who decides by it: every character
// can be seen. It replaces characters that would move a cursor, hide or reorder others,
// or look like a space by escapes. It does not drop them, because a command without
// them is another command. Count gives a number its noun.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text escapes the characters that can't be seen, except for line ends and tabs.
func Text(s string) string { return escapeInvisible(s, "\n\t") }

// Line escapes all characters that can't be seen, line ends and tabs included. It is
// for names and paths within one line.
func Line(s string) string { return escapeInvisible(s, "") }

// Controls escapes only the characters that a terminal obeys, and leaves text in all
// languages readable. For text that a person bases a decision on, use [Text] or [Line].
func Controls(s string) string {
	return escape(s, func(r rune) bool {
		return r == '\n' || r == '\t' || !unicode.IsControl(r) &&
			!unicode.Is(unicode.Bidi_Control, r)
	})
}

func escapeInvisible(s, keep string) string {
	return escape(s, func(r rune) bool { return isVisible(r) || strings.ContainsRune(keep, r) })
}

// escape escapes the characters for which keeps is false, and invalid UTF-8.
func escape(s string, keeps func(rune) bool) string {
	if isPlain(s, keeps) || utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !keeps(r) }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case keeps(r):
			b.WriteString(s[:n])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

// isPlain reports whether a text has only ASCII characters that stay as they are. Most text is, and
// this is the fastest way to know.
func isPlain(s string, keeps func(rune) bool) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' || c > '~') && (c >= utf8.RuneSelf || !keeps(rune(c))) {
			return false
		}
	}
	return true
}

// isVisible reports whether a character can be seen: it is no control or format character, does not
// look like a space, and has a shape.
func isVisible(r rune) bool {
	return unicode.IsPrint(r) && r != '\u2800' &&
		!unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// Count returns a number with its noun: "1 tool", "2 tools". The plural is the noun with an s.
func Count[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// IsAre returns the verb that goes with n things: "is" for one, "are" for any other number.
func IsAre[N int | int64 | uint64](n N) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// Ends returns a text of at most maxBytes bytes and lines lines unchanged. Of a longer text it
// returns the beginning and the end, and between them the number of bytes that it leaves out.
func Ends(s string, maxBytes, lines int) string {
	if len(s) <= maxBytes && strings.Count(s, "\n") < lines {
		return s
	}
	half := min(len(s), maxBytes/2)
	head, tail := s[:half], s[len(s)-half:]
	if cut := lineEnd(head, lines/2); cut >= 0 {
		head = head[:cut]
	}
	for n := strings.Count(tail, "\n"); n >= lines-lines/2; n-- {
		_, tail, _ = strings.Cut(tail, "\n")
	}
	head, tail = strings.ToValidUTF8(head, ""), strings.ToValidUTF8(tail, "")
	left := len(s) - len(head) - len(tail)
	if left <= 0 {
		return s
	}
	return fmt.Sprintf("%s\n[… %d of %d bytes are left out here …]\n%s",
		strings.TrimSuffix(head, "\n"), left, len(s), strings.TrimPrefix(tail, "\n"))
}

// lineEnd returns the index of the n-th line end, -1 if there are fewer.
func lineEnd(s string, n int) int {
	at := -1
	for range n {
		i := strings.IndexByte(s[at+1:], '\n')
		if i < 0 {
			return -1
		}
		at += i + 1
	}
	return at
}
