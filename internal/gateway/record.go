package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
	"tapgw/internal/visible"
)

// Recorder keeps a record of each event: docs/records.md lists the kinds. With [Options].Recorder
// the gateway reports each thing once, when it is over; without it nothing in this file runs.
type Recorder interface {
	// Record keeps a record, or drops it; it must not block. The gateway calls it under its locks.
	Record(adminapi.Record)
	// Pushed returns the records of events that a session's streams got before, oldest first.
	Pushed(session string) []adminapi.Record
}

// record reports an event that happened in the session now.
func (s *Session) record(r adminapi.Record) {
	r.TS, r.Session = time.Now(), s.id
	s.g.o.Recorder.Record(r)
}

func (s *Session) recordState(state, reason string) {
	if s.g.o.Recorder != nil {
		s.record(adminapi.Record{Kind: adminapi.RecordSession, State: state, Label: s.label(),
			Host: s.info.Kind, CWD: s.cwd, Reason: reason})
	}
}

// in returns the record with its place in a trace.
func in(span *spans.Span, r adminapi.Record) adminapi.Record {
	r.Trace, r.Span, r.Parent = span.IDs()
	return r
}

// recordCall reports a call that ended now. It fills one record in place, because each call with
// records waits for it: [in] and [Session.record] would copy its 440 bytes twice more, and ask the
// clock again.
func (c *call) recordCall(o *Outcome, now time.Time) {
	r := adminapi.Record{TS: now, Kind: adminapi.RecordCall, Session: c.session.id, ID: c.idText,
		Tool: c.name, Outcome: adminapi.OutcomeOK, Code: string(o.ErrorCode),
		DurationMs: milliseconds(o.Duration)}
	r.Trace, r.Span, r.Parent = c.span.IDs()
	if o.Failed() {
		r.Outcome, r.Reason = adminapi.OutcomeFailed, shorten(o.Error)
	}
	if c.tool != nil {
		r.Provider = c.tool.provider.name
	}
	c.session.g.o.Recorder.Record(r)
}

// recordExecution reports an execution of a tool that the host ran itself; those of providers'
// tools are calls.
func (s *Session) recordExecution(e Event) {
	s.mu.Lock()
	run := s.runningTools[e.ID]
	s.mu.Unlock()
	tool := e.Tool
	if tool == "" {
		tool = run.tool
	}
	if tool == "" || s.routes.Load().find(tool) != nil {
		return
	}
	args := protocol.Raw(e.Args)
	if len(args) == 0 {
		args = run.args
	}
	r := adminapi.Record{Kind: adminapi.RecordCall, ID: e.ID, Tool: tool,
		Outcome: adminapi.OutcomeOK, Provider: e.Provider}
	switch {
	case e.Duration > 0:
		r.DurationMs = milliseconds(e.Duration)
	case !run.start.IsZero():
		r.DurationMs = milliseconds(time.Since(run.start))
	}
	if e.Error != nil {
		r.Outcome, r.Code, r.Reason = adminapi.OutcomeFailed, e.Error.Code, shorten(e.Error.Message)
	}
	if r.Command = s.shellCommand(tool, args); r.Command != "" {
		r.ExitCode = e.ExitCode
	}
	turn := spans.Below(s.currentTurn())
	s.record(in(&turn, r))
}

// shellCommand returns the command that a call of one of the host's own shells runs. It is "" for
// other tools, and if the arguments have a member twice: another reader may take the other one, and
// a record is evidence.
func (s *Session) shellCommand(tool string, args protocol.Raw) string {
	if !slices.Contains(s.info.Aliases["shell"], tool) {
		return ""
	}
	var shell struct {
		Command string `json:"command"`
	}
	if json.Unmarshal(args, &shell) != nil {
		return ""
	}
	return shell.Command
}

