// Package lentpipe lets two processes of one user share the pipe of a Copilot CLI: its owner, which the CLI has started
// and which stays, and a borrower, the gateway, which reads and writes it without the owner between. The borrower opens
// the ends by the owner's /proc; the kernel lets only processes of the same user do that. No descriptor is sent.
//
// A borrower may be killed at any moment, and the owner goes on with the pipe. So no byte is ever in the borrower's
// memory alone:
//
//   - From the CLI it reads a copy (tee), which takes nothing out of the pipe. Then it moves the same bytes into a
//     third pipe, which the owner reads: a single call of the kernel (splice), which is done or not done.
//   - To the CLI it writes whole messages of at most PIPE_BUF bytes, which the kernel takes whole or not at all. It
//     hands all others to the owner.
//
// So the owner reads all that the CLI sends, in its order: from the third pipe what the borrower has taken, and after
// the end of that, from the CLI's pipe what it has not. The third pipe ends when the borrower has closed the CLI's, or
// is dead.
package lentpipe

import (
	"encoding/json"
	"errors"

	"tapgw/internal/protocol"
)

// Param is the parameter of a request that offers a pipe, with [Ends] as JSON. An answer with the header [Header] takes
// it.
const (
	Param  = "pipe"
	Header = "Tapgw-Pipe"
	Taken  = "taken" // value of Header
)

// Ends are the ends of a pipe in the process of its owner.
type Ends struct {
	PID   int `json:"pid"`
	In    End `json:"in"`    // what the CLI sends
	Out   End `json:"out"`   // what goes to it
	Taken End `json:"taken"` // what the borrower takes from In goes here
}

// End is an open file of the owner. The inode shows that it is the one that was meant.
type End struct {
	FD    int    `json:"fd"`
	Inode uint64 `json:"inode"`
}

// ParseEnds reads the value of [Param].
func ParseEnds(text string) (Ends, error) {
	var e Ends
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return e, errors.New("want an object with pid, in, out and taken")
	}
	if e.PID <= 0 {
		return e, errors.New("pid: want a process")
	}
	inodes := map[uint64]bool{}
	for name, end := range map[string]End{"in": e.In, "out": e.Out, "taken": e.Taken} {
		if end.FD < 0 || end.Inode == 0 || inodes[end.Inode] {
			return e, errors.New(name + ": want the number and the inode of a file, each another one")
		}
		inodes[end.Inode] = true
	}
	return e, nil
}

// String returns the value of [Param].
func (e Ends) String() string {
	text, _ := json.Marshal(e) // numbers always can be
	return string(text)
}

// isForBorrower reports whether the borrower may write a message to the CLI by itself. The owner keeps account of which
// tools the CLI has been given, and of its requests that wait for an answer, so it has to see these.
func isForBorrower(message []byte) bool {
	var method string
	err := protocol.Object(message, func(name string, value protocol.Raw) error {
		if name == "method" {
			method, _ = protocol.Text(value)
		}
		return nil
	})
	switch method {
	case "", "session.resume", "session.tools.set":
		return false
	}
	return err == nil
}
