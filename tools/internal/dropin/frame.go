package dropin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// frame is a message of the runner: one JSON object a line.
type frame struct {
	Call int `json:"call"` // the call that the frame belongs to, or 0

	// Of a probe.
	Python string          `json:"python"` // in the first frame: the path of the interpreter
	File   string          `json:"file"`   // the file of the next frame
	Skip   bool            `json:"skip"`   // the file is no tool
	Schema json.RawMessage `json:"schema"` // the file is a tool

	// Of a call.
	Sync   []string        `json:"sync"` // path, content
	Open   []string        `json:"open"` // uri, language, text
	Result json.RawMessage `json:"result"`

	// Of a probe or a call.
	Fault *string `json:"fault"`
	Line  int     `json:"line"`
}

// maxFrame is the size of the longest line that a runner may send.
const maxFrame = 16 << 20

var errTooLong = fmt.Errorf("it sent more than %d MB at once", maxFrame>>20)

func decodeFrame(line []byte) (frame, error) {
	var f frame
	if err := json.Unmarshal(line, &f); err != nil {
		return frame{}, fmt.Errorf("reading what its runner says: %w", err)
	}
	if f.Sync != nil && len(f.Sync) != 2 || f.Open != nil && len(f.Open) != 3 {
		return frame{}, errors.New("reading what its runner says: sync has 2 parts, open has 3")
	}
	return f, nil
}

// splitter splits a runner's output into frames and passes each to onFrame. After a
// frame that can't be read it calls onFault once and drops the rest.
type splitter struct {
	onFrame func(frame)
	onFault func(error)
	part    []byte // of the line that is not complete yet
	isDone  bool
}

// Write is io.Writer's. It never fails, so that a runner never waits for us.
func (s *splitter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && !s.isDone {
		line, rest, isWhole := bytes.Cut(p, []byte("\n"))
		if len(s.part)+len(line) > maxFrame {
			s.end(errTooLong)
			break
		}
		p = rest
		if !isWhole {
			s.part = append(s.part, line...)
			break
		}
		if len(s.part) > 0 {
			line = append(s.part, line...)
			s.part = s.part[:0]
		}
		if !bytes.HasPrefix(line, []byte("{")) {
			continue // output from before the runner had its own channel
		}
		f, err := decodeFrame(line)
		if err != nil {
			s.end(err)
			break
		}
		s.onFrame(f)
	}
	return n, nil
}

func (s *splitter) end(err error) {
	s.isDone, s.part = true, nil
	s.onFault(err)
}
