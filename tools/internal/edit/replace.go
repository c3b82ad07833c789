// Package edit replaces parts of a text that are given by their content.
package edit

import (
	"fmt"
	"strconv"
	"strings"
)

// Replace replaces the only occurrence of oldText in text. If there is no occurrence, or there are
// several, the error names their lines, for the model to choose; name is how it calls the text. If
// the lines of text end in CRLF, oldText and newText may use LF.
func Replace(name, text, oldText, newText string) (string, error) {
	switch oldText {
	case "":
		return "",
			fmt.Errorf("the text to replace in %s is empty: give the text that stands there now",
				name)
	case newText:
		return "",
			fmt.Errorf("the old and the new text for %s are the same: there is nothing to change",
				name)
	}
	at := occurrences(text, oldText)
	if len(at) == 0 && strings.Contains(text, "\r\n") && !strings.Contains(oldText, "\r") {
		oldText = strings.ReplaceAll(oldText, "\n", "\r\n")
		newText = strings.ReplaceAll(strings.ReplaceAll(newText, "\r\n", "\n"), "\n", "\r\n")
		at = occurrences(text, oldText)
	}
	switch len(at) {
	case 1:
		return text[:at[0]] + newText + text[at[0]+len(oldText):], nil
	case 0:
		return "", fmt.Errorf("the text to replace does not occur in %s%s", name,
			similarText(text, oldText))
	}
	return "", fmt.Errorf("the text to replace occurs %d times in %s, on %s: "+
		"add the lines around the one that is meant",
		len(at), name, lineNumbers(text, at))
}

// occurrences lists the offsets at which part begins, overlapping ones included.
func occurrences(text, part string) (at []int) {
	for from := 0; ; {
		i := strings.Index(text[from:], part)
		if i < 0 {
			return at
		}
		at = append(at, from+i)
		from += i + 1
	}
}

// maxLines is how many line numbers an error lists.
const maxLines = 10

// lineNumbers lists the lines of text that hold the offsets.
func lineNumbers(text string, at []int) string {
	var b strings.Builder
	b.WriteString("lines ")
	line, from := 1, 0
	for i, off := range at {
		if i == maxLines {
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

// similarText advises the model about a text that does not occur: it names the line
// where the text occurs with other white space.
func similarText(text, oldText string) string {
	want := strings.Fields(oldText)
	if len(want) == 0 {
		return ""
	}
	all := strings.SplitAfter(text, "\n")
	for i, first := range all {
		if !strings.Contains(first, want[0]) {
			continue
		}
		end := min(len(all), i+strings.Count(oldText, "\n")+3)
		joined := strings.Join(strings.Fields(strings.Join(all[i:end], "")), " ")
		if strings.Contains(joined, strings.Join(want, " ")) {
			return fmt.Sprintf(": a text that differs from it in white space begins on line %d; "+
				"read it and copy it exactly", i+1)
		}
	}
	return ": read the file again and copy the text exactly"
}
