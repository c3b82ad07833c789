package jsonrpc

import (
	"bufio"
	stdjson "encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/sourcegraph/jsonrpc2"
)

// stream carries messages for jsonrpc2, whose reading goroutine calls ReadObject. Writing only
// queues, so that a peer that stops reading blocks no sender.
type stream struct {
	// Fixed at start.
	conn    io.ReadWriteCloser
	limit   int // bytes of a message that comes, and of all that wait to be written
	writing sync.WaitGroup

	// The reading goroutine's, which calls ReadObject and the handler in turn.
	in     *bufio.Reader
	params jsontext.Value // of the message that was read last

	mu      sync.Mutex // guards the fields that follow
	queue   []byte     // frames that wait to be written
	changed *sync.Cond // queue or err changed
	inWrite int        // bytes that conn.Write is writing
	err     error      // the first of reading or writing; writing stops after it
}

func newStream(conn io.ReadWriteCloser, limit int) *stream {
	s := &stream{conn: conn, limit: limit, in: bufio.NewReaderSize(conn, 64<<10)}
	s.changed = sync.NewCond(&s.mu)
	s.writing.Go(s.write)
	return s
}

// lenientJSON accepts half a surrogate pair in a string, which JavaScript writes.
var lenientJSON = json.JoinOptions(jsontext.AllowInvalidUTF8(true),
	jsontext.AllowDuplicateNames(true))

// ReadObject implements jsonrpc2.ObjectStream.
func (s *stream) ReadObject(v any) error {
	err := s.read(v)
	if err != nil {
		s.fail(err)
	}
	return err
}

func (s *stream) read(v any) error {
	body, err := ReadFrame(s.in, s.limit)
	if err != nil {
		return err
	}
	var m struct {
		ID     jsontext.Value `json:"id,omitzero"`
		Method jsontext.Value `json:"method,omitzero"`
		Params jsontext.Value `json:"params,omitzero"`
	}
	if err := json.Unmarshal(body, &m, lenientJSON); err != nil {
		return fmt.Errorf("reading a message: %w: %.80q", err, body)
	}
	s.params = nil
	if m.Method != nil {
		// jsonrpc2 would decode the params and encode them again. The handler gets the bytes that
		// came, and this is faster.
		s.params, m.Params = m.Params, nil
		if body, err = json.Marshal(m, lenientJSON); err != nil {
			return fmt.Errorf("reading a message: %w", err)
		}
	}
	if err := stdjson.Unmarshal(body, v); err != nil {
		return fmt.Errorf("reading a message: %w: %.80q", err, body)
	}
	return nil
}

// WriteObject implements jsonrpc2.ObjectStream: it queues a message. The error is
// jsonrpc2.ErrClosed after the end, or says that the queue is full.
func (s *stream) WriteObject(v any) error {
	body, err := stdjson.Marshal(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.inWrite + len(s.queue)
	switch {
	case s.err != nil:
		return jsonrpc2.ErrClosed // Conn.explain replaces it with the reason
	case waiting > 0 && waiting+len(body) > s.limit:
		return fmt.Errorf("the other side does not read: %d bytes wait for it", waiting)
	}
	s.queue = AppendFrame(s.queue, body)
	s.changed.Signal()
	return nil
}

// write writes the queued messages until the stream fails or is closed.
func (s *stream) write() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.queue) == 0 && s.err == nil {
			s.changed.Wait()
		}
		if s.err != nil {
			return
		}
		out := s.queue
		s.queue, s.inWrite = nil, len(out)
		s.mu.Unlock()
		_, err := s.conn.Write(out)
		s.mu.Lock()
		s.inWrite = 0
		if err != nil {
			s.failLocked(err)
			// Closing the connection ends the reader, too.
			_ = s.conn.Close()
		}
	}
}

// Close implements jsonrpc2.ObjectStream. Frames that are queued and not written are lost.
func (s *stream) Close() error {
	s.fail(ErrClosed)
	err := s.conn.Close()
	s.writing.Wait()
	return err
}

func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(err)
}

func (s *stream) failLocked(err error) {
	if s.err == nil {
		s.err = err
	}
	s.changed.Signal()
}

// endReason returns the first error of the stream.
func (s *stream) endReason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
