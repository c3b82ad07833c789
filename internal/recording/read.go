package recording

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Limits of reading a file, in bytes. A line holds at most one frame, whose control characters may
// be escaped.
const (
	maxLine = 2*protocol.MaxFrame + 4096
	maxFile = 1 << 30
)

// File is a recording that [Read] has read. Faults are the lines that are no lines of a
// recording; they are not among Lines.
type File struct {
	Start  adminapi.RecordingStart
	Lines  []Line
	Faults []Fault
}

// Line is a line of a recording with its number in the file, from 1.
type Line struct {
	Number int
	adminapi.RecordingLine
}

// Fault is a line that could not be read, and why.
type Fault struct {
	Line    int
	Message string
}

// Read reads a recording to its end. A broken line is a fault, and the rest is read. The error says
// that the file can't be read, is no recording, has another version of the format, or is over 1
// GiB.
func Read(r io.Reader) (*File, error) {
	limited := &io.LimitedReader{R: r, N: maxFile + 1}
	in := bufio.NewReaderSize(limited, 64<<10)
	f := &File{}
	for number := 1; ; number++ {
		text, size, err := readLine(in)
		isLast := errors.Is(err, io.EOF)
		if err != nil && !isLast {
			return nil, fmt.Errorf("reading line %d: %w", number, err)
		}
		if limited.N <= 0 {
			return nil, fmt.Errorf("the file is over %d MiB; record less, or cut lines off its end",
				maxFile>>20)
		}
		switch text = bytes.TrimSpace(text); {
		case number == 1:
			if f.Start, err = readStart(text); err != nil {
				return nil, err
			}
		case size > maxLine:
			f.Faults = append(f.Faults,
				Fault{number, fmt.Sprintf("it has %d bytes, the limit is %d", size, maxLine)})
		case len(text) > 0:
			line, fault := readLineOf(text)
			if fault != "" {
				f.Faults = append(f.Faults, Fault{number, fault})
			} else {
				f.Lines = append(f.Lines, Line{number, line})
			}
		}
		if isLast {
			return f, nil
		}
	}
}

// readLine reads a line with its end. Of a line over maxLine only the beginning is returned. The
// error of the last line is io.EOF.
func readLine(in *bufio.Reader) (text []byte, size int, err error) {
	for {
		part, err := in.ReadSlice('\n')
		size += len(part)
		if len(text)+len(part) <= maxLine {
			text = append(text, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, size, err
		}
	}
}

// lenient accepts lone surrogates, as JavaScript writes them.
var lenient = jsontext.AllowInvalidUTF8(true)

func readStart(text []byte) (start adminapi.RecordingStart, err error) {
	if jsonv2.Unmarshal(text, &start, lenient) != nil || start.Recording == 0 ||
		start.Session.ID == "" {
		return start,
			errors.New("line 1 is not the first line of a recording; tapctl record writes one")
	}
	if start.Recording != adminapi.RecordingVersion {
		return start, fmt.Errorf(
			"the recording has format %d, this program reads format %d; use the tapctl "+
				"that wrote it",
			start.Recording,
			adminapi.RecordingVersion,
		)
	}
	for i, c := range start.Connections {
		if !isObject(c.Hello) {
			return start, fmt.Errorf("line 1: connections[%d].hello: must be a JSON object", i)
		}
	}
	return start, nil
}

// readLineOf reads a further line. fault is the fault of the line, or "".
func readLineOf(text []byte) (line adminapi.RecordingLine, fault string) {
	if err := jsonv2.Unmarshal(text, &line, lenient); err != nil {
		return line, protocol.Explain("line", err)
	}
	contents := 0
	for _, isSet := range []bool{line.Message != nil, line.Text != "", line.Size != 0,
		line.Closed != nil,
		line.Gap != 0, line.End != ""} {
		if isSet {
			contents++
		}
	}
	switch {
	case contents != 1 || line.Size < 0:
		return line, "it has not one of message, text, size, closed, gap and end"
	case line.Message != nil && !isObject(line.Message):
		return line, "message: must be a JSON object"
	case line.Gap != 0 || line.End != "":
		return line, ""
	case !isParty(line.From) || !isParty(line.To) || line.From == line.To:
		return line, "from and to: must be two of gateway, provider and host"
	case line.Conn < 1 && line.From != adminapi.PartyHost && line.To != adminapi.PartyHost:
		return line, "conn: must be the number of a connection"
	}
	return line, ""
}

func isObject(text []byte) bool {
	return protocol.Object(text, func(string, protocol.Raw) error { return nil }) == nil
}

func isParty(name string) bool {
	return name == adminapi.PartyGateway || name == adminapi.PartyProvider ||
		name == adminapi.PartyHost
}
