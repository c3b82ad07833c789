package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadFrame(t *testing.T) {
	const limit = 100
	tests := map[string]struct {
		in   string
		want []string // messages before the end
		err  string   // of the end; "": io.EOF
	}{
		"as the server writes": {"Content-Length: 2\r\n\r\n{}Content-Length: 4\r\n\r\nnull",
			[]string{"{}", "null"},
			""},
		"any case, no space": {"content-LENGTH:2\r\n\r\n{}", []string{"{}"}, ""},
		"more space":         {"Content-Length :\t 2 \r\n\r\n{}", []string{"{}"}, ""},
		"content type": {"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}",
			[]string{"{}"}, ""},
		"lines end in LF": {"Content-Length: 2\n\n{}", []string{"{}"}, ""},
		"the same length twice": {"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
			[]string{"{}"}, ""},
		"bytes, not characters": {"Content-Length: 4\r\n\r\n\"é\"", []string{`"é"`}, ""},
		"at the limit": {"Content-Length: 100\r\n\r\n" + strings.Repeat("1", 100),
			[]string{strings.Repeat("1", 100)},
			""},
		"over the limit": {"Content-Length: 101\r\n\r\n" + strings.Repeat("1", 101), nil,
			"it sent a message of 101 bytes, more than 100 bytes"},
		"over every limit": {"Content-Length: 99999999999999999999999\r\n\r\n", nil,
			"is not a number"},
		"two lengths": {"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", nil,
			"two Content-Length, 2 and 3"},
		"negative":  {"Content-Length: -1\r\n\r\n{}", nil, `"-1" is not a number`},
		"no number": {"Content-Length: 0x2\r\n\r\n{}", nil, `"0x2" is not a number`},
		"empty":     {"Content-Length: 0\r\n\r\n", nil, "empty message"},
		"no length": {"Content-Type: text\r\n\r\n{}", nil, "no Content-Length"},
		"somebody prints": {"Content-Length: 2\r\n\r\n{}Warning\r\n", []string{"{}"},
			`"Warning" is none: something else writes`},
		"a line without end": {strings.Repeat("x", 100_000), nil, "a line of more than 1024 bytes"},
		"a long line": {"X: " + strings.Repeat("x", maxHeaderLine) + "\r\n\r\n", nil,
			"a line of more than"},
		"header lines without end": {strings.Repeat("X: y\r\n", 1000), nil, "more than 16 lines"},
		"ends in the header":       {"Content-Len", nil, "unexpected EOF"},
		"ends after a line":        {"Content-Length: 2\r\n", nil, "unexpected EOF"},
		"ends in the body": {"Content-Length: 20\r\n\r\n{}", nil,
			"2 of 20 bytes: unexpected EOF"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once":       strings.NewReader(tt.in),
				"byte by byte":  iotest.OneByteReader(strings.NewReader(tt.in)),
				"data with end": iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				got, err := readFrames(r, limit)
				if !slices.Equal(got, tt.want) {
					t.Errorf("%s: read %q, want %q", how, got, tt.want)
				}
				if tt.err == "" && !errors.Is(err, io.EOF) || tt.err != "" &&
					!strings.Contains(err.Error(), tt.err) {
					t.Errorf("%s: ended with %v, want %q", how, err, tt.err)
				}
			}
		})
	}
}

// readFrames reads messages until the first error.
func readFrames(r io.Reader, limit int) (got []string, err error) {
	in := bufio.NewReader(r)
	for {
		body, err := ReadFrame(in, limit)
		if err != nil {
			return got, err
		}
		got = append(got, string(body))
	}
}

func TestFailingReader(t *testing.T) {
	gone := errors.New("gone")
	for _, at := range []string{"", "Content-Le", "Content-Length: 5\r\n\r\n12"} {
		r := io.MultiReader(strings.NewReader(at), iotest.ErrReader(gone))
		if _, err := ReadFrame(bufio.NewReader(r), 100); !errors.Is(err, gone) {
			t.Errorf("after %q: %v, want %v", at, err, gone)
		}
	}
}

