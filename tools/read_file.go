package tools

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

	"tapgw/tools/internal/workspace"
)

type readFileIn struct {
	FilePath  string `json:"filePath" jsonschema:"The file to read: an absolute path, or one relative to the workspace."`
	StartLine int    `json:"startLineNumberBaseOne,omitzero" jsonschema:"The first line to read; the first of the file is 1. Default: 1."`
	EndLine   int    `json:"endLineNumberBaseOne,omitzero" jsonschema:"The last line to read, itself included. Default: the last of the file."`
	Offset    int    `json:"offset,omitzero" jsonschema:"Another name for startLineNumberBaseOne."`
	Limit     int    `json:"limit,omitzero" jsonschema:"How many lines to read at most, instead of endLineNumberBaseOne."`
}

var _ = add(&Tool{
	Name: "read_file",
	Description: "Read a text file, or the lines of it that are asked for. The text comes as it is, without line " +
		"numbers. A long file is cut, and the answer says where to go on: read large parts rather than many small " +
		"ones.",
	Kind: Read,
}, readFile)

// maxRead is how many bytes of a file are shown.
const maxRead = 128 << 10

func readFile(ctx context.Context, env *Env, in readFileIn) (Result, error) {
	first := cmp.Or(in.StartLine, in.Offset, 1)
	last := in.EndLine
	if last == 0 && in.Limit > 0 {
		last = first + in.Limit - 1
	}
	if first < 1 || last < 0 || in.Limit < 0 || last != 0 && last < first {
		return Result{},
			fmt.Errorf("lines %d to %d cannot be read: the first line is 1, and the end is not before the start", first,
				last)
	}
	at, err := env.files().At(ctx, in.FilePath, false)
	if err != nil {
		return Result{}, err
	}
	defer at.Close()
	f, info, err := at.Open()
	if err != nil {
		return Result{}, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	if head, _ := r.Peek(r.Size()); workspace.Binary(head) {
		return Result{}, fmt.Errorf("%s is a binary file of %d bytes: it cannot be read as text", at.Name, info.Size())
	}
	part := linesOf{first: first, last: last}
	if err := part.read(ctx, r); err != nil {
		return Result{}, fmt.Errorf("reading %s: %w", at.Name, err)
	}
	switch {
	case part.total == 0:
		return text(at.Name + " is empty."), nil
	case first > part.total:
		return Result{}, fmt.Errorf("%s has no line %d: it has %d", at.Name, first, part.total)
	}
	shown := part.text.String()
	res := text(shown)
	if note := part.note(); note != "" {
		res.Parts = append([]string{strings.TrimSuffix(shown, "\n")}, note)
	}
	if !utf8.ValidString(shown) {
		res.Parts = append(res.Parts, "[the file is not UTF-8: some characters are not shown as they are]")
	}
	return res, nil
}

// linesOf is a part of a text: what it holds, and what there is besides.
type linesOf struct {
	first, last int // asked for; last 0: to the end
	text        strings.Builder
	shown       int  // the last line of which something is in text
	cut         bool // that line is not whole
	full        bool // there is no room for more
	total       int  // lines of the whole text
}

// read reads r to its end and keeps at most maxRead bytes of the lines.
func (l *linesOf) read(ctx context.Context, r *bufio.Reader) error {
	line, began := 1, false
	for {
		chunk, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		if len(chunk) > 0 {
			began = true
			l.keep(line, chunk)
		}
		if bytes.HasSuffix(chunk, []byte("\n")) {
			line, began = line+1, false
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
	if !began {
		l.total--
	}
	return nil
}

// keep adds a piece of a line if it is asked for and there is room.
func (l *linesOf) keep(line int, piece []byte) {
	if line < l.first || l.last > 0 && line > l.last || l.full {
		return
	}
	if room := maxRead - l.text.Len(); len(piece) > room {
		l.full = true
		if l.shown > 0 && line != l.shown {
			return // rather a line less than a part of one
		}
		for room > 0 && !utf8.RuneStart(piece[room]) {
			room--
		}
		piece, l.cut = piece[:room], true
	}
	l.text.Write(piece)
	l.shown = line
}

// note says which lines are shown, unless all are.
func (l *linesOf) note() string {
	switch {
	case l.cut:
		return fmt.Sprintf("[line %d of %d was cut: it is longer than can be shown]", l.shown, l.total)
	case l.first == 1 && l.shown == l.total:
		return ""
	case l.shown == l.total:
		return fmt.Sprintf("[lines %d-%d: the end of the file]", l.first, l.shown)
	}
	return fmt.Sprintf("[lines %d-%d of %d: go on with startLineNumberBaseOne %d]", l.first, l.shown, l.total,
		l.shown+1)
}
