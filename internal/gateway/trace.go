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

// Spans are made of turns, tool calls, gates and pushes where [Options].Tracer
// says so; else nothing here runs. What they are called by and in which order they
// stand is docs/traces.md's.

// turnSpans are a session's of prompts that have not ended, oldest first. Its lock
// is a leaf.
type turnSpans struct {
	mu    sync.Mutex
	spans []turnSpan
}

type turnSpan struct {
	prompt string
	span   trace.Span
}

// TraceContext is ctx with a W3C traceparent as the span that others continue.
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

// startSpan begins one of the session's below parent, else below its turn.
func (s *Session) startSpan(name, parent string, kind trace.SpanKind, attrs ...attribute.KeyValue) trace.Span {
	if parent == "" {
		parent = s.currentTurn()
	}
	attrs = append(attrs, attribute.String("gen_ai.conversation.id", s.id), attribute.String("tapgw.session.label", s.label()),
		attribute.String("tapgw.host", s.info.Kind))
	_, span := s.g.tracer.Start(TraceContext(context.Background(), parent), name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
	return span
}

// currentTurn is the traceparent of the turn that runs; "" for none.
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

// traceTurn begins the span of a prompt that the host is about to be given.
func (s *Session) traceTurn(p *Prompt) {
	if s.g.tracer == nil {
		return
	}
	_, span := s.g.tracer.Start(TraceContext(context.Background(), p.Traceparent), "turn", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("gen_ai.conversation.id", s.id), attribute.String("tapgw.session.label", s.label()),
		attribute.String("tapgw.host", s.info.Kind), attribute.String("tapgw.source", p.Source)))
	p.Traceparent = traceparentOf(span)
	t := &s.spans
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans = append(t.spans, turnSpan{p.ID, span})
}

// endTurnSpans ends the spans of prompts, nil for all, and says why if they were
// cut short.
func (s *Session) endTurnSpans(prompts []string, cut string) {
	if s.g.tracer == nil {
		return
	}
	t := &s.spans
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans = slices.DeleteFunc(t.spans, func(o turnSpan) bool {
		mine := prompts == nil || slices.Contains(prompts, o.prompt)
		if mine {
			endSpan(o.span, cut)
		}
		return mine
	})
}

// traceError notes in the turn that runs that the session failed.
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

// traceCall begins the span of a tool call, which ends with it.
func (s *Session) traceCall(c Call, done func(Outcome)) (traceparent string, ends func(Outcome)) {
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

// traceGate begins the span of asking gates about a tool call.
func (s *Session) traceGate(tool, parent string, rules []*rule) (traceparent string, ends func(Decision)) {
	var names []string
	for _, r := range rules {
		if r.Action == protocol.ActionGate {
			names = append(names, r.provider.name)
		}
	}
	span := s.startSpan("gate "+tool, parent, trace.SpanKindClient, attribute.String("gen_ai.tool.name", tool), attribute.StringSlice("tapgw.gates", names))
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

// tracePush begins the span of a push that came in; end records its fate or error.
func (s *Session) tracePush(source pushSource, m *protocol.Push) (traceparent string, end func(Receipt, *protocol.Error)) {
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
