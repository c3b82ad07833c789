package sources

import (
	"context"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// TriedEvent is an event that a source would make, or made, with its level by the present file.
type TriedEvent struct {
	TS      time.Time `json:"ts,omitzero"`     // of an event that is in a stream
	Level   string    `json:"level,omitempty"` // that it has there
	Outcome string    `json:"outcome"`         // drop, keep, surface or inject
	Text    string    `json:"text"`
}

// NextRuns returns the next times, at most n, at which a source runs that begins now and has never
// run. They are the earliest ones: a session may be busy, and a run longer than the pause. It is
// empty if the source waits for events.
func NextRuns(s *configs.Source, now time.Time, n int) ([]time.Time, error) {
	t, err := newTiming(s)
	if err != nil || s.Kind() == "files" || s.Kind() == "webhook" {
		return nil, err
	}
	var list []time.Time
	var p progress
	for ready := now; len(list) < n; {
		due, _, _ := t.next(p, now, ready)
		if due.IsZero() {
			break
		}
		if due.Before(now) {
			due = now
		}
		list = append(list, due)
		now, t.isDue = due, false
		p.Runs++
		p.LastRunAt, p.LastDueAt = due, due
		if s.Idle && len(s.Every) == 0 {
			break
		}
	}
	return list, nil
}

// Try runs the command of a source once, or asks its URL, and returns the events that this would
// make, at most most, those that the filter drops too. Nothing is sent or kept. A source that
// compares is judged as if its last run had seen nothing, and had not failed. failure is how the
// run ended, and err says why nothing could be tried. Of o, only Provider, Dir and Env count. A
// command that has not ended with ctx is stopped, with the events so far.
func Try(ctx context.Context, o *Options, most int) (events []TriedEvent, failure, err error) {
	quiet := *o
	quiet.State, quiet.Line = "", func(string, string) {}
	s := &source{o: &quiet, set: NewSet(), config: o.Provider.Source}
	if err = s.setFilter(s.config.Filter, s.config.Level); err != nil {
		return nil, nil, err
	}
	s.try = func(text string, level protocol.Level) {
		if len(events) < most {
			events = append(events, TriedEvent{Outcome: string(level), Text: text})
		}
	}
	s.progress.Seen.Of = s.asks()
	if s.config.Kind() == "prompt" {
		s.try(s.config.Prompt, protocol.LevelInject)
		return events, nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	take := func(_ context.Context, list []origin) {
		for _, e := range list {
			s.emit(e)
		}
		if len(events) >= most {
			cancel()
		}
	}
	j := s.begin(ctx, take, func(_ *job, err error) { failure = err })
	<-j.ended
	if ctx.Err() != nil {
		failure = nil // it was stopped
	}
	if err := s.emitDifference(&j.answer, failure); failure == nil {
		failure = err
	}
	return events, failure, nil
}

// TryFilter returns how a source's filter would treat the events of its stream. Events that it
// dropped before are in no stream. Lines of a command that were pushed as one are judged one by
// one, as they were.
func TryFilter(p configs.Provider, rows []adminapi.StreamRow) ([]TriedEvent, error) {
	rules, err := compile(p.Source.Filter)
	if err != nil {
		return nil, err
	}
	events := []TriedEvent{}
	for _, row := range rows {
		if row.Event == "" {
			continue // a prompt
		}
		texts := []string{row.Event}
		if len(p.Source.Run) > 0 && p.Source.Compare == "" {
			texts = strings.Split(row.Event, "\n")
		}
		for _, text := range texts {
			level := outcome(rules, text, protocol.Level(p.Source.Level))
			events = append(events, TriedEvent{TS: row.TS, Level: row.Level, Outcome: string(level),
				Text: text})
		}
	}
	return events, nil
}
