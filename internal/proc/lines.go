package proc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
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

// ring stores the last lines that were added.
type ring struct {
	mu   sync.Mutex // guards the fields below
	kept []string
	next int // where the next one goes once kept is full
}

func newRing(size int) *ring {
	if size <= 0 {
		size = defaultKeep
	}
	return &ring{kept: make([]string, 0, size)}
}

func (r *ring) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) < cap(r.kept) {
		r.kept = append(r.kept, line)
		return
	}
	r.kept[r.next] = line
	r.next = (r.next + 1) % len(r.kept)
}

func (r *ring) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(append([]string(nil), r.kept[r.next:]...), r.kept[:r.next]...)
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
