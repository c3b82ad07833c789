package providers

import (
	"context"
	"errors"
	"fmt"

	"tapgw/internal/protocol"
)

// Code is the kind of an [Error] (docs/protocol.md, "Codes").
type Code string

// Codes of a tool's errors. Any other code of a tool arrives as INTERNAL.
const (
	CodeNotFound     Code = "NOT_FOUND"
	CodeTimeout      Code = "TIMEOUT"
	CodeCancelled    Code = "CANCELLED"
	CodeUnauthorized Code = "UNAUTHORIZED"
	CodeInternal     Code = "INTERNAL"
)

// Codes with which the gateway refuses a message. There may be others.
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

// Error is an error with a code. A tool returns one to say how it failed; methods of [Provider]
// return one, wrapped, when the gateway refuses something.
type Error struct {
	Code    Code // INTERNAL when empty
	Message string
	// Retryable says that a second try may succeed: for a tool's error on another instance of the
	// provider, for the gateway's error later.
	Retryable bool
}

// Error implements error: the code and the gateway's message, if it has one.
func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Message
}

// NotFound returns an error NOT_FOUND, for a tool whose arguments name something that does not
// exist.
func NotFound(format string, args ...any) *Error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf(format, args...)}
}

// ErrNotConnected is the error of a push or query while no session is bound: the gateway is not
// running, or has no session. [Event].Broadcast names the events that can be pushed without a
// session.
var ErrNotConnected = errors.New("not bound to a session")

// ErrNotPaired is the error of [Provider.Run] after [Provider.Pair] when the session of the
// pairing, or the gateway, has ended. Call Pair again for another session.
var ErrNotPaired = errors.New("the pairing is over")

// Reasons of a [CancelError]. The gateway may give others.
const (
	ReasonTimeout      = "timeout"     // the call took longer than its tool may
	ReasonInterrupted  = "interrupted" // the user stopped the turn
	ReasonRebind       = "rebind"      // the provider bound to another session
	ReasonSessionEnded = "session ended"
	ReasonDisconnected = "disconnected" // the connection to the gateway was lost
	ReasonStopped      = "stopped"      // Run's context ended
)

// CancelError is the cause of the end of a call's or a binding's context, as [context.Cause]
// returns it.
type CancelError struct{ Reason string }

// Error implements error: the reason of the cancel, after "cancelled: ".
func (e *CancelError) Error() string { return "cancelled: " + e.Reason }

// Unwrap returns [context.Canceled].
func (e *CancelError) Unwrap() error { return context.Canceled }

// failure returns the result of a call whose handler returned err.
func failure(err error) *protocol.ToolResult {
	r := &protocol.ToolResult{Error: err.Error(), ErrorCode: protocol.CodeInternal}
	coded, ok := errors.AsType[*Error](err)
	switch {
	case ok:
		r.Retryable = coded.Retryable
		if coded.Code != "" {
			r.ErrorCode = protocol.Code(coded.Code).ResultCode()
		}
		// A wrapped error keeps the text around it.
		if error(coded) == err && coded.Message != "" { //nolint:errorlint
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

// fromGateway makes an [*Error] from the gateway's error message.
func fromGateway(e *protocol.Error) *Error {
	return &Error{Code: Code(e.Code), Message: e.Message,
		Retryable: e.Code == protocol.CodeRateLimited}
}

// fatalError is an error that ends the run: waiting does not help.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }
