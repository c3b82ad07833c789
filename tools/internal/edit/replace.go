// Package edit changes texts by the texts in them.
package edit

import (
	"fmt"
	"strconv"
	"strings"
)

// Replace replaces the one place in text where old stands. The error says where it
// stands otherwise; name is what to call the text. In a text whose lines end in
// CRLF, old and new may have LF.
func Replace(name, text, old, new string) (string, error) {
	switch old {
	case "":
		return "", fmt.Errorf("the text to replace in %s is empty: give the text that stands there now", name)
	case new:
		return "", fmt.Errorf("the old and the new text for %s are the same: there is nothing to change", name)
	}
	at := places(text, old)
	if len(at) == 0 && strings.Contains(text, "\r\n") && !strings.Contains(old, "\r") {
		old = strings.ReplaceAll(old, "\n", "\r\n")
		new = strings.ReplaceAll(strings.ReplaceAll(new, "\r\n", "\n"), "\n", "\r\n")
		at = places(text, old)
	}
	switch len(at) {
	case 1:
		return text[:at[0]] + new + text[at[0]+len(old):], nil
	case 0:
		return "", fmt.Errorf("the text to replace does not occur in %s%s", name, nearby(text, old))
	}
	return "", fmt.Errorf("the text to replace occurs %d times in %s, on %s: "+
		"add the lines around the one that is meant",
		len(at), name, lines(text, at))
}

// places lists the offsets at which old begins, also where they overlap.
func places(text, old string) (at []int) {
	for from := 0; ; {
		i := strings.Index(text[from:], old)
		if i < 0 {
			return at
		}
		at = append(at, from+i)
		from += i + 1
	}
}

// maxNamed is how many lines an error names.
const maxNamed = 10

// lines says on which lines of text the offsets are.
func lines(text string, at []int) string {
	var b strings.Builder
	b.WriteString("lines ")
	line, from := 1, 0
	for i, off := range at {
		if i == maxNamed {
			return b.String() + " and more"
		}
		line += strings.Count(text[from:off], "\n")
		from = off
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(line))
	}
	return b.String()
}

// nearby says where the text stands when white space is not looked at.
func nearby(text, old string) string {
	want := strings.Fields(old)
	if len(want) == 0 {
		return ""
	}
	all := strings.SplitAfter(text, "\n")
	for i, first := range all {
		if !strings.Contains(first, want[0]) {
			continue
		}
		end := min(len(all), i+strings.Count(old, "\n")+3)
		joined := strings.Join(strings.Fields(strings.Join(all[i:end], "")), " ")
		if strings.Contains(joined, strings.Join(want, " ")) {
			return fmt.Sprintf(": a text that differs from it in white space begins on line %d; "+
				"read it and copy it exactly", i+1)
		}
	}
	return ": read the file again and copy the text exactly"
}
