package builtin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"tapgw/tools"
	"tapgw/tools/internal/workspace"
)

type readFileIn struct {
	FilePath  string `json:"filePath" jsonschema:"The file to read: an absolute path, or one relative to the workspace."`
	StartLine int    `json:"startLineNumberBaseOne,omitzero" jsonschema:"The first line to read; the first of the file is 1. Default: 1."`
	EndLine   int    `json:"endLineNumberBaseOne,omitzero" jsonschema:"The last line to read, itself included. Default: the last of the file."`
	Offset    int    `json:"offset,omitzero" jsonschema:"Another name for startLineNumberBaseOne."`
	Limit     int    `json:"limit,omitzero" jsonschema:"How many lines to read at most, instead of endLineNumberBaseOne."`
}

var _ = add(&tools.Tool{
	Name: "read_file",
	Description: "Read a text file, or the lines of it that are asked for. The text comes as it " +
		"is, without line " +
		"numbers. A long file is cut, and the answer says where to go on: read large parts " +
		"rather than many small " +
		"ones.",
	Kind: tools.Read,
}, readFile)

// maxRead is how many bytes of a file are shown.
const maxRead = 128 << 10

func readFile(ctx context.Context, env *access, in readFileIn) (tools.Result, error) {
	first := cmp.Or(in.StartLine, in.Offset, 1)
	last := in.EndLine
	if last == 0 && in.Limit > 0 {
		last = first + in.Limit - 1
	}
	if first < 1 || last < 0 || in.Limit < 0 || last != 0 && last < first {
		return tools.Result{}, fmt.Errorf("lines %d to %d cannot be read: "+
			"the first line is 1, and the end is not before the start", first, last)
	}
	at, err := env.files().At(ctx, in.FilePath, false)
	if err != nil {
		return tools.Result{}, err
	}
	defer at.Close()
	f, info, err := at.Open()
	if err != nil {
		return tools.Result{}, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	if head, _ := r.Peek(r.Size()); workspace.Binary(head) {
		return tools.Result{}, fmt.Errorf(
			"%s is a binary file of %d bytes: it cannot be read as text", at.Name, info.Size())
	}
	lines := lineRange{first: first, last: last}
	if err := lines.read(ctx, r); err != nil {
		return tools.Result{}, fmt.Errorf("reading %s: %w", at.Name, err)
	}
	switch {
	case lines.total == 0:
		return textResult(at.Name + " is empty."), nil
	case first > lines.total:
		return tools.Result{}, fmt.Errorf("%s has no line %d: it has %d", at.Name, first,
			lines.total)
	}
	shown := lines.text.String()
	res := textResult(shown)
	if note := lines.note(); note != "" {
		res.Parts = append([]string{strings.TrimSuffix(shown, "\n")}, note)
	}
	if !utf8.ValidString(shown) {
		res.Parts = append(res.Parts,
			"[the file is not UTF-8: some characters are not shown as they are]")
	}
	return res, nil
}

// lineRange collects a range of lines from a text.
type lineRange struct {
	first, last int // lines to collect, from 1; last 0: to the end
	text        strings.Builder
	shown       int  // the last line of which a part is in text
	isCut       bool // only the beginning of that line is in text
	isFull      bool // text has reached maxRead bytes
	total       int  // number of lines in the whole text
}

// read reads r to its end and collects at most maxRead bytes of the lines.
func (l *lineRange) read(ctx context.Context, r *bufio.Reader) error {
	line, hasText := 1, false // hasText: of the current line something was read
	for {
		chunk, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		if len(chunk) > 0 {
			hasText = true
			l.add(line, chunk)
		}
		if bytes.HasSuffix(chunk, []byte("\n")) {
			line, hasText = line+1, false
		}
		if err == nil {
			err = ctx.Err()
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	l.total = line
	if !hasText {
		l.total--
	}
	return nil
}

// add collects a piece of a line if the line is in the range and text has space.
func (l *lineRange) add(line int, piece []byte) {
	if line < l.first || l.last > 0 && line > l.last || l.isFull {
		return
	}
	if space := maxRead - l.text.Len(); len(piece) > space {
		l.isFull = true
		if l.shown > 0 && line != l.shown {
			return // a missing line is better than a part of one
		}
		for space > 0 && !utf8.RuneStart(piece[space]) {
			space--
		}
		piece, l.isCut = piece[:space], true
	}
	l.text.Write(piece)
	l.shown = line
}

// note describes which lines are shown, "" if all are.
func (l *lineRange) note() string {
	switch {
	case l.isCut:
		return fmt.Sprintf("[line %d of %d was cut: it is longer than can be shown]", l.shown,
			l.total)
	case l.first == 1 && l.shown == l.total:
		return ""
	case l.shown == l.total:
		return fmt.Sprintf("[lines %d-%d: the end of the file]", l.first, l.shown)
	}
	return fmt.Sprintf("[lines %d-%d of %d: go on with startLineNumberBaseOne %d]",
		l.first, l.shown, l.total, l.shown+1)
}