// TestCopyFrames: a reader behind it sees the messages of [ReadFrame] with a plain header, and none
// that is too long.
func TestCopyFrames(t *testing.T) {
	for name, tt := range map[string]struct{ in, want, err string }{
		"two messages": {"content-LENGTH:2\n\n{}Content-Type: x\r\nContent-Length: 4\r\n\r\nnull",
			"Content-Length: 2\r\n\r\n{}Content-Length: 4\r\n\r\nnull", ""},
		"as much memory as there is not": {"Content-Length: 2\r\n\r\n{}Content-Length: 99999999999999\r\n\r\n{}",
			"Content-Length: 2\r\n\r\n{}",
			"it sent a message of 99999999999999 bytes, more than 64 MiB"},
		"a line without end": {strings.Repeat("x", 100_000), "", "a line of more than 1024 bytes"},
		"ends in the body":   {"Content-Length: 20\r\n\r\n{}", "", "2 of 20 bytes: unexpected EOF"},
	} {
		var out strings.Builder
		err := CopyFrames(&out, strings.NewReader(tt.in), MaxMessage)
		isRight := err == nil && tt.err == "" || err != nil && tt.err != "" &&
			strings.Contains(err.Error(), tt.err)
		if out.String() != tt.want || !isRight {
			t.Errorf("%s: %q, %v, want %q and the error %q", name, out.String(), err, tt.want,
				tt.err)
		}
	}
	gone := errors.New("gone")
	r := io.MultiReader(strings.NewReader("Content-Length: 2\r\n\r\n{}"), iotest.ErrReader(gone))
	if err := CopyFrames(io.Discard, r, MaxMessage); !errors.Is(err, gone) {
		t.Errorf("a reader that fails: %v, want %v", err, gone)
	}
}

// A length is the sender's claim: it is not believed before the bytes come.
func TestLengthIsNotAllocated(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := ReadFrame(
		bufio.NewReader(strings.NewReader("Content-Length: 1000000000\r\n\r\n{}")),
		1<<30); err == nil {
		t.Error("readFrame of a body that is cut: no error, want one")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 100<<20 {
		t.Errorf("%d bytes allocated for two that came, want at most %d", n, 100<<20)
	}
}

func FuzzCodec(f *testing.F) {
	f.Add([]byte("Content-Length: 2\r\n\r\n{}Content-Length: 4\r\n\r\nnull"), uint8(3))
	f.Add([]byte("content-length:2\n\n{}"), uint8(1))
	f.Add([]byte("Content-Type: x\r\nContent-Length: 7\r\n\r\n{\"a\":1}"), uint8(2))
	f.Add([]byte("Content-Length: 99\r\n\r\n{}"), uint8(7))
	f.Add([]byte("\r\n\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, chunk uint8) {
		const limit = 1 << 16
		var copied bytes.Buffer
		_ = CopyFrames(&copied, bytes.NewReader(in), limit)
		whole, wholeErr := readFrames(bytes.NewReader(in), limit)
		split, splitErr := readFrames(&chunks{in, int(chunk)%13 + 1}, limit)
		if !slices.Equal(whole, split) || wholeErr.Error() != splitErr.Error() {
			t.Fatalf(
				"at once %q, %v; split %q, %v, want %q and %v",
				whole, wholeErr, split, splitErr, split, splitErr.Error(),
			)
		}
		// What was read comes back when it is written and read again.
		var again []byte
		for _, m := range whole {
			again = AppendFrame(again, []byte(m))
		}
		if back, err := readFrames(bytes.NewReader(again), limit); !slices.Equal(back, whole) ||
			!errors.Is(err, io.EOF) {
			t.Fatalf("written again: %q, %v, want %q", back, err, whole)
		}
		if !bytes.HasPrefix(copied.Bytes(), again) {
			t.Fatalf("copied: %q, want %q first", copied.Bytes(), again)
		}
	})
}

// chunks gives out n bytes at a time.
type chunks struct {
	rest []byte
	n    int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest[:min(c.n, len(c.rest))])
	c.rest = c.rest[n:]
	return n, nil
}
