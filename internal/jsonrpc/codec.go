package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Content-Length frames: how messages lie on a pipe.

// Bounds of a frame's header. Real ones have about 40 bytes.
const (
	maxHeaderLine  = 1 << 10
	maxHeaderLines = 16
)

// MaxMessage is the default bound of a message, in bytes.
const MaxMessage = 64 << 20

// ReadFrame reads one message: header lines, an empty line, and as many bytes as Content-Length
// says, at most limit. It accepts header names in any case, no space after the colon, unknown
// headers, and lines that end in LF alone. The error is io.EOF if r ends between two messages.
func ReadFrame(r *bufio.Reader, limit int) ([]byte, error) {
	length, err := readHeader(r, limit)
	if err != nil {
		return nil, err
	}
	// The memory grows with the received bytes, not with the length in the header.
	var body bytes.Buffer
	body.Grow(min(length, 64<<10))
	if err := copyBody(&body, r, length); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}

// CopyFrames copies messages as [ReadFrame] reads them until r ends, for a reader that believes
// every header. Each is flushed when it is whole. The error is nil at the end of r between two
// messages.
func CopyFrames(w io.Writer, r io.Reader, limit int) error {
	in, out := bufio.NewReaderSize(r, 64<<10), bufio.NewWriterSize(w, 64<<10)
	for {
		length, err := readHeader(in, limit)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// a later write or Flush returns the error
		_, _ = out.Write(appendHeader(out.AvailableBuffer(), length))
		if err := copyBody(out, in, length); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return fmt.Errorf("writing a message: %w", err)
		}
	}
}

func copyBody(w io.Writer, r io.Reader, length int) error {
	n, err := io.CopyN(w, r, int64(length))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("reading a message: %d of %d bytes: %w", n, length, err)
	}
	return nil
}

// readHeader reads the lines before a message, and returns its length.
func readHeader(r *bufio.Reader, limit int) (length int, err error) {
	length = -1
	for n := 0; ; n++ {
		line, err := headerLine(r)
		switch {
		case errors.Is(err, io.EOF) && n == 0 && line == "":
			return 0, io.EOF
		case errors.Is(err, io.EOF):
			return 0, fmt.Errorf("reading a header: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return 0, err
		case n >= maxHeaderLines:
			return 0, fmt.Errorf("reading a header: more than %d lines", maxHeaderLines)
		}
		if line == "" {
			break
		}
		size, err := contentLength(line, limit)
		switch {
		case err != nil:
			return 0, err
		case size >= 0 && length >= 0 && length != size:
			return 0, fmt.Errorf("reading a header: two Content-Length, %d and %d", length, size)
		case size >= 0:
			length = size
		}
	}
	if length <= 0 {
		return 0, errors.New("reading a header: no Content-Length, or an empty message")
	}
	return length, nil
}

// contentLength returns the length of a message that a line of a header has, -1 if it is another
// line.
func contentLength(line string, limit int) (int, error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok {
		return 0, fmt.Errorf("reading a header: %q is none: something else writes to this stream",
			line)
	}
	if !strings.EqualFold(strings.TrimSpace(name), "Content-Length") {
		return -1, nil
	}
	value = strings.TrimSpace(value)
	size, err := strconv.ParseUint(value, 10, 63)
	switch {
	case err != nil:
		return 0, fmt.Errorf("reading a header: Content-Length %q is not a number of bytes", value)
	case size > uint64(limit):
		return 0, fmt.Errorf("it sent a message of %d bytes, more than %s", size, bytesText(limit))
	}
	return int(size), nil
}

// bytesText writes a number of bytes for people.
func bytesText(n int) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// headerLine reads a line without its end. At the end of r it returns the rest and io.EOF.
func headerLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || len(line) > maxHeaderLine {
		return "", fmt.Errorf("reading a header: a line of more than %d bytes: %.40q…",
			maxHeaderLine, line)
	}
	return string(bytes.TrimRight(line, "\r\n")), err
}

// AppendFrame appends a message with its header.
func AppendFrame(dst, body []byte) []byte { return append(appendHeader(dst, len(body)), body...) }

func appendHeader(dst []byte, length int) []byte {
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(length), 10)
	return append(dst, "\r\n\r\n"...)
}
