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

// Bounds of a frame's header. Real ones have about 40 bytes.
const (
	maxHeaderLine  = 1 << 10
	maxHeaderLines = 16
)

// ReadFrame reads one message: header lines, an empty line, and as many bytes as Content-Length
// says, at most limit. It accepts header names in any case, no space after the colon, unknown
// headers, and lines that end in LF alone. The error is io.EOF if r ends between two messages.
func ReadFrame(r *bufio.Reader, limit int) ([]byte, error) {
	length := -1
	for n := 0; ; n++ {
		line, err := headerLine(r)
		switch {
		case errors.Is(err, io.EOF) && n == 0 && line == "":
			return nil, io.EOF
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("reading a header: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return nil, err
		case n >= maxHeaderLines:
			return nil, fmt.Errorf("reading a header: more than %d lines", maxHeaderLines)
		}
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("reading a header: %q is none: something else writes to this stream", line)
		}
		if !strings.EqualFold(strings.TrimSpace(name), "Content-Length") {
			continue
		}
		value = strings.TrimSpace(value)
		size, err := strconv.ParseUint(value, 10, 63)
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading a header: Content-Length %q is not a number of bytes", value)
		case size > uint64(limit):
			return nil, fmt.Errorf("a message of %d bytes is over the limit of %d", size, limit)
		case length >= 0 && uint64(length) != size:
			return nil, fmt.Errorf("reading a header: two Content-Length, %d and %d", length, size)
		}
		length = int(size)
	}
	if length <= 0 {
		return nil, errors.New("reading a header: no Content-Length, or an empty message")
	}
	// The memory grows with the bytes that come, not with what the header claims.
	var body bytes.Buffer
	body.Grow(min(length, 64<<10))
	if n, err := io.CopyN(&body, r, int64(length)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("reading a message: %d of %d bytes: %w", n, length, err)
	}
	return body.Bytes(), nil
}

// headerLine reads a line without its end. At the end of r it returns what was read, and io.EOF.
func headerLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || len(line) > maxHeaderLine {
		return "", fmt.Errorf("reading a header: a line of more than %d bytes: %.40q…", maxHeaderLine, line)
	}
	return string(bytes.TrimRight(line, "\r\n")), err
}

// AppendFrame appends a message with its header.
func AppendFrame(dst, body []byte) []byte {
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(body)), 10)
	dst = append(dst, "\r\n\r\n"...)
	return append(dst, body...)
}
