package pipe

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// Borrower is a connection to a gateway that may read and write the CLI's pipe by itself. It does so from the first
// Write on, which is empty, as is the one that says that a message of the gateway has been written to the CLI.
type Borrower interface {
	io.ReadWriteCloser
	// Taken is what the gateway has read of the CLI. Its end says that the gateway does not have the pipe any more.
	// Nil: the gateway does not take the pipe.
	Taken() io.ReadCloser
}

// Lendable is the end of a pipe that the CLI writes to and that can be lent.
type Lendable interface {
	io.Reader
	SetReadDeadline(t time.Time) error
	IsEmpty() bool    // nothing can be read at once
	WaitEnd()         // returns when the CLI has closed it, whoever reads it
	Release()         // it is not read until Reacquire
	Reacquire() error // after that it is
}

// source is what the CLI sends: from the CLI itself, or from the gateway that has the pipe. One goroutine reads it.
type source struct {
	cli  io.Reader
	done chan struct{} // closed when nothing more is read

	mu           sync.Mutex // guards the fields that follow
	isAtBoundary bool       // the reader is between two messages
	wanted       *loan      // begins at the next boundary
	loan         *loan      // nil: none

	rest *loan // what its gateway has not taken is being read; nil: all is; only for the reader
}

// loan is the time in which a gateway has the pipe. It ends when all is read that was in the pipe when the gateway left
// it: only then is it known what the gateway has answered.
type loan struct {
	taken        io.ReadCloser
	begun, ended chan struct{}
}

// lend waits until the CLI is not read any more. From then on it is read by a gateway. It returns false if the CLI has
// closed the pipe.
func (s *source) lend(l *loan) bool {
	s.mu.Lock()
	s.wanted = l
	s.wake(time.Unix(1, 0))
	s.mu.Unlock()
	select {
	case <-l.begun:
		return true
	case <-s.done:
		return false
	}
}

func (s *source) wake(deadline time.Time) {
	if cli, ok := s.cli.(Lendable); ok {
		_ = cli.SetReadDeadline(deadline)
	}
}

// atBoundary says whether the reader is between two messages. There a loan may begin.
func (s *source) atBoundary(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isAtBoundary = is
	if is && s.wanted != nil {
		s.loan, s.wanted = s.wanted, nil
		s.cli.(Lendable).Release()
		close(s.loan.begun)
	}
}

// Read returns [os.ErrDeadlineExceeded] if a loan may begin.
func (s *source) Read(p []byte) (int, error) {
	for {
		s.mu.Lock()
		l := s.loan
		s.mu.Unlock()
		if l != nil {
			if n, err := l.taken.Read(p); n > 0 || err == nil {
				return n, nil
			}
			_ = l.taken.Close()
			s.mu.Lock()
			err := s.cli.(Lendable).Reacquire()
			s.loan = nil
			s.mu.Unlock()
			s.rest = l
			if err != nil {
				return 0, err
			}
		}
		if s.rest != nil && s.cli.(Lendable).IsEmpty() {
			close(s.rest.ended)
			s.rest = nil
		}
		n, err := s.cli.Read(p)
		s.mu.Lock()
		goesOn := n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && !s.isAtBoundary
		if goesOn {
			s.wake(time.Time{}) // the loan begins after this message
		}
		s.mu.Unlock()
		if !goesOn {
			return n, err
		}
	}
}
