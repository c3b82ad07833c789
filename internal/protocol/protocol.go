// Package protocol is the wire between the gateway and its providers, as docs/protocol.md describes
// it: a plain type for each message, the error codes, the limits, and one way to read, check and
// write a message.
//
// It has no behaviour. Every message that enters the gateway passes through [Open] and
// [Frame.Decode], which refuse duplicate keys and keys in another case, and name the field that is
// wrong. There is no second way in.
package protocol

import "time"

// Version is the only version of the protocol that this gateway speaks (hello.protocolVersion).
const Version = 2

// Limits of docs/protocol.md, "Limits". Sizes are in bytes. [Validate] reports the limits of counts
// and texts inside one message as PAYLOAD_TOO_LARGE; packages gateway and server enforce the
// others.
const (
	MaxResult          = 5 << 20  // one tool.result
	MaxMessage         = 2 << 20  // any other message
	MaxFrame           = 16 << 20 // a larger one closes the connection with 1009
	MaxTools           = 100      // tools of one provider
	MaxParts           = 100      // parts of a result
	MaxFile            = 64 << 20 // bytes of the files of a result
	MaxHookRules       = 50       // hook rules of one provider
	MaxTransforms      = 50       // sections that one provider changes
	MaxFilterRules     = 100      // rules of one filter
	MaxStreams         = 20       // streams of one provider
	MaxContext         = 8 << 10  // context, startup_context
	MaxPattern         = 1 << 10  // one pattern of a rule or filter
	MaxQueryLast       = 100      // stream.query.last; a larger one counts as this
	DefaultQueryLast   = 20
	StreamRetention    = 200       // events kept in a stream
	MaxStreamBytes     = 64 << 20  // events kept of a provider in a session, in all streams
	MaxSessionBytes    = 256 << 20 // events kept in one session, of all providers together
	MaxConnections     = 50        // provider connections
	MaxQueuedCalls     = 10        // calls waiting for a concurrency slot
	MaxQueuedInjects   = 10        // injects waiting for a session to become idle
	MaxInjectCycles    = 3         // of inject, turn, inject without the user between them
	PushRate           = 10        // pushes a second for one (provider, session), and their burst
	MaxQuestion        = 256 << 10 // the data of one question.asked
	MaxToldQuestions   = 20        // open questions of a session that a provider is told of
	MaxAnswer          = 64 << 10  // text and content of one question.answer
	MaxPerson          = 100       // question.answer.person
	AnswerRate         = 10        // answers a second of one connection, and their burst
	MaxPairingsAMinute = 5
	MaxRebindsAMinute  = 10
	MaxFinishedCalls   = 1024 // finished calls that a connection remembers, to ignore late results
)

// Time limits of docs/protocol.md, "Times". A tool may choose its own timeout from [MinToolTimeout]
// to [MaxToolTimeout]; the others are fixed.
const (
	AuthTimeout        = 10 * time.Second
	DefaultToolTimeout = 300 * time.Second
	MinToolTimeout     = time.Millisecond
	MaxToolTimeout     = time.Hour
	GateTimeout        = 5 * time.Second
	RequiredTimeout    = 10 * time.Second
	TransformTimeout   = 2 * time.Second
	ReconnectWindow    = 30 * time.Second
	ShutdownDeadline   = 10 * time.Second
	// a tool refresh goes this long after the last change
	RefreshQuiet = 200 * time.Millisecond
	RefreshMax   = time.Second // and at most this long after the first
)

// Type is the type of a message, its member "type". A value may be any string that a peer sent:
// [Type.FromProvider] and [Type.FromGateway] report whether it exists.
type Type string

// Messages from a provider to the gateway. Each has a Go type of the same name in this package,
// which [Frame.Decode] returns, and a heading in docs/protocol.md, "From the provider".
const (
	TypeAuth            Type = "auth"
	TypeAuthConfirm     Type = "auth.confirm"
	TypeHello           Type = "hello"
	TypeGoodbye         Type = "goodbye"
	TypeSessionReady    Type = "session.ready"
	TypeToolResult      Type = "tool.result"
	TypeToolProgress    Type = "tool.progress"
	TypeGateResult      Type = "gate.result"
	TypeTransformResult Type = "transform.result"
	TypePush            Type = "push"
	TypeToolsUpdate     Type = "tools.update"
	TypeHooksUpdate     Type = "hooks.update"
	TypeContextUpdate   Type = "context.update"
	TypeFilterSet       Type = "filter.set"
	TypeStreamQuery     Type = "stream.query"
	TypeQuestionAnswer  Type = "question.answer"
	TypeShutdownReady   Type = "shutdown.ready"
)

