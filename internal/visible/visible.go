// Package visible makes text of others fit to be shown to a person who decides by
// it: every character can be seen. What would move a cursor, hide or reorder its
// neighbours, or look like a space is spelt out as an escape, not dropped: a command
// without such characters is another command.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text spells out what can't be seen. Line ends and tabs stay.
func Text(s string) string { return spelled(s, "\n\t") }

// Line spells out what can't be seen, line ends and tabs as well: for names and
// paths, which stand in one line.
func Line(s string) string { return spelled(s, "") }

// Controls spells out only what a terminal obeys, and leaves text in all its
// languages as it is: for what is read and not decided by.
func Controls(s string) string {
	return spell(s, func(r rune) bool {
		return r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r)
	})
}

func spelled(s, keep string) string {
	return spell(s, func(r rune) bool { return seen(r) || strings.ContainsRune(keep, r) })
}

// spell spells out the characters that are not ok.
func spell(s string, ok func(rune) bool) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !ok(r) }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case ok(r):
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

// seen reports whether a character shows by itself: neither a control, a format
// character, nor one that looks like a space or like nothing.
func seen(r rune) bool {
	return unicode.IsPrint(r) && r != '\u2800' &&
		!unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// Ends returns a text of at most so many bytes and lines as it is, and of a longer
// one the beginning and the end, with how much was left out between them.
func Ends(s string, most, lines int) string {
	if len(s) <= most && strings.Count(s, "\n") < lines {
		return s
	}
	head, tail := s[:min(len(s), most/2)], s[len(s)-min(len(s), most/2):]
	if cut := nth(head, lines/2); cut >= 0 {
		head = head[:cut]
	}
	for n := strings.Count(tail, "\n"); n >= lines-lines/2; n-- {
		_, tail, _ = strings.Cut(tail, "\n")
	}
	head, tail = strings.ToValidUTF8(head, ""), strings.ToValidUTF8(tail, "")
	out := len(s) - len(head) - len(tail)
	if out <= 0 {
		return s
	}
	return fmt.Sprintf("%s\n[… %d of %d bytes are left out here …]\n%s", strings.TrimSuffix(head, "\n"), out, len(s),
		strings.TrimPrefix(tail, "\n"))
}

// nth finds where the n-th line ends, -1 where there are fewer.
func nth(s string, n int) int {
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
