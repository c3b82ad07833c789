//go:build !linux

package lentpipe

import (
	"errors"
	"os"
)

// Owned is the owner's end of what the CLI sends. On this system it can't be lent.
type Owned struct{ *os.File }

// Own opens the owner's end anew. This system can't.
func Own(*os.File) (*Owned, error) { return nil, errors.ErrUnsupported }

// WaitEnd does nothing.
func (*Owned) WaitEnd() {}

// Release does nothing.
func (*Owned) Release() {}

// IsEmpty is always true.
func (*Owned) IsEmpty() bool { return true }

// Reacquire does nothing.
func (*Owned) Reacquire() error { return nil }

// Offer makes the third pipe for one borrower. This system can't.
func Offer(*Owned, *os.File) (e Ends, read, write *os.File, err error) {
	return e, nil, nil, errors.ErrUnsupported
}

// Borrowed is a pipe that was lent. On this system there is none.
type Borrowed struct{}

// Borrow opens a pipe that its owner offers. This system can't.
func Borrow(Ends, func([]byte) error) (*Borrowed, error) { return nil, errors.ErrUnsupported }

// Closed returns nil.
func (*Borrowed) Closed() <-chan struct{} { return nil }

// Begin does nothing.
func (*Borrowed) Begin() {}

// Read fails.
func (*Borrowed) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Write fails.
func (*Borrowed) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Close does nothing.
func (*Borrowed) Close() error { return nil }
