package schemadoc

import (
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"tapgw/internal/protocol"
)

// The rules of fields, beyond their types, in the terms of JSON Schema.

// Patterns of names. [protocol.ValidName] and [protocol.ValidToolName] decide; a test compares the
// patterns with them. A run of characters that becomes one '-' counts as one character.
const (
	namePattern      = `^[^A-Za-z0-9._]*` + nameCore + `[^A-Za-z0-9._]*$`
	nameCore         = `[A-Za-z0-9]([A-Za-z0-9._-]|[^A-Za-z0-9._-]+){0,63}`
	streamCore       = `[A-Za-z0-9]([A-Za-z0-9._-]|[^A-Za-z0-9._@-]+){0,63}[^A-Za-z0-9._@]*`
	ownStreamPattern = `^[^A-Za-z0-9._]*` + streamCore + `(@[^A-Za-z0-9._@]*` + streamCore + `)?$`
	toolNamePattern  = `^[A-Za-z0-9_-]{1,64}$`
)

// optionalFields are fields that the gateway does not require, though their types always write
// them.
var optionalFields = map[string]bool{"Rule.match": true}

// anyFields are the raw fields with any JSON value; the other raw fields are objects.
var anyFields = map[string]bool{"tool.result.data": true}

type constraint = func(*jsonschema.Schema)

// fields are the constraints of fields beyond their types.
var fields = map[string]constraint{
	"auth.mode":               oneOf(protocol.ModePair),
	"auth.confirm.code":       nonEmpty,
	"hello.name":              pattern(namePattern),
	"hello.protocolVersion":   oneOf(protocol.Version),
	"hello.instance":          maxLength(256),
	"hello.startup_context":   maxLength(protocol.MaxContext),
	"hello.context":           maxLength(protocol.MaxContext),
	"hello.tools":             maxItems(protocol.MaxTools),
	"hello.subscribe":         each(oneOf(protocol.Events...)),
	"session.ready.sessionId": nonEmpty,
	"tool.result.id":          nonEmpty,
	"tool.result.content":     maxItems(protocol.MaxParts),
	"Part.type": oneOf(protocol.PartText, protocol.PartImage, protocol.PartAudio,
		protocol.PartResource),
	"tool.result.errorCode": examples(protocol.CodeNotFound, protocol.CodeTimeout,
		protocol.CodeCancelled, protocol.CodeDisconnected, protocol.CodeUnauthorized,
		protocol.CodeInternal),
	"tool.progress.id":      nonEmpty,
	"tool.progress.message": nonEmpty,
	"gate.result.callId":    nonEmpty,
	"gate.result.decision": oneOf(protocol.DecisionAllow, protocol.DecisionDeny,
		protocol.DecisionContext),
	"transform.result.callId": nonEmpty,
	"push.level": oneOf(protocol.LevelKeep, protocol.LevelSurface,
		protocol.LevelInject),
	"push.stream":               pattern(namePattern),
	"tools.update.tools":        maxItems(protocol.MaxTools),
	"hooks.update.onPreToolUse": maxItems(protocol.MaxHookRules),
	"context.update.context":    maxLength(protocol.MaxContext),
	"tools.update.remove":       each(nonEmpty),
	"filter.set.stream":         pattern(ownStreamPattern),
	"filter.set.rules":          maxItems(protocol.MaxFilterRules),
	"stream.query.queryId":      nonEmpty,
	"stream.query.streams":      each(pattern(ownStreamPattern)),
	"stream.query.last":         minimum(1),
	"question.answer.question":  nonEmpty,
	"question.answer.text":      maxLength(protocol.MaxAnswer),
	"question.answer.person":    maxLength(protocol.MaxPerson),
	"question.answer.decision":  examples("once", "session", "deny"),
	"Tool.name":                 pattern(toolNamePattern),
	"Tool.description":          nonEmpty,
	"Tool.timeout":              between(protocol.MinToolTimeout, protocol.MaxToolTimeout),
	"Limit.max":                 minimum(1),
	"Limit.scope":               oneOf("instance", "provider", "tool"),
	"Hooks.onPreToolUse":        maxItems(protocol.MaxHookRules),
	"Rule.action": oneOf(protocol.ActionDeny, protocol.ActionContext,
		protocol.ActionGate),
	"Match.args": maxLength(protocol.MaxPattern),
	"Transform.action": oneOf(protocol.TransformAppend, protocol.TransformPrepend,
		protocol.TransformReplace,
		protocol.TransformCallback),
	"File.path":        nonEmpty,
	"File.size":        minimum(0),
	"File.ttl":         minimum(0),
	"FilterRule.match": both(nonEmpty, maxLength(protocol.MaxPattern)),
	"FilterRule.outcome": oneOf(protocol.OutcomeDrop, protocol.LevelKeep, protocol.LevelSurface,
		protocol.LevelInject),
	"hello.ack.protocolVersion": oneOf(protocol.Version),
	"ack.revision":              minimum(1),
	"ack.seq":                   minimum(1),
	"ack.fate":                  examples("stored", "surfaced", "queued", "delivered", "dropped"),
	"error.code":                examples(errorCodes...),
	"tool.cancel.reason": examples(protocol.ReasonTimeout, protocol.ReasonInterrupted,
		protocol.ReasonRebind),
	"session.event.event": examples(protocol.Events...),
	"session.lifecycle.state": examples(protocol.LifecycleStarted, protocol.LifecycleIdle,
		protocol.LifecycleShutdownPending),
	"session.lifecycle.deadline": minimum(0),
	"Question.kind":              examples("permission", "input", "form"),
	"QuestionEnd.reason": examples(protocol.QuestionAnswered, protocol.QuestionExpired,
		protocol.QuestionWithdrawn, protocol.QuestionSessionEnded),
	"Entry.ts":    func(s *jsonschema.Schema) { s.Format = "date-time" },
	"Entry.level": examples(protocol.LevelKeep, protocol.LevelSurface, protocol.LevelInject),
}

