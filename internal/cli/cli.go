// Package cli has what the three binaries share: exit codes and errors, flags before and
// after arguments, help, version, completion, JSON and tables, and the checks of doctor.
//
// What a command prints on stdout is its result and nothing else; messages and
// progress go to stderr. A command returns an error, [Run] alone reports it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Exit codes of every binary. Scripts rely on them.
const (
	ExitDone        = 0
	ExitFailed      = 1   // it ran and failed
	ExitUsage       = 2   // wrong usage
	ExitUnreachable = 3   // the gateway is not reachable
	ExitNotFound    = 4   // what was named does not exist
	ExitRefused     = 5   // auth, rights, rate
	ExitTimedOut    = 124 // --timeout passed
)

// Codes of errors that do not come from the gateway.
const (
	CodeFailed      = "FAILED"
	CodeUsage       = "USAGE"
	CodeUnreachable = "UNREACHABLE"
	CodeNotFound    = "NOT_FOUND"
	CodeTimeout     = "TIMEOUT"
	CodeCancelled   = "CANCELLED"
)

// Error is a failed command: its exit code, and a line that says what failed, on what, and
// what to do.
type Error struct {
	Exit    int
	Code    string
	Message string // "" when the command has printed it
	Err     error  // the cause, for errors.Is; not printed
}

// Error implements error.
func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("exit code %d", e.Exit)
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Failed returns an error with exit code 1.
func Failed(format string, args ...any) *Error {
	return &Error{Exit: ExitFailed, Code: CodeFailed, Message: fmt.Sprintf(format, args...)}
}

// Usage returns an error with exit code 2. [Run] adds where to find help.
func Usage(format string, args ...any) *Error {
	return &Error{Exit: ExitUsage, Code: CodeUsage, Message: fmt.Sprintf(format, args...)}
}

// NotFound returns an error with exit code 4.
func NotFound(format string, args ...any) *Error {
	return &Error{Exit: ExitNotFound, Code: CodeNotFound, Message: fmt.Sprintf(format, args...)}
}

// Reported returns an error that only sets the exit code; the command has printed the rest.
func Reported(exit int) *Error { return &Error{Exit: exit} }

// AsError returns an error with an exit code and a code: those of an [Error] in it, those of
// a context that ended, else 1 and FAILED.
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
	}
	return e
}

// OneLine returns a text as one line, without control characters.
func OneLine(s string) string { return Clean(strings.Join(strings.Fields(s), " ")) }