// recordTurn reports a turn that ended.
func (s *Session) recordTurn(t *runningTurn) {
	if s.g.o.Recorder == nil {
		return
	}
	r := adminapi.Record{Kind: adminapi.RecordTurn, ID: t.prompt, By: t.source,
		Outcome: adminapi.OutcomeOK, DurationMs: milliseconds(time.Since(t.begun)),
		Reason: t.failure}
	if r.Reason != "" {
		r.Outcome = adminapi.OutcomeFailed
	}
	s.record(in(&t.span, r))
}

// recordGate reports the decision of a gate, a user hook or a static denial about a call.
func (s *Session) recordGate(r *rule, c gateCall, decision, reason string, duration time.Duration) {
	record := adminapi.Record{Kind: adminapi.RecordGate, Tool: c.tool, Outcome: decision,
		By: r.owner(), Reason: shorten(reason), DurationMs: milliseconds(duration)}
	if r.hook == nil {
		record.Provider = r.provider.name
	}
	s.record(in(&c.span, record))
}

// recordPush reports an event that came. The record of an event that a filter drops has no text,
// because the session does not keep the text either.
func (s *Session) recordPush(e *pushedEvent, r Receipt, span spans.Span) {
	if s.g.o.Recorder == nil {
		return
	}
	record := adminapi.Record{Kind: adminapi.RecordPush, Provider: e.source.name,
		Stream: e.key.stream, Seq: r.Seq, Level: string(e.level), Fate: r.Fate, Reason: r.Reason}
	if e.source.kept != nil {
		record.ID, record.Gateway = e.source.kept.ID, e.source.kept.Gateway
	}
	if r.Fate != adminapi.FateDropped {
		record.Event, record.Prompt = e.push.Event, e.push.Prompt
		if e.push.Metadata.Kind() == '{' {
			record.Metadata = []byte(slices.Clone(e.push.Metadata))
		}
	}
	s.record(in(&span, record))
}

// recordWaiting reports an event that came while there was no session.
func (s *Session) recordWaiting(r *HistoryRow) {
	if s.g.o.Recorder != nil {
		s.record(adminapi.Record{Kind: adminapi.RecordPush, Provider: r.Provider, Stream: r.Stream,
			Seq: r.Seq, Level: r.Level, Fate: adminapi.FateStored, Event: r.Event,
			Metadata: r.Metadata})
	}
}

// recordingFate returns a function that also records the last fate of a queued event.
func (s *Session) recordingFate(
	e *pushedEvent, report func(Receipt), span spans.Span,
) func(Receipt) {
	if s.g.o.Recorder == nil {
		return report
	}
	return func(r Receipt) {
		s.record(in(&span, adminapi.Record{Kind: adminapi.RecordPush, Provider: e.source.name,
			Stream: e.key.stream, Seq: r.Seq, Level: string(e.level), Fate: r.Fate,
			Reason: r.Reason}))
		report(r)
	}
}

// restoreStreams gives a resumed session the events that its streams had. It is called before the
// session is known to others. The events get new numbers. An inject that waited is in its stream,
// but is not delivered any more.
func (s *Session) restoreStreams() {
	if s.g.o.Recorder == nil {
		return
	}
	n := 0
	for _, r := range s.g.o.Recorder.Pushed(s.id) {
		spelling := protocol.NormalName(r.Stream)
		if r.Event == "" && r.Prompt == "" || !protocol.ValidName(spelling) ||
			!protocol.ValidName(r.Provider) {
			continue
		}
		key := streamKey{spelling, protocol.NormalName(r.Provider)}
		_, err := s.streams.store("stream", key, spelling,
			HistoryRow{StreamRow: adminapi.StreamRow{ID: r.ID,
				Stream: key.stream, Provider: key.provider, TS: r.TS.UTC(), Event: r.Event,
				Level: r.Level, Prompt: r.Prompt, Metadata: r.Metadata}})
		if err == nil {
			n++
		}
	}
	if n > 0 {
		s.note(adminapi.LogInfo, sourceGateway,
			fmt.Sprintf("%s from before %s in the session's streams again",
				visible.Count(n, "event"), visible.IsAre(n)))
	}
}
