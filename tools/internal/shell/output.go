package shell

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"tapgw/internal/lazyregexp"
)

// Output is a writer that keeps the beginning and the end of its input, Max bytes in all, half of
// them of the end. Set Max before the first Write. Only one goroutine may write at a time, and
// reads must not overlap with writes.
type Output struct {
	Max int // bytes to keep

	head, tail []byte // tail: the last Max/2 to Max bytes
	written    int
}

// Write implements [io.Writer]. It never fails, and counts the bytes that it drops as written.
func (o *Output) Write(p []byte) (int, error) {
	n := len(p)
	o.written += n
	toHead := min(o.Max-o.Max/2-len(o.head), n)
	o.head = append(o.head, p[:toHead]...)
	half := o.Max / 2
	p = p[max(toHead, n-half):]
	if len(o.tail)+len(p) > 2*half {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-min(len(o.tail), half):]...)
	}
	o.tail = append(o.tail, p...)
	return n, nil
}

// Cut returns how many bytes were dropped from the middle, 0 if the input had at most Max bytes.
func (o *Output) Cut() int { return max(0, o.written-o.Max) }

// Bytes returns a copy of the whole input if all was kept, else its beginning and end, one directly
// after the other. Control sequences stay in it.
func (o *Output) Bytes() []byte {
	return append(bytes.Clone(o.head), o.keptTail()...)
}

// keptTail is the part of tail that belongs to the output.
func (o *Output) keptTail() []byte {
	return o.tail[len(o.tail)-min(len(o.tail), o.Max/2, o.written-len(o.head)):]
}

// String returns the output as text, without terminal control sequences. A note in the
// middle tells how many bytes were dropped.
func (o *Output) String() string {
	cut := o.Cut()
	if cut == 0 {
		return clean(o.Bytes())
	}
	head, tail := o.head, o.keptTail()
	// Cut at the end of a line unless that drops too much.
	if i := bytes.LastIndexByte(head, '\n'); i > len(head)*3/4 {
		cut += len(head) - i - 1
		head = head[:i+1]
	} else {
		for i := 0; i < utf8.UTFMax && len(head) > 0 &&
			!utf8.Valid(head[max(0, len(head)-utf8.UTFMax):]); i++ {
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
	return fmt.Sprintf("%s\n[... %d bytes cut here: to see them, write the output to a file, "+
		"or filter it with grep, head or tail ...]\n%s",
		strings.TrimSuffix(clean(head), "\n"), cut, clean(tail))
}

// escapes are the control sequences of a terminal: colours, cursor movements, titles.
var escapes = lazyregexp.New(
	`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_=>78])`)

// clean turns the output for a terminal into text: valid UTF-8, without escape
// sequences and control characters, and of an overwritten line only the last state.
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

// Lines is a writer that calls OnLine for each line of its input, without control sequences and the
// newline. Empty lines are skipped, and lines are cut to 4 KiB. Only one goroutine may write at a
// time; OnLine runs on it.
type Lines struct {
	OnLine func(line string)
	part   []byte // of the line that is not complete yet
}

// maxLine is how many bytes of a line OnLine gets.
const maxLine = 4 << 10

// Write implements [io.Writer]. It never fails, and calls OnLine for each line that p ends.
func (l *Lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		line, rest, isWhole := bytes.Cut(p, []byte("\n"))
		l.part = append(l.part, line[:min(len(line), maxLine-len(l.part))]...)
		if isWhole {
			l.End()
		}
		p = rest
	}
	return n, nil
}

// End passes on a last line that has no newline, if there is one. Call it once after the last
// Write.
func (l *Lines) End() {
	if line := clean(l.part); line != "" {
		l.OnLine(line)
	}
	l.part = l.part[:0]
}
