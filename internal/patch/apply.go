package patch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Apply applies hunks to a text in their order and returns the new text. With an error the text is
// not usable: the error names the first hunk that does not fit and the most similar place. name is
// the text's name in errors.
func Apply(name, text string, hunks []Hunk) (string, error) {
	a := &application{name: name, lines: splitLines(text)}
	for i := range hunks {
		if err := a.apply(&hunks[i]); err != nil {
			return "", fmt.Errorf("the change at line %d of the patch does not fit %s: %w",
				hunks[i].Line, name, err)
		}
	}
	return a.result(), nil
}

// Content returns the text of an added file: the lines of its hunk, with their endings. It is ""
// for an empty file.
func (f *File) Content() string {
	var b strings.Builder
	for _, h := range f.Hunks {
		for _, l := range h.Lines {
			b.WriteString(l.Text)
		}
	}
	return b.String()
}

// splitLines splits a text into lines with their endings.
func splitLines(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	return lines[:len(lines)-1+min(1, len(lines[len(lines)-1]))]
}

// application applies hunks to a text.
type application struct {
	name  string
	lines []string // of the old text
	out   []string // of the new text
	next  int      // index of the first line that is not in out
	drift int      // how many lines below its own number the last hunk was found
	// keepsEnding means that a hunk that does not determine the end of the text added
	// the last line of out. Then the new text ends with a newline if the old one does.
	keepsEnding bool
}

func (a *application) apply(h *Hunk) error {
	var old []string
	for _, l := range h.Lines {
		if l.Op != '+' {
			old = append(old, l.Text)
		}
	}
	at, isExact, err := a.place(h, old)
	if err != nil {
		return err
	}
	a.out = append(a.out, a.lines[a.next:at]...)
	if at > a.next {
		a.keepsEnding = false
	}
	a.next = at
	eol := lineEnding(a.lines)
	for _, l := range h.Lines {
		switch l.Op {
		case '+':
			added := l.Text
			if !isExact {
				added = strings.TrimRight(added, "\r\n") + eol
			}
			a.out = append(a.out, added)
			a.keepsEnding = !isExact
		case ' ':
			a.out = append(a.out, a.lines[a.next]) // as the file has it
			a.next++
			a.keepsEnding = false
		default:
			a.next++
		}
	}
	if h.At >= 0 {
		a.drift = at - h.expected(old)
	}
	return nil
}

// expected is the index of the line at which a hunk begins by its own number.
func (h *Hunk) expected(old []string) int {
	if len(old) == 0 {
		return h.At // the hunk inserts behind that line
	}
	return max(0, h.At-1)
}

// place finds the index of the line at which a hunk begins. isExact reports whether its old lines
// equal the file's lines, white space included.
func (a *application) place(h *Hunk, old []string) (at int, isExact bool, err error) {
	from := a.next
	for _, anchor := range h.Anchors {
		i := a.findAnchor(anchor, from)
		if i < 0 {
			return 0, false, fmt.Errorf("there is no line %.120q after line %d", anchor, from)
		}
		from = i + 1
	}
	if len(old) == 0 {
		switch at := h.expected(old) + a.drift; {
		case h.At < 0 && len(h.Anchors) > 0:
			return from, false, nil
		case h.At < 0:
			return len(a.lines), false, nil
		case at < a.next || at > len(a.lines):
			return 0, false, fmt.Errorf("there is no line %d to insert behind", at)
		default:
			return at, lineEnding(a.lines) == "\n", nil
		}
	}
	for _, normalize := range []func(string) string{verbatim, trimRight} {
		found := findLines(a.lines, old, from, normalize)
		if h.AtEnd {
			found = only(found, len(a.lines)-len(old))
		}
		switch {
		case len(found) == 0:
			continue
		case len(found) == 1 || len(h.Anchors) > 0:
			return found[0], a.isEqual(found[0], old), nil
		}
		if h.At >= 0 {
			if numbered := only(found, h.expected(old)+a.drift); len(numbered) == 1 {
				return numbered[0], a.isEqual(numbered[0], old), nil
			}
		}
		return 0, false, fmt.Errorf("its lines occur %s: add lines before and after them, "+
			"or a line @@ with the function that they are in", onLines(found))
	}
	return 0, false, a.noPlaceError(old, from)
}