// Messages from the gateway to a provider. Each has a Go type of the same name in this package and
// a heading in docs/protocol.md, "From the gateway".
const (
	TypeAuthPairing      Type = "auth.pairing"
	TypeSessions         Type = "sessions"
	TypeSessionsUpdated  Type = "sessions.updated"
	TypeHelloAck         Type = "hello.ack"
	TypeAck              Type = "ack"
	TypeError            Type = "error"
	TypeToolCall         Type = "tool.call"
	TypeToolCancel       Type = "tool.cancel"
	TypeGateCheck        Type = "gate.check"
	TypeTransformRequest Type = "transform.request"
	TypeSessionEvent     Type = "session.event"
	TypeSessionLifecycle Type = "session.lifecycle"
	TypeStreamHistory    Type = "stream.history"
)

// Code is an error code of the protocol. In an error message it classifies the fault of a message,
// and in an outcome the failure of a call. "" in a [ToolResult] means that the provider named no
// code.
type Code string

// Codes of error messages (docs/protocol.md, "Codes"). Clients treat unknown codes as not fatal.
// Why INVALID_STATE exists is in docs/adr/0004-order-of-validation.md.
const (
	CodeAuthFailed         Code = "AUTH_FAILED"
	CodeDuplicateInstance  Code = "DUPLICATE_INSTANCE"
	CodeInvalidJSON        Code = "INVALID_JSON"
	CodeInvalidSession     Code = "INVALID_SESSION"
	CodeInvalidState       Code = "INVALID_STATE"
	CodePayloadTooLarge    Code = "PAYLOAD_TOO_LARGE"
	CodeRateLimited        Code = "RATE_LIMITED"
	CodeToolConflict       Code = "TOOL_CONFLICT"
	CodeUnauthorized       Code = "UNAUTHORIZED"
	CodeUnknownCallID      Code = "UNKNOWN_CALL_ID"
	CodeUnknownType        Code = "UNKNOWN_TYPE"
	CodeUnsupportedVersion Code = "UNSUPPORTED_VERSION"
)

// Codes of a call's outcome, its member errorCode (docs/protocol.md, "Calls"). [CodeNotFound] is
// also the code of an error message about a question. A call may also end with [CodeUnauthorized],
// [CodeRateLimited] or [CodePayloadTooLarge].
const (
	CodeCancelled        Code = "CANCELLED"
	CodeDenied           Code = "DENIED"
	CodeDisconnected     Code = "DISCONNECTED"
	CodeInternal         Code = "INTERNAL"
	CodeInvalidArguments Code = "INVALID_ARGUMENTS"
	CodeNotFound         Code = "NOT_FOUND"
	CodeTimeout          Code = "TIMEOUT"
)

// CloseCode is a WebSocket close code. Codes from 4000 are the gateway's own; WebSocket itself
// defines the others (docs/protocol.md, "Close codes").
type CloseCode int

// Close codes that the gateway uses (docs/protocol.md, "Close codes").
const (
	CloseNormal    CloseCode = 1000
	CloseGoingAway CloseCode = 1001
	ClosePolicy    CloseCode = 1008 // no auth in time, auth failed, wrong version
	CloseTooBig    CloseCode = 1009 // a frame over MaxFrame
	CloseTakenOver CloseCode = 4001 // a newer connection took this identity
	// a message that may be the result of one of several pending calls
	CloseFailedFast CloseCode = 4002
)

// Fatal reports whether the gateway closes the connection after an error with this code:
// AUTH_FAILED and UNSUPPORTED_VERSION. After all others the connection stays open
// (docs/protocol.md, "Codes").
func (c Code) Fatal() bool { return c == CodeAuthFailed || c == CodeUnsupportedVersion }

// ResultCode returns c if a provider may answer a call with it (docs/protocol.md, "Codes"), else
// INTERNAL.
func (c Code) ResultCode() Code {
	switch c {
	case CodeNotFound, CodeTimeout, CodeCancelled, CodeDisconnected, CodeUnauthorized, CodeInternal:
		return c
	}
	return CodeInternal
}
