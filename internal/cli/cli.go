// Package cli has the common parts of the three binaries: exit codes and errors, flags before and
// after arguments, help, version, completion, JSON and tables, and the checks of doctor.
//
// A command prints only its result on stdout; messages and progress go to stderr. A command returns
// an error, and only [Run] reports it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Exit codes of every binary. Scripts rely on them, so a code never changes its meaning.
// [Error].Exit holds one; a command without an error ends with [ExitDone].
const (
	ExitDone        = 0
	ExitFailed      = 1   // it ran and failed
	ExitUsage       = 2   // wrong usage
	ExitUnreachable = 3   // the gateway is not reachable
	ExitNotFound    = 4   // the named thing does not exist
	ExitRefused     = 5   // auth, rights, rate
	ExitTimedOut    = 124 // --timeout passed
)

// Codes of errors that the gateway does not send. With --json a script reads them in "code", where
// an answer of the gateway has its own codes (docs/protocol.md, Codes).
const (
	CodeFailed      = "FAILED"
	CodeUsage       = "USAGE"
	CodeUnreachable = "UNREACHABLE"
	CodeNotFound    = "NOT_FOUND"
	CodeTimeout     = "TIMEOUT"
	CodeCancelled   = "CANCELLED"
)

// Error is the failure of a command: its exit code, a code for scripts, and one line with the
// failed action, its object and the cure. [Run] prints the line; with --json it prints code and
// message as an object.
type Error struct {
	Exit    int
	Code    string
	Message string // "" when the command has printed it
	Err     error  // the cause, for errors.Is; not printed
}

// Error implements error. It returns the message, or "exit code N" if the message is empty.
func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("exit code %d", e.Exit)
	}
	return e.Message
}

// Unwrap returns the cause, which may be nil.
func (e *Error) Unwrap() error { return e.Err }

// Failed returns an error with exit code 1 and code FAILED, for a command that ran and did not
// succeed. The formatted text has the failed action, its object and the cure.
func Failed(format string, args ...any) *Error {
	return &Error{Exit: ExitFailed, Code: CodeFailed, Message: fmt.Sprintf(format, args...)}
}

// Usage returns an error with exit code 2 and code USAGE, for wrong arguments or flags. [Run] adds
// to the message which --help to read, so the text need not.
func Usage(format string, args ...any) *Error {
	return &Error{Exit: ExitUsage, Code: CodeUsage, Message: fmt.Sprintf(format, args...)}
}

// NotFound returns an error with exit code 4 and code NOT_FOUND, for an unknown name that the user
// gave. The text should list the names that exist.
func NotFound(format string, args ...any) *Error {
	return &Error{Exit: ExitNotFound, Code: CodeNotFound, Message: fmt.Sprintf(format, args...)}
}

// Reported returns an error that only sets the exit code. Its message is empty, so [Run] prints
// nothing more: the command has already printed the reason of its failure.
func Reported(exit int) *Error { return &Error{Exit: exit} }

// FailedIf returns err, or if that is nil and the command failed, an error that only sets the exit
// code to [ExitFailed], as [Reported] does.
func FailedIf(failed bool, err error) error {
	if err == nil && failed {
		return Reported(ExitFailed)
	}
	return err
}

// AsError converts any error but nil into an [Error]. It takes exit code and code of an Error that
// err wraps. The end of a context's time is exit code 124 and TIMEOUT, its cancellation 1 and
// CANCELLED, anything else 1 and FAILED.
func AsError(err error) *Error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // the outermost only
		return e
	}
	if e, ok := errors.AsType[*Error](err); ok {
		// The text around it is part of the message.
		return &Error{Exit: e.Exit, Code: e.Code, Message: err.Error(), Err: err}
	}
	e := &Error{Exit: ExitFailed, Code: CodeFailed, Message: err.Error(), Err: err}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Exit, e.Code = ExitTimedOut, CodeTimeout
		const advice = "timed out; allow it longer with --timeout"
		e.Message = strings.Replace(e.Message, context.DeadlineExceeded.Error(), advice, 1)
	case errors.Is(err, context.Canceled):
		e.Code = CodeCancelled
		e.Message = strings.Replace(e.Message, context.Canceled.Error(), "cancelled", 1)
	}
	return e
}

// OneLine returns a text as one line: each run of blanks and line ends becomes a space, and [Clean]
// removes terminal sequences and control characters.
func OneLine(s string) string { return Clean(strings.Join(strings.Fields(s), " ")) }
