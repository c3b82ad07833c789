package providers

import (
	"context"
	"errors"
	"fmt"

	"tapgw/internal/protocol"
)

// Code says what kind of error it is.
type Code string

// Codes that a tool may fail with; any other arrives as INTERNAL.
const (
	CodeNotFound     Code = "NOT_FOUND"
	CodeTimeout      Code = "TIMEOUT"
	CodeCancelled    Code = "CANCELLED"
	CodeUnauthorized Code = "UNAUTHORIZED"
	CodeInternal     Code = "INTERNAL"
)

// Codes that the gateway refuses things with. There may be others.
const (
	CodeAuthFailed         Code = "AUTH_FAILED"
	CodeDuplicateInstance  Code = "DUPLICATE_INSTANCE"
	CodeInvalidJSON        Code = "INVALID_JSON"
	CodeInvalidSession     Code = "INVALID_SESSION"
	CodeInvalidState       Code = "INVALID_STATE"
	CodePayloadTooLarge    Code = "PAYLOAD_TOO_LARGE"
	CodeRateLimited        Code = "RATE_LIMITED"
	CodeToolConflict       Code = "TOOL_CONFLICT"
	CodeUnsupportedVersion Code = "UNSUPPORTED_VERSION"
)

// Error is an error with a code: what a tool returns to say how it failed, and
// what the gateway answers when it refuses something.
type Error struct {
	Code    Code // INTERNAL when empty
	Message string
	// Retryable: the same may succeed elsewhere (a tool's error: on another
	// instance of the provider) or later (the gateway's).
	Retryable bool
}

func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Message
}

// NotFound returns the error of a tool that found nothing under what it was given.
func NotFound(format string, args ...any) *Error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf(format, args...)}
}

// ErrNotConnected is the error of what needs a session while none is bound: the
// gateway is not there, or has no session.
var ErrNotConnected = errors.New("not bound to a session")

// ErrNotPaired is the error of [Provider.Run] for a provider that was paired: the
// session of the pairing has ended, or the gateway has. [Provider.Pair] pairs
// with another.
var ErrNotPaired = errors.New("the pairing is over")

// Reasons of a [CancelError]. The gateway may give others.
const (
	ReasonTimeout      = "timeout"     // the call took longer than its tool may
	ReasonInterrupted  = "interrupted" // the user stopped the turn
	ReasonRebind       = "rebind"      // the provider went to another session
	ReasonSessionEnded = "session ended"
	ReasonDisconnected = "disconnected" // the connection to the gateway was lost
	ReasonStopped      = "stopped"      // Run's context ended
)

// CancelError is the cause, see [context.Cause], of the end of a call's or a
// binding's context.
type CancelError struct{ Reason string }

func (e *CancelError) Error() string { return "cancelled: " + e.Reason }

// Unwrap returns [context.Canceled].
func (e *CancelError) Unwrap() error { return context.Canceled }

// failure is the result of a call whose handler returned err.
func failure(err error) *protocol.ToolResult {
	r := &protocol.ToolResult{Error: err.Error(), ErrorCode: protocol.CodeInternal}
	coded, ok := errors.AsType[*Error](err)
	switch {
	case ok:
		r.Retryable = coded.Retryable
		if coded.Code != "" {
			r.ErrorCode = protocol.Code(coded.Code).ResultCode()
		}
		if error(coded) == err && coded.Message != "" { //nolint:errorlint // a wrapped one keeps the text around it
			r.Error = coded.Message
		}
	case errors.Is(err, context.DeadlineExceeded):
		r.ErrorCode = protocol.CodeTimeout
	}
	if r.Error == "" {
		r.Error = string(r.ErrorCode)
	}
	return r
}

// fromGateway makes an error of what the gateway answered.
func fromGateway(e *protocol.Error) *Error {
	return &Error{Code: Code(e.Code), Message: e.Message, Retryable: e.Code == protocol.CodeRateLimited}
}

// fatalError is one that waiting does not cure.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }
