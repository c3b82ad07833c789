package proc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"
)

// maxLine bounds a line of output, in bytes. The rest of a longer line is dropped.
const maxLine = 16 << 10

// eachLine calls handle with every line of r until r ends or fails.
func eachLine(r io.Reader, handle func(line string)) {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			handle(string(bytes.TrimRight(line, "\r\n")))
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// Tail keeps the last lines that were added, Most at most. Any goroutine may call its methods.
type Tail struct {
	Most int

	mu   sync.Mutex // guards the field that follows
	kept []string
}

// Add adds a line.
func (t *Tail) Add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept[max(0, len(t.kept)+1-t.Most):], line)
}

// Lines returns a copy of the lines, the oldest first; nil if there are none.
func (t *Tail) Lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.kept)
}

// maxHead bounds the beginning that a [Head] keeps, in bytes.
const maxHead = 64 << 10

// Head keeps the beginning of a program's output, up to 64 KiB, and drops the rest: enough for its
// complaint, whatever the program writes. The zero value is ready for use by one writer.
type Head struct{ text []byte }

// Write implements [io.Writer]. It never fails, because an error would end the program that writes.
func (h *Head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), maxHead-len(h.text))]...)
	return len(p), nil
}

// String returns the beginning of the output.
func (h *Head) String() string { return string(h.text) }
