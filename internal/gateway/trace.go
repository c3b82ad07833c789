package gateway

import (
	"slices"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/secrets"
	"tapgw/internal/spans"
)

// Turns, tool calls, gates and pushes have spans (docs/traces.md). With [Options].Tracer they are
// exported. With [Options].Recorder alone they are only ids, for the records and for the receivers
// of a traceparent.

// Spans returns the maker of spans for parts of the gateway beside sessions. A nil maker makes no
// spans.
func (g *Gateway) Spans() *spans.Maker { return g.spans }

// Metrics returns the durations of the gateway's operations, by the conventions of OpenTelemetry.
func (g *Gateway) Metrics() *spans.Metrics { return &g.metrics }

// runningTurns are a session's prompts that the host has and that have not ended, oldest first.
// Without spans it stays empty. Its lock is a leaf.
type runningTurns struct {
	mu   sync.Mutex // guards the fields below
	list []runningTurn
}

type runningTurn struct {
	prompt, source string
	span           spans.Span
	begun          time.Time
	failure        string // an error of the session in this turn
	input, output  int64  // tokens of the model's calls in this turn
}

func (s *Session) spanInfo() spans.Session {
	return spans.Session{ID: s.id, Label: s.label(), Host: s.info.Kind}
}

// currentTurn is the traceparent of the turn that runs, or "".
func (s *Session) currentTurn() string {
	t := &s.running
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) == 0 {
		return ""
	}
	return t.list[0].span.Traceparent
}

// beginTurn begins the turn of a prompt that is about to be given to the host.
func (s *Session) beginTurn(p *Prompt) {
	if s.g.spans == nil {
		return
	}
	span := s.g.spans.Start(p.Traceparent, func() spans.Info {
		s.mu.Lock()
		model := s.model
		s.mu.Unlock()
		return spans.Turn(s.spanInfo(), p.Source, model, s.info.Spans)
	})
	p.Traceparent = span.Traceparent
	t := &s.running
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = append(t.list, runningTurn{prompt: p.ID, source: p.Source, span: span,
		begun: time.Now()})
}

// endTurns ends the turns of prompts, by id; nil means all. cutReason says why they were cut short,
// "" if they were not.
func (s *Session) endTurns(prompts []string, cutReason string) {
	t := &s.running
	t.mu.Lock()
	var ended []runningTurn
	t.list = slices.DeleteFunc(t.list, func(turn runningTurn) bool {
		isMeant := prompts == nil || slices.Contains(prompts, turn.prompt)
		if isMeant {
			ended = append(ended, turn)
		}
		return isMeant
	})
	t.mu.Unlock()
	for i := range ended {
		turn := &ended[i]
		labels := spans.Labels{Agent: s.info.Kind}
		switch {
		case cutReason != "":
			turn.failure = shorten(cutReason)
			labels.Error = spans.ErrorCutShort
		case turn.failure != "":
			labels.Error = adminapi.CodeSession
		}
		if turn.input > 0 || turn.output > 0 {
			turn.span.SetTokens(turn.input, turn.output)
		}
		turn.span.Fail(labels.Error)
		turn.span.End()
		s.g.metrics.Count(spans.InvokeAgent, labels, time.Since(turn.begun))
		s.recordTurn(turn)
	}
}

// failTurn notes an error of the session in the turn that runs.
func (s *Session) failTurn(message string) {
	t := &s.running
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) > 0 {
		t.list[0].failure = shorten(message)
	}
}

// countTokens adds the tokens of a model call to the turn that runs. It can't name the turn,
// because hosts have ids of their own for prompts.
func (s *Session) countTokens(input, output int64) {
	t := &s.running
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) > 0 {
		t.list[0].input += input
		t.list[0].output += output
	}
}

// startCall starts the span of a tool call: below that of its caller, or else of the turn if the
// host calls.
func (s *Session) startCall(c *Call) spans.Span {
	if s.g.spans == nil {
		return s.g.spans.Start(c.Traceparent, nil)
	}
	parent := spans.Checked(c.Traceparent)
	isBelowHost := parent != "" && !c.AskGates
	if parent == "" && !c.AskGates {
		parent = s.currentTurn()
	}
	return s.g.spans.Start(parent, func() spans.Info {
		provider := ""
		if to := s.routes.Load().find(c.Name); to != nil {
			provider = to.owner()
		}
		return spans.ToolCall(s.spanInfo(), c.Name, provider, isBelowHost)
	})
}

// endSpan ends the span of a call.
func (c *call) endSpan(o *Outcome) {
	if !c.span.Exported() {
		return
	}
	if c.idText != "" {
		c.span.SetCallID(c.idText)
	}
	if c.session.g.o.TraceContent {
		c.span.SetContent(content(string(c.callerArgs)), content(o.Text()))
	}
	if o.Failed() {
		c.span.Fail(string(o.ErrorCode))
	}
	c.span.End()
}

// maxContent bounds a text of content in a span, in bytes, as that of a record.
const maxContent = 64 << 10

// content is a text for a span, without secrets.
func content(text string) string { return cut(secrets.Redact(text), maxContent) }

// countCall counts a call by its tool, if there is one of that name.
func (c *call) countCall(o *Outcome) {
	l := spans.Labels{Tool: spans.Other, Error: string(o.ErrorCode)}
	if c.route != nil {
		l.Tool = c.name
	}
	c.session.g.metrics.Count(spans.ExecuteTool, l, o.Duration)
}

// startGates starts the span of asking the gates among rules about a call, below its parent or else
// the turn. Without a gate it is no span of its own.
func (s *Session) startGates(tool, parent string, rules []*rule) spans.Span {
	if parent == "" {
		parent = s.currentTurn()
	}
	if !needsGate(rules) {
		return spans.Below(parent)
	}
	return s.g.spans.Start(parent, func() spans.Info {
		var names []string
		for _, r := range rules {
			if r.Action == protocol.ActionGate {
				names = append(names, r.provider.name)
			}
		}
		return spans.Gate(s.spanInfo(), tool, names)
	})
}

// endGates ends the span of asking gates.
func endGates(span spans.Span, d Decision) {
	if !span.Exported() {
		return
	}
	decision := protocol.DecisionAllow
	if d.Deny {
		decision = protocol.DecisionDeny
	}
	span.SetDecision(decision, d.Reason)
	span.End()
}

// startPush starts the span of a push that came in, below the span that the push names.
func (s *Session) startPush(source pushSource, m *protocol.Push) spans.Span {
	return s.g.spans.Start(m.Traceparent, func() spans.Info {
		return spans.Push(s.spanInfo(), source.name, m.Stream)
	})
}

// endPush ends the span of a push, with its fate so far or its error.
func endPush(span spans.Span, r Receipt, err *protocol.Error) {
	if !span.Exported() {
		return
	}
	if err != nil {
		span.Fail(string(err.Code))
	} else {
		span.SetFate(string(r.Fate))
	}
	span.End()
}
