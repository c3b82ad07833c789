package jsonrpc

import (
	"bufio"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/sourcegraph/jsonrpc2"
)

// stream carries messages for jsonrpc2. Reading is the connection's own
// goroutine's; writing only queues, so that a peer that has stopped reading
// blocks nobody who sends.
type stream struct {
	// Fixed at start.
	conn  io.ReadWriteCloser
	limit int // bytes of a message read, and of all that waits to be written
	wrote sync.WaitGroup

	// The reading goroutine's: ReadObject and the handler take turns on it.
	in     *bufio.Reader
	params jsontext.Value // of the request read last

	mu      sync.Mutex // guards the fields that follow
	queue   []byte     // frames that wait to be written
	wake    *sync.Cond // queue or fault changed
	writing int        // bytes handed to conn and not taken yet
	fault   error      // of reading or writing, the first one; nothing is sent after it
}

func newStream(conn io.ReadWriteCloser, limit int) *stream {
	s := &stream{conn: conn, limit: limit, in: bufio.NewReaderSize(conn, 64<<10)}
	s.wake = sync.NewCond(&s.mu)
	s.wrote.Go(s.write)
	return s
}

// lenient takes what JavaScript writes: half a surrogate pair in a string is no
// reason to end the connection.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// ReadObject implements jsonrpc2.ObjectStream.
func (s *stream) ReadObject(v any) error {
	err := s.read(v)
	if err != nil {
		s.fail(err)
	}
	return err
}

func (s *stream) read(v any) error {
	body, err := readFrame(s.in, s.limit)
	if err != nil {
		return err
	}
	var m struct {
		ID     jsontext.Value `json:"id,omitzero"`
		Method jsontext.Value `json:"method,omitzero"`
		Params jsontext.Value `json:"params,omitzero"`
	}
	if err := json.Unmarshal(body, &m, lenient); err != nil {
		return fmt.Errorf("reading a message: %w: %.80q", err, body)
	}
	s.params = nil
	if m.Method != nil {
		// jsonrpc2 would decode the params and encode them again. The handler
		// gets them as they came, and this is quicker, too.
		s.params, m.Params = m.Params, nil
		if body, err = json.Marshal(m, lenient); err != nil {
			return fmt.Errorf("reading a message: %w", err)
		}
	}
	if err := stdjson.Unmarshal(body, v); err != nil {
		return fmt.Errorf("reading a message: %w: %.80q", err, body)
	}
	return nil
}

// WriteObject implements jsonrpc2.ObjectStream: it queues a message.
func (s *stream) WriteObject(v any) error {
	body, err := stdjson.Marshal(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.writing + len(s.queue)
	switch {
	case s.fault != nil:
		return jsonrpc2.ErrClosed // why is the connection's to say
	case waiting > 0 && waiting+len(body) > s.limit:
		return fmt.Errorf("the other side does not read: %d bytes wait for it", waiting)
	}
	s.queue = appendFrame(s.queue, body)
	s.wake.Signal()
	return nil
}

// write writes what is queued until the stream fails or is closed.
func (s *stream) write() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.queue) == 0 && s.fault == nil {
			s.wake.Wait()
		}
		if s.fault != nil {
			return
		}
		out := s.queue
		s.queue, s.writing = nil, len(out)
		s.mu.Unlock()
		_, err := s.conn.Write(out)
		s.mu.Lock()
		s.writing = 0
		if err != nil {
			s.failLocked(err)
			// The reader is told by the end of what it reads.
			_ = s.conn.Close()
		}
	}
}

// Close implements jsonrpc2.ObjectStream. What is queued and not written is lost.
func (s *stream) Close() error {
	s.fail(errClosedByUs)
	err := s.conn.Close()
	s.wrote.Wait()
	return err
}

var errClosedByUs = errors.New("the connection was closed")

func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(err)
}

func (s *stream) failLocked(err error) {
	if s.fault == nil {
		s.fault = err
	}
	s.wake.Signal()
}

// why returns what ended the stream.
func (s *stream) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}