// isEqual reports whether the lines from an index on equal old, white space included.
func (a *application) isEqual(at int, old []string) bool {
	return slices.Equal(a.lines[at:at+len(old)], old)
}

// findAnchor finds the line that equals an anchor, or else the first that contains it. It returns
// -1 if no line does.
func (a *application) findAnchor(anchor string, from int) int {
	part := -1
	for i := from; i < len(a.lines); i++ {
		line := strings.TrimSpace(a.lines[i])
		if line == anchor {
			return i
		}
		if part < 0 && strings.Contains(line, anchor) {
			part = i
		}
	}
	return part
}

func verbatim(line string) string { return line }

// trimRight is a line without its ending and the white space before it.
func trimRight(line string) string { return strings.TrimRight(line, " \t\r\n") }

// findLines lists the indexes at which old begins in lines, from an index on. Lines are
// compared after normalize. It takes time linear to both (Knuth, Morris, Pratt).
func findLines(lines, old []string, from int, normalize func(string) string) (found []int) {
	want := make([]string, len(old))
	for i, l := range old {
		want[i] = normalize(l)
	}
	border := make([]int, len(want)) // length of the longest border of want[:i+1]
	for i, k := 1, 0; i < len(want); i++ {
		for k > 0 && want[i] != want[k] {
			k = border[k-1]
		}
		if want[i] == want[k] {
			k++
		}
		border[i] = k
	}
	for i, k := from, 0; i < len(lines); i++ {
		line := normalize(lines[i])
		for k > 0 && line != want[k] {
			k = border[k-1]
		}
		if line == want[k] {
			k++
		}
		if k == len(want) {
			found = append(found, i-k+1)
			k = border[k-1]
		}
	}
	return found
}

// only returns a list with only value if value is in found, else an empty list.
func only(found []int, value int) []int {
	if slices.Contains(found, value) {
		return []int{value}
	}
	return nil
}

// onLines lists how often and on which lines something was found.
func onLines(found []int) string {
	const maxLines = 10
	var b strings.Builder
	fmt.Fprintf(&b, "%d times, on lines ", len(found))
	for i, f := range found[:min(len(found), maxLines)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(f + 1))
	}
	if len(found) > maxLines {
		b.WriteString(" and more")
	}
	return b.String()
}

// noPlaceError describes the place that matches the most of old's first lines, for a
// hunk that fits nowhere.
func (a *application) noPlaceError(old []string, from int) error {
	best, fit := -1, 0
	for i := from; i < len(a.lines); i++ {
		n := 0
		for n < len(old) && i+n < len(a.lines) && n <= 100 &&
			trimRight(a.lines[i+n]) == trimRight(old[n]) {
			n++
		}
		if n > fit {
			best, fit = i, n
		}
	}
	switch {
	case best < 0:
		return fmt.Errorf("its first line %.120q is not there after line %d: read the file again",
			trimRight(old[0]), from)
	case best+fit == len(a.lines):
		return fmt.Errorf("the file ends where it goes on with %.120q: read the file again",
			trimRight(old[min(fit, len(old)-1)]))
	default:
		return fmt.Errorf("line %d is %.120q where the patch has %.120q: read the file again",
			best+fit+1, trimRight(a.lines[best+fit]), trimRight(old[min(fit, len(old)-1)]))
	}
}

// lineEnding is the line ending of most lines.
func lineEnding(lines []string) string {
	crlf := 0
	for _, l := range lines {
		if strings.HasSuffix(l, "\r\n") {
			crlf++
		}
	}
	if crlf > len(lines)/2 {
		return "\r\n"
	}
	return "\n"
}

// result puts the new text together.
func (a *application) result() string {
	eol := lineEnding(a.lines)
	out := append(a.out, a.lines[a.next:]...)
	if a.next < len(a.lines) {
		a.keepsEnding = false
	}
	for i := range len(out) - 1 {
		if !strings.HasSuffix(out[i], "\n") {
			out[i] += eol // the line was the last one before
		}
	}
	text := strings.Join(out, "")
	if n := len(a.lines); a.keepsEnding && n > 0 && !strings.HasSuffix(a.lines[n-1], "\n") {
		text = strings.TrimSuffix(text, eol)
	}
	return text
}
