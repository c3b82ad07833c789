package patch

import (
	"fmt"
	"strconv"
	"strings"
)

// Apply applies hunks to a text in their order. name is what to call the text; the
// error says which hunk doesn't fit and where it comes nearest.
func Apply(name, text string, hunks []Hunk) (string, error) {
	a := &application{name: name, lines: split(text)}
	for i := range hunks {
		if err := a.apply(&hunks[i]); err != nil {
			return "", fmt.Errorf("the change at line %d of the patch does not fit %s: %w", hunks[i].Line, name, err)
		}
	}
	return a.result(), nil
}

// Content is the text of a file that is added.
func (f *File) Content() string {
	var b strings.Builder
	for _, h := range f.Hunks {
		for _, l := range h.Lines {
			b.WriteString(l.Text)
		}
	}
	return b.String()
}

// split cuts a text into lines with their endings.
func split(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	return lines[:len(lines)-1+min(1, len(lines[len(lines)-1]))]
}

// application is a text in the making.
type application struct {
	name  string
	lines []string // of the old text
	out   []string
	next  int // the first line that is not in out
	drift int // by how much the last hunk stood lower than it said
	// loose says that the last line of out was added by a hunk which did not say
	// how the text ends: then it ends as it did.
	loose bool
}

func (a *application) apply(h *Hunk) error {
	var old []string
	for _, l := range h.Lines {
		if l.Op != '+' {
			old = append(old, l.Text)
		}
	}
	at, exact, err := a.place(h, old)
	if err != nil {
		return err
	}
	a.out = append(a.out, a.lines[a.next:at]...)
	if at > a.next {
		a.loose = false
	}
	a.next = at
	eol := ending(a.lines)
	for _, l := range h.Lines {
		switch l.Op {
		case '+':
			added := l.Text
			if !exact {
				added = strings.TrimRight(added, "\r\n") + eol
			}
			a.out = append(a.out, added)
			a.loose = !exact
		case ' ':
			a.out = append(a.out, a.lines[a.next]) // as the file has it
			a.next++
			a.loose = false
		default:
			a.next++
		}
	}
	if h.At >= 0 {
		a.drift = at - h.expected(old)
	}
	return nil
}

// expected is the index of the line that a hunk says it begins at.
func (h *Hunk) expected(old []string) int {
	if len(old) == 0 {
		return h.At // it is inserted behind
	}
	return max(0, h.At-1)
}

// place finds the line at which a hunk begins. exact says that its old lines are
// the file's to the last byte.
func (a *application) place(h *Hunk, old []string) (at int, exact bool, err error) {
	from := a.next
	for _, anchor := range h.Anchors {
		i := a.anchor(anchor, from)
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
			return at, ending(a.lines) == "\n", nil
		}
	}
	for _, same := range []func(string) string{verbatim, unspaced} {
		found := find(a.lines, old, from, same)
		if h.AtEnd {
			found = keep(found, len(a.lines)-len(old))
		}
		switch {
		case len(found) == 0:
			continue
		case len(found) == 1 || len(h.Anchors) > 0:
			return found[0], a.exact(found[0], old), nil
		}
		if h.At >= 0 {
			if exact := keep(found, h.expected(old)+a.drift); len(exact) == 1 {
				return exact[0], a.exact(exact[0], old), nil
			}
		}
		return 0, false,
			fmt.Errorf("its lines occur %s: add lines before and after them, or a line @@ with the function that "+
				"they are in", onLines(found))
	}
	return 0, false, a.misfit(old, from)
}

func (a *application) exact(at int, old []string) bool {
	for i := range old {
		if a.lines[at+i] != old[i] {
			return false
		}
	}
	return true
}

// anchor finds the line that an anchor names: the whole of it, or else a part.
func (a *application) anchor(anchor string, from int) int {
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

// unspaced is a line without the white space at its end, its line ending included.
func unspaced(line string) string { return strings.TrimRight(line, " \t\r\n") }

// find lists where old stands in lines from an index on, in the eyes of same, in
// time linear to both (Knuth, Morris, Pratt).
func find(lines, old []string, from int, same func(string) string) (found []int) {
	want := make([]string, len(old))
	for i, l := range old {
		want[i] = same(l)
	}
	border := make([]int, len(want)) // of want[:i+1]
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
		line := same(lines[i])
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

// keep reduces a list to one value, if it is in it.
func keep(found []int, value int) []int {
	for _, f := range found {
		if f == value {
			return []int{f}
		}
	}
	return nil
}

// onLines says how often and on which lines.
func onLines(found []int) string {
	const most = 10
	var b strings.Builder
	fmt.Fprintf(&b, "%d times, on lines ", len(found))
	for i, f := range found[:min(len(found), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(f + 1))
	}
	if len(found) > most {
		b.WriteString(" and more")
	}
	return b.String()
}

// misfit says where old comes nearest: the place where most of its first lines
// stand.
func (a *application) misfit(old []string, from int) error {
	best, fit := -1, 0
	for i := from; i < len(a.lines); i++ {
		n := 0
		for n < len(old) && i+n < len(a.lines) && n <= 100 && unspaced(a.lines[i+n]) == unspaced(old[n]) {
			n++
		}
		if n > fit {
			best, fit = i, n
		}
	}
	switch {
	case best < 0:
		return fmt.Errorf("its first line %.120q is not there after line %d: read the file again", unspaced(old[0]),
			from)
	case best+fit == len(a.lines):
		return fmt.Errorf("the file ends where it goes on with %.120q: read the file again",
			unspaced(old[min(fit, len(old)-1)]))
	default:
		return fmt.Errorf("line %d is %.120q where the patch has %.120q: read the file again",
			best+fit+1, unspaced(a.lines[best+fit]), unspaced(old[min(fit, len(old)-1)]))
	}
}

// ending is the line ending of most lines.
func ending(lines []string) string {
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
	eol := ending(a.lines)
	out := append(a.out, a.lines[a.next:]...)
	if a.next < len(a.lines) {
		a.loose = false
	}
	for i := range len(out) - 1 {
		if !strings.HasSuffix(out[i], "\n") {
			out[i] += eol // it was the last one
		}
	}
	text := strings.Join(out, "")
	if n := len(a.lines); a.loose && n > 0 && !strings.HasSuffix(a.lines[n-1], "\n") {
		text = strings.TrimSuffix(text, eol)
	}
	return text
}