// errorCodes are the codes of error messages.
var errorCodes = []protocol.Code{
	protocol.CodeAuthFailed, protocol.CodeDuplicateInstance, protocol.CodeInvalidJSON,
	protocol.CodeInvalidSession, protocol.CodeInvalidState, protocol.CodeNotFound,
	protocol.CodePayloadTooLarge, protocol.CodeRateLimited, protocol.CodeToolConflict,
	protocol.CodeUnauthorized,
	protocol.CodeUnknownCallID,
	protocol.CodeUnknownType, protocol.CodeUnsupportedVersion,
}

// objects are the constraints on several fields of one object.
var objects = map[string]constraint{
	"auth": atLeastOne(
		hasField("token", text()), hasField("reconnectToken", text()),
		hasField("mode", &jsonschema.Schema{Const: constant(protocol.ModePair)})),
	"tool.result": atLeastOne(
		hasField("data", &jsonschema.Schema{}), hasField("error", text()),
		hasField("errorCode", text()),
		hasField("content", &jsonschema.Schema{Type: "array"}),
		hasField("file", &jsonschema.Schema{Type: "object"})),
	"Part": func(s *jsonschema.Schema) {
		bytes := atLeastOne(hasField("data", &jsonschema.Schema{Type: "string"}),
			hasField("file", &jsonschema.Schema{Type: "object"}))
		when := func(typ string, then *jsonschema.Schema) *jsonschema.Schema {
			return &jsonschema.Schema{If: hasField("type",
				&jsonschema.Schema{Const: constant(typ)}), Then: then}
		}
		for _, typ := range []string{protocol.PartImage, protocol.PartAudio} {
			then := hasField("mimeType", &jsonschema.Schema{Pattern: "^" + typ + "/"})
			bytes(then)
			s.AllOf = append(s.AllOf, when(typ, then))
		}
		s.AllOf = append(s.AllOf, when(protocol.PartResource, hasField("uri", text())))
	},
	"push": atLeastOne(hasField("event", text()), hasField("prompt", text())),
	"tools.update": atLeastOne(hasField("tools", &jsonschema.Schema{Type: "array"}),
		hasField("remove", &jsonschema.Schema{Type: "array"})),
	"Rule": func(s *jsonschema.Schema) {
		when := func(action, field string) *jsonschema.Schema {
			return &jsonschema.Schema{If: hasField("action",
				&jsonschema.Schema{Const: constant(action)}),
				Then: hasField(field, text())}
		}
		s.AllOf = []*jsonschema.Schema{when(protocol.ActionContext, "content"),
			when(protocol.ActionGate, "gateId")}
	},
	"Transform": func(s *jsonschema.Schema) {
		s.If = hasField("action", &jsonschema.Schema{Const: constant(protocol.TransformCallback)})
		s.Else = hasField("content", &jsonschema.Schema{Type: "string"})
	},
}

func nonEmpty(s *jsonschema.Schema) { s.MinLength = jsonschema.Ptr(1) }

func text() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", MinLength: jsonschema.Ptr(1)}
}

func pattern(p string) constraint { return func(s *jsonschema.Schema) { s.Pattern = p } }

func maxLength(n int) constraint { return func(s *jsonschema.Schema) { s.MaxLength = &n } }

func maxItems(n int) constraint { return func(s *jsonschema.Schema) { s.MaxItems = &n } }

func minimum(n float64) constraint { return func(s *jsonschema.Schema) { s.Minimum = &n } }

// between bounds a number of milliseconds.
func between(least, most time.Duration) constraint {
	return func(s *jsonschema.Schema) {
		s.Minimum, s.Maximum = jsonschema.Ptr(float64(least.Milliseconds())),
			jsonschema.Ptr(float64(most.Milliseconds()))
	}
}

func both(a, b constraint) constraint {
	return func(s *jsonschema.Schema) { a(s); b(s) }
}

func each(c constraint) constraint { return func(s *jsonschema.Schema) { c(s.Items) } }

// oneOf is for values of which the gateway refuses all others.
func oneOf[T any](values ...T) constraint {
	return func(s *jsonschema.Schema) {
		for _, v := range values {
			s.Enum = append(s.Enum, v)
		}
	}
}

// examples is for lists that may grow.
func examples[T any](values ...T) constraint {
	return func(s *jsonschema.Schema) {
		for _, v := range values {
			s.Examples = append(s.Examples, v)
		}
	}
}

func constant(v any) *any { return &v }

// hasField requires a field with a value.
func hasField(field string, value *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{Required: []string{field},
		Properties: map[string]*jsonschema.Schema{field: value}}
}

func atLeastOne(ways ...*jsonschema.Schema) constraint {
	return func(s *jsonschema.Schema) { s.AnyOf = ways }
}
