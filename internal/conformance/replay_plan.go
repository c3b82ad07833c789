package conformance

import (
	"fmt"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/recording"
)

// This file makes the steps of a replay from a recording.

// stepAction is the action of a step of a replay.
type stepAction int

const (
	stepSend   stepAction = iota // sends the message
	stepExpect                   // waits for the message
	stepClose                    // closes the connection
	stepClosed                   // waits for its end
)

// replayStep is one step of a replay. Those that bring a provider to its state at the beginning of
// the recording have line 1.
type replayStep struct {
	action  stepAction
	line    recording.Line
	isState bool // only the provider's offer is compared
}

// kind is the type of the step's message, as a [Finding] has it.
func (s replayStep) kind() string {
	switch {
	case s.line.Closed != nil:
		return "closed"
	case s.line.Message == nil:
		return "text"
	}
	return string(protocol.Peek(s.line.Message).Type)
}

// plan makes the steps of a provider's connections.
func (r *replayer) plan(provider string) (steps []replayStep) {
	conns := map[int]bool{}
	for _, c := range r.Recording.Start.Connections {
		if c.Provider == provider {
			conns[c.Conn] = true
			steps = append(steps, r.stateSteps(c)...)
		}
	}
	for _, l := range r.Recording.Lines {
		if l.Provider == provider && l.Conn > 0 {
			conns[l.Conn] = true
		}
	}
	for _, l := range r.Recording.Lines {
		r.report.Gap += l.Gap
		if !conns[l.Conn] {
			continue
		}
		if s, ok := r.step(l); ok {
			steps = append(steps, s)
		} else {
			r.report.Skipped++
		}
	}
	return steps
}

// step makes the step of a line. ok is false if the line can't be replayed.
func (r *replayer) step(l recording.Line) (s replayStep, ok bool) {
	s.line = l
	isOurs := l.From == r.ours
	switch {
	case l.Size > 0:
		return s, false
	case isOurs && l.Message != nil && protocol.Peek(l.Message).Type == protocol.TypeAuthConfirm:
		return s, false // the replay has a token
	case l.Closed != nil && isOurs:
		s.action = stepClose
	case l.Closed != nil:
		s.action = stepClosed
	case isOurs:
		s.action = stepSend
	default:
		s.action = stepExpect
	}
	for _, loose := range r.loose {
		if s.action == stepExpect && s.kind() == loose {
			return s, false
		}
	}
	return s, true
}

// stateSteps are the steps that bring a provider to where it was when the recording began.
func (r *replayer) stateSteps(c adminapi.RecordedConnection) (steps []replayStep) {
	session := r.Recording.Start.Session
	add := func(from, format string, args ...any) {
		l := recording.Line{Number: 1}
		l.Conn, l.Provider, l.From, l.To = c.Conn, c.Provider, from, adminapi.PartyProvider
		if from == adminapi.PartyProvider {
			l.To = adminapi.PartyGateway
		}
		l.Message = fmt.Appendf(nil, format, args...)
		if s, ok := r.step(l); ok {
			s.isState = true
			steps = append(steps, s)
		}
	}
	text := func(s string) string { return string(protocol.AppendText(nil, s)) }
	id, gateway, provider := text(session.ID), adminapi.PartyGateway, adminapi.PartyProvider
	boundTo := id
	if hello, _ := decodeReplayed(c.Hello).(object); hello["session"] == protocol.AllSessions {
		boundTo = text(protocol.AllSessions)
	}
	add(provider, `{"type":"auth","token":"<token-1>"}`)
	add(gateway, `{"type":"sessions","active":[{"id":%s,"label":%s,"cwd":%s,"foreground":true}]}`,
		id, text(session.Label), text(session.CWD))
	add(provider, "%s", c.Hello)
	add(gateway, `{"type":"hello.ack","protocolVersion":%d,"providerId":"p-replay","sessionId":%s,`+
		`"reconnectToken":"tok-replay","persistDir":"<persistDir-1>"}`, protocol.Version, boundTo)
	add(gateway, `{"type":"session.lifecycle","sessionId":%s,"state":"started"}`, id)
	if session.State == "idle" {
		add(gateway, `{"type":"session.lifecycle","sessionId":%s,"state":"idle"}`, id)
	}
	for _, call := range c.Pending {
		add(gateway, "%s", call)
	}
	return steps
}
