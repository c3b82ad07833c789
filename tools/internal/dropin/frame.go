package dropin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// frame is what the runner says, one JSON object a line.
type frame struct {
	Call int `json:"call"` // that it belongs to; 0: none

	// Of a probe.
	Python string          `json:"python"` // first: the interpreter that runs
	File   string          `json:"file"`   // next is about this one
	Skip   bool            `json:"skip"`   // it is no tool
	Schema json.RawMessage `json:"schema"` // it is one

	// Of a call.
	Sync   []string        `json:"sync"` // path, content
	Open   []string        `json:"open"` // uri, language, text
	Result json.RawMessage `json:"result"`

	// Of either.
	Fault *string `json:"fault"`
	Line  int     `json:"line"`
}

// maxFrame is the size of the longest line that is read from a runner.
const maxFrame = 16 << 20

var errLong = fmt.Errorf("it sent more than %d MB at once", maxFrame>>20)

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

// splitter takes a runner's output apart. It passes on what it reads until take or
// a fault of the runner's ends it.
type splitter struct {
	take func(frame)
	fail func(error)
	part []byte
	done bool
}

// Write never fails: a runner must not wait for us.
func (s *splitter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && !s.done {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		if len(s.part)+len(line) > maxFrame {
			s.end(errLong)
			break
		}
		p = rest
		if !whole {
			s.part = append(s.part, line...)
			break
		}
		if len(s.part) > 0 {
			line = append(s.part, line...)
			s.part = s.part[:0]
		}
		if !bytes.HasPrefix(line, []byte("{")) {
			continue // what something said before the runner had its channel
		}
		f, err := decodeFrame(line)
		if err != nil {
			s.end(err)
			break
		}
		s.take(f)
	}
	return n, nil
}

func (s *splitter) end(err error) {
	s.done, s.part = true, nil
	s.fail(err)
}
