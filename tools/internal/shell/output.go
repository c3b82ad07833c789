package shell

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"tapgw/internal/lazyregexp"
)

// Output keeps the beginning and the end of what is written to it. The zero value
// keeps nothing; it is for one writer at a time.
type Output struct {
	Max int // bytes to keep

	head, tail []byte // tail: at least the last Max/2, at most twice that
	written    int
}

// Write never fails.
func (o *Output) Write(p []byte) (int, error) {
	n := len(p)
	o.written += n
	room := min(o.Max-o.Max/2-len(o.head), n)
	o.head = append(o.head, p[:room]...)
	keep := o.Max / 2
	p = p[max(room, n-keep):]
	if len(o.tail)+len(p) > 2*keep {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-min(len(o.tail), keep):]...)
	}
	o.tail = append(o.tail, p...)
	return n, nil
}

// Cut is how many bytes are not kept.
func (o *Output) Cut() int { return max(0, o.written-o.Max) }

// Bytes is all that was written, if nothing was cut.
func (o *Output) Bytes() []byte {
	return append(bytes.Clone(o.head), o.tail[len(o.tail)-o.kept():]...)
}

// kept is how much of the tail counts.
func (o *Output) kept() int { return min(len(o.tail), o.Max/2, o.written-len(o.head)) }

// String is what was written as text, without what only a terminal understands.
// It says what was cut.
func (o *Output) String() string {
	cut := o.Cut()
	if cut == 0 {
		return clean(o.Bytes())
	}
	head, tail := o.head, o.tail[len(o.tail)-o.kept():]
	// Whole lines, where lines are not enormous.
	if i := bytes.LastIndexByte(head, '\n'); i > len(head)*3/4 {
		cut += len(head) - i - 1
		head = head[:i+1]
	} else {
		for i := 0; i < utf8.UTFMax && len(head) > 0 && !utf8.Valid(head[max(0, len(head)-utf8.UTFMax):]); i++ {
			head, cut = head[:len(head)-1], cut+1
		}
	}
	if i := bytes.IndexByte(tail, '\n'); i >= 0 && i < len(tail)/4 {
		cut += i + 1
		tail = tail[i+1:]
	} else {
		for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
			tail, cut = tail[1:], cut+1
		}
	}
	return fmt.Sprintf("%s\n[... %d bytes cut here: to see them, write the output to a file, or filter it with "+
		"grep, head or tail ...]\n%s",
		strings.TrimSuffix(clean(head), "\n"), cut, clean(tail))
}

// escapes are a terminal's: colours, cursor movements, titles.
var escapes = lazyregexp.New(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_=>78])`)

// clean makes text of a terminal's output: valid, without escape sequences and
// control characters, and of a line that was written over what it was last.
func clean(b []byte) string {
	s := strings.ToValidUTF8(string(b), "\uFFFD")
	s = strings.ReplaceAll(escapes.ReplaceAllString(s, ""), "\r\n", "\n")
	if strings.Contains(s, "\r") {
		lines := strings.Split(s, "\n")
		for i, line := range lines {
			line = strings.TrimRight(line, "\r")
			lines[i] = line[strings.LastIndexByte(line, '\r')+1:]
		}
		s = strings.Join(lines, "\n")
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}

// Lines hands on what is written to it line by line, cleaned, without the newline.
// Of a long line it hands on the beginning.
type Lines struct {
	Take func(line string)
	part []byte
}

// maxLine is how much of a line is handed on.
const maxLine = 4 << 10

// Write never fails.
func (l *Lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		l.part = append(l.part, line[:min(len(line), maxLine-len(l.part))]...)
		if whole {
			l.End()
		}
		p = rest
	}
	return n, nil
}

// End hands on what there is of a last line without a newline.
func (l *Lines) End() {
	if line := clean(l.part); line != "" {
		l.Take(line)
	}
	l.part = l.part[:0]
}
