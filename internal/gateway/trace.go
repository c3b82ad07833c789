package gateway

import (
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"tapgw/internal/protocol"
)

// With [Options].Tracer, turns, tool calls, gates and pushes have spans; without it
// nothing in this file runs. docs/traces.md lists the names and attributes of spans and
// how they nest.

// turnSpans are the spans of a session's prompts that have not ended, oldest first. Its
// lock is a leaf.
type turnSpans struct {
	mu    sync.Mutex
	spans []turnSpan
}

type turnSpan struct {
	prompt string
	span   trace.Span
}

// TraceContext returns ctx with the remote span that a W3C traceparent names, so that spans
// which are started with it are below that span. An empty or wrong traceparent names none.
func TraceContext(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

func traceparentOf(span trace.Span) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), span), carrier)
	return carrier["traceparent"]
}

// startSpan starts a span of the session below parent, a traceparent; "" means below
// the current turn.
func (s *Session) startSpan(name, parent string, kind trace.SpanKind, attrs ...attribute.KeyValue) trace.Span {
	if parent == "" {
		parent = s.currentTurn()
	}
	ctx := TraceContext(context.Background(), parent)
	_, span := s.g.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...),
		trace.WithAttributes(s.spanAttributes()...))
	return span
}

// spanAttributes are the attributes of every span of the session.
func (s *Session) spanAttributes() []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("gen_ai.conversation.id", s.id),
		attribute.String("tapgw.session.label", s.label()), attribute.String("tapgw.host", s.info.Kind)}
}

// currentTurn is the traceparent of the turn that runs; "" if none does.
func (s *Session) currentTurn() string {
	t := &s.spans
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.spans) == 0 {
		return ""
	}
	return traceparentOf(t.spans[0].span)
}

func endSpan(span trace.Span, failure string) {
	if failure != "" {
		span.SetStatus(codes.Error, failure)
	}
	span.End()
}

// traceTurn starts the span of a prompt that is about to be given to the host.
func (s *Session) traceTurn(p *Prompt) {
	if s.g.tracer == nil {
		return
	}
	ctx := TraceContext(context.Background(), p.Traceparent)
	_, span := s.g.tracer.Start(ctx, "turn", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(s.spanAttributes()...), trace.WithAttributes(attribute.String("tapgw.source", p.Source)))
	p.Traceparent = traceparentOf(span)
	t := &s.spans
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans = append(t.spans, turnSpan{p.ID, span})
}

// endTurnSpans ends the spans of prompts, by id; nil means all. cutReason says why they
// were cut short, "" if they were not.
func (s *Session) endTurnSpans(prompts []string, cutReason string) {
	if s.g.tracer == nil {
		return
	}
	t := &s.spans
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans = slices.DeleteFunc(t.spans, func(turn turnSpan) bool {
		if prompts != nil && !slices.Contains(prompts, turn.prompt) {
			return false
		}
		endSpan(turn.span, cutReason)
		return true
	})
}

// traceError sets an error of the session as the status of the current turn's span.
func (s *Session) traceError(message string) {
	if s.g.tracer == nil {
		return
	}
	t := &s.spans
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.spans) > 0 {
		t.spans[0].span.SetStatus(codes.Error, message)
	}
}

// traceCall starts the span of a tool call; end ends it and calls done.
func (s *Session) traceCall(c Call, done func(Outcome)) (traceparent string, end func(Outcome)) {
	attrs := []attribute.KeyValue{attribute.String("gen_ai.tool.name", c.Name)}
	if to := s.routes.Load().tools[c.Name]; to != nil {
		attrs = append(attrs, attribute.String("tapgw.provider", to.owner()))
	}
	span := s.startSpan("tool.call "+c.Name, c.Traceparent, trace.SpanKindClient, attrs...)
	return traceparentOf(span), func(o Outcome) {
		if o.Failed() {
			span.SetAttributes(attribute.String("error.type", string(o.ErrorCode)))
			span.SetStatus(codes.Error, o.Error)
		}
		span.End()
		done(o)
	}
}

// traceGate starts the span of asking gates about a tool call.
func (s *Session) traceGate(tool, parent string, rules []*rule) (traceparent string, end func(Decision)) {
	var names []string
	for _, r := range rules {
		if r.Action == protocol.ActionGate {
			names = append(names, r.provider.name)
		}
	}
	span := s.startSpan("gate "+tool, parent, trace.SpanKindClient,
		attribute.String("gen_ai.tool.name", tool), attribute.StringSlice("tapgw.gates", names))
	return traceparentOf(span), func(d Decision) {
		decision := protocol.DecisionAllow
		if d.Deny {
			decision = protocol.DecisionDeny
			span.SetAttributes(attribute.String("tapgw.reason", d.Reason))
		}
		span.SetAttributes(attribute.String("tapgw.decision", decision))
		span.End()
	}
}

// tracePush starts the span of a push that came in; end records its fate or error.
func (s *Session) tracePush(source pushSource, m *protocol.Push) (
	traceparent string, end func(Receipt, *protocol.Error)) {
	_, span := s.g.tracer.Start(context.Background(), "push", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("gen_ai.conversation.id", s.id),
			attribute.String("tapgw.provider", source.name), attribute.String("tapgw.stream", m.Stream)))
	return traceparentOf(span), func(r Receipt, err *protocol.Error) {
		if err != nil {
			span.SetAttributes(attribute.String("error.type", string(err.Code)))
			endSpan(span, err.Message)
			return
		}
		span.SetAttributes(attribute.String("tapgw.fate", string(r.Fate)))
		span.End()
	}
}
