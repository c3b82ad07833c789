package conversations

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Limits of reading. Writers stay below them.
const (
	maxLine = 64 << 20
	maxFile = 512 << 20
)

// FileError is a fault of a conversation's file: which file, and which line, from 1. Line 0 means
// the whole file.
type FileError struct {
	File string
	Line int
	Err  error
}

// Error names the file, the line and the fault.
func (e *FileError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap returns the fault.
func (e *FileError) Unwrap() error { return e.Err }

var (
	errTooLong = fmt.Errorf("the line is longer than %d bytes", maxLine)
	errNoLine  = errors.New("has no whole line")
)

// openFile opens a conversation's file. A pipe or a device is refused before it is opened, because
// opening it could wait for ever.
func openFile(path string, flag int) (*os.File, error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &FileError{File: path, Err: errors.New("is not a regular file")}
	case info.Size() > maxFile:
		return nil, &FileError{File: path, Err: fmt.Errorf("is larger than %d bytes", maxFile)}
	}
	return os.OpenFile(path, flag, 0) //nolint:gosec // a file of the store
}

// read reads a conversation. good is the size of its whole lines in bytes: after them there may be
// a line that a process did not finish. name is the file's name in errors.
func read(r io.Reader, name string) (c Conversation, good int64, err error) {
	c.Turns = []Turn{}
	in := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		text, err := readLine(in)
		if errors.Is(err, io.EOF) && n > 1 {
			return c, good, nil // text is empty or a torn line
		}
		if errors.Is(err, io.EOF) {
			err = errNoLine
		}
		if err == nil {
			err = c.add(text, n == 1)
		}
		if err != nil {
			return Conversation{}, 0, &FileError{File: name, Line: n, Err: err}
		}
		good += int64(len(text)) + 1
	}
}

// readLine reads a line without its end. With [io.EOF] the line has no end.
func readLine(in *bufio.Reader) (text []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(text)+len(part) > maxLine {
			return nil, errTooLong
		}
		text = append(text, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimSuffix(text, []byte("\n")), err
	}
}

// add puts a line into the conversation. first tells it to expect the header.
func (c *Conversation) add(text []byte, first bool) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("is not a line of a conversation: %w", err)
	}
	if first != (l.Type == headerLine) {
		return fmt.Errorf("a line %q stands in the wrong place", l.Type)
	}
	var at time.Time
	if l.At != nil {
		at = l.At.UTC()
		c.UpdatedAt = at
	}
	switch l.Type {
	case headerLine:
		if l.Version > version {
			return fmt.Errorf(
				"a newer lsclient wrote the file, in version %d of its format; this one knows %d",
				l.Version, version)
		}
		c.ID, c.Title, c.Workspace, c.CreatedAt = l.ID, l.Title, l.Workspace, at
		return nil
	case promptLine:
		c.Turns = append(c.Turns, Turn{At: at, Prompt: l.Text, Chosen: l.Model, Steps: []Step{}})
		c.Info.Turns++
		return nil
	}
	if len(c.Turns) == 0 {
		return fmt.Errorf("a line %q stands before the first prompt", l.Type)
	}
	t := &c.Turns[len(c.Turns)-1]
	switch {
	case l.Type == textLine:
		t.Steps = append(t.Steps, Step{Text: l.Text})
	case l.Type == toolLine && l.Tool != nil:
		t.Steps = append(t.Steps, Step{Tool: l.Tool})
	case l.Type == endLine:
		t.Model, t.Usage, t.Outcome, t.Error = l.Model, l.Usage, l.Outcome, l.Error
		if l.Model != "" {
			c.Model = l.Model
		}
	default:
		return fmt.Errorf("there is no line %q", l.Type)
	}
	return nil
}

// skim reads the parts that a list shows, without decoding texts and results. With headerOnly it
// reads no more than the first line, and counts no turns.
func skim(path string, headerOnly bool) (i Info, err error) {
	f, err := openFile(path, os.O_RDONLY)
	if err != nil {
		return i, err
	}
	defer func() { _ = f.Close() }()
	stat, err := f.Stat()
	if err != nil {
		return i, err
	}
	in := bufio.NewReaderSize(f, 64<<10)
	header, err := readLine(in)
	var c Conversation
	switch {
	case errors.Is(err, io.EOF):
		err = errNoLine
	case err == nil:
		err = c.add(header, true)
	}
	if err != nil {
		return i, &FileError{File: path, Line: 1, Err: err}
	}
	i = c.Info
	i.UpdatedAt = stat.ModTime().UTC()
	for isStart := true; !headerOnly; {
		part, err := in.ReadSlice('\n')
		switch {
		case !isStart:
		case bytes.HasPrefix(part, start(promptLine)):
			i.Turns++
		case bytes.HasPrefix(part, start(endLine)):
			var l line
			if json.Unmarshal(part, &l) == nil && l.Model != "" {
				i.Model = l.Model
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return i, nil
		}
		isStart = err == nil
	}
	return i, nil
}

// start is how a line of a kind begins.
func start(kind string) []byte { return []byte(`{"type":"` + kind + `"`) }
